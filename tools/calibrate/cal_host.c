/* What the host does in which time, between requests: products, streams of memory, small ops, and
 * filling staging memory.
 * On a device with a model clock it is that clock which goes on. Not here: the device
 * (cal_device.c). */
#include <math.h>

#include "tools/calibrate/cal.h"

enum { OPS = 4096, STAGED = 1 << 20, STAGED_LESS = 1 << 18 };

typedef struct host_setup {
    fy_tensor_t *tiny, *tiny_too, *big, *big_too, *a[3], *b[3];
    fy_tensor_t *from, *from_less, *to, *to_less;
    int64_t nbytes;
} host_setup_t;

static const int64_t sizes[3] = { 256, 512, 1024 };

/* The host runs each inside the call, so there is no wait to take off. */
static fy_status_t axpys(cal_t *cal, fy_tensor_t *y, const fy_tensor_t *x, int64_t count,
                         double *out_ns)
{
    const double begin = cal_now_ns(cal);
    for (int64_t i = 0; i < count; i++) FY_TRY(fy_axpy(y, 0, x));
    *out_ns = (cal_now_ns(cal) - begin) / (double)count;
    return FY_STATUS_OK;
}

static fy_status_t probe_op(cal_t *cal, void *context, double *out)
{
    host_setup_t *s = context;
    return axpys(cal, s->tiny, s->tiny_too, OPS, out);
}

static fy_status_t probe_stream(cal_t *cal, void *context, double *out)
{
    host_setup_t *s = context;
    return axpys(cal, s->big, s->big_too, 2, out);
}

static fy_status_t product(cal_t *cal, const host_setup_t *s, int size, double *out)
{
    /* of each size, for about the same time */
    const int64_t count = (int64_t)1 << (2 * (2 - size));
    fy_tensor_t *c;
    const double begin = cal_now_ns(cal);
    for (int64_t i = 0; i < count; i++) {
        FY_TRY(fy_matmul(s->a[size], s->b[size], &c));
        fy_tensor_destroy(c);
    }
    *out = (cal_now_ns(cal) - begin) / (double)count;
    return FY_STATUS_OK;
}

static fy_status_t probe_small_product(cal_t *cal, void *s, double *out)
{
    return product(cal, s, 0, out);
}
static fy_status_t probe_product(cal_t *cal, void *s, double *out)
{
    return product(cal, s, 1, out);
}
static fy_status_t probe_large_product(cal_t *cal, void *s, double *out)
{
    return product(cal, s, 2, out);
}

/* Host time of an upload with FY_HOST_COPY into an idle ring: one staging copy, one submission. */
static fy_status_t staged(cal_t *cal, fy_tensor_t *to, const fy_tensor_t *from, double *out)
{
    FY_TRY(fy_device_wait(cal->device, FY_FOREVER));
    const double begin = cal_now_ns(cal);
    FY_TRY(fy_tensor_upload_into(to, from, NULL, NULL));
    *out = cal_now_ns(cal) - begin;
    return FY_STATUS_OK;
}

/* Time of 3/4 MiB more; the best of several, since a disturbance may be longer than the
 * measurement. */
static fy_status_t probe_staging(cal_t *cal, void *context, double *out)
{
    host_setup_t *s = context;
    double least[2] = { INFINITY, INFINITY }, ns;
    for (int i = 0; i < 8; i++) {
        FY_TRY(staged(cal, s->to_less, s->from_less, &ns));
        least[0] = fmin(least[0], ns);
        FY_TRY(staged(cal, s->to, s->from, &ns));
        least[1] = fmin(least[1], ns);
    }
    *out = least[1] - least[0];
    return FY_STATUS_OK;
}

