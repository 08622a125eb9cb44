/* Loaders on a simulated device whose N-th allocation, pinned block, event, copy or launch fails,
 * for every N. The failure is reported, arriving batches are right bit for bit, a loader continues
 * after a failure, and nothing leaks. Not here: loaders without failures (test_loader.c). */
#include <unistd.h>

#include <ferry/train/train.h>

#include "tests/support/harness.h"

enum { N = 13, WIDTH = 3, BATCH = 4, STEPS = 4, ROUNDS = 2 * STEPS };

static fy_dataset_t *make_set(void)
{
    unsigned char data[N * WIDTH];
    int32_t labels[N];
    fy_dataset_t *dataset;
    const fy_dataset_info_t info = { sizeof info, N, 1, { WIDTH }, FY_DTYPE_U8, .classes = N };
    for (int i = 0; i < N * WIDTH; i++) data[i] = (unsigned char)(i * 5);
    for (int i = 0; i < N; i++) labels[i] = i;
    ts_ok(fy_dataset_create(&info, data, labels, &dataset));
    return dataset;
}

typedef struct tally {
    int refused, came, wrong;
} tally_t;

/* The label contains the expected sample. A read can fail too, with the fault that poisoned the
 * bytes. */
static void look(tally_t *tally, fy_tensor_t *x, fy_tensor_t *y)
{
    fy_download_t *download;
    fy_tensor_t *host_x = NULL, *host_y = NULL;
    float *values;
    int32_t *labels;
    if (fy_tensor_download(x, NULL, &download) != FY_STATUS_OK ||
        fy_download_wait(download, FY_FOREVER, &host_x) != FY_STATUS_OK ||
        fy_tensor_download(y, NULL, &download) != FY_STATUS_OK ||
        fy_download_wait(download, FY_FOREVER, &host_y) != FY_STATUS_OK) {
        tally->refused++;
        return;
    }
    tally->came++;
    ts_ok(fy_tensor_map(host_x, FY_ACCESS_READ, (void **)&values));
    ts_ok(fy_tensor_map(host_y, FY_ACCESS_READ, (void **)&labels));
    for (int64_t i = 0; i < ts_info(host_y).dims[0]; i++)
        for (int c = 0; c < WIDTH; c++)
            tally->wrong += values[i * WIDTH + c] !=
                            (float)(unsigned char)((labels[i] * WIDTH + c) * 5) * 2;
}

/* Two epochs. */
static void run(fy_device_t *device, const fy_loader_options_t *options, tally_t *tally)
{
    fy_dataset_t *dataset = make_set();
    fy_loader_t *loader = (fy_loader_t *)options;
    fy_tensor_t *x, *y;
    fy_status_t status = fy_loader_create(device, dataset, options, &loader);
    fy_dataset_destroy(dataset);
    if (status != FY_STATUS_OK) {
        assert_null(loader);
        assert_true(fy_error_get()->text[0]);
        tally->refused++;
        return;
    }
    for (int i = 0, ends = 0; ends < 2 && i < 4 * ROUNDS; i++) {
        fy_scope_t scope = fy_scope_begin("step");
        status = fy_loader_next(loader, &x, &y);
        if (status != FY_STATUS_OK) {
            tally->refused++;
            assert_null(x);
            assert_null(y);
        } else if (x) {
            look(tally, x, y);
        } else {
            ends++;
        }
        fy_scope_end(scope, 0, NULL);
    }
    fy_loader_destroy(loader);
}

static const struct {
    const char *item;
    /* every one from the N-th on: Ferry requests memory again, so a single refusal can be
     * absorbed */
    int lasts;
} kinds[] = {
    { "alloc@%d*", 1 }, { "pin@%d*", 1 }, { "event@%d", 0 }, { "copy@%d", 0 }, { "launch@%d", 0 }
};
static const struct {
    int resident, workers;
} ways[] = { { 1, 0 }, { 0, 0 }, { 0, 1 }, { 0, 3 } };

