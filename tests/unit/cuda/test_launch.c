/* Launches through the plugin's argument packing and the fake driver, against the portable kernels:
 * reductions that are split, axes that are kept, indices out of range, registered ops. Not here:
 * every op in every dtype and layout (tests/ops/test_op_matrix.c, which runs over the fake driver
 * too). */
#include "op_case.h"

/* dst of a reduction over `axes`, dense. */
static fy_desc_t reduced(const fy_desc_t *src, uint32_t axes, int keepdims, int32_t dtype)
{
    int64_t dims[FY_MAX_RANK];
    int rank = 0;
    for (int axis = 0; axis < src->rank; axis++) {
        if (!(axes >> axis & 1))
            dims[rank++] = src->dims[axis];
        else if (keepdims)
            dims[rank++] = 1;
    }
    return describe(dtype, rank, dims, NULL);
}

static void reduce_case(fy_op_t op, const fy_desc_t *src, uint32_t axes, int keepdims,
                        uint64_t workspace_limit, uint32_t accumulate)
{
    const int is_float = src->dtype <= FY_DTYPE_BF16, sums = op == FY_OP_SUM;
    const fy_reduce_attrs_t attrs = { axes, keepdims };
    op_case_t c = OP_CASE(op, 1, 1, .attrs = &attrs, .close = CLOSE,
                          .workspace_limit = workspace_limit, .accumulate = accumulate);
    c.src[0] = *src;
    c.dst[0] = reduced(src, axes != 0 ? axes : 0xff, keepdims,
                       sums && !is_float ? FY_DTYPE_I64 : src->dtype);
    run_case(&c);
}

TS_TEST(reductions)
{
    static const fy_op_t ops[] = { FY_OP_SUM, FY_OP_MAX, FY_OP_MIN, FY_OP_MEAN };
    const fy_desc_t shapes[] = {
        DENSE(F32, 200003),
        DENSE(F32, 3, 5000),
        DENSE(F32, 5000, 3),
        DENSE(F32, 5, 400, 7),
        DENSE(F32, 2, 3, 4, 5),
        DENSE(F32, 1, 1),
        describe(FY_DTYPE_F32, 0, NULL, NULL),
        describe(FY_DTYPE_F32, 3, (const int64_t[]){ 6, 50, 4 }, (const int64_t[]){ 1, 40, 7 }),
    };
    static const uint64_t limits[] = { 0, 100, 32 << 20 };
    for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        const int is_float = dtype <= FY_DTYPE_BF16;
        for (size_t i = 0; i < LENGTH(ops); i++) {
            if ((ops[i] == FY_OP_MEAN && !is_float) ||
                (dtype == FY_DTYPE_BOOL && ops[i] != FY_OP_SUM))
                continue;
            for (size_t s = 0; s < LENGTH(shapes); s++) {
                fy_desc_t src = shapes[s];
                src.dtype = dtype;
                for (uint32_t axes = 0; axes < 1u << src.rank; axes++)
                    for (size_t l = 0; l < LENGTH(limits); l++) {
                        const int adds = is_float && (ops[i] == FY_OP_SUM || ops[i] == FY_OP_MEAN);
                        reduce_case(ops[i], &src, axes, (int)(axes & 1), limits[l], 0);
                        if (adds && dtype != FY_DTYPE_F16)
                            reduce_case(ops[i], &src, axes, 0, limits[l], 1);
                    }
            }
        }
    }
}

TS_TEST(a_long_reduction_is_split)
{
    fy_desc_t src = DENSE(F32, 200003);
    int64_t before = kernels();
    reduce_case(FY_OP_SUM, &src, 0, 0, 0, 0);
    assert_int_equal(kernels() - before, 1);
    before = kernels();
    reduce_case(FY_OP_SUM, &src, 0, 0, 1 << 20, 0);
    assert_int_equal(kernels() - before, 3); /* complete pieces, the rest, the sum of both */
}

TS_TEST(empty_sources)
{
    fy_desc_t src = DENSE(F32, 3, 0);
    reduce_case(FY_OP_SUM, &src, 2, 0, 1 << 20, 0);
    reduce_case(FY_OP_MEAN, &src, 2, 0, 1 << 20, 0);
    const int64_t before = kernels();
    reduce_case(FY_OP_SUM, &src, 1, 0, 1 << 20, 0); /* no result elements, no launch */
    assert_int_equal(kernels(), before);
}

