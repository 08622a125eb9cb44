/* A native application that survives OUT_OF_MEMORY. It scores many samples with a small network on
 * a device with little memory: it starts with all samples at once. When a batch does not fit, it
 * reads the reason, halves the batch and continues where it was. A failed call has changed nothing
 * and a scope frees the tensors of the failed batch, so there is nothing to repair. A program that
 * knows its step before it has a device gets the batch from fy_plan_fit; one that shares the device
 * needs both.
 * Usage: 05_out_of_memory [device], by default sim:0, of which it takes 24 MiB. Next:
 * docs/memory.md. */
#include <ferry/ferry.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "example.h"

enum { SAMPLES = 6000, FEATURES = 64, HIDDEN = 1024 };

typedef struct app {
    fy_device_t *device;
    fy_tensor_t *samples; /* [samples, features], the application's own memory */
    fy_tensor_t *w1, *w2; /* [features, hidden], [hidden, 1], on the device */
    fy_tensor_t *total;   /* [], on the device: the sum of all scores so far */
    int64_t batch, done;  /* samples at a time; samples scored */
    int batches, halvings;
} app_t;

static fy_status_t prepare(app_t *app, float *bytes)
{
    fy_tensor_t *rng;
    for (int i = 0; i < SAMPLES * FEATURES; i++) bytes[i] = (float)(i % 17) / 16.0f - 0.5f;
    FY_TRY(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(SAMPLES, FEATURES), bytes, NULL,
                          NULL, &app->samples));
    FY_TRY(fy_rng_create(app->device, 1, &rng));
    FY_TRY(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(FEATURES, HIDDEN), 0, 0.1, &app->w1));
    FY_TRY(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(HIDDEN, 1), 0, 0.1, &app->w2));
    return fy_zeros(app->device, FY_DTYPE_F32, 0, NULL, &app->total);
}

/* Scores `rows` samples from `begin` on. The last request is the only one that changes anything
 * that outlives the scope. */
static fy_status_t score(app_t *app, int64_t begin, int64_t rows)
{
    fy_tensor_t *host, *x, *h, *s, *sum;
    FY_TRY(fy_slice(app->samples, 0, begin, begin + rows, &host));
    FY_TRY(fy_tensor_upload(host, app->device, NULL, &x));
    FY_TRY(fy_matmul(x, app->w1, &h)); /* rows x 4 KiB: what does not fit */
    FY_TRY(fy_relu(h, &h));
    FY_TRY(fy_matmul(h, app->w2, &s));
    FY_TRY(fy_sum(s, FY_ALL_AXES, 0, &sum));
    return fy_axpy(app->total, 1, sum);
}

/* Why, in the application's own words: the verdict is a struct as well as a text. */
static void explain(const app_t *app, const fy_oom_verdict_t *oom)
{
    printf("  %5" PRId64 " samples do not fit: asked for %" PRIu64 " bytes, %" PRIu64 " of %" PRIu64
           " are live",
           app->batch, oom->asked, oom->live, oom->limit);
    if (oom->top[0].live)
        printf(", most of them (%" PRIu64 ") in \"%s\"", oom->top[0].live, oom->top[0].path);
    printf("\n");
}

static fy_status_t score_all(app_t *app)
{
    while (app->done < SAMPLES) {
        const int64_t rows = app->batch < SAMPLES - app->done ? app->batch : SAMPLES - app->done;
        fy_scope_t scope = fy_scope_begin("batch");
        const fy_status_t status = score(app, app->done, rows);
        fy_scope_end(scope, 0, NULL); /* frees its tensors, also after a failure */
        if (status == FY_STATUS_OK) {
            app->done += rows;
            app->batches++;
        } else if (status == FY_STATUS_OUT_OF_MEMORY && app->batch > 1) {
            if (fy_error_get()->oom) explain(app, fy_error_get()->oom);
            app->batch /= 2;
            app->halvings++;
        } else {
            return status;
        }
    }
    return FY_STATUS_OK;
}

static fy_status_t serve(fy_device_t *device, float *bytes)
{
    app_t app = { .device = device, .batch = SAMPLES };
    fy_memory_stats_t memory = FY_MEMORY_STATS_INIT;
    fy_download_t *download;
    double total;
    FY_TRY(prepare(&app, bytes));
    FY_TRY(score_all(&app));
    FY_TRY(fy_tensor_download(app.total, NULL, &download));
    FY_TRY(fy_download_wait_f64(download, FY_FOREVER, &total));
    FY_TRY(fy_memory_query(device, NULL, &memory));
    printf("%" PRId64 " samples in %d batches of at most %" PRId64
           ", after %d halvings; mean score %.5f\n",
           app.done, app.batches, app.batch, app.halvings, total / SAMPLES);
    printf("memory: peak %" PRIu64 " bytes in tensors, %" PRIu64 " reserved\n", memory.peak_live,
           memory.peak_reserved);
    if (isnan(total))
        return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "the scores are no numbers");
    return FY_STATUS_OK;
}

static fy_status_t run(const char *device_name)
{
    fy_device_t *device;
    char spec[96];
    /* A small limit, so that memory runs out. The host has no limit: there everything fits at
     * once. */
    const int is_plain = !strchr(device_name, '?') && strcmp(device_name, "host") != 0;
    snprintf(spec, sizeof spec, "%s%s", device_name, is_plain ? "?limit=24MiB" : "");
    FY_TRY(fy_device_open(spec, &device));
    float *bytes = malloc(sizeof *bytes * SAMPLES * FEATURES);
    fy_scope_t scope = fy_scope_begin("score");
    fy_status_t status = bytes ? serve(device, bytes)
                               : fy_error_set(FY_STATUS_OUT_OF_MEMORY, __FILE__, __LINE__,
                                              "no memory for the samples");
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    free(bytes);
    return status;
}

int main(int argc, char **argv)
{
    return example_finish(argv[0], run(argc > 1 ? argv[1] : "sim:0"));
}
