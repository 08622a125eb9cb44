/* Convolutions that oneDNN runs. With every amount of scratch, from none up (then the plain loops
 * run, or fewer images at once), the results are those of the plain loops, also of f16 and bf16,
 * which are converted. One primitive run by two threads gives the results of one thread. More
 * shapes than the table keeps.
 * Values against an oracle: tests/ops/cases.def. */
#include <omp.h>
#include <pthread.h>

#include "backends/kernels/conv_prim.h"
#include "tests/unit/backends/kernel_fixture.h"

/* A build with -DFERRY_DNNL=OFF has no primitives to look at. */
static void needs_onednn(void)
{
    if (FERRY_DNNL_MAJOR > 0) return;
    print_message("           built without oneDNN: skipped\n");
    skip();
}

static const fy_op_t k_ops[] = { FY_OP_CONV2D, FY_OP_CONV2D_BACKWARD_INPUT,
                                 FY_OP_CONV2D_BACKWARD_WEIGHT };

/* 6 images of 10 x 9, 8 channels, 16 kernels of 3 x 3; padding 1. */
enum { N = 6, H = 10, W = 9, C = 8, O = 16, K = 3 };
static const fy_conv2d_backward_attrs_t k_attrs = { 1, 1, 1, 1, 1, 1, 1, H, W },
                                        k_weight_attrs = { 1, 1, 1, 1, 1, 1, 1, K, K };

typedef struct conv {
    fy_op_t op;
    tensor_t x, w, y, bias, *dst;
    const tensor_t *src[3];
    uint16_t nsrc;
    const void *attrs;
} conv_t;

static void conv_connect(conv_t *conv, int64_t salt)
{
    const fy_op_t op = conv->op;
    conv->dst = op == FY_OP_CONV2D                  ? &conv->y
                : op == FY_OP_CONV2D_BACKWARD_INPUT ? &conv->x
                                                    : &conv->w;
    conv->src[0] = op == FY_OP_CONV2D ? &conv->x : &conv->y;
    conv->src[1] = op == FY_OP_CONV2D_BACKWARD_WEIGHT ? &conv->x : &conv->w;
    conv->src[2] = &conv->bias;
    fill_noise(&conv->x.desc, salt + 1);
    fill_noise(&conv->w.desc, salt + 2);
    fill_noise(&conv->y.desc, salt + 3);
    fill_noise(&conv->bias.desc, salt + 4);
}

static void conv_make_of(conv_t *conv, fy_op_t op, int32_t dtype, int64_t n, int64_t channels,
                         int64_t salt)
{
    const int64_t x[4] = { n, H, W, channels }, w[4] = { O, K, K, channels }, y[4] = { n, H, W, O },
                  bias[1] = { O };
    *conv = (conv_t){ .op = op,
                      .x = make(dtype, 4, x, NULL),
                      .w = make(dtype, 4, w, NULL),
                      .y = make(dtype, 4, y, NULL),
                      .bias = make(dtype, 1, bias, NULL),
                      .nsrc = op == FY_OP_CONV2D ? 3 : 2,
                      .attrs = op == FY_OP_CONV2D_BACKWARD_WEIGHT ? &k_weight_attrs : &k_attrs };
    conv_connect(conv, salt);
}

static void conv_make(conv_t *conv, fy_op_t op, int64_t n, int64_t channels, int64_t salt)
{
    conv_make_of(conv, op, FY_DTYPE_F32, n, channels, salt);
}

static void conv_drop(conv_t *conv)
{
    drop(&conv->x);
    drop(&conv->w);
    drop(&conv->y);
    drop(&conv->bias);
}

static void conv_run(conv_t *conv, uint32_t accumulate, uint64_t limit)
{
    fill_noise(&conv->dst->desc, 9);
    assert_int_equal(
        run(conv->op, conv->dst, conv->nsrc, conv->src, conv->attrs, accumulate, limit),
        FY_STATUS_OK);
}

static uint64_t scratch_of(const conv_t *conv, uint32_t accumulate, uint64_t limit)
{
    fy_desc_t dst = conv->dst->desc,
              src[3] = { conv->src[0]->desc, conv->src[1]->desc, conv->src[2]->desc };
    fy_launch_t launch = launch_of(conv->op, 1, &dst, conv->nsrc, src, conv->attrs);
    launch.accumulate = accumulate;
    return fy__kernels_workspace(&launch, limit);
}