TS_TEST(losses)
{
    const int64_t dims[] = { 300, 40 }, transposed[] = { 1, 300 };
    const fy_desc_t table = describe(FY_DTYPE_F32, 2, dims, NULL), line = DENSE(F32, 100003);
    const fy_desc_t sources[][2] = { { line, line },
                                     { describe(FY_DTYPE_F32, 2, dims, transposed), table } };
    for (size_t d = 0; d < LENGTH(floats); d++) {
        for (size_t i = 0; i < LENGTH(sources); i++) {
            op_case_t c = OP_CASE(FY_OP_MSE_LOSS, 1, 2, .close = CLOSE);
            c.dst[0] = describe(floats[d], 0, NULL, NULL);
            for (int k = 0; k < 2; k++) {
                c.src[k] = sources[i][k];
                c.src[k].dtype = floats[d];
            }
            for (; c.workspace_limit < 2 << 20; c.workspace_limit += 1 << 20) run_case(&c);
        }
    }
}

TS_TEST(ops_along_an_axis)
{
    const fy_desc_t shapes[] = {
        DENSE(F32, 3, 4, 5),
        DENSE(F32, 4000),
        DENSE(F32, 40, 1, 9),
        describe(FY_DTYPE_F32, 3, (const int64_t[]){ 6, 50, 4 }, (const int64_t[]){ 1, 40, 7 }),
    };
    for (size_t s = 0; s < LENGTH(shapes); s++) {
        for (int axis = 0; axis < shapes[s].rank; axis++) {
            for (int32_t dtype = 0; dtype < FY_DTYPE_BOOL; dtype++) {
                const fy_axis_attrs_t attrs = { axis, dtype % 2 };
                op_case_t c = OP_CASE(FY_OP_ARGMAX, 1, 1, .attrs = &attrs, .src = { shapes[s] });
                c.src[0].dtype = dtype;
                c.dst[0] = reduced(&c.src[0], 1u << axis, dtype % 2, FY_DTYPE_I64);
                run_case(&c);
            }
        }
    }
}

TS_TEST(gathers)
{
    const int32_t few[] = { 0, 4, 2, 2 };
    const int64_t wild[] = { 0, 7, -3, 4, 4, 1 };
    for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        op_case_t c = { .op = FY_OP_GATHER, .ndst = 1, .nsrc = 2, .given = { NULL, few } };
        c.src[0] = describe(dtype, 2, (const int64_t[]){ 5, 6 }, (const int64_t[]){ 1, 5 });
        c.src[1] = DENSE(I32, 4);
        c.dst[0] = DENSE_OF(dtype, 4, 6);
        run_case(&c);
        op_case_t out = OP_CASE(FY_OP_GATHER, 1, 2, .given = { NULL, wild }, .expected_fault = 1);
        out.src[0] = DENSE_OF(dtype, 5, 2, 3);
        out.src[1] = DENSE(I64, 2, 3);
        out.dst[0] = DENSE_OF(dtype, 2, 3, 2, 3);
        run_case(&out);
    }
}

static fy_status_t own_kernel(const fy_launch_t *launch, void *native)
{
    *(void **)launch->user = native;
    return FY_STATUS_OK;
}

TS_TEST(registered_ops_get_the_native_stream)
{
    void *seen = NULL;
    fy_desc_t x = DENSE(F32, 4);
    fy_launch_t launch = { .struct_size = sizeof launch,
                           .op = FY_OP_BUILTIN_COUNT,
                           .ndst = 1,
                           .dst = &x,
                           .nelem = 4,
                           .kernel = own_kernel,
                           .user = &seen };
    assert_int_equal(cuda->supports(dev, &launch), 1);
    assert_ok(cuda->launch(dev, stream, &launch));
    assert_ptr_equal(seen, *(void **)stream);
    assert_ptr_equal(cuda->stream_native(dev, stream), seen);
    launch.kernel = NULL;
    assert_int_equal(cuda->supports(dev, &launch), 0);
    assert_failed(cuda->launch(dev, stream, &launch), FY_STATUS_UNSUPPORTED,
                  "registered without a kernel");
}

TS_SUITE(.set_up = open_device, .tear_down = close_device, .prepare = load_or_skip);
