/* Epilogues of cuBLASLt: biases and their gradients in one call, relu only if the device's spec
 * allows it, TF32 only if requested. Refusals and choices are cached. */
#include "op_case.h"

static int open_fused(void **state)
{
    (void)state;
    return open_with("relu", "fused");
}
static int open_tf32(void **state)
{
    (void)state;
    return open_with("tf32", "on");
}

/* Runs the case with one product and `nkernels` kernels. */
static void run_with(const op_case_t *c, int64_t nkernels)
{
    const int64_t before = products();
    run_in(c, nkernels);
    assert_int_equal(products() - before, 1);
}

/* ---- linear ---- */

static op_case_t linear_case(int32_t dtype, const fy_linear_attrs_t *attrs)
{
    op_case_t c =
        OP_CASE(FY_OP_LINEAR, 1, 3, .attrs = attrs, .close = CLOSE, .workspace_limit = 1 << 20);
    c.dst[0] = DENSE_OF(dtype, 6, 16);
    c.src[0] = DENSE_OF(dtype, 6, 8);
    c.src[1] = DENSE_OF(dtype, 16, 8);
    c.src[2] = DENSE_OF(dtype, 16);
    return c;
}

TS_TEST(relu_keeps_nan)
{
    const fy_linear_attrs_t relu = { FY_ACTIVATION_RELU };
    float x[48];
    op_case_t c = linear_case(FY_DTYPE_F32, &relu);
    for (int i = 0; i < 48; i++) x[i] = i == 10 ? NAN : -1.0f + 0.25f * (float)(i % 9);
    c.given[0] = x;
    /* the host's relu keeps NaN; the fake's fused relu would not */
    for (c.shifted = 0; c.shifted < 16; c.shifted++) run_with(&c, 1);
    for (int32_t dtype = FY_DTYPE_F64; dtype <= FY_DTYPE_BF16; dtype++) {
        c = linear_case(dtype, &relu);
        run_case(&c);
    }
}

TS_TEST_WITH(a_fused_relu_is_one_call, open_fused, NULL)
{
    const fy_linear_attrs_t relu = { FY_ACTIVATION_RELU };
    for (int32_t dtype = FY_DTYPE_F32; dtype <= FY_DTYPE_BF16; dtype++) {
        op_case_t c = linear_case(dtype, &relu);
        run_with(&c, 0);
    }
}

/* Half precision rounds once, after the activation: a plain product in f32 to scratch, and one
 * launch; not the slow kernel. */
TS_TEST(half_activations_are_a_product_and_a_launch)
{
    static const int32_t activations[] = { FY_ACTIVATION_GELU, FY_ACTIVATION_TANH,
                                           FY_ACTIVATION_SIGMOID };
    float x[48];
    uint16_t halves[2][48];
    for (int i = 0; i < 48; i++) {
        x[i] = -2.0f + 0.25f * (float)(i % 17);
        halves[0][i] = fy__f16_from_f32(x[i]);
        halves[1][i] = fy__bf16_from_f32(x[i]);
    }
    for (int32_t dtype = FY_DTYPE_F16; dtype <= FY_DTYPE_BF16; dtype++)
        for (int i = 0; i < 3; i++)
            for (unsigned nsrc = 2; nsrc <= 3; nsrc++) {
                const fy_linear_attrs_t attrs = { activations[i] };
                op_case_t c = linear_case(dtype, &attrs);
                c.nsrc = nsrc;
                c.given[0] = halves[dtype == FY_DTYPE_BF16];
                for (c.shifted = 0; c.shifted < 2u << nsrc; c.shifted++) {
                    run_with(&c, 1);
                    assert_string_equal(driver.fake_cuda_last_kernel(), "fy_linear_finish_f32");
                }
            }
}

/* 6 * 16 sums in f32 are 384 bytes, and cuBLASLt needs 4096 after them at a multiple of 256. */
TS_TEST(scratch_is_declared)
{
    const fy_linear_attrs_t gelu = { FY_ACTIVATION_GELU };
    op_case_t c = linear_case(FY_DTYPE_BF16, &gelu);
    fy_launch_t launch = launch_of(FY_OP_LINEAR, 3, c.dst, c.src, &gelu);
    const int64_t asked = heuristics();
    assert_int_equal(cuda->workspace(dev, &launch, 1 << 20), 512 + 4096);
    assert_int_equal(cuda->workspace(dev, &launch, 600), 512); /* no bytes are left for cuBLASLt */
    /* nor for the sums: then the kernel does everything */
    assert_int_equal(cuda->workspace(dev, &launch, 383), 0);
    assert_int_equal(heuristics() - asked, 2);
    c.workspace_limit = 383;
    run_by(&c, "fy_matmul_f32");
}

