/* matmul of the CUDA plugin: which calls become a cuBLASLt product and which use the fallback
 * kernel. The fake cuBLASLt computes from the descriptors that it gets. Also the driver calls of a
 * steady step, and several threads on one device. */
#include <pthread.h>

#include "op_case.h"

/* Shapes of a and b, transposes, and whether cuBLASLt takes it. */
typedef struct product {
    int rank_a, rank_b;
    int64_t a[4], a_strides[4], b[4], b_strides[4];
    int transpose_a, transpose_b;
    int64_t d_strides[4]; /* all 0: dense */
    int lt_calls;         /* 0: the kernel */
} product_t;

static const product_t shapes[] = {
    { 2, 2, { 5, 7 }, { 7, 1 }, { 7, 3 }, { 3, 1 }, 0, 0, { 0 }, 1 },
    { 2, 2, { 7, 5 }, { 5, 1 }, { 7, 3 }, { 3, 1 }, 1, 0, { 0 }, 1 },
    { 2, 2, { 5, 7 }, { 7, 1 }, { 3, 7 }, { 7, 1 }, 0, 1, { 0 }, 1 },
    { 2, 2, { 7, 5 }, { 5, 1 }, { 3, 7 }, { 7, 1 }, 1, 1, { 0 }, 1 },
    /* transposed views */
    { 2, 2, { 5, 7 }, { 1, 5 }, { 7, 3 }, { 1, 7 }, 0, 0, { 0 }, 1 },
    /* transposed twice */
    { 2, 2, { 7, 5 }, { 1, 7 }, { 7, 3 }, { 3, 1 }, 1, 0, { 0 }, 1 },
    /* rows with gaps */
    { 2, 2, { 5, 7 }, { 16, 1 }, { 7, 3 }, { 9, 1 }, 0, 0, { 8, 1 }, 1 },
    /* a dot product */
    { 2, 2, { 1, 7 }, { 7, 1 }, { 7, 1 }, { 1, 1 }, 0, 0, { 0 }, 1 },
    /* the stride of an axis of length 1 */
    { 2, 2, { 1, 7 }, { 0, 1 }, { 7, 4 }, { 4, 1 }, 0, 0, { 0 }, 1 },
    /* an outer product */
    { 2, 2, { 5, 1 }, { 1, 1 }, { 1, 4 }, { 4, 1 }, 0, 0, { 0 }, 1 },
    /* over an empty axis: zeros */
    { 2, 2, { 5, 0 }, { 1, 1 }, { 0, 4 }, { 4, 1 }, 0, 0, { 0 }, 0 },
    /* a strided batch */
    { 3, 3, { 4, 5, 7 }, { 35, 7, 1 }, { 4, 7, 3 }, { 21, 3, 1 }, 0, 0, { 0 }, 1 },
    /* folded into rows */
    { 3, 2, { 4, 5, 7 }, { 35, 7, 1 }, { 7, 3 }, { 3, 1 }, 0, 0, { 0 }, 1 },
    /* cannot be folded */
    { 3, 2, { 4, 7, 5 }, { 35, 5, 1 }, { 7, 3 }, { 3, 1 }, 1, 0, { 0 }, 1 },
    /* a repeats */
    { 2, 3, { 5, 7 }, { 7, 1 }, { 4, 7, 3 }, { 21, 3, 1 }, 0, 0, { 0 }, 1 },
    /* both repeat, in turn */
    { 4, 4, { 2, 1, 5, 7 }, { 35, 35, 7, 1 }, { 1, 3, 7, 4 }, { 84, 28, 4, 1 }, 0, 0, { 0 }, 2 },
    /* two axes fuse */
    { 4, 4, { 2, 3, 5, 7 }, { 105, 35, 7, 1 }, { 2, 3, 7, 4 }, { 84, 28, 4, 1 }, 0, 0, { 0 }, 1 },
    { 4, 3, { 2, 3, 5, 7 }, { 105, 35, 7, 1 }, { 3, 7, 4 }, { 28, 4, 1 }, 0, 1 * 0, { 0 }, 2 },
    /* no unit stride: the kernel */
    { 2, 2, { 5, 7 }, { 20, 2 }, { 7, 3 }, { 3, 1 }, 0, 0, { 0 }, 0 },
    { 2, 2, { 5, 7 }, { 7, 1 }, { 7, 3 }, { 3, 1 }, 0, 0, { 1, 5 }, 0 }, /* dst is column-major */
    { 3, 3, { 2, 40, 33 }, { 1, 70, 2 }, { 2, 33, 17 }, { 561, 17, 1 }, 0, 0, { 0 }, 0 },
    { 2, 2, { 64, 48 }, { 48, 1 }, { 48, 80 }, { 80, 1 }, 0, 0, { 0 }, 1 },
    /* more than one tile of the kernel each way */
    { 2, 2, { 70, 37 }, { 80, 2 }, { 37, 131 }, { 131, 1 }, 0, 0, { 0 }, 0 },
    /* both transposed */
    { 3, 3, { 2, 37, 70 }, { 9000, 2, 80 }, { 1, 65, 37 }, { 1, 1, 65 }, 1, 1, { 0 }, 0 },
};

