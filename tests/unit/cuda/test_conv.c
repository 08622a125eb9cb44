/* Convolutions of the CUDA plugin: which kernel takes which layout and dtype, and that each gives
 * the results of the portable kernels: forward, both gradients, groups, windows that leave the
 * image, accumulation, weight gradients in slices. */
#include "op_case.h"

typedef struct conv {
    int64_t n, h, w, c, o, kh, kw;
    int32_t stride, padding, dilation, groups;
} conv_t;

static const conv_t convs[] = {
    { 2, 7, 6, 3, 5, 3, 3, 1, 1, 1, 1 },   /* no channel count that vectors divide */
    { 2, 8, 8, 16, 32, 3, 3, 1, 1, 1, 1 }, /* all vectors complete */
    /* two column tiles; a stride that leaves a remainder */
    { 1, 9, 9, 8, 72, 3, 3, 2, 1, 1, 1 },
    { 3, 12, 12, 4, 8, 3, 2, 1, 0, 1, 1 },   /* several row tiles, a window that is not square */
    { 2, 10, 9, 8, 16, 3, 3, 1, 2, 2, 2 },   /* groups, dilation */
    { 2, 10, 10, 24, 40, 1, 1, 1, 0, 1, 1 }, /* a matrix product */
    { 2, 14, 14, 1, 6, 5, 5, 1, 2, 1, 1 },   /* a first layer */
    { 4, 12, 12, 4, 8, 3, 3, 1, 1, 1, 1 },   /* many pixels: slices */
    { 2, 5, 5, 6, 9, 3, 3, 2, 0, 1, 3 },     /* groups of odd sizes */
    { 1, 3, 3, 2, 2, 3, 3, 3, 3, 1, 1 },     /* windows outside the image */
    { 2, 7, 7, 8, 8, 3, 3, 1, 1, 1, 8 },     /* depthwise from here on */
    { 2, 7, 8, 5, 5, 3, 2, 2, 1, 2, 5 },
    { 4, 12, 12, 40, 40, 3, 3, 1, 1, 1, 40 },
    { 2, 11, 9, 136, 136, 3, 3, 2, 1, 1, 136 }, /* several blocks of channels */
    { 1, 9, 10, 16, 16, 5, 5, 1, 2, 1, 16 },    /* more places than a thread sums at once */
    { 1, 10, 10, 8, 8, 9, 9, 1, 4, 1, 8 },      /* more than a block keeps weights of */
};
enum { NCONVS = sizeof convs / sizeof *convs, FIRST_DEPTHWISE = 10 };

typedef union attrs {
    fy_conv2d_attrs_t forward;
    fy_conv2d_backward_attrs_t backward;
} attrs_t;

static int64_t out_length(int64_t in, int64_t kernel, const conv_t *v)
{
    return (in + 2 * v->padding - v->dilation * (kernel - 1) - 1) / v->stride + 1;
}

/* nsrc: of the forward launch, 2 or 3. */
static op_case_t case_of(const conv_t *v, fy_op_t op, int32_t dtype, unsigned nsrc, attrs_t *attrs)
{
    op_case_t c = OP_CASE(op, 1, 2, .attrs = attrs, .close = CLOSE, .workspace_limit = 1 << 20);
    fy_desc_t x = DENSE_OF(dtype, v->n, v->h, v->w, v->c);
    fy_desc_t w = DENSE_OF(dtype, v->o, v->kh, v->kw, v->c / v->groups);
    fy_desc_t y =
        DENSE_OF(dtype, v->n, out_length(v->h, v->kh, v), out_length(v->w, v->kw, v), v->o);
    fy_desc_t bias = describe(dtype, 1, &v->o, NULL);
    fy_conv2d_backward_attrs_t of = { v->stride,  v->stride,     v->padding,
                                      v->padding, v->dilation,   v->dilation,
                                      v->groups,  (int32_t)v->h, (int32_t)v->w };
    attrs->backward = of;
    switch (op) {
    case FY_OP_CONV2D:
        attrs->forward.activation = FY_ACTIVATION_NONE;
        c.nsrc = nsrc;
        c.dst[0] = y, c.src[0] = x, c.src[1] = w, c.src[2] = bias;
        break;
    case FY_OP_CONV2D_BACKWARD_INPUT: c.dst[0] = x, c.src[0] = y, c.src[1] = w; break;
    default:
        attrs->backward.height = (int32_t)v->kh, attrs->backward.width = (int32_t)v->kw;
        c.dst[0] = w, c.src[0] = y, c.src[1] = x;
        if (op == FY_OP_CONV2D_BACKWARD_PARAMS) c.ndst = 2, c.dst[1] = bias;
    }
    return c;
}

