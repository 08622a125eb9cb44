/* Convolutions that oneDNN runs. With every amount of scratch, from none up (then the plain loops
 * run, or fewer images at once), the results are those of the plain loops, also of f16 and bf16,
 * which are converted. One primitive run by two threads gives the results of one thread. More
 * shapes than the table keeps.
 * Values against an oracle: tests/ops/cases.def. */
#include <omp.h>
#include <pthread.h>

#include "backends/kernels/conv_prim.h"
#if FERRY_DNNL_MAJOR > 0
#include "backends/kernels/dnnl.h"
#endif
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

typedef struct conv {
    fy_op_t op;
    tensor_t x, w, y, bias, *dst;
    const tensor_t *src[3];
    uint16_t nsrc;
    fy_conv2d_backward_attrs_t attrs;
} conv_t;

static void conv_make(conv_t *conv, const fy__conv_shape_t *s, int32_t dtype, int64_t salt)
{
    const fy_op_t op = (fy_op_t)s->op;
    const int is_weight = op == FY_OP_CONV2D_BACKWARD_WEIGHT;
    const int64_t x[4] = { s->n, s->h, s->w, s->c }, w[4] = { s->o, s->kh, s->kw, s->c },
                  y[4] = { s->n, s->oh, s->ow, s->o };
    *conv = (conv_t){ .op = op,
                      .x = make(dtype, 4, x, NULL),
                      .w = make(dtype, 4, w, NULL),
                      .y = make(dtype, 4, y, NULL),
                      .bias = make(dtype, 1, y + 3, NULL),
                      .nsrc = op == FY_OP_CONV2D ? 3 : 2,
                      .attrs = { (int)s->stride_h, (int)s->stride_w, (int)s->padding_h,
                                 (int)s->padding_w, 1, 1, 1, (int)(is_weight ? s->kh : s->h),
                                 (int)(is_weight ? s->kw : s->w) } };
    conv->dst = op == FY_OP_CONV2D ? &conv->y : is_weight ? &conv->w : &conv->x;
    conv->src[0] = op == FY_OP_CONV2D ? &conv->x : &conv->y;
    conv->src[1] = is_weight ? &conv->x : &conv->w;
    conv->src[2] = &conv->bias;
    fill_noise(&conv->x.desc, salt + 1);
    fill_noise(&conv->w.desc, salt + 2);
    fill_noise(&conv->y.desc, salt + 3);
    fill_noise(&conv->bias.desc, salt + 4);
}

static void conv_drop(conv_t *conv) { DROP(&conv->x, &conv->w, &conv->y, &conv->bias); }

/* Padding 1 keeps the size. */
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

static void conv_run(conv_t *conv, uint32_t accumulate, uint64_t limit)
{
    fill_noise(&conv->dst->desc, 9);
    ts_ok(run(conv->op, conv->dst, conv->nsrc, conv->src, &conv->attrs, accumulate, limit));
}

static uint64_t check_scratch(fy_op_t op, int32_t dtype, uint32_t accumulate, uint64_t stride,
                              double relative)
{
    const fy__conv_shape_t shape = shape_of(op, N, C);
    conv_t conv;
    conv_make(&conv, &shape, dtype, 0);
    /* Sums of hundreds of f32 products, in another order; a kernel that reads foreign scratch has a
     * far larger error. */
    const uint64_t amounts = check_amounts(op, conv.dst, conv.nsrc, conv.src, &conv.attrs,
                                           accumulate, 512, stride, relative, 1e-3);
    conv_drop(&conv);
    return amounts;
}

TS_TEST(any_scratch)
{
    needs_onednn();
    for (size_t k = 0; k < COUNT_OF(k_ops); k++) {
        for (uint32_t accumulate = 0; accumulate <= (k_ops[k] != FY_OP_CONV2D); accumulate++) {
            /* A sum into dx goes through scratch: 1, 2, 3 or 6 images at once. Others need all of
             * their scratch or none. */
            const int through_scratch = k_ops[k] == FY_OP_CONV2D_BACKWARD_INPUT && accumulate;
            assert_int_equal(check_scratch(k_ops[k], FY_DTYPE_F32, accumulate, 4096, 0),
                             through_scratch ? 4 : 1);
        }
    }
}

#if FERRY_DNNL_MAJOR > 0
static dnnl_status_t refuse_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream,
                                    int nargs, const dnnl_exec_arg_t *args)
{
    (void)primitive, (void)stream, (void)nargs, (void)args;
    return dnnl_unimplemented;
}

/* A planned primitive that oneDNN refuses to run: the plain loops run, and add to the old values
 * once. */
TS_TEST(refused_primitives)
{
    assert_true(fy__dnnl_open());
    fy__dnnl.primitive_execute = refuse_execute;
    for (size_t k = 0; k < COUNT_OF(k_ops); k++)
        for (uint32_t accumulate = 0; accumulate <= (k_ops[k] != FY_OP_CONV2D); accumulate++) {
            check_scratch(k_ops[k], FY_DTYPE_F32, accumulate, 4096, 0);
            check_scratch(k_ops[k], FY_DTYPE_BF16, accumulate, UINT64_MAX,
                          epsilon_of(FY_DTYPE_BF16));
        }
}
#endif

/* f16 and bf16 are converted to f32 in scratch, in as many pieces of the batch as fit. */
TS_TEST(half_precision_in_pieces)
{
    needs_onednn();
    static const int32_t halves[] = { FY_DTYPE_F16, FY_DTYPE_BF16 };
    for (size_t k = 0; k < 2 * COUNT_OF(k_ops); k++) {
        const fy_op_t op = k_ops[k / 2];
        for (uint32_t accumulate = 0; accumulate <= (op != FY_OP_CONV2D); accumulate++)
            /* One rounding of a sum in f32, instead of one of a sum in f64. 1, 2, 3, 6 images, and
             * with dx of fewer at once. */
            assert_true(check_scratch(op, halves[k % 2], accumulate, UINT64_MAX,
                                      epsilon_of(halves[k % 2])) >= 4);
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
        const fy__conv_shape_t shape = shape_of(k_ops[k], 2, C);
        worker_t workers[2] = { { .wrong = 0 } };
        for (int i = 0; i < 2;
             i++) { /* with other values, so that memory shared by mistake shows */
            conv_make(&workers[i].conv, &shape, FY_DTYPE_F32, 10 * i);
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
    fy__conv_shape_t s = shape_of(FY_OP_CONV2D, 3, 64);
    s.h = 7;
    s.w = 9;
    s.oh = 4;
    s.ow = 5;
    s.o = 72;
    s.kh = s.kw = 1;
    s.stride_h = s.stride_w = 2;
    s.padding_h = s.padding_w = 0;
    for (size_t k = 0; k < COUNT_OF(k_ops); k++) {
        conv_t conv;
        s.op = k_ops[k];
        conv_make(&conv, &s, FY_DTYPE_F32, 5);
        for (uint32_t accumulate = 0; accumulate <= (s.op != FY_OP_CONV2D); accumulate++) {
            conv_run(&conv, accumulate, 0);
            double *want = copy_of(&conv.dst->desc);
            check_limit(conv.op, conv.dst, conv.nsrc, conv.src, &conv.attrs, accumulate, 1 << 24,
                        want, 0, 2e-3);
            free(want);
        }
        conv_drop(&conv);
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
            const fy__conv_shape_t shape = shape_of(FY_OP_CONV2D, 1, channels);
            conv_t conv;
            conv_make(&conv, &shape, FY_DTYPE_F32, 0);
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
