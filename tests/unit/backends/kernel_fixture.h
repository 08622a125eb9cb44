/* For the kernel tests of this folder: a host API that records its calls, tensors with any strides
 * and guard words around their bytes, and element access in f64. Kernels are called directly,
 * without the dispatcher: this file establishes the dispatcher's guarantees (backend.h, op.h). */
#ifndef FERRY_TESTS_KERNEL_FIXTURE_H_
#define FERRY_TESTS_KERNEL_FIXTURE_H_

#include <math.h>

#include "opset/formulas/cast.h"
#include "opset/formulas/index.h"
#include "backends/kernels/kernels.h"
#include "backends/kernels/loops.h"
#include "runtime/base/c_locale.h"
#include "tests/support/harness.h"
#include "tests/support/oracle.h"

#define UNUSED          __attribute__((unused))
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- the host api ---- */

static fy_status_t last_failure UNUSED;
static char last_text[512] UNUSED;
static uint64_t recorded_nbytes[4] UNUSED;

static UNUSED fy_status_t api_fail(fy_status_t status, const char *file, int line,
                                   const char *format, ...)
{
    va_list args;
    (void)file;
    (void)line;
    va_start(args, format);
    (void)fy__vsnprintf(last_text, sizeof last_text, format, args);
    va_end(args);
    last_failure = status;
    return status;
}
static UNUSED void api_log(fy_log_level_t level, const char *format, ...)
{
    (void)level;
    (void)format;
}
static UNUSED void api_record(fy_copy_kind_t kind, uint64_t nbytes)
{
    recorded_nbytes[kind] += nbytes;
}

static UNUSED const fy_host_api_t api = { sizeof(fy_host_api_t), FY_BACKEND_ABI, api_fail, api_log,
                                          api_record };

/* ---- tensors ---- */

enum { GUARD = 64 }; /* bytes of 0xA5 before and after */

typedef struct tensor {
    fy_desc_t desc;
    unsigned char *block;
    size_t nbytes; /* between the guards */
} tensor_t;

static UNUSED size_t size_of(int32_t dtype)
{
    static const size_t size[FY_DTYPE_COUNT] = { 4, 8, 2, 2, 4, 8, 1, 1 };
    return size[dtype];
}

static UNUSED int64_t count_of(const fy_desc_t *desc)
{
    int64_t n = 1;
    for (int i = 0; i < desc->rank; i++) n *= desc->dims[i];
    return n;
}

/* strides NULL: dense. */
static UNUSED tensor_t make(int32_t dtype, int rank, const int64_t *dims, const int64_t *strides)
{
    tensor_t t = { .desc = { .dtype = dtype, .rank = rank } };
    int64_t step = 1, last = 0, empty = 0;
    for (int i = rank - 1; i >= 0; i--) {
        t.desc.dims[i] = dims[i];
        t.desc.strides[i] = strides ? strides[i] : step;
        step *= dims[i];
        empty |= dims[i] == 0;
        last += (dims[i] - 1) * t.desc.strides[i];
    }
    t.nbytes = empty ? 0 : (size_t)(last + 1) * size_of(dtype);
    t.block = aligned_alloc(64, (t.nbytes + 2 * GUARD + 63) / 64 * 64);
    assert_non_null(t.block);
    memset(t.block, 0xA5, t.nbytes + 2 * GUARD);
    memset(t.block + GUARD, 0, t.nbytes);
    t.desc.data = t.block + GUARD;
    return t;
}

/* Checks the guards and frees. */
static UNUSED void drop(tensor_t *t)
{
    for (size_t i = 0; i < GUARD; i++) {
        if (t->block[i] != 0xA5 || t->block[GUARD + t->nbytes + i] != 0xA5)
            fail_msg("guard byte %zu overwritten", i);
    }
    free(t->block);
    t->block = NULL;
}

/* Each of the tensors. */
#define DROP(...)                                                            \
    do {                                                                     \
        tensor_t *dropped[] = { __VA_ARGS__ };                               \
        for (size_t i_ = 0; i_ < COUNT_OF(dropped); i_++) drop(dropped[i_]); \
    } while (0)

static UNUSED void *at(const fy_desc_t *desc, int64_t linear)
{
    return (char *)desc->data + fy__offset_of(linear, desc->rank, desc->dims, desc->strides) *
                                    (int64_t)size_of(desc->dtype);
}

static UNUSED double get(const fy_desc_t *desc, int64_t linear)
{
    const void *p = at(desc, linear);
    switch (desc->dtype) {
    case FY_DTYPE_F32: return (double)*(const float *)p;
    case FY_DTYPE_F64: return *(const double *)p;
    case FY_DTYPE_F16: return (double)fy__f32_from_f16(*(const uint16_t *)p);
    case FY_DTYPE_BF16: return (double)fy__f32_from_bf16(*(const uint16_t *)p);
    case FY_DTYPE_I32: return (double)*(const int32_t *)p;
    case FY_DTYPE_I64: return (double)*(const int64_t *)p;
    default: return (double)*(const uint8_t *)p;
    }
}

