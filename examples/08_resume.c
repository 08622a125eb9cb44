/* A training that stops and goes on as if it had not: the parameters, the optimizer's state,
 * dropout's random numbers, the order of the data and the schedule all come back, so the result has
 * the same bits. The process could have been killed at any moment: the folder always has a whole
 * checkpoint. Usage: 08_resume [device], by default sim:0. Next: docs/training.md. */
#include <ferry/train/train.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "example.h"

enum { SAMPLES = 640, BATCH = 32, STEPS = 30, STOP = 13 };

typedef struct run {
    fy_model_t *model;
    fy_optimizer_t *optimizer;
    fy_loader_t *loader;
    fy_tape_t *tape;
    fy_schedule_t schedule;
    fy_progress_t at; /* where the training stands */
} run_t;

static fy_status_t begin(fy_device_t *device, const fy_dataset_t *digits, int64_t seed, run_t *run)
{
    fy_model_options_t model_options = FY_MODEL_OPTIONS_INIT;
    fy_loader_options_t loader_options = FY_LOADER_OPTIONS_INIT;
    fy_optimizer_options_t adam;
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    *run = (run_t){ .at = FY_PROGRESS_INIT };
    run->at.seed = 7;
    model_options.seed = seed;
    loader_options.batch = BATCH;
    loader_options.seed = run->at.seed;
    loader_options.scale = 1.0 / 255;
    fy_schedule_defaults(FY_SCHEDULE_ONE_CYCLE, 0.005, STEPS, &run->schedule, sizeof run->schedule);
    fy_optimizer_defaults(FY_OPTIMIZER_ADAM, &adam, sizeof adam);
    FY_TRY(fy_model_open(device, "mnist2018", &model_options, &run->model)); /* has dropout */
    FY_TRY(fy_model_query(run->model, &info));
    FY_TRY(fy_optimizer_create(&adam, 1, &info.values, &info.grads, &run->optimizer));
    FY_TRY(fy_loader_create(device, digits, &loader_options, &run->loader));
    FY_TRY(fy_tape_create(&run->tape));
    return fy_model_watch(run->model, run->tape);
}

static void end(run_t *run)
{
    fy_loader_destroy(run->loader);
    fy_tape_destroy(run->tape);
    fy_optimizer_destroy(run->optimizer);
    fy_model_destroy(run->model);
}

/* Trains up to step `until`: light requests only. */
static fy_status_t train(run_t *run, int64_t until)
{
    FY_TRY(fy_loader_seek(run->loader, run->at.epoch, run->at.epoch_step));
    while (run->at.step < until) {
        fy_tensor_t *x, *y, *log_probs, *loss;
        const fy_scope_t scope = fy_scope_begin("step");
        FY_TRY(fy_loader_next(run->loader, &x, &y));
        if (x) {
            FY_TRY(
                fy_optimizer_set_lr(run->optimizer, fy_schedule_lr(&run->schedule, run->at.step)));
            FY_TRY(fy_tape_begin(run->tape));
            FY_TRY(fy_model_forward(run->model, x, &log_probs));
            FY_TRY(fy_nll_loss(log_probs, y, FY_REDUCTION_MEAN, &loss));
            FY_TRY(fy_model_backward(run->model, run->tape, loss, NULL));
            FY_TRY(fy_optimizer_step(run->optimizer));
            run->at.step++;
            run->at.epoch_step++;
        } else { /* the epoch is over */
            run->at.epoch++;
            run->at.epoch_step = 0;
        }
        fy_scope_end(scope, 0, NULL);
    }
    return FY_STATUS_OK;
}