static op_case_t case_of(const product_t *p, int32_t dtype, fy_matmul_attrs_t *attrs)
{
    op_case_t c =
        OP_CASE(FY_OP_MATMUL, 1, 2, .attrs = attrs, .close = CLOSE, .workspace_limit = 1 << 20);
    const int rank = p->rank_a > p->rank_b ? p->rank_a : p->rank_b;
    int64_t dims[4];
    *attrs = (fy_matmul_attrs_t){ p->transpose_a, p->transpose_b };
    for (int axis = 0; axis < rank - 2; axis++) {
        int in_a = axis - (rank - p->rank_a), in_b = axis - (rank - p->rank_b);
        int64_t a = in_a >= 0 ? p->a[in_a] : 1, b = in_b >= 0 ? p->b[in_b] : 1;
        dims[axis] = a > b ? a : b;
    }
    dims[rank - 2] = p->a[p->rank_a - 2 + p->transpose_a];
    dims[rank - 1] = p->b[p->rank_b - 1 - p->transpose_b];
    c.src[0] = describe(dtype, p->rank_a, p->a, p->a_strides);
    c.src[1] = describe(dtype, p->rank_b, p->b, p->b_strides);
    c.dst[0] = describe(dtype, rank, dims, p->d_strides[0] != 0 ? p->d_strides : NULL);
    return c;
}

/* First: a process loads the library once. */
TS_TEST(missing_cublaslt_is_logged)
{
    fy_matmul_attrs_t attrs;
    op_case_t c = case_of(&shapes[0], FY_DTYPE_F32, &attrs);
    fy_launch_t launch = launch_of(FY_OP_MATMUL, 2, c.dst, c.src, &attrs);
    reopen("FERRY_CUBLASLT", "/nonexistent/libcublasLt.so");
    assert_int_equal(cuda->supports(dev, &launch), 0);
    assert_int_equal(cuda->workspace(dev, &launch, 1 << 20), 0);
    assert_failed(cuda->launch(dev, stream, &launch), FY_STATUS_UNSUPPORTED,
                  "/nonexistent/libcublasLt.so");
    reopen("FERRY_CUBLASLT", "none"); /* requested: Ferry's kernel */
    for (size_t d = 0; d < 4; d++) {
        c = case_of(&shapes[0], floats[d], &attrs);
        c.workspace_limit = 0;
        run_case(&c);
        assert_non_null(strstr(driver.fake_cuda_last_kernel(), "fy_matmul"));
    }
    use_fake();
}

TS_TEST(products_agree)
{
    for (size_t i = 0; i < LENGTH(shapes); i++) {
        for (size_t d = 0; d < 4; d++) {
            fy_matmul_attrs_t attrs;
            op_case_t c = case_of(&shapes[i], floats[d], &attrs);
            for (c.accumulate = 0; c.accumulate < 2; c.accumulate++) {
                const int64_t before = products();
                run_case(&c);
                const int64_t calls = products() - before;
                if (calls != shapes[i].lt_calls)
                    fail_msg("product %zu made %d cuBLASLt calls", i, (int)calls);
                c.workspace_limit = c.accumulate ? 1 << 20 : 0; /* without scratch too */
            }
        }
    }
    assert_non_null(strstr(last_log, "slow kernel")); /* a slow path is logged */
}

/* Operands of a dense product at the addresses of a, b and d. */
typedef struct raw {
    fy_desc_t src[2], dst;
} raw_t;
static const fy_matmul_attrs_t plain = { 0 };