static UNUSED void set(const fy_desc_t *desc, int64_t linear, double value)
{
    void *p = at(desc, linear);
    switch (desc->dtype) {
    case FY_DTYPE_F32: *(float *)p = (float)value; break;
    case FY_DTYPE_F64: *(double *)p = value; break;
    case FY_DTYPE_F16: *(uint16_t *)p = fy__f16_from_f64(value); break;
    case FY_DTYPE_BF16: *(uint16_t *)p = fy__bf16_from_f64(value); break;
    case FY_DTYPE_I32: *(int32_t *)p = (int32_t)value; break;
    case FY_DTYPE_I64: *(int64_t *)p = (int64_t)value; break;
    default: *(uint8_t *)p = (uint8_t)value; break;
    }
}

/* A repeatable value in [-1, 1). */
static UNUSED double noise(int64_t i)
{
    uint64_t x = (uint64_t)i * 0x9E3779B97F4A7C15u + 0x1234567u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 32;
    return (double)(x >> 11) / 4503599627370496.0 - 1.0;
}

/* Small values that every dtype represents: floats around 0, integers 0 .. 20 (signed ones from
 * -10). */
static UNUSED void fill_noise(const fy_desc_t *desc, int64_t salt)
{
    const int64_t n = count_of(desc);
    for (int64_t i = 0; i < n; i++) {
        const double x = noise(i + 7919 * salt);
        switch (desc->dtype) {
        case FY_DTYPE_I32:
        case FY_DTYPE_I64: set(desc, i, floor(10 * x)); break;
        case FY_DTYPE_U8: set(desc, i, floor(10 * x) + 10); break;
        case FY_DTYPE_BOOL: set(desc, i, x > 0); break;
        default: set(desc, i, 3 * x); break;
        }
    }
}

/* ---- launching ---- */

static UNUSED int is_dense(const fy_desc_t *desc)
{
    int64_t step = 1;
    for (int i = desc->rank - 1; i >= 0; i--) {
        if (desc->dims[i] != 1 && desc->strides[i] != step) return 0;
        step *= desc->dims[i];
    }
    return 1;
}

static UNUSED int same_dims(const fy_desc_t *a, const fy_desc_t *b)
{
    return a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0);
}

/* Broadcasts `src` to dst's dims, as the dispatcher does for elementwise ops. */
static UNUSED fy_desc_t broadcast(const fy_desc_t *src, const fy_desc_t *dst)
{
    fy_desc_t out = { .data = src->data, .dtype = src->dtype, .rank = dst->rank };
    for (int i = 0; i < dst->rank; i++) {
        const int own = i - (dst->rank - src->rank);
        out.dims[i] = dst->dims[i];
        out.strides[i] = own < 0 || (src->dims[own] == 1 && dst->dims[i] != 1) ? 0
                                                                               : src->strides[own];
    }
    return out;
}

static UNUSED fy_launch_t launch_of(fy_op_t op, uint16_t ndst, fy_desc_t *dst, uint16_t nsrc,
                                    fy_desc_t *src, const void *attrs)
{
    fy_launch_t launch = { .struct_size = sizeof launch,
                           .op = op,
                           .ndst = ndst,
                           .nsrc = nsrc,
                           .dst = dst,
                           .src = src,
                           .attrs = attrs };
    launch.nelem = (uint64_t)count_of(dst);
    return launch;
}

/* The sources of a run: their number and an array of them. */
#define SRCS(...) \
    COUNT_OF(((const tensor_t *[]){ __VA_ARGS__ })), (const tensor_t *[]) { __VA_ARGS__ }

/* One dst; sources broadcast; FY_LAUNCH_DENSE set where it applies. */
static UNUSED fy_status_t run_elementwise(fy_op_t op, tensor_t *dst, uint16_t nsrc,
                                          const tensor_t *const *src, const void *attrs,
                                          uint32_t accumulate)
{
    fy_desc_t sources[3];
    int dense = is_dense(&dst->desc);
    for (int k = 0; k < nsrc; k++) {
        dense &= is_dense(&src[k]->desc) && same_dims(&src[k]->desc, &dst->desc);
        sources[k] = broadcast(&src[k]->desc, &dst->desc);
    }
    fy_launch_t launch = launch_of(op, 1, &dst->desc, nsrc, sources, attrs);
    launch.flags = dense ? FY_LAUNCH_DENSE : 0;
    launch.accumulate = accumulate;
    return fy__kernels_launch(&api, &launch);
}

/* One dst, sources unchanged, workspace granted as requested, up to `limit`. */
static UNUSED fy_status_t run(fy_op_t op, tensor_t *dst, uint16_t nsrc, const tensor_t *const *src,
                              const void *attrs, uint32_t accumulate, uint64_t limit)
{
    fy_desc_t sources[8];
    for (int k = 0; k < nsrc; k++) sources[k] = src[k]->desc;
    fy_launch_t launch = launch_of(op, 1, &dst->desc, nsrc, sources, attrs);
    launch.accumulate = accumulate;
    const uint64_t want = fy__kernels_workspace(&launch, limit);
    assert_true(want <= limit);
    unsigned char *scratch = want ? aligned_alloc(64, (size_t)(want + 127) / 64 * 64) : NULL;
    if (want) scratch[want] = 0x5A;
    launch.workspace = scratch;
    launch.workspace_nbytes = want;
    const fy_status_t status = fy__kernels_launch(&api, &launch);
    if (want) assert_int_equal(scratch[want], 0x5A);
    free(scratch);
    return status;
}