static const fy_linear_attrs_t tanh_attrs = { FY_ACTIVATION_TANH };

/* 300 rows, of which 128 fit into scratch: three quarters of it are 128 rows of 64 bytes. */
static op_case_t case_of_groups(int transposed)
{
    op_case_t c = linear_case(FY_DTYPE_F16, &tanh_attrs);
    c.dst[0] = describe(FY_DTYPE_F16, 2, (const int64_t[]){ 300, 16 }, (const int64_t[]){ 24, 1 });
    c.src[0] = describe(FY_DTYPE_F16, 2, (const int64_t[]){ 300, 8 },
                        transposed ? (const int64_t[]){ 1, 300 } : (const int64_t[]){ 8, 1 });
    c.workspace_limit = 11000;
    return c;
}

/* More rows than fit into scratch: groups of a multiple of 64 rows. A steady launch makes no plan
 * for them. */
TS_TEST(many_rows_are_split_into_groups)
{
    for (int transposed = 0; transposed < 2; transposed++) {
        op_case_t c = case_of_groups(transposed);
        const int64_t before = products();
        run_in(&c, 3);
        assert_int_equal(products() - before, 3);
        const int64_t asked = heuristics();
        run_case(&c);
        assert_int_equal(heuristics(), asked);
    }
}

/* The heuristic refuses the first groups (call 1) or the 44 last rows (call 2): the kernel does
 * everything, in one launch and without scratch. */
TS_TEST(refused_groups_need_no_scratch)
{
    op_case_t c = case_of_groups(0);
    const fy_launch_t launch = launch_of(FY_OP_LINEAR, 3, c.dst, c.src, &tanh_attrs);
    for (int call = 1; call <= 2; call++) {
        assert_int_equal(close_device(state) | open_device(state), 0);
        const int64_t before = products(), launches = kernels();
        driver.fake_cuda_fail("cublasLtMatmulAlgoGetHeuristic", call, 15); /* NOT_SUPPORTED */
        assert_int_equal(cuda->workspace(dev, &launch, c.workspace_limit), 0);
        run_by(&c, "fy_matmul_f32");
        assert_int_equal(products() - before, 0);
        assert_int_equal(kernels() - launches, 1);
    }
}

/* cublasLtMatmul refuses the 44 last rows, after two groups: the kernel writes all rows again, and
 * later launches use it from the first row on. */
TS_TEST(a_group_may_be_refused_when_it_is_submitted)
{
    for (int transposed = 0; transposed < 2; transposed++) {
        op_case_t c = case_of_groups(transposed);
        const int64_t before = products(), launches = kernels();
        driver.fake_cuda_fail("cublasLtMatmul", 3, 15);
        for (int i = 0; i < 2; i++) {
            run_by(&c, "fy_matmul_f32");
            assert_int_equal(products() - before, 3);
            assert_int_equal(kernels() - launches, 3 + i);
        }
    }
}

/* An epilogue without an algorithm: the same path for every dtype, and cuBLASLt is not queried
 * again. */
TS_TEST(a_missing_epilogue_uses_scratch)
{
    const fy_linear_attrs_t relu = { FY_ACTIVATION_RELU };
    for (int32_t dtype = FY_DTYPE_F32; dtype <= FY_DTYPE_BF16; dtype++) {
        op_case_t c = linear_case(dtype, &relu);
        assert_int_equal(close_device(state) | open_device(state), 0);
        /* NOT_SUPPORTED: for the epilogue with bias */
        driver.fake_cuda_fail("cublasLtMatmulAlgoGetHeuristic", 1, 15);
        for (int i = 0; i < 2; i++) {
            const int64_t asked = heuristics();
            run_with(&c, 1);
            assert_non_null(strstr(driver.fake_cuda_last_kernel(), "fy_linear_finish"));
            assert_int_equal(heuristics() - asked, i == 0 ? 2 : 0);
        }
    }
}

/* The call itself is refused, which is cached: the first launch has no scratch for the sums, so
 * the kernel runs; the others use scratch. */
