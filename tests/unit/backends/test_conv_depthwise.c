/* The gradient of depthwise kernels of 5 x 5: loops for vectors give what the plain loops give, for
 * any channels, strides, paddings and small images; and the same bits for any number of threads and
 * any scratch. Values against an oracle: tests/ops/cases.def. */

#include "backends/kernels/family.h"
#include "backends/kernels/last_product.h"
#include "backends/kernels/threads.h"
#include "tests/unit/backends/kernel_fixture.h"

enum { K = 5, ENOUGH = 1 << 26 };

typedef struct grad {
    tensor_t x, dy, dw, bias;
    fy_conv2d_backward_attrs_t attrs;
} grad_t;

typedef struct shape {
    int64_t h, w;
    int stride_h, stride_w, padding_h, padding_w;
} shape_t;

static const shape_t k_shapes[] = {
    { 1, 1, 1, 1, 2, 2 },   { 1, 1, 2, 2, 2, 2 },   { 2, 2, 1, 1, 2, 2 },  { 2, 2, 2, 2, 2, 2 },
    { 5, 5, 1, 1, 0, 0 },   { 5, 6, 2, 2, 0, 0 },   { 7, 7, 1, 1, 1, 1 },  { 7, 7, 1, 1, 2, 2 },
    { 8, 9, 2, 2, 1, 1 },   { 14, 14, 2, 2, 2, 2 }, { 9, 6, 1, 2, 2, 0 },  { 6, 13, 2, 1, 0, 2 },
    { 12, 11, 1, 1, 4, 4 }, { 11, 12, 2, 2, 4, 3 }, { 28, 5, 1, 1, 0, 2 }, { 6, 600, 2, 1, 2, 2 },
};
static const int64_t k_channels[] = { 2, 3, 17, 72, 120, 130 };

static int64_t windows(int64_t size, int stride, int padding)
{
    return (size + 2 * padding - K) / stride + 1;
}

/* As many images as make the work worth more than the plain loops, and three. */
static void grad_make(grad_t *grad, const shape_t *s, int64_t channels)
{
    const int64_t oh = windows(s->h, s->stride_h, s->padding_h),
                  ow = windows(s->w, s->stride_w, s->padding_w),
                  n = 8192 / (oh * ow * channels * K * K) + 3;
    const int64_t x[4] = { n, s->h, s->w, channels }, dy[4] = { n, oh, ow, channels },
                  dw[4] = { channels, K, K, 1 };
    *grad = (grad_t){ .x = make(FY_DTYPE_F32, 4, x, NULL),
                      .dy = make(FY_DTYPE_F32, 4, dy, NULL),
                      .dw = make(FY_DTYPE_F32, 4, dw, NULL),
                      .bias = make(FY_DTYPE_F32, 1, dw, NULL),
                      .attrs = { s->stride_h, s->stride_w, s->padding_h, s->padding_w, 1, 1,
                                 (int)channels, K, K } };
    fill_noise(&grad->x.desc, 1);
    fill_noise(&grad->dy.desc, 2);
}

static void grad_drop(grad_t *grad)
{
    drop(&grad->x);
    drop(&grad->dy);
    drop(&grad->dw);
    drop(&grad->bias);
}

/* With at most `limit` bytes of scratch; returns how many were planned. */
static uint64_t grad_run(grad_t *grad, uint32_t accumulate, uint64_t limit)
{
    fy_desc_t dst[2] = { grad->dw.desc, grad->bias.desc }, src[2] = { grad->dy.desc, grad->x.desc };
    fy_launch_t launch = launch_of(FY_OP_CONV2D_BACKWARD_PARAMS, 2, dst, 2, src, &grad->attrs);
    fill_noise(&dst[0], 3);
    fill_noise(&dst[1], 4);
    launch.accumulate = accumulate;
    const uint64_t nbytes = fy__kernels_workspace(&launch, limit);
    assert_true(nbytes <= limit);
    unsigned char *scratch = aligned_alloc(64, (size_t)(nbytes + 127) / 64 * 64);
    assert_non_null(scratch);
    memset(scratch, 0xff, nbytes); /* NaN */
    scratch[nbytes] = 0x5A;
    launch.workspace = nbytes ? scratch : NULL;
    launch.workspace_nbytes = nbytes;
    ts_ok(fy__kernels_launch(&api, &launch));
    assert_int_equal(scratch[nbytes], 0x5A);
    free(scratch);
    return nbytes;
}