/* The loop tables that this machine has; returns their number. */
static UNUSED size_t find_tables(const fy__loops_t *out_tables[3])
{
    size_t n = 0;
    out_tables[n++] = &fy__loops_base;
#if FY__LOOPS_X86
    if (__builtin_cpu_supports("x86-64-v3")) out_tables[n++] = &fy__loops_avx2;
    if (__builtin_cpu_supports("x86-64-v4")) out_tables[n++] = &fy__loops_avx512;
#endif
    return n;
}

/* ---- comparing ---- */

/* Expected results of an op that the caller frees by ts_expected_free. */
static UNUSED ts_expected_t expect(fy_op_t op, uint16_t nsrc, const tensor_t *const *src,
                                   const void *attrs)
{
    ts_array_t arrays[2];
    ts_expected_t out;
    for (int s = 0; s < nsrc; s++) {
        const fy_desc_t *desc = &src[s]->desc;
        ts_array_make(&arrays[s], (fy_dtype_t)desc->dtype, desc->rank, desc->dims);
        for (uint64_t k = 0; k < arrays[s].nelem; k++)
            ts_decode(&arrays[s], k, at(desc, (int64_t)k), 0);
    }
    assert_true(ts_oracle(op, nsrc, arrays, attrs, NULL, &out));
    for (int s = 0; s < nsrc; s++) ts_array_free(&arrays[s]);
    return out;
}

/* All elements, in f64. */
static UNUSED double *copy_of(const fy_desc_t *desc)
{
    double *values = calloc((size_t)count_of(desc) + 1, sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count_of(desc); i++) values[i] = get(desc, i);
    return values;
}

/* Relative distance of two neighbouring values of this dtype. */
static UNUSED double epsilon_of(int32_t dtype)
{
    return dtype == FY_DTYPE_F32    ? 0x1p-23
           : dtype == FY_DTYPE_F64  ? 0x1p-52
           : dtype == FY_DTYPE_F16  ? 0x1p-10
           : dtype == FY_DTYPE_BF16 ? 0x1p-7
                                    : 0;
}

static UNUSED void expect_near(double got, double want, double tolerance, const char *what,
                               int64_t i)
{
    if (isnan(want) ? isnan(got) : got == want) return;
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s: element %lld is %.17g, want %.17g +- %g", what, (long long)i, got, want,
                 tolerance);
}

/* Runs the op over noise with at most `limit` bytes of scratch; the results are `want`. */
static UNUSED void check_limit(fy_op_t op, tensor_t *dst, uint16_t nsrc, const tensor_t *const *src,
                               const void *attrs, uint32_t accumulate, uint64_t limit,
                               const double *want, double relative, double absolute)
{
    char what[80];
    fill_noise(&dst->desc, 9);
    ts_ok(run(op, dst, nsrc, src, attrs, accumulate, limit));
    (void)snprintf(what, sizeof what, "op %u dtype %d limit %llu", op, dst->desc.dtype,
                   (unsigned long long)limit);
    for (int64_t i = 0; i < count_of(&dst->desc); i++)
        expect_near(get(&dst->desc, i), want[i], relative * fabs(want[i]) + absolute, what, i);
}

/* The results with every amount of scratch are those without scratch, of the plain loops. Limits
 * are `step` bytes apart; besides each new amount, every `stride`-th limit is run. Returns the
 * number of amounts that are planned, beside 0. */
static UNUSED uint64_t check_amounts(fy_op_t op, tensor_t *dst, uint16_t nsrc,
                                     const tensor_t *const *src, const void *attrs,
                                     uint32_t accumulate, uint64_t step, uint64_t stride,
                                     double relative, double absolute)
{
    fy_desc_t sources[3];
    for (int k = 0; k < nsrc; k++) sources[k] = src[k]->desc;
    fy_launch_t launch = launch_of(op, 1, &dst->desc, nsrc, sources, attrs);
    launch.accumulate = accumulate;
    fill_noise(&dst->desc, 9);
    ts_ok(run(op, dst, nsrc, src, attrs, accumulate, 0));
    double *want = copy_of(&dst->desc);
    const uint64_t all = fy__kernels_workspace(&launch, 1 << 24);
    uint64_t amounts = 0, last = 0;
    assert_true(all > 0);
    for (uint64_t limit = 0; limit <= all + 8 * step; limit += step) {
        const uint64_t nbytes = fy__kernels_workspace(&launch, limit);
        assert_true(nbytes <= limit);
        if (nbytes != last || limit % stride == 0)
            check_limit(op, dst, nsrc, src, attrs, accumulate, limit, want, relative, absolute);
        amounts += nbytes != last;
        last = nbytes;
    }
    assert_int_equal(last, all);
    free(want);
    return amounts;
}

#endif