static const char *kernel_for(int i, int32_t dtype)
{
    const int wide = dtype == FY_DTYPE_F64;
    if (i >= FIRST_DEPTHWISE) return wide ? "fy_conv2d_depthwise_f64" : "fy_conv2d_depthwise_f32";
    if (dtype == FY_DTYPE_F16) return "fy_conv2d_tensor_f16";
    return dtype == FY_DTYPE_BF16 ? "fy_conv2d_tensor_bf16"
           : wide                 ? "fy_conv2d_gemm_f64"
                                  : "fy_conv2d_gemm_f32";
}

/* Values of both signs, so that relu has something to do; small ones, so that halves stay exact
 * enough. */
static void give_signed(op_case_t *c, char *bytes, uint64_t capacity)
{
    uint64_t used = 0;
    for (unsigned i = 0; i < c->nsrc; i++) {
        const uint64_t size = dtype_nbytes[c->src[i].dtype], n = nelem_of(&c->src[i]);
        assert_true(used + n * size <= capacity);
        for (uint64_t k = 0; k < n; k++) {
            random_element(bytes + used + k * size, c->src[i].dtype);
            if (random_bits() & 1 << 16) bytes[used + k * size + size - 1] ^= (char)0x80;
        }
        c->given[i] = bytes + used;
        used += n * size;
    }
}

static const char *const dnn_calls[] = { "cudnnConvolutionForward",
                                         "cudnnConvolutionBiasActivationForward",
                                         "cudnnConvolutionBackwardData",
                                         "cudnnConvolutionBackwardFilter" };

static int64_t dnn_count(void)
{
    int64_t n = 0;
    for (int i = 0; i < 4; i++) n += driver.fake_cuda_calls(dnn_calls[i]);
    return n;
}

/* Skips the rest of a test if the plugin was built without cudnn.h. */
static int has_dnn(void)
{
    if (driver.fake_cuda_calls("cudnnCreate") >= 0) return 1;
    print_message("built without cudnn.h: nothing to test\n");
    return 0;
}

/* First: a process loads the library once. */
TS_TEST_WITH(without_the_library_own_kernels_run, open_device, NULL)
{
    attrs_t attrs;
    op_case_t c = case_of(&convs[1], FY_OP_CONV2D, FY_DTYPE_F32, 3, &attrs);
    if (!has_dnn()) return;
    reopen("FERRY_CUDNN", "/nonexistent/libcudnn.so.9");
    for (int i = 0; i < 2; i++) {
        last_log[0] = '\0';
        run_by(&c, "fy_conv2d_gemm_f32");
        /* logged once */
        assert_int_equal(strstr(last_log, "/nonexistent/libcudnn.so.9") != NULL, i == 0);
    }
    assert_int_equal(dnn_count(), 0);
}

