/* Row 6 of `ferry experiment speedups`: convolutions of the host by the fixed rule, and by the
 * times of their first calls. It runs on the host whatever the device is, and leaves the host with
 * autotune=off.
 * Not here: the table of rows (exp_speedups.c), the choice (backends/kernels/conv_tune.c). */
#include <stdlib.h>
#include <string.h>

#include "tools/experiments/exp_speedups.h"

enum { BATCH = 8, SIZE = 14, CHANNELS = 64, FIRST = 24, CALLS = 20 };

static fy_status_t set_autotune(const char *spec)
{
    fy_device_t *host;
    FY_TRY(fy_device_open(spec, &host));
    fy_device_close(host);
    return FY_STATUS_OK;
}

/* "3 shapes, 24 calls timed": the 24. */
static void read_timed(void *user, const char *key, const char *value)
{
    const char *comma = strcmp(key, "tuned_convolutions") == 0 ? strchr(value, ',') : NULL;
    if (comma) *(uint64_t *)user = strtoull(comma + 1, NULL, 10);
}

static fy_status_t count_timed(uint64_t *out_timed)
{
    *out_timed = 0;
    return fy_device_describe(fy_device_host(), read_timed, out_timed);
}

/* The wall time of a call after the first ones, and its result. */
static fy_status_t convolve(const fy_tensor_t *x, const fy_tensor_t *w, double *out_ns,
                            uint64_t *out_first, float **out_values, uint64_t *out_count)
{
    fy_conv2d_attrs_t attrs = FY_CONV2D_ATTRS_INIT;
    fy_tensor_t *y = NULL;
    double begin = 0;
    attrs.padding_h = attrs.padding_w = 1;
    for (int i = 0; i < FIRST + CALLS; i++) {
        if (i == FIRST) FY_TRY(count_timed(out_first));
        if (i == FIRST) begin = wall_ns();
        fy_tensor_destroy(y);
        FY_TRY(fy_conv2d(x, w, NULL, &attrs, &y));
    }
    *out_ns = (wall_ns() - begin) / CALLS;
    return fetch_f32(y, out_values, out_count);
}

static fy_status_t compare(speedup_t *out, float **fixed, float **tuned)
{
    fy_tensor_t *rng, *x, *w;
    uint64_t count = 0, before, first, after;
    FY_TRY(fy_rng_create(fy_device_host(), 4, &rng));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(BATCH, SIZE, SIZE, CHANNELS), -1, 1, &x));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(CHANNELS, 3, 3, CHANNELS), -1, 1, &w));
    FY_TRY(convolve(x, w, &out->without, &before, fixed, &count));
    FY_TRY(set_autotune("host?autotune=on"));
    FY_TRY(convolve(x, w, &out->with, &first, tuned, &count));
    FY_TRY(count_timed(&after));
    const double distance = relative_distance(*fixed, *tuned, count);
    out->ok = first > before && after == first && distance <= 1e-5;
    snprintf(out->held, sizeof out->held,
             "%llu of the first %d calls were timed, then none; the same result to %.0e",
             (unsigned long long)(first - before), FIRST, distance);
    return FY_STATUS_OK;
}

fy_status_t speedup_autotune(session_t *session, speedup_t *out)
{
    float *fixed = NULL, *tuned = NULL;
    (void)session;
    FY_TRY(set_autotune("host?autotune=off"));
    fy_status_t status = compare(out, &fixed, &tuned);
    const fy_status_t ended = set_autotune("host?autotune=off");
    free(fixed);
    free(tuned);
    return status == FY_STATUS_OK ? ended : status;
}