/* That of conv_make. */
static fy__conv_shape_t shape_of(fy_op_t op, int64_t n, int64_t channels)
{
    return (fy__conv_shape_t){ .op = op,
                               .n = n,
                               .h = H,
                               .w = W,
                               .c = channels,
                               .oh = H,
                               .ow = W,
                               .o = O,
                               .kh = K,
                               .kw = K,
                               .groups = 1,
                               .stride_h = 1,
                               .stride_w = 1,
                               .padding_h = 1,
                               .padding_w = 1,
                               .dilation_h = 1,
                               .dilation_w = 1 };
}

static double *copy_of(const fy_desc_t *desc)
{
    double *values = calloc((size_t)count_of(desc), sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count_of(desc); i++) values[i] = get(desc, i);
    return values;
}

TS_TEST(any_scratch)
{
    needs_onednn();
    for (size_t k = 0; k < COUNT_OF(k_ops); k++) {
        for (uint32_t accumulate = 0; accumulate <= (k_ops[k] != FY_OP_CONV2D); accumulate++) {
            conv_t conv;
            conv_make(&conv, k_ops[k], N, C, 0);
            conv_run(&conv, accumulate, 0); /* no scratch: the plain loops */
            double *want = copy_of(&conv.dst->desc);
            const uint64_t all = scratch_of(&conv, accumulate, 1 << 24);
            assert_true(all > 0);
            uint64_t amounts = 0, last = 0;
            for (uint64_t limit = 0; limit <= all + 4096; limit += 512) {
                const uint64_t nbytes = scratch_of(&conv, accumulate, limit);
                assert_true(nbytes <= limit);
                if (nbytes != last) amounts++;
                last = nbytes;
                if (limit % 4096) continue;
                conv_run(&conv, accumulate, limit);
                for (int64_t i = 0; i < count_of(&conv.dst->desc); i++) {
                    const double got = get(&conv.dst->desc, i);
                    /* Sums of hundreds of f32 products, in another order; a kernel that reads
                     * foreign scratch has a far larger error. */
                    if (fabs(got - want[i]) > 1e-3)
                        fail_msg("op %zu limit %llu: %lld is %g, not %g", k,
                                 (unsigned long long)limit, (long long)i, got, want[i]);
                }
            }
            assert_int_equal(last, all);
            /* A sum into dx goes through scratch: 1, 2, 3 or 6 images at once. Others need all of
             * their scratch or none. */
            const int through_scratch = k_ops[k] == FY_OP_CONV2D_BACKWARD_INPUT && accumulate;
            assert_int_equal(amounts, through_scratch ? 4 : 1);
            free(want);
            conv_drop(&conv);
        }
    }
}

/* f16 and bf16 are converted to f32 in scratch, in as many pieces of the batch as fit. */
TS_TEST(half_precision_in_pieces)
{
    needs_onednn();
    static const int32_t halves[] = { FY_DTYPE_F16, FY_DTYPE_BF16 };
    for (size_t k = 0; k < 2 * COUNT_OF(k_ops); k++) {
        const fy_op_t op = k_ops[k / 2];
        for (uint32_t accumulate = 0; accumulate <= (op != FY_OP_CONV2D); accumulate++) {
            conv_t conv;
            conv_make_of(&conv, op, halves[k % 2], N, C, 0);
            const double epsilon = epsilon_of(halves[k % 2]);
            conv_run(&conv, accumulate, 0); /* no scratch: the plain loops */
            double *want = copy_of(&conv.dst->desc);
            uint64_t amounts = 0, last = 0;
            const uint64_t all = scratch_of(&conv, accumulate, 1 << 24);
            for (uint64_t limit = 0; limit <= all + 4096; limit += 512) {
                const uint64_t nbytes = scratch_of(&conv, accumulate, limit);
                assert_true(nbytes <= limit);
                if (nbytes == last) continue;
                amounts++;
                last = nbytes;
                conv_run(&conv, accumulate, limit);
                for (int64_t i = 0; i < count_of(&conv.dst->desc); i++) {
                    const double got = get(&conv.dst->desc, i);
                    /* one rounding of a sum in f32, instead of one of a sum in f64 */
                    if (fabs(got - want[i]) > epsilon * fabs(want[i]) + 1e-3)
                        fail_msg("op %u dtype %d limit %llu: %lld is %g, not %g", (unsigned)op,
                                 (int)halves[k % 2], (unsigned long long)limit, (long long)i, got,
                                 want[i]);
                }
            }
            assert_int_equal(last, all);
            assert_true(amounts >= 4); /* 1, 2, 3, 6 images, and with dx of fewer at once */
            free(want);
            conv_drop(&conv);
        }
    }
}