TS_TEST(a_refused_epilogue_uses_scratch)
{
    op_case_t c = linear_case(FY_DTYPE_F32, &tanh_attrs);
    c.workspace_limit = 600; /* the product alone needs none */
    const int64_t before = products();
    driver.fake_cuda_fail("cublasLtMatmul", 1, 15); /* NOT_SUPPORTED */
    for (int i = 0; i < 3; i++) run_by(&c, i == 0 ? "fy_matmul_f32" : "fy_linear_finish_f32");
    assert_int_equal(products() - before, 3);
}

static op_case_t params_case(int32_t dtype)
{
    op_case_t c =
        OP_CASE(FY_OP_LINEAR_BACKWARD_PARAMS, 2, 2, .close = CLOSE, .workspace_limit = 1 << 20);
    c.dst[0] = DENSE_OF(dtype, 16, 8);
    c.dst[1] = DENSE_OF(dtype, 16);
    c.src[0] = DENSE_OF(dtype, 6, 16);
    c.src[1] = DENSE_OF(dtype, 6, 8);
    return c;
}

/* f64, and a db that is accumulated: a separate sum by Ferry. */
TS_TEST(both_gradients_are_one_call)
{
    for (int32_t dtype = FY_DTYPE_F32; dtype <= FY_DTYPE_BF16; dtype++) {
        for (uint32_t accumulate = 0; accumulate < 4; accumulate++) {
            op_case_t c = params_case(dtype);
            c.accumulate = accumulate;
            run_with(&c, dtype == FY_DTYPE_F64 || accumulate >= 2);
        }
    }
    op_case_t c = params_case(FY_DTYPE_F32);
    /* plans promise no more alignment than the operands have, db included */
    for (c.shifted = 0; c.shifted < 16; c.shifted++) run_case(&c);
}

TS_TEST(a_refusal_is_cached)
{
    op_case_t c = params_case(FY_DTYPE_F32);
    c.workspace_limit = 0;
    const int64_t before = heuristics(), launches = kernels();
    /* NOT_SUPPORTED: for the fused epilogue */
    driver.fake_cuda_fail("cublasLtMatmulAlgoGetHeuristic", 1, 15);
    for (int i = 0; i < 3; i++) run_case(&c);
    /* and once for the plain one */
    assert_int_equal(heuristics() - before, 2);
    assert_int_equal(kernels() - launches, 3);
}

/* ---- TF32 ---- */

static float product_of_thirds(void)
{
    const float third = 1.0f / 3.0f;
    const fy_matmul_attrs_t attrs = { 0 };
    fy_desc_t src[2] = { DENSE(F32, 1, 1), DENSE(F32, 1, 1) }, dst = DENSE(F32, 1, 1);
    float result = 0;
    src[0].data = device_bytes(&third, sizeof third);
    src[1].data = device_bytes(&third, sizeof third);
    dst.data = device_bytes(&result, sizeof result);
    fy_launch_t launch = launch_of(FY_OP_MATMUL, 2, &dst, src, &attrs);
    assert_ok(cuda->launch(dev, stream, &launch));
    fetch(&result, dst.data, sizeof result);
    cuda->free(dev, src[0].data, sizeof third);
    cuda->free(dev, src[1].data, sizeof third);
    cuda->free(dev, dst.data, sizeof result);
    return result;
}

TS_TEST(f32_does_not_use_tf32)
{
    const float third = 1.0f / 3.0f;
    assert_true(product_of_thirds() == third * third);
}
TS_TEST_WITH(tf32_is_used_if_requested, open_tf32, NULL)
{
    const float third = 1.0f / 3.0f;
    assert_true(fabsf(product_of_thirds() - third * third) > 1e-5f);
}

TS_TEST(options_are_checked)
{
    void *other;
    const fy_backend_option_t wrong = { .key = "tf32", .value = "maybe" };
    assert_failed(cuda->device_open(0, 1, &wrong, &other), FY_STATUS_INVALID_ARGUMENT,
                  "tf32=maybe: tf32 may be off, on");
}

/* ---- the output of ferry info ---- */

TS_TEST(plans_are_counted)
{
    const fy_linear_attrs_t none = { 0 };
    op_case_t c = linear_case(FY_DTYPE_F32, &none);
    for (int i = 0; i < 5; i++) run_case(&c);
    read_facts();
    /* two lookups a launch */
    assert_fact("product_plans=1 of 512, 9 hits, 1 misses, 0 evictions");
    assert_fact("f32_products=f32\n");
    assert_fact("relu_of_linear=exact\n");
}

TS_SUITE(.set_up = open_device, .tear_down = close_device, .prepare = load_or_skip);
