/* The bytes that the forward and the loss of a training step keep for the backward, in f32: memory
 * in use before the backward, less the memory before the forward, the logits and the loss. One line
 * a way: the model without options, cheap ops again (fy_model_options_t.recompute_cheap).
 * Usage: saved_bytes MODEL BATCH [DEVICE]: "resnet18:channels=3,classes=10,size=32" 128 (sim:0).
 * Exit 0; 1: it failed; 2: usage. Not here: PyTorch's (saved_bytes_torch.py). */
#include <ferry/ferry.h>
#include <ferry/train/train.h>

#include <stdio.h>
#include <stdlib.h>

static fy_status_t live(fy_device_t *device, uint64_t *out_nbytes)
{
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    FY_TRY(fy_memory_query(device, NULL, &stats));
    *out_nbytes = stats.live;
    return FY_STATUS_OK;
}

static fy_status_t measure(fy_device_t *device, const char *name, int64_t batch, int is_cheap,
                           uint64_t *out_nbytes)
{
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    int64_t dims[FY_MAX_RANK] = { batch };
    int rank;
    uint64_t before, after;
    fy_model_t *model;
    fy_tape_t *tape;
    fy_tensor_t *x, *y, *logits, *loss;
    options.recompute_cheap = is_cheap;
    FY_TRY(fy_model_sample_shape(name, &rank, dims + 1));
    FY_TRY(fy_model_open(device, name, &options, &model));
    FY_TRY(fy_full(device, FY_DTYPE_F32, rank + 1, dims, 1, &x));
    FY_TRY(fy_zeros(device, FY_DTYPE_I64, FY_DIMS(batch), &y));
    FY_TRY(fy_tape_create(&tape));
    FY_TRY(fy_model_watch(model, tape));
    FY_TRY(live(device, &before));
    FY_TRY(fy_tape_begin(tape));
    FY_TRY(fy_model_forward(model, x, &logits));
    FY_TRY(fy_cross_entropy(logits, y, FY_REDUCTION_MEAN, &loss));
    fy_tensor_destroy(logits); /* the tape holds it if it needs it */
    FY_TRY(live(device, &after));
    *out_nbytes = after - before;
    FY_TRY(fy_model_backward(model, tape, loss, NULL));
    fy_model_destroy(model);
    return FY_STATUS_OK;
}

int main(int argc, char **argv)
{
    static const char *const ways[] = { "plain", "cheap" };
    fy_device_t *device = NULL;
    if (argc < 3 || atoll(argv[2]) < 1) {
        fprintf(stderr, "usage: saved_bytes MODEL BATCH [DEVICE]\n");
        return 2;
    }
    const fy_scope_t scope = fy_scope_begin("saved_bytes");
    fy_status_t status = fy_device_open(argc > 3 ? argv[3] : "sim:0?numerics=off", &device);
    for (int way = 0; status == FY_STATUS_OK && way < 2; way++) {
        uint64_t nbytes;
        const fy_scope_t one = fy_scope_begin("one");
        status = measure(device, argv[1], atoll(argv[2]), way, &nbytes);
        fy_scope_end(one, 0, NULL);
        if (status == FY_STATUS_OK) printf("%s %llu\n", ways[way], (unsigned long long)nbytes);
    }
    if (status != FY_STATUS_OK) fprintf(stderr, "saved_bytes: %s\n", fy_error_get()->text);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    return status != FY_STATUS_OK;
}