TS_TEST_WITH(each_kernel_agrees, open_device, NULL)
{
    static const fy_op_t ops[] = { FY_OP_CONV2D, FY_OP_CONV2D_BACKWARD_INPUT,
                                   FY_OP_CONV2D_BACKWARD_WEIGHT };
    for (int i = 0; i < NCONVS; i++)
        for (int d = 0; d < 4; d++)
            for (int k = 0; k < 3; k++) {
                attrs_t attrs;
                op_case_t c = case_of(&convs[i], ops[k], floats[d], 2, &attrs);
                c.accumulate = k > 0 ? (uint32_t)(i + d + k) & 1
                                     : 0; /* conv2d itself does not accumulate */
                c.workspace_limit = 0;    /* one launch */
                run_case(&c);
                if (strcmp(driver.fake_cuda_last_kernel(), kernel_for(i, floats[d])) != 0)
                    fail_msg("convolution %d, op %d, dtype %d ran %s", i, k, floats[d],
                             driver.fake_cuda_last_kernel());
            }
    assert_null(strstr(last_log, "slowly"));
}

TS_TEST_WITH(bias_and_relu_are_fused, open_device, NULL)
{
    static char bytes[1 << 20];
    for (int i = 0; i < NCONVS; i++)
        for (int d = 0; d < 4; d++)
            for (int relu = 0; relu < 2; relu++) {
                attrs_t attrs;
                op_case_t c = case_of(&convs[i], FY_OP_CONV2D, floats[d], 3, &attrs);
                attrs.forward.activation = relu ? FY_ACTIVATION_RELU : FY_ACTIVATION_NONE;
                if (floats[d] == FY_DTYPE_F32 || floats[d] == FY_DTYPE_F64)
                    give_signed(&c, bytes, sizeof bytes);
                run_in(&c, 1);
            }
}

/* With scratch memory, weight gradients are summed in slices of images, then added: two launches.
 * The bias gradient is a sum. */
TS_TEST_WITH(weights_come_in_slices, open_device, NULL)
{
    static const int sliced[] = { 3, 7, 12 };
    for (int i = 0; i < 3; i++)
        for (int d = 0; d < 4; d++)
            for (uint32_t accumulate = 0; accumulate < 2; accumulate++) {
                attrs_t attrs;
                op_case_t c =
                    case_of(&convs[sliced[i]], FY_OP_CONV2D_BACKWARD_WEIGHT, floats[d], 2, &attrs);
                c.accumulate = accumulate;
                run_in(&c, 2);
                c = case_of(&convs[sliced[i]], FY_OP_CONV2D_BACKWARD_PARAMS, floats[d], 2, &attrs);
                c.accumulate = accumulate * 3;
                run_case(&c);
            }
    attrs_t attrs; /* scratch for a single slice is not used */
    op_case_t c = case_of(&convs[7], FY_OP_CONV2D_BACKWARD_WEIGHT, FY_DTYPE_F32, 2, &attrs);
    c.workspace_limit = nelem_of(&c.dst[0]) * 4 * 2 - 1;
    run_in(&c, 1);
}

/* Depthwise at any address: the same results, and of the weights' gradient, whose sums are split
 * among threads, the same bits. */