typedef struct worker {
    pthread_t thread;
    conv_t conv;
    double *want;
    int wrong;
} worker_t;

static void *work(void *user)
{
    worker_t *worker = user;
    omp_set_num_threads(1);
    for (int round = 0; round < 200; round++) {
        conv_run(&worker->conv, 0, 1 << 24);
        for (int64_t i = 0; i < count_of(&worker->conv.dst->desc); i++)
            worker->wrong += get(&worker->conv.dst->desc, i) != worker->want[i];
    }
    return NULL;
}

TS_TEST(one_primitive_two_threads)
{
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    for (size_t k = 0; k < COUNT_OF(k_ops); k++) {
        worker_t workers[2] = { { .wrong = 0 } };
        for (int i = 0; i < 2;
             i++) { /* with other values, so that memory shared by mistake shows */
            conv_make(&workers[i].conv, k_ops[k], 2, C, 10 * i);
            conv_run(&workers[i].conv, 0, 1 << 24);
            workers[i].want = copy_of(&workers[i].conv.dst->desc);
        }
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(workers[i].thread, NULL);
            assert_int_equal(workers[i].wrong, 0);
            conv_drop(&workers[i].conv);
            free(workers[i].want);
        }
    }
    omp_set_num_threads(threads);
}

/* Two threads that run one shape get a primitive each; a third thread that only plans gets
 * either. */
TS_TEST(a_primitive_runs_once_at_a_time)
{
    needs_onednn();
    const fy__conv_shape_t shape = shape_of(FY_OP_CONV2D, 3, C);
    fy__conv_entry_t *one = fy__conv_table_take(&shape, 1, 1),
                     *other = fy__conv_table_take(&shape, 1, 1);
    assert_non_null(one);
    assert_non_null(other);
    assert_ptr_not_equal(one, other);
    fy__conv_entry_t *planned = fy__conv_table_take(&shape, 1, 0);
    assert_true(planned == one || planned == other);
    fy__conv_table_give_back(planned, 0);
    fy__conv_table_give_back(other, 1);
    fy__conv_entry_t *again = fy__conv_table_take(&shape, 1, 1);
    assert_ptr_equal(again, other);
    fy__conv_table_give_back(again, 1);
    fy__conv_table_give_back(one, 1);
}

/* Every shape of this file has a oneDNN kernel that reports its name and is not a reference
 * loop. */
TS_TEST(implementations_have_names)
{
    needs_onednn();
    for (size_t k = 0; k < COUNT_OF(k_ops); k++) {
        const fy__conv_shape_t shape = shape_of(k_ops[k], 2, C);
        fy__conv_entry_t *entry = fy__conv_table_take(&shape, 1, 0);
        assert_non_null(entry);
        const char *name = fy__conv_prim_impl_name(fy__conv_entry_prim(entry));
        assert_true(strlen(name) > 0);
        assert_int_not_equal(strncmp(name, "ref", 3), 0);
        fy__conv_table_give_back(entry, 0);
    }
}

/* oneDNN 3 lists its brgemm kernel first; for one input channel the jit kernel after it is used
 * (backends/kernels/README.md). */