/* Runs two loaders one after the other on a device with this script. Returns the number of
 * failures, or -1 if the device could not be opened. */
static int run_script(const char *script, size_t way, int lasts)
{
    fy_device_t *device = NULL;
    tally_t tally = { 0 }, again = { 0 };
    fy_loader_options_t options = FY_LOADER_OPTIONS_INIT;
    options.batch = BATCH;
    options.resident = ways[way].resident;
    options.workers = ways[way].workers;
    options.scale = 2;
    if (fy_device_open(script, &device) != FY_STATUS_OK) return -1;
    run(device, &options, &tally);
    run(device, &options, &again);
    if (tally.wrong || again.wrong)
        fail_msg("%s, way %zu: %d and %d wrong values", script, way, tally.wrong, again.wrong);
    if (!lasts && tally.refused && (again.refused || again.came != ROUNDS))
        fail_msg("%s, way %zu: refused again: %s", script, way, fy_error_get()->text);
    if (!tally.refused && tally.came != ROUNDS)
        fail_msg("%s, way %zu: %d batches, not %d", script, way, tally.came, ROUNDS);
    (void)!fy_device_wait(device, FY_FOREVER); /* reports a failure that was not reported yet */
    assert_int_equal(ts_live(device), 0);
    fy_device_close(device);
    return tally.refused + again.refused;
}

TS_DEVICE_TEST(every_failing_call_is_reported)
{
    if (!ctx->is_sim) return; /* only sim has a script */
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            int met = 0, unmet = 0;
            for (int n = 1; unmet < 8 && n < 200; n++) { /* until no run reaches the N-th */
                char script[64] = "sim:1?faults=";
                snprintf(script + strlen(script), sizeof script - strlen(script), kinds[k].item, n);
                const int failed = run_script(script, w, kinds[k].lasts);
                if (failed > 0) met++;
                unmet = failed ? 0 : unmet + 1;
            }
            if (!met && strcmp(kinds[k].item, "event@%d") != 0)
                fail_msg("%s: way %zu met no fault", kinds[k].item, w);
        }
}

/* Whatever was in flight, a loader of a lost device reports the loss: it does not search for the
 * batch again and again. */
TS_DEVICE_TEST(a_lost_device_is_reported)
{
    if (!ctx->is_sim) return;
    alarm(240);
    for (int n = 1; n < 24; n++)
        for (size_t w = 1; w < sizeof ways / sizeof *ways; w++) {
            char script[64];
            fy_device_t *device;
            fy_loader_t *loader;
            fy_tensor_t *x, *y;
            fy_loader_options_t options = FY_LOADER_OPTIONS_INIT;
            options.batch = BATCH;
            options.resident = 0;
            options.workers = ways[w].workers;
            snprintf(script, sizeof script, "sim:1?faults=lost@%d", n);
            ts_ok(fy_device_open(script, &device));
            fy_dataset_t *dataset = make_set();
            fy_status_t status = fy_loader_create(device, dataset, &options, &loader);
            fy_dataset_destroy(dataset);
            if (status != FY_STATUS_OK) { /* failed before the loader existed */
                assert_int_equal(status, FY_STATUS_DEVICE_LOST);
                fy_device_close(device);
                continue;
            }
            fy_scope_t scope = fy_scope_begin("steps");
            for (int i = 0; i < 100 && status == FY_STATUS_OK; i++) {
                ts_ok(fy_loader_seek(loader, i, i % 3));
                for (int k = 0; k < 2 && status == FY_STATUS_OK; k++)
                    status = fy_loader_next(loader, &x, &y);
            }
            for (int i = 0; i < 5; i++) {
                assert_int_equal(status, FY_STATUS_DEVICE_LOST);
                ts_ok(fy_loader_seek(loader, 0, i % STEPS));
                status = fy_loader_next(loader, &x, &y);
            }
            fy_scope_end(scope, 0, NULL);
            fy_loader_destroy(loader);
            fy_device_close(device);
        }
    alarm(0);
}