TS_TEST_WITH(depthwise_at_unaligned_addresses, open_device, NULL)
{
    static const fy_op_t ops[] = { FY_OP_CONV2D, FY_OP_CONV2D_BACKWARD_INPUT,
                                   FY_OP_CONV2D_BACKWARD_WEIGHT };
    static const int which[] = { FIRST_DEPTHWISE, FIRST_DEPTHWISE + 3, FIRST_DEPTHWISE + 4 };
    enum { X = 9 * 10 * 16, W = 16 * 5 * 5 };
    static float values[X + 1], sums[2][W];
    attrs_t attrs;
    for (size_t i = 0; i < LENGTH(which); i++)
        for (size_t d = 0; d < LENGTH(floats); d++)
            for (size_t k = 0; k < LENGTH(ops); k++) {
                op_case_t c = case_of(&convs[which[i]], ops[k], floats[d], 2, &attrs);
                for (c.shifted = 1; c.shifted < 8; c.shifted++) run_case(&c);
            }
    for (int shift = 0; shift < 2; shift++) {
        op_case_t c =
            case_of(&convs[which[2]], FY_OP_CONV2D_BACKWARD_WEIGHT, FY_DTYPE_F32, 2, &attrs);
        for (int k = 0; k < X; k++) values[k + shift] = (float)(k % 1009) * 1.37e-3f;
        char *block = device_bytes(values, sizeof values);
        c.src[0].data = c.src[1].data = block + shift * 4;
        c.dst[0].data = device_bytes(values, sizeof *sums);
        fy_launch_t launch = launch_of(FY_OP_CONV2D_BACKWARD_WEIGHT, 2, &c.dst[0], c.src, &attrs);
        assert_ok(cuda->launch(dev, stream, &launch));
        fetch(sums[shift], c.dst[0].data, sizeof *sums);
        cuda->free(dev, c.dst[0].data, sizeof *sums);
        cuda->free(dev, block, sizeof values);
    }
    assert_memory_equal(sums[0], sums[1], sizeof *sums);
}

/* Images with other memory between them: the plain kernel runs, and the log reports it once. */
TS_TEST_WITH(other_layouts_take_the_plain_kernel, open_device, NULL)
{
    for (int d = 0; d < 4; d++) {
        attrs_t attrs;
        op_case_t c = case_of(&convs[0], FY_OP_CONV2D, floats[d], 3, &attrs);
        c.src[0].strides[0] += 8;
        last_log[0] = '\0';
        run_by(&c, floats[d] == FY_DTYPE_F64 ? "fy_conv2d_f64" : "fy_conv2d_f32");
        assert_int_equal(strstr(last_log, "slowly") != NULL, d == 0);
        c = case_of(&convs[0], FY_OP_CONV2D_BACKWARD_WEIGHT, floats[d], 2, &attrs);
        c.dst[0].strides[0] += 4;
        run_case(&c);
        assert_true(strncmp(driver.fake_cuda_last_kernel(), "fy_conv2d_f", 11) == 0);
    }
}

/* Images and padding of 2^32 pixels along an axis: the kernels that count in 31 bits are not
 * taken. A window behind the middle has the second pixel. */
TS_TEST_WITH(much_padding_takes_the_plain_kernel, open_device, NULL)
{
    static const conv_t much = { 1, 2, 2, 8, 8, 1, 1, 1 << 30, INT32_MAX, 1, 1 },
                        deep = { 1, 2, 2, 8, 8, 1, 1, 1 << 30, INT32_MAX, 1, 8 };
    static const fy_op_t ops[] = { FY_OP_CONV2D, FY_OP_CONV2D_BACKWARD_INPUT,
                                   FY_OP_CONV2D_BACKWARD_WEIGHT };
    for (size_t d = 0; d < LENGTH(floats); d++)
        for (size_t k = 0; k < LENGTH(ops); k++) {
            attrs_t attrs;
            op_case_t c = case_of(&much, ops[k], floats[d], 2, &attrs);
            run_by(&c, floats[d] == FY_DTYPE_F64 ? "fy_conv2d_f64" : "fy_conv2d_f32");
            c = case_of(&deep, ops[k], floats[d], 2, &attrs);
            run_by(&c, floats[d] == FY_DTYPE_F64 ? "fy_conv2d_f64" : "fy_conv2d_f32");
        }
}

/* An empty batch: the gradient is zero, and no division by zero happens. */
TS_TEST_WITH(an_empty_batch_has_zero_gradients, open_device, NULL)
{
    const conv_t none = { 0, 7, 6, 4, 5, 3, 3, 1, 1, 1, 1 };
    attrs_t attrs;
    op_case_t c = case_of(&none, FY_OP_CONV2D_BACKWARD_WEIGHT, FY_DTYPE_F32, 2, &attrs);
    run_case(&c);
}

/* ---- cuDNN ---- */