static fy_launch_t product_of(raw_t *raw, fy_desc_t a, fy_desc_t b, fy_desc_t d, char *at[3])
{
    *raw = (raw_t){ { a, b }, d };
    raw->src[0].data = at[0];
    raw->src[1].data = at[1];
    raw->dst.data = at[2];
    return launch_of(FY_OP_MATMUL, 2, &raw->dst, raw->src, &plain);
}

/* A view that begins in the middle: plans must not promise more alignment than the view has (the
 * fake checks). */
TS_TEST(unaligned_addresses_work)
{
    uint16_t bytes[512] = { 0 };
    char *memory = device_bytes(bytes, sizeof bytes);
    const fy_desc_t x = DENSE(F16, 4, 4);
    for (int shift = 0; shift <= 64; shift += 2) {
        raw_t raw;
        char *at[] = { memory + shift, memory + 256 + shift, memory + 512 + 2 * shift };
        const fy_launch_t launch = product_of(&raw, x, x, x, at);
        assert_ok(cuda->launch(dev, stream, &launch));
        assert_ok(cuda->fill(dev, stream, memory, 0, 2)); /* the device is not lost */
    }
    cuda->free(dev, memory, sizeof bytes);
}

TS_TEST(products_without_an_algorithm_take_the_kernel)
{
    fy_matmul_attrs_t attrs;
    op_case_t c = case_of(&shapes[0], FY_DTYPE_BF16, &attrs);
    const int64_t before = heuristics();
    c.workspace_limit = 0;
    last_log[0] = '\0';
    driver.fake_cuda_fail("cublasLtMatmulAlgoGetHeuristic", 1, 15); /* NOT_SUPPORTED */
    run_by(&c, "fy_matmul_f32");
    assert_non_null(strstr(last_log, "no algorithm"));
    run_by(&c, "fy_matmul_f32"); /* a refusal is cached: cuBLASLt is not queried again */
    assert_int_equal(heuristics() - before, 1);
}

/* The heuristic offers an algorithm that cublasLtMatmul then refuses: it is called once. */
TS_TEST(a_refused_call_is_cached)
{
    fy_matmul_attrs_t attrs;
    op_case_t c = case_of(&shapes[0], FY_DTYPE_F32, &attrs);
    const int64_t asked = heuristics(), ran = products();
    driver.fake_cuda_fail("cublasLtMatmul", 1, 15); /* NOT_SUPPORTED */
    for (int i = 0; i < 3; i++) {
        c.workspace_limit = i * 1000u; /* with other scratch too */
        c.accumulate = 1;
        run_by(&c, "fy_matmul_f32");
    }
    assert_int_equal(heuristics() - asked, 1);
    assert_int_equal(products() - ran, 1);
}

/* Two calls, of which the second one is refused: a kernel would add the product of the first one
 * again, so a launch that accumulates fails. One that assigns is run by the kernel. */
TS_TEST(products_are_added_once)
{
    static const float bytes[1024];
    fy_matmul_attrs_t attrs;
    op_case_t c = case_of(&shapes[15], FY_DTYPE_F32, &attrs);
    driver.fake_cuda_fail("cublasLtMatmul", 2, 15); /* NOT_SUPPORTED */
    run_by(&c, "fy_matmul_f32");
    char *memory = device_bytes(bytes, sizeof bytes);
    c.dst[0].data = memory, c.src[0].data = memory + 1024, c.src[1].data = memory + 2048;
    fy_launch_t launch = launch_of(FY_OP_MATMUL, 2, c.dst, c.src, &attrs);
    launch.accumulate = 1;
    const int64_t launches = kernels();
    driver.fake_cuda_fail("cublasLtMatmul", 2, 15);
    assert_failed(cuda->launch(dev, stream, &launch), FY_STATUS_INTERNAL,
                  "cuBLASLt refused product 2 of 2");
    assert_int_equal(kernels(), launches);
    assert_ok(cuda->launch(dev, stream, &launch));
    assert_int_equal(kernels() - launches, 1);
    cuda->free(dev, memory, sizeof bytes);
}

/* ---- plans ---- */