static fy_status_t make(cal_t *cal, host_setup_t *s)
{
    fy_device_t *host = fy_device_host();
    s->nbytes = cal->most_nbytes < (int64_t)64 << 20 ? cal->most_nbytes : (int64_t)64 << 20;
    FY_TRY(fy_zeros(host, FY_DTYPE_F32, FY_DIMS(4), &s->tiny));
    FY_TRY(fy_zeros(host, FY_DTYPE_F32, FY_DIMS(4), &s->tiny_too));
    FY_TRY(fy_zeros(host, FY_DTYPE_F32, FY_DIMS(s->nbytes / 4), &s->big));
    FY_TRY(fy_zeros(host, FY_DTYPE_F32, FY_DIMS(s->nbytes / 4), &s->big_too));
    for (int i = 0; i < 3; i++) {
        FY_TRY(fy_full(host, FY_DTYPE_F32, FY_DIMS(sizes[i], sizes[i]), 0.5, &s->a[i]));
        FY_TRY(fy_full(host, FY_DTYPE_F32, FY_DIMS(sizes[i], sizes[i]), 0.25, &s->b[i]));
    }
    FY_TRY(fy_zeros(host, FY_DTYPE_U8, FY_DIMS(STAGED), &s->from));
    FY_TRY(fy_zeros(host, FY_DTYPE_U8, FY_DIMS(STAGED_LESS), &s->from_less));
    FY_TRY(fy_zeros(cal->device, FY_DTYPE_U8, FY_DIMS(STAGED), &s->to));
    return fy_zeros(cal->device, FY_DTYPE_U8, FY_DIMS(STAGED_LESS), &s->to_less);
}

static fy_status_t measure(cal_t *cal, host_setup_t *s)
{
    enum { OP, STREAM, SMALL, MIDDLE, LARGE, STAGING, COUNT };
    cal_probe_t probes[COUNT] = {
        [OP] = { .run = probe_op, .context = s },
        [STREAM] = { .run = probe_stream, .context = s },
        [SMALL] = { .run = probe_small_product, .context = s },
        [MIDDLE] = { .run = probe_product, .context = s },
        [LARGE] = { .run = probe_large_product, .context = s },
        [STAGING] = { .run = probe_staging, .context = s },
    };
    cal->what = "calibrate: host";
    FY_TRY(cal_measure(cal, probes, COUNT));
    const double stream_per_ns = 3.0 * (double)s->nbytes / probes[STREAM].value;
    const double op_ns = fmax(probes[OP].value - 48 / stream_per_ns, 0); /* of 48 bytes */
    double best = 0, spread = 0;
    int64_t size = 0;
    for (int i = 0; i < 3; i++) {
        const double n = (double)sizes[i],
                     per_s = 2 * n * n * n / cal_less(probes[SMALL + i].value, op_ns) * 1e9;
        if (!(per_s > best)) continue;
        best = per_s;
        spread = probes[SMALL + i].spread;
        size = sizes[i];
    }
    cal_note(cal, "host_flops_per_s", "flop/s", best, 1, spread,
             "f32 products of n x n, n = 256, 512, 1024, best size %lld; less host_op_ns",
             (long long)size);
    cal_note(cal, "host_bytes_per_s", "bytes/s",
             3.0 * (double)s->nbytes / cal_less(probes[STREAM].value, op_ns) * 1e9, 1,
             probes[STREAM].spread, "fy_axpy of two tensors of %lld bytes: two reads and a write",
             (long long)s->nbytes);
    cal_note(cal, "host_op_ns", "ns", op_ns, 0, probes[OP].spread,
             "fy_axpy of 4 elements, mean of %d, less their bytes", OPS);
    cal_note(cal, "host_copy_bytes_per_s", "bytes/s",
             (STAGED - STAGED_LESS) / probes[STAGING].value * 1e9, 1, probes[STAGING].spread,
             "host time of an upload of 1 MiB with FY_HOST_COPY, less that of a quarter of it, "
             "best of 8");
    return FY_STATUS_OK;
}

fy_status_t cal_host(cal_t *cal)
{
    host_setup_t s = { .nbytes = 0 };
    const fy_scope_t scope = fy_scope_begin("calibrate_host");
    fy_status_t status = make(cal, &s);
    if (status == FY_STATUS_OK) status = measure(cal, &s);
    fy_scope_end(scope, 0, NULL);
    return status;
}