static int open_with_dnn(void **state)
{
    dnn_path = fake_path;
    return open_device(state);
}

TS_TEST(dnn_agrees)
{
    static const fy_op_t ops[] = { FY_OP_CONV2D, FY_OP_CONV2D_BACKWARD_INPUT,
                                   FY_OP_CONV2D_BACKWARD_WEIGHT, FY_OP_CONV2D_BACKWARD_PARAMS };
    static char bytes[1 << 20];
    if (!has_dnn()) return;
    for (int i = 0; i < NCONVS; i++)
        for (int d = 0; d < 4; d++)
            /* conv2d alone, with bias, with relu, with both; the gradients */
            for (int k = 0; k < 7; k++) {
                attrs_t attrs;
                op_case_t c = case_of(&convs[i], ops[k < 4 ? 0 : k - 3], floats[d],
                                      k < 4 && k & 1 ? 3 : 2, &attrs);
                if (k < 4 && k & 2) attrs.forward.activation = FY_ACTIVATION_RELU;
                if (k >= 4) c.accumulate = (uint32_t)(i + d + k) & 3 & (k == 6 ? 3 : 1);
                if (k < 4 && d < 2) give_signed(&c, bytes, sizeof bytes);
                const int64_t before = dnn_count();
                run_case(&c);
                if (dnn_count() - before != (i < FIRST_DEPTHWISE))
                    fail_msg("convolution %d, case %d: cuDNN was called %d times", i, k,
                             (int)(dnn_count() - before));
            }
}

/* cuDNN documents 16-byte alignment, of the bias too. */
TS_TEST(unaligned_operands_take_a_kernel)
{
    if (!has_dnn()) return;
    for (int operand = 0; operand < 4; operand++) {
        attrs_t attrs;
        op_case_t c = case_of(&convs[1], FY_OP_CONV2D, FY_DTYPE_F32, 3, &attrs);
        const int64_t before = dnn_count();
        c.shifted = 1u << operand;
        run_case(&c);
        assert_int_equal(dnn_count(), before);
    }
}

/* Factors with more bits than TF32 keeps. */
TS_TEST(f32_does_not_use_tf32)
{
    static const fy_op_t ops[] = { FY_OP_CONV2D, FY_OP_CONV2D_BACKWARD_INPUT,
                                   FY_OP_CONV2D_BACKWARD_WEIGHT };
    static float values[4096];
    if (!has_dnn()) return;
    for (int i = 0; i < 4096; i++) values[i] = 1.0f + (float)(random_bits() >> 40) * 0x1p-24f;
    for (int k = 0; k < 3; k++) {
        attrs_t attrs;
        op_case_t c = case_of(&convs[0], ops[k], FY_DTYPE_F32, 2, &attrs);
        c.given[0] = c.given[1] = values;
        run_case(&c);
    }
}

/* No deterministic algorithm without scratch: Ferry's kernel runs, and cuDNN is not queried
 * again. */
TS_TEST(operations_refused_by_dnn_take_a_kernel)
{
    attrs_t attrs;
    op_case_t c = case_of(&convs[1], FY_OP_CONV2D_BACKWARD_INPUT, FY_DTYPE_F16, 2, &attrs);
    if (!has_dnn()) return;
    const int64_t asked = driver.fake_cuda_calls("cudnnGetConvolutionBackwardDataAlgorithm_v7"),
                  ran = dnn_count();
    c.workspace_limit = 4095;
    for (int i = 0; i < 2; i++) run_by(&c, "fy_conv2d_tensor_f16");
    assert_int_equal(driver.fake_cuda_calls("cudnnGetConvolutionBackwardDataAlgorithm_v7") - asked,
                     1);
    assert_int_equal(dnn_count(), ran);
    c = case_of(&convs[1], FY_OP_CONV2D, FY_DTYPE_F32, 2, &attrs);
    /* NOT_SUPPORTED while it runs: it is not called again */
    driver.fake_cuda_fail("cudnnConvolutionForward", 1, 3000);
    for (c.workspace_limit = 0; c.workspace_limit < 3; c.workspace_limit++) {
        last_log[0] = '\0';
        run_by(&c, "fy_conv2d_gemm_f32");
        /* logged once */
        assert_int_equal(strstr(last_log, "CUDNN_STATUS_NOT_SUPPORTED (3000)") != NULL,
                         c.workspace_limit == 0);
    }
    assert_int_equal(dnn_count() - ran, 1);
}