static fy_status_t parameters(const run_t *run, char **out_bytes, uint64_t *out_nbytes)
{
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    fy_tensor_info_t facts = FY_TENSOR_INFO_INIT;
    fy_download_t *download;
    fy_tensor_t *host;
    void *data;
    FY_TRY(fy_model_query(run->model, &info));
    FY_TRY(fy_tensor_download(info.values, NULL, &download));
    FY_TRY(fy_download_wait(download, FY_FOREVER, &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_READ, &data));
    FY_TRY(fy_tensor_query(host, &facts));
    *out_nbytes = facts.nbytes;
    *out_bytes = malloc(facts.nbytes);
    if (*out_bytes) memcpy(*out_bytes, data, facts.nbytes);
    fy_tensor_destroy(host);
    return *out_bytes ? FY_STATUS_OK
                      : fy_error_set(FY_STATUS_OUT_OF_MEMORY, __FILE__, __LINE__,
                                     "no memory for the parameters");
}

static fy_status_t whole(fy_device_t *device, const fy_dataset_t *digits, char **out_bytes,
                         uint64_t *out_nbytes)
{
    run_t run;
    fy_status_t status = begin(device, digits, 1, &run);
    if (status == FY_STATUS_OK) status = train(&run, STEPS);
    if (status == FY_STATUS_OK) status = parameters(&run, out_bytes, out_nbytes);
    end(&run);
    return status;
}

static fy_status_t first_part(fy_device_t *device, const fy_dataset_t *digits, const char *folder)
{
    run_t run;
    fy_status_t status = begin(device, digits, 1, &run);
    if (status == FY_STATUS_OK) status = train(&run, STOP);
    if (status == FY_STATUS_OK)
        status = fy_checkpoint_save(folder, run.model, run.optimizer, &run.at, 3);
    if (status == FY_STATUS_OK) printf("stopped after step %d of %d\n", STOP, STEPS);
    end(&run);
    return status;
}

/* As another process would: other first values, everything else from the file. */
static fy_status_t second_part(fy_device_t *device, const fy_dataset_t *digits, const char *folder,
                               char **out_bytes, uint64_t *out_nbytes)
{
    run_t run;
    fy_status_t status = begin(device, digits, 99, &run);
    if (status == FY_STATUS_OK)
        status = fy_checkpoint_load(folder, run.model, run.optimizer, &run.at);
    if (status == FY_STATUS_OK)
        printf("went on from step %lld, batch %lld of epoch %lld\n", (long long)run.at.step,
               (long long)run.at.epoch_step, (long long)run.at.epoch);
    if (status == FY_STATUS_OK) status = train(&run, STEPS);
    if (status == FY_STATUS_OK) status = parameters(&run, out_bytes, out_nbytes);
    end(&run);
    return status;
}

static fy_status_t compare(fy_device_t *device, const fy_dataset_t *digits, const char *folder)
{
    char *once = NULL, *resumed = NULL;
    uint64_t nbytes = 0, resumed_nbytes = 0;
    fy_status_t status = whole(device, digits, &once, &nbytes);
    if (status == FY_STATUS_OK) status = first_part(device, digits, folder);
    if (status == FY_STATUS_OK)
        status = second_part(device, digits, folder, &resumed, &resumed_nbytes);
    if (status == FY_STATUS_OK && (nbytes != resumed_nbytes || memcmp(once, resumed, nbytes) != 0))
        status = fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "the parameters differ");
    if (status == FY_STATUS_OK)
        printf("%llu bytes of parameters, the same bits as without a stop\n",
               (unsigned long long)nbytes);
    free(once);
    free(resumed);
    return status;
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/ferry-resume-XXXXXX", file[64];
    fy_device_t *device = NULL;
    fy_dataset_t *digits = NULL;
    if (!mkdtemp(folder)) {
        perror(folder);
        return 1;
    }
    const fy_scope_t scope = fy_scope_begin("resume");
    fy_status_t status = fy_device_open(argc > 1 ? argv[1] : "sim:0", &device);
    if (status == FY_STATUS_OK) status = fy_dataset_synthetic_digits(SAMPLES, 1, &digits);
    if (status == FY_STATUS_OK) status = compare(device, digits, folder);
    const int exit_status = example_finish("08_resume", status);
    fy_scope_end(scope, 0, NULL);
    fy_dataset_destroy(digits);
    fy_device_close(device);
    snprintf(file, sizeof file, "%s/step-%08d.safetensors", folder, STOP);
    unlink(file);
    rmdir(folder);
    return exit_status;
}