TS_TEST(plans_are_kept_and_bounded)
{
    float bytes[4096] = { 0 };
    char *memory = device_bytes(bytes, sizeof bytes);
    char *at[] = { memory, memory + 256, memory + 8192 };
    for (int round = 0; round < 3; round++) {
        const int64_t asked = heuristics();
        for (int64_t n = 1; n <= (round < 2 ? 30 : 600); n++) {
            raw_t raw;
            const fy_launch_t launch =
                product_of(&raw, DENSE(F32, 1, 2), DENSE(F32, 2, n), DENSE(F32, 1, n), at);
            assert_ok(cuda->launch(dev, stream, &launch));
        }
        assert_int_equal(heuristics() - asked, round == 0 ? 30 : round == 1 ? 0 : 570);
    }
    assert_true(driver.fake_cuda_live(FAKE_LT_OBJECTS) <= 512 * 4 + 1);
    cuda->free(dev, memory, sizeof bytes);
}

/* ---- a steady step ---- */

TS_TEST(steady_launches_make_no_other_calls)
{
    static const char *const allowed[] = { "cuCtxGetCurrent", "cuLaunchKernel", "cublasLtMatmul" };
    float bytes[3 * 1024] = { 0 };
    char *memory = device_bytes(bytes, sizeof bytes);
    char *at[] = { memory, memory + 4096, memory + 8192 };
    const fy_reduce_attrs_t axes = { 0 };
    const fy_desc_t x = DENSE(F32, 32, 32);
    raw_t raw;
    fy_desc_t sum = { .dtype = FY_DTYPE_F32, .data = at[1] };
    const fy_launch_t product = product_of(&raw, x, x, x, at);
    const fy_launch_t launches[] = { launch_of(FY_OP_ADD, 2, &raw.dst, raw.src, NULL), product,
                                     launch_of(FY_OP_SUM, 1, &sum, &raw.dst, &axes) };
    int64_t all = 0, counted = 0;
    for (int round = 0; round < 11; round++) {
        if (round == 1) {
            all = driver.fake_cuda_all_calls();
            for (int i = 0; i < 3; i++) counted += driver.fake_cuda_calls(allowed[i]);
        }
        for (int i = 0; i < 3; i++) {
            /* as before each launch: makes no driver call */
            (void)cuda->workspace(dev, &launches[i], 0x1000);
            assert_ok(cuda->launch(dev, stream, &launches[i]));
        }
    }
    all = driver.fake_cuda_all_calls() - all;
    for (int i = 0; i < 3; i++) counted -= driver.fake_cuda_calls(allowed[i]);
    assert_int_equal(all, -counted); /* only these calls: no allocation, no wait, no plan */
    assert_int_equal(all, 10 * 3 * 2);
    cuda->free(dev, memory, sizeof bytes);
}

/* ---- threads ---- */

static void *work(void *unused)
{
    void *own = NULL, *event = NULL, *memory = NULL;
    fy_status_t status = cuda->stream_create(dev, FY_STREAM_COMPUTE, 0, NULL, &own);
    if (status == FY_STATUS_OK) status = cuda->event_create(dev, &event);
    for (int64_t i = 0; status == FY_STATUS_OK && i < 60; i++) {
        const int64_t n = 1 + i % 20;
        raw_t raw;
        status = cuda->alloc(dev, 4096, &memory);
        if (status != FY_STATUS_OK) break;
        char *at[] = { memory, (char *)memory + 256, (char *)memory + 2048 };
        const fy_launch_t launch =
            product_of(&raw, DENSE(F32, 4, 4), DENSE(F32, 4, n), DENSE(F32, 4, n), at);
        status = cuda->fill(dev, own, memory, 0, 4096);
        if (status == FY_STATUS_OK) status = cuda->launch(dev, own, &launch);
        if (status == FY_STATUS_OK) status = cuda->event_record(dev, event, own);
        if (status == FY_STATUS_OK) status = cuda->event_sync(dev, event, FY_FOREVER);
        cuda->free(dev, memory, 4096);
    }
    if (event != NULL) cuda->event_destroy(dev, event);
    if (own != NULL) cuda->stream_destroy(dev, own);
    (void)unused;
    return (void *)(intptr_t)status;
}

TS_TEST(threads_share_a_device)
{
    pthread_t threads[4];
    void *status;
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, NULL), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &status);
        assert_int_equal((intptr_t)status, FY_STATUS_OK);
    }
}

TS_SUITE(.set_up = open_device, .tear_down = close_device, .prepare = load_or_skip);