/* The log names the setting to change: the workspace limit in the device's spec. */
TS_TEST(missing_scratch_is_logged)
{
    attrs_t attrs;
    op_case_t c = case_of(&convs[1], FY_OP_CONV2D_BACKWARD_WEIGHT, FY_DTYPE_F32, 2, &attrs);
    if (!has_dnn()) return;
    c.workspace_limit = 4095;
    last_log[0] = '\0';
    run_case(&c);
    assert_non_null(
        strstr(last_log, "it needs 4096 bytes of scratch and has 4095; workspace=1MiB"));
}

/* The calls of a convolution with a bias: of its plan first, then two that run it. */
enum { NPLANNING = 10, NCALLS = 12 };
static const char *const names[NCALLS] = { "cudnnCreateTensorDescriptor",
                                           "cudnnSetTensor4dDescriptor",
                                           "cudnnCreateFilterDescriptor",
                                           "cudnnSetFilter4dDescriptor",
                                           "cudnnCreateConvolutionDescriptor",
                                           "cudnnSetConvolution2dDescriptor",
                                           "cudnnSetConvolutionGroupCount",
                                           "cudnnSetConvolutionMathType",
                                           "cudnnSetActivationDescriptor",
                                           "cudnnGetConvolutionForwardAlgorithm_v7",
                                           "cudnnSetStream",
                                           "cudnnConvolutionBiasActivationForward" };

/* Nothing runs while a plan is made. An operation that cuDNN cannot start, rejects or cannot
 * compile is run by Ferry's kernel, and cuDNN is not queried again. */
TS_TEST(planning_errors_are_refusals)
{
    static const int codes[] = { 1001, 2000, 2002, 3000, 4001 };
    attrs_t attrs;
    if (!has_dnn()) return;
    for (int i = 0; i < NPLANNING; i++) {
        for (size_t k = 0; k < LENGTH(codes); k++) {
            op_case_t c = case_of(&convs[1], FY_OP_CONV2D, FY_DTYPE_F32, 3, &attrs);
            char number[16];
            reopen("FERRY_CUDNN", fake_path);
            const int64_t asked = driver.fake_cuda_calls(names[0]);
            driver.fake_cuda_fail(names[i], 1, codes[k]);
            last_log[0] = '\0';
            run_by(&c, "fy_conv2d_gemm_f32");
            snprintf(number, sizeof number, "(%d)", codes[k]);
            assert_non_null(strstr(last_log, names[i]));
            assert_non_null(strstr(last_log, number));
            const int64_t once = driver.fake_cuda_calls(names[0]);
            run_case(&c);
            assert_int_equal(driver.fake_cuda_calls(names[0]), once);
            assert_true(once - asked <= 3);
        }
    }
}

/* cuDNN gets the bias and never relu: it does not promise to keep NaN, and Ferry's relu does. */
TS_TEST(relu_behind_dnn_keeps_nan)
{
    attrs_t attrs;
    static float values[1 << 14];
    if (!has_dnn()) return;
    op_case_t c = case_of(&convs[0], FY_OP_CONV2D, FY_DTYPE_F32, 3, &attrs);
    attrs.forward.activation = FY_ACTIVATION_RELU;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) values[i] = i % 2 ? -1.0f : 0.5f;
    values[3] = NAN;
    c.given[0] = values;
    const int64_t before = dnn_count();
    run_by(&c, "fy_elementwise_flat_f32");
    assert_int_equal(dnn_count() - before, 1);
}