TS_TEST(a_stem_takes_the_jit_kernel)
{
#if FERRY_DNNL_MAJOR >= 3
    const fy__conv_shape_t shape = shape_of(FY_OP_CONV2D, 2, 1);
    fy__conv_entry_t *entry = fy__conv_table_take(&shape, 1, 0);
    assert_non_null(entry);
    assert_int_not_equal(strncmp(fy__conv_prim_impl_name(fy__conv_entry_prim(entry)), "brg", 3), 0);
    fy__conv_table_give_back(entry, 0);
#else
    print_message("not oneDNN 3: there is no choice to look at\n");
    skip();
#endif
}

/* On AVX2, oneDNN 2 has a slow loop first for 1x1 kernels of stride 2 on odd images; a product of
 * matrices is used (backends/kernels/README.md). */
TS_TEST(a_slow_loop_is_replaced)
{
    needs_onednn();
    fy__conv_shape_t s = { .n = 3,
                           .h = 7,
                           .w = 9,
                           .c = 64,
                           .oh = 4,
                           .ow = 5,
                           .o = 72,
                           .kh = 1,
                           .kw = 1,
                           .groups = 1,
                           .stride_h = 2,
                           .stride_w = 2,
                           .dilation_h = 1,
                           .dilation_w = 1 };
    for (size_t k = 0; k < COUNT_OF(k_ops); k++) {
        const fy_op_t op = k_ops[k];
        const int64_t x[4] = { s.n, s.h, s.w, s.c }, w[4] = { s.o, s.kh, s.kw, s.c },
                      y[4] = { s.n, s.oh, s.ow, s.o };
        const int is_weight = op == FY_OP_CONV2D_BACKWARD_WEIGHT;
        const fy_conv2d_backward_attrs_t attrs = {
            2, 2, 0, 0, 1, 1, 1, is_weight ? 1 : (int)s.h, is_weight ? 1 : (int)s.w
        };
        conv_t conv = { .op = op,
                        .x = make(FY_DTYPE_F32, 4, x, NULL),
                        .w = make(FY_DTYPE_F32, 4, w, NULL),
                        .y = make(FY_DTYPE_F32, 4, y, NULL),
                        .bias = make(FY_DTYPE_F32, 1, y + 3, NULL),
                        .nsrc = op == FY_OP_CONV2D ? 3 : 2,
                        .attrs = &attrs };
        conv_connect(&conv, 5);
        for (uint32_t accumulate = 0; accumulate <= (op != FY_OP_CONV2D); accumulate++) {
            conv_run(&conv, accumulate, 0);
            double *want = copy_of(&conv.dst->desc);
            conv_run(&conv, accumulate, 1 << 24);
            for (int64_t i = 0; i < count_of(&conv.dst->desc); i++)
                if (fabs(get(&conv.dst->desc, i) - want[i]) > 2e-3)
                    fail_msg("op %u: %lld is %g, not %g", (unsigned)op, (long long)i,
                             get(&conv.dst->desc, i), want[i]);
            free(want);
        }
        conv_drop(&conv);
        s.op = op;
        fy__conv_entry_t *entry = fy__conv_table_take(&s, 1, 0);
        assert_non_null(entry);
        if (FERRY_DNNL_MAJOR < 3)
            assert_string_not_equal(fy__conv_prim_impl_name(fy__conv_entry_prim(entry)),
                                    "jit:avx2");
        fy__conv_table_give_back(entry, 0);
    }
}

TS_TEST(more_shapes_than_are_kept)
{
    for (int round = 0; round < 2; round++) {
        for (int64_t channels = 1; channels <= 140; channels++) {
            conv_t conv;
            conv_make(&conv, FY_OP_CONV2D, 1, channels, 0);
            conv_run(&conv, 0, 1 << 24);
            /* of the pixel in the corner, for the first kernel */
            double sum = get(&conv.bias.desc, 0);
            for (int64_t kh = 1; kh < K; kh++)
                for (int64_t kw = 1; kw < K; kw++)
                    for (int64_t c = 0; c < channels; c++)
                        sum += get(&conv.x.desc, ((kh - 1) * W + kw - 1) * channels + c) *
                               get(&conv.w.desc, (kh * K + kw) * channels + c);
            if (fabs(get(&conv.y.desc, 0) - sum) > 2e-3)
                fail_msg("%lld channels: %g, not %g", (long long)channels, get(&conv.y.desc, 0),
                         sum);
            conv_drop(&conv);
        }
    }
}