static double *result_of(const grad_t *grad)
{
    const int64_t nw = count_of(&grad->dw.desc), nbias = count_of(&grad->bias.desc);
    double *values = calloc((size_t)(nw + nbias), sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < nw; i++) values[i] = get(&grad->dw.desc, i);
    for (int64_t i = 0; i < nbias; i++) values[nw + i] = get(&grad->bias.desc, i);
    return values;
}

static void skip_without_loops(void)
{
    if (fy__loops_get()->depth_weight) return;
    print_message("skipped: this processor has neither AVX2 nor AVX-512\n");
    skip();
}

TS_TEST(vectors_give_what_plain_loops_give)
{
    skip_without_loops();
    for (size_t i = 0; i < COUNT_OF(k_shapes); i++)
        for (size_t c = 0; c < COUNT_OF(k_channels); c++)
            for (uint32_t accumulate = 0; accumulate <= 3; accumulate += 3) {
                grad_t grad;
                grad_make(&grad, &k_shapes[i], k_channels[c]);
                assert_int_equal(grad_run(&grad, accumulate, 0), 0);
                assert_string_equal(fy__product_last, "plain loops");
                double *want = result_of(&grad);
                assert_true(grad_run(&grad, accumulate, ENOUGH) > 0);
                assert_string_equal(fy__product_last, "depthwise loops");
                double *got = result_of(&grad);
                /* 9 is the largest product; sums of that many in f32 */
                const double terms = (double)count_of(&grad.dy.desc) / (double)k_channels[c],
                             bound = 9 * sqrt(terms) * 0x1p-22 * 8;
                for (int64_t k = 0; k < 26 * k_channels[c]; k++)
                    if (!(fabs(got[k] - want[k]) <= bound))
                        fail_msg("shape %zu, %lld channels, accumulate %u: %lld is %g, not %g", i,
                                 (long long)k_channels[c], accumulate, (long long)k, got[k],
                                 want[k]);
                free(want);
                free(got);
                grad_drop(&grad);
            }
}

TS_TEST(threads_do_not_change_bits)
{
    skip_without_loops();
#ifdef __SANITIZE_THREAD__
    skip(); /* libgomp is not instrumented: each access of a team would be reported */
#endif
    const shape_t shapes[] = { { 9, 12, 1, 1, 2, 2 }, { 28, 28, 2, 2, 2, 2 } };
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        grad_t grad;
        grad_make(&grad, &shapes[i], 150);
        const int before = fy__threads_override(1);
        const uint64_t one = grad_run(&grad, 0, ENOUGH);
        double *want = result_of(&grad);
        for (int threads = 2; threads <= 5; threads++) {
            (void)fy__threads_override(threads);
            const uint64_t all = grad_run(&grad, 0, ENOUGH);
            assert_true(all > one);
            double *got = result_of(&grad);
            assert_memory_equal(got, want, 26 * 150 * sizeof *got);
            free(got);
            /* a byte less: one thread fewer */
            assert_int_equal(grad_run(&grad, 0, all - 1),
                             one + (all - one) / (uint64_t)(threads - 1) * (uint64_t)(threads - 2));
            got = result_of(&grad);
            assert_memory_equal(got, want, 26 * 150 * sizeof *got);
            free(got);
        }
        (void)fy__threads_override(before);
        free(want);
        grad_drop(&grad);
    }
}