/* The stream of a capture ends with the capture: the handle must not stay bound to it. */
TS_TEST(a_capture_restores_the_stream_of_the_handle)
{
    const fy_conv2d_attrs_t attrs = FY_CONV2D_ATTRS_INIT;
    static const float bytes[2048];
    void *capture, *graph;
    if (!has_dnn()) return;
    char *memory = device_bytes(bytes, sizeof bytes);
    fy_desc_t dst = DENSE(F32, 1, 4, 1, 2),
              src[] = { DENSE(F32, 1, 4, 1, 2), DENSE(F32, 2, 1, 1, 2) };
    dst.data = memory, src[0].data = memory + 2048, src[1].data = memory + 4096;
    fy_launch_t launch = launch_of(FY_OP_CONV2D, 2, &dst, src, &attrs);
    assert_ok(cuda->launch(dev, stream, &launch));
    assert_ok(cuda->graph_begin(dev, &capture));
    assert_ok(cuda->launch(dev, capture, &launch));
    assert_ok(cuda->graph_end(dev, capture, &graph));
    /* the fake counts streams that end with a cuDNN handle bound to them */
    assert_int_equal(driver.fake_cuda_misuses(), 0);
    cuda->graph_destroy(dev, graph);
    cuda->free(dev, memory, sizeof bytes);
}

/* Each call of the first convolution fails once: the failure is explained, nothing leaks, and the
 * next convolution works. */
TS_TEST(each_dnn_call_may_fail)
{
    const fy_conv2d_attrs_t attrs = { 1, 1, 1, 1, 1, 1, 1, FY_ACTIVATION_RELU };
    static const float bytes[5120];
    if (!has_dnn()) return;
    for (int i = 0; i < NCALLS; i++) {
        fy_desc_t dst = DENSE(F32, 1, 4, 4, 8),
                  src[] = { DENSE(F32, 1, 4, 4, 8), DENSE(F32, 8, 3, 3, 8), DENSE(F32, 8) };
        reopen("FERRY_CUDNN", fake_path);
        char *memory = device_bytes(bytes, sizeof bytes);
        dst.data = memory, src[0].data = memory + 4096, src[1].data = memory + 8192,
        src[2].data = memory + 12288;
        fy_launch_t launch = launch_of(FY_OP_CONV2D, 3, &dst, src, &attrs);
        launch.workspace = memory + 16384;
        launch.workspace_nbytes = 4096;
        driver.fake_cuda_fail(names[i], 1, 4000);
        assert_failed(cuda->launch(dev, stream, &launch), FY_STATUS_INTERNAL,
                      "convolution [1 x 4 x 4 x 8] with [8 x 3 x 3 x 8]");
        driver.fake_cuda_fail(names[i], i < NPLANNING, 4003);
        if (i < NPLANNING)
            assert_failed(cuda->launch(dev, stream, &launch), FY_STATUS_OUT_OF_MEMORY, "");
        assert_ok(cuda->launch(dev, stream, &launch));
        cuda->free(dev, memory, sizeof bytes);
    }
}

/* Parts of the library are missing, or it is too new for the driver: Ferry's kernels run, and it is
 * not tried again. After a lack of memory it is tried again. */
TS_TEST(a_dnn_that_does_not_start_is_not_used)
{
    attrs_t attrs;
    op_case_t c = case_of(&convs[0], FY_OP_CONV2D, FY_DTYPE_F32, 2, &attrs);
    if (!has_dnn()) return;
    const int64_t tried = driver.fake_cuda_calls("cudnnCreate");
    for (int code = 1001; code <= 4001; code += 1000) {
        reopen("FERRY_CUDNN", fake_path);
        driver.fake_cuda_fail("cudnnCreate", 1, code);
        for (int i = 0; i < 2; i++) run_by(&c, "fy_conv2d_gemm_f32");
    }
    assert_int_equal(driver.fake_cuda_calls("cudnnCreate") - tried, 4);
    reopen("FERRY_CUDNN", fake_path);
    driver.fake_cuda_fail("cudnnCreate", 1, 4003);
    const int64_t ran = dnn_count();
    run_case(&c); /* the workspace query failed, so the launch created the handle */
    assert_int_equal(dnn_count() - ran, 1);
}

