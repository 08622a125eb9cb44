/* Trains a GPT of 4 layers, 4 heads, width 256 and context 128 on the bytes of a text, on the host,
 * and writes what PyTorch needs to repeat it: FOLDER/first.safetensors has the first weights,
 * FOLDER/run.safetensors the tokens x and y, I32 [steps, batch, 128], and the loss of every step,
 * F32 [steps], before its update. AdamW with PyTorch's defaults, lr 0.001, constant.
 * Usage: text_loss TEXT FOLDER [STEPS [BATCH]]: at most one epoch (all of it), sequences (16).
 * Exit 0; 1: it failed; 2: usage. Not here: PyTorch's run (text_loss_torch.py). */
#include <ferry/ferry.h>
#include <ferry/train/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "gpt:layers=4,heads=4,width=256,context=128,vocab=256"
enum { CONTEXT = 128, MOST_TENSORS = 64 };

typedef struct run {
    fy_model_t *model;
    fy_optimizer_t *optimizer;
    fy_tape_t *tape;
    fy_loader_t *loader;
    fy_tensor_t *x, *y, *losses; /* of all steps, on the host */
    int64_t steps, batch;
} run_t;

static fy_status_t write_weights(const run_t *run, const char *folder)
{
    fy_safetensors_entry_t entries[MOST_TENSORS];
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    char path[4096];
    size_t count = 0;
    FY_TRY(fy_model_query(run->model, &info));
    for (; count < info.nparams && count < MOST_TENSORS; count++) {
        fy_param_t param = FY_PARAM_INIT;
        FY_TRY(fy_model_param(run->model, count, &param));
        entries[count] = (fy_safetensors_entry_t){ param.name, param.value };
    }
    snprintf(path, sizeof path, "%s/first.safetensors", folder);
    return fy_safetensors_write(path, count, entries, 0, NULL);
}

static fy_status_t write_run(const run_t *run, const char *folder)
{
    const fy_safetensors_entry_t entries[] = { { "x", run->x },
                                               { "y", run->y },
                                               { "loss", run->losses } };
    char path[4096];
    snprintf(path, sizeof path, "%s/run.safetensors", folder);
    return fy_safetensors_write(path, 3, entries, 0, NULL);
}

/* Copies a batch, or a loss, to its place among those of all steps. */
static fy_status_t keep(fy_tensor_t *all, int64_t step, fy_tensor_t *one)
{
    fy_tensor_t *place;
    FY_TRY(fy_slice(all, 0, step, step + 1, &place));
    FY_TRY(fy_squeeze(place, 0, &place));
    return fy_copy(place, one);
}

static fy_status_t step(const run_t *run, int64_t number)
{
    fy_tensor_t *x, *y, *logits, *loss;
    FY_TRY(fy_loader_next(run->loader, &x, &y));
    FY_TRY(keep(run->x, number, x));
    FY_TRY(keep(run->y, number, y));
    FY_TRY(fy_tape_begin(run->tape));
    FY_TRY(fy_model_forward(run->model, x, &logits));
    FY_TRY(fy_cross_entropy(logits, y, FY_REDUCTION_MEAN, &loss));
    FY_TRY(fy_model_backward(run->model, run->tape, loss, NULL));
    FY_TRY(fy_optimizer_step(run->optimizer));
    return keep(run->losses, number, loss);
}

static fy_status_t open_all(run_t *run, const char *text)
{
    fy_device_t *host = fy_device_host();
    fy_dataset_t *dataset;
    fy_loader_info_t info = FY_LOADER_INFO_INIT;
    fy_model_info_t model = FY_MODEL_INFO_INIT;
    fy_optimizer_options_t adamw;
    fy_loader_options_t options = FY_LOADER_OPTIONS_INIT;
    options.batch = run->batch;
    options.drop_last = 1;
    FY_TRY(fy_dataset_read_text(text, CONTEXT, NULL, &dataset));
    const fy_status_t status = fy_loader_create(host, dataset, &options, &run->loader);
    fy_dataset_destroy(dataset);
    FY_TRY(status);
    FY_TRY(fy_loader_query(run->loader, &info));
    if (!run->steps || run->steps > info.steps) run->steps = info.steps;
    FY_TRY(fy_zeros(host, FY_DTYPE_I32, FY_DIMS(run->steps, run->batch, CONTEXT), &run->x));
    FY_TRY(fy_zeros(host, FY_DTYPE_I32, FY_DIMS(run->steps, run->batch, CONTEXT), &run->y));
    FY_TRY(fy_zeros(host, FY_DTYPE_F32, FY_DIMS(run->steps), &run->losses));
    FY_TRY(fy_model_open(host, MODEL, NULL, &run->model));
    FY_TRY(fy_model_query(run->model, &model));
    fy_optimizer_defaults(FY_OPTIMIZER_ADAMW, &adamw, sizeof adamw);
    FY_TRY(fy_optimizer_create(&adamw, 1, &model.values, &model.grads, &run->optimizer));
    FY_TRY(fy_tape_create(&run->tape));
    return fy_model_watch(run->model, run->tape);
}

static fy_status_t train(run_t *run, const char *text, const char *folder)
{
    FY_TRY(open_all(run, text));
    FY_TRY(write_weights(run, folder));
    for (int64_t i = 0; i < run->steps; i++) {
        const fy_scope_t scope = fy_scope_begin("step");
        FY_TRY(step(run, i));
        fy_scope_end(scope, 0, NULL);
    }
    return write_run(run, folder);
}

int main(int argc, char **argv)
{
    run_t run = { .steps = argc > 3 ? atoll(argv[3]) : 0, .batch = argc > 4 ? atoll(argv[4]) : 16 };
    if (argc < 3 || argc > 5 || run.steps < 0 || run.batch < 1) {
        fprintf(stderr, "usage: text_loss TEXT FOLDER [STEPS [BATCH]]\n");
        return 2;
    }
    const fy_scope_t scope = fy_scope_begin("text");
    const fy_status_t status = train(&run, argv[1], argv[2]);
    if (status != FY_STATUS_OK) fprintf(stderr, "text_loss: %s\n", fy_error_get()->text);
    fy_optimizer_destroy(run.optimizer);
    fy_loader_destroy(run.loader);
    fy_model_destroy(run.model);
    fy_scope_end(scope, 0, NULL);
    return status != FY_STATUS_OK;
}