/* Launches `n` convolutions of different heights and returns how often cuDNN chose an algorithm. */
static int64_t convolve(char *memory, int64_t n)
{
    const fy_conv2d_attrs_t attrs = FY_CONV2D_ATTRS_INIT;
    const int64_t asked = driver.fake_cuda_calls("cudnnGetConvolutionForwardAlgorithm_v7");
    for (int64_t h = 1; h <= n; h++) {
        fy_desc_t dst = DENSE(F32, 1, h, 1, 2),
                  src[] = { DENSE(F32, 1, h, 1, 2), DENSE(F32, 2, 1, 1, 2) };
        dst.data = memory, src[0].data = memory + 8192, src[1].data = memory + 16384;
        fy_launch_t launch = launch_of(FY_OP_CONV2D, 2, &dst, src, &attrs);
        assert_ok(cuda->launch(dev, stream, &launch));
    }
    return driver.fake_cuda_calls("cudnnGetConvolutionForwardAlgorithm_v7") - asked;
}

/* After its first launch a convolution makes no call but those that run it. */
TS_TEST(steady_convolutions_plan_nothing)
{
    static const char *const allowed[] = { "cuCtxGetCurrent", "cudnnSetStream",
                                           "cudnnConvolutionForward" };
    static const float bytes[5120];
    if (!has_dnn()) return;
    char *memory = device_bytes(bytes, sizeof bytes);
    assert_int_equal(convolve(memory, 20), 20);
    int64_t all = driver.fake_cuda_all_calls(), counted = 0;
    for (int i = 0; i < 3; i++) counted -= driver.fake_cuda_calls(allowed[i]);
    assert_int_equal(convolve(memory, 20), 0);
    for (int i = 0; i < 3; i++) counted += driver.fake_cuda_calls(allowed[i]);
    assert_int_equal(driver.fake_cuda_all_calls() - all, counted);
    cuda->free(dev, memory, sizeof bytes);
}

/* A step runs its shapes in the same order each time, so the least recently used plan is the next
 * one that is needed. mobilenet_v3_large has about 95 shapes. */
TS_TEST(plans_of_a_step_are_kept)
{
    static const float bytes[5120];
    if (!has_dnn()) return;
    char *memory = device_bytes(bytes, sizeof bytes);
    assert_int_equal(convolve(memory, 65), 65);
    assert_int_equal(convolve(memory, 65), 0);
    assert_int_equal(convolve(memory, 95), 30);
    for (int step = 0; step < 2; step++) assert_int_equal(convolve(memory, 95), 0);
    assert_int_equal(convolve(memory, 512), 512 - 95);
    assert_int_equal(convolve(memory, 512), 0);
    const int64_t objects = driver.fake_cuda_live(FAKE_DNN_OBJECTS);
    assert_int_equal(objects, 512 * 4 + 1);
    /* bounded: the plan of height 513 replaces that of height 1, the least recently used, and this
     * one then that of height 2 */
    assert_int_equal(convolve(memory, 513), 1);
    assert_int_equal(convolve(memory, 1), 1);
    assert_int_equal(convolve(memory, 1), 0);
    assert_int_equal(driver.fake_cuda_live(FAKE_DNN_OBJECTS), objects);
    cuda->free(dev, memory, sizeof bytes);
}

TS_SUITE(.set_up = open_with_dnn, .tear_down = close_device, .prepare = load_or_skip);
