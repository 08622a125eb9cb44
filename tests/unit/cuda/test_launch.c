/* Every op family through the plugin's argument packing and the fake driver, against the portable
 * kernels: all dtypes, and the layouts that fusing, broadcasting and splitting could get wrong.
 * Proves the host side of a launch; the device code is interpreted, not run. */
#include "op_case.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))
static const int32_t floats[] = { FY_DTYPE_F32, FY_DTYPE_F64, FY_DTYPE_F16, FY_DTYPE_BF16 };
static const int32_t integers[] = { FY_DTYPE_I32, FY_DTYPE_I64, FY_DTYPE_U8 };

/* Layouts of (dst, a, b, c): equal dims, strides 0 where an operand repeats. */
typedef struct layout {
    int rank;
    int64_t dims[4], dst[4], a[4], b[4];
} layout_t;
static const layout_t layouts[] = {
    /* dense, with a tail after 16-byte accesses */
    { 1, { 1003 }, { 1 }, { 1 }, { 1 } },
    { 0, { 0 }, { 0 }, { 0 }, { 0 } }, /* a scalar */
    /* a row for all rows */
    { 2, { 7, 33 }, { 33, 1 }, { 33, 1 }, { 0, 1 } },
    /* a is transposed */
    { 2, { 7, 33 }, { 33, 1 }, { 1, 7 }, { 33, 1 } },
    /* dst has gaps; b is a column */
    { 2, { 7, 33 }, { 40, 1 }, { 33, 1 }, { 1, 0 } },
    /* one value for all */
    { 3, { 3, 4, 5 }, { 20, 5, 1 }, { 0, 0, 0 }, { 20, 5, 1 } },
    { 4, { 2, 3, 4, 5 }, { 60, 20, 5, 1 }, { 60, 5, 15, 1 }, { 0, 20, 0, 1 } }, /* no axes fuse */
    /* an axis of length 1; steps of 2 */
    { 4, { 2, 1, 4, 5 }, { 20, 20, 5, 1 }, { 40, 3, 10, 2 }, { 20, 1, 5, 1 } },
};

static fy_desc_t with(const layout_t *l, int32_t dtype, const int64_t *strides)
{
    return describe(dtype, l->rank, l->dims, strides);
}

static void elementwise(fy_op_t op, int32_t dtype, int32_t result, unsigned nsrc, const void *attrs,
                        uint32_t accumulate)
{
    for (size_t i = 0; i < LENGTH(layouts); i++) {
        const layout_t *l = &layouts[i];
        op_case_t c = OP_CASE(op, 1, nsrc, .attrs = attrs, .accumulate = accumulate);
        c.dst[0] = with(l, result, l->dst);
        c.src[0] = with(l, dtype, l->a);
        c.src[1] = with(l, dtype, l->b);
        run_case(&c);
    }
}

TS_TEST(unary_ops)
{
    static const fy_op_t any[] = { FY_OP_NEG, FY_OP_ABS },
                         of_floats[] = { FY_OP_EXP,  FY_OP_LOG,     FY_OP_SQRT,
                                         FY_OP_TANH, FY_OP_SIGMOID, FY_OP_RELU };
    const fy_affine_attrs_t affine = { 2.5, -1 };
    for (size_t d = 0; d < LENGTH(floats); d++) {
        for (uint32_t accumulate = 0; accumulate < 2; accumulate++) {
            for (size_t i = 0; i < LENGTH(any); i++)
                elementwise(any[i], floats[d], floats[d], 1, NULL, accumulate);
            for (size_t i = 0; i < LENGTH(of_floats); i++)
                elementwise(of_floats[i], floats[d], floats[d], 1, NULL, accumulate);
            elementwise(FY_OP_AFFINE, floats[d], floats[d], 1, &affine, accumulate);
        }
    }
    for (size_t d = 0; d < LENGTH(integers); d++)
        for (size_t i = 0; i < LENGTH(any); i++)
            elementwise(any[i], integers[d], integers[d], 1, NULL, 0);
}

TS_TEST(binary_ops)
{
    static const fy_op_t any[] = { FY_OP_ADD, FY_OP_SUB, FY_OP_MUL, FY_OP_MAXIMUM, FY_OP_MINIMUM },
                         of_floats[] = { FY_OP_DIV, FY_OP_POW };
    for (size_t d = 0; d < LENGTH(floats); d++) {
        for (uint32_t accumulate = 0; accumulate < 2; accumulate++) {
            for (size_t i = 0; i < LENGTH(any); i++)
                elementwise(any[i], floats[d], floats[d], 2, NULL, accumulate);
            for (size_t i = 0; i < LENGTH(of_floats); i++)
                elementwise(of_floats[i], floats[d], floats[d], 2, NULL, accumulate);
        }
    }
    for (size_t d = 0; d < LENGTH(integers); d++)
        for (size_t i = 0; i < LENGTH(any); i++)
            elementwise(any[i], integers[d], integers[d], 2, NULL, 0);
    for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++)
        for (fy_op_t op = FY_OP_EQ; op <= FY_OP_GE; op++)
            elementwise(op, dtype, FY_DTYPE_BOOL, 2, NULL, 0);
}

TS_TEST(copies_and_casts)
{
    const fy_axpy_attrs_t axpy = { -0.75 };
    for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        elementwise(FY_OP_COPY, dtype, dtype, 1, NULL, 0);
        for (int32_t to = 0; to < FY_DTYPE_COUNT; to++) {
            const fy_cast_attrs_t cast = { to };
            elementwise(FY_OP_CAST, dtype, to, 1, &cast, 0);
        }
    }
    for (size_t d = 0; d < LENGTH(floats); d++) {
        elementwise(FY_OP_COPY, floats[d], floats[d], 1, NULL, 1);
        elementwise(FY_OP_AXPY, floats[d], floats[d], 1, &axpy, 0);
    }
}

TS_TEST(where_takes_every_dtype)
{
    for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        for (size_t i = 0; i < LENGTH(layouts); i++) {
            const layout_t *l = &layouts[i];
            op_case_t c = { .op = FY_OP_WHERE, .ndst = 1, .nsrc = 3 };
            c.dst[0] = with(l, dtype, l->dst);
            c.src[0] = with(l, FY_DTYPE_BOOL, l->b);
            c.src[1] = with(l, dtype, l->a);
            c.src[2] = with(l, dtype, l->dst);
            run_case(&c);
        }
    }
}

TS_TEST(fills_ranges_and_draws)
{
    const fy_fill_attrs_t fill = { 1.5, 1 };
    const fy_arange_attrs_t arange = { 3, 0.25 };
    const fy_rand_attrs_t rand = { -1, 3 };
    const fy_randn_attrs_t randn = { 0.5, 2 };
    const int64_t rng[2] = { 12345, 77 };
    for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        for (size_t i = 0; i < LENGTH(layouts); i++) {
            op_case_t c = { .op = FY_OP_FILL, .ndst = 1, .attrs = &fill };
            c.dst[0] = with(&layouts[i], dtype, layouts[i].dst);
            run_case(&c);
        }
        op_case_t c = OP_CASE(FY_OP_ARANGE, 1, 0, .attrs = &arange,
                              .dst = { describe(dtype, 1, (const int64_t[]){ 200 }, NULL) });
        if (dtype != FY_DTYPE_BOOL) run_case(&c);
    }
    for (size_t d = 0; d < LENGTH(floats); d++) {
        for (size_t i = 0; i < LENGTH(layouts); i++) {
            op_case_t c = OP_CASE(FY_OP_RAND, 2, 0, .attrs = &rand, .given_dst = { NULL, rng });
            c.dst[0] = with(&layouts[i], floats[d], layouts[i].dst);
            c.dst[1] = DENSE(I64, 2);
            run_case(&c);
            c.op = FY_OP_RANDN;
            c.attrs = &randn;
            run_case(&c);
        }
    }
    op_case_t perm = OP_CASE(FY_OP_RANDPERM, 2, 0, .dst = { DENSE(I64, 1000), DENSE(I64, 2) },
                             .given_dst = { NULL, rng });
    run_case(&perm);
}

/* ---- reductions ---- */

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
    int64_t before = fake.fake_cuda_calls("cuLaunchKernel");
    reduce_case(FY_OP_SUM, &src, 0, 0, 0, 0);
    assert_int_equal(fake.fake_cuda_calls("cuLaunchKernel") - before, 1);
    before = fake.fake_cuda_calls("cuLaunchKernel");
    reduce_case(FY_OP_SUM, &src, 0, 0, 1 << 20, 0);
    /* complete pieces, the rest, the sum of both */
    assert_int_equal(fake.fake_cuda_calls("cuLaunchKernel") - before, 3);
}

TS_TEST(empty_sources)
{
    fy_desc_t src = DENSE(F32, 3, 0);
    reduce_case(FY_OP_SUM, &src, 2, 0, 1 << 20, 0);
    reduce_case(FY_OP_MEAN, &src, 2, 0, 1 << 20, 0);
    int64_t before = fake.fake_cuda_calls("cuLaunchKernel");
    reduce_case(FY_OP_SUM, &src, 1, 0, 1 << 20, 0); /* no result elements, no launch */
    assert_int_equal(fake.fake_cuda_calls("cuLaunchKernel"), before);
}

TS_TEST(losses)
{
    const layout_t more[] = { { 1, { 100003 }, { 1 }, { 1 }, { 1 } },
                              { 2, { 300, 40 }, { 40, 1 }, { 1, 300 }, { 40, 1 } } };
    for (size_t d = 0; d < LENGTH(floats); d++) {
        for (size_t i = 0; i < LENGTH(layouts) + LENGTH(more); i++) {
            const layout_t *l = i < LENGTH(layouts) ? &layouts[i] : &more[i - LENGTH(layouts)];
            for (uint64_t limit = 0; limit < 2 << 20; limit += 1 << 20) {
                op_case_t c =
                    OP_CASE(FY_OP_MSE_LOSS, 1, 2, .close = CLOSE, .workspace_limit = limit);
                c.dst[0] = describe(floats[d], 0, NULL, NULL);
                c.src[0] = with(l, floats[d], l->a);
                c.src[1] = with(l, floats[d], l->b);
                run_case(&c);
            }
        }
    }
}

TS_TEST(ops_along_an_axis)
{
    const fy_desc_t shapes[] = {
        DENSE(F32, 5, 7),
        DENSE(F32, 3, 4, 5),
        DENSE(F32, 4000),
        DENSE(F32, 1),
        DENSE(F32, 40, 1, 9),
        describe(FY_DTYPE_F32, 3, (const int64_t[]){ 6, 50, 4 }, (const int64_t[]){ 1, 40, 7 }),
    };
    for (size_t s = 0; s < LENGTH(shapes); s++) {
        for (int axis = 0; axis < shapes[s].rank; axis++) {
            const fy_axis_attrs_t attrs = { axis, 0 }, keeps = { axis, 1 };
            for (size_t d = 0; d < LENGTH(floats); d++) {
                op_case_t c = OP_CASE(FY_OP_SOFTMAX, 1, 1, .attrs = &attrs, .close = CLOSE);
                c.src[0] = shapes[s];
                c.src[0].dtype = floats[d];
                c.dst[0] = reduced(&c.src[0], 0, 0, floats[d]);
                run_case(&c);
                c.op = FY_OP_LOG_SOFTMAX;
                run_case(&c);
            }
            for (int32_t dtype = 0; dtype < FY_DTYPE_BOOL; dtype++) {
                op_case_t c = OP_CASE(FY_OP_ARGMAX, 1, 1, .attrs = dtype % 2 ? &keeps : &attrs);
                c.src[0] = shapes[s];
                c.src[0].dtype = dtype;
                c.dst[0] = reduced(&c.src[0], 1u << axis, dtype % 2, FY_DTYPE_I64);
                run_case(&c);
            }
        }
    }
}

/* ---- moving data ---- */

TS_TEST(gathers)
{
    const int32_t few[] = { 0, 4, 2, 2 };
    const int64_t wild[] = { 0, 7, -3, 4, 4, 1 };
    for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        op_case_t c = { .op = FY_OP_GATHER, .ndst = 1, .nsrc = 2, .given = { NULL, few } };
        c.src[0] = describe(dtype, 2, (const int64_t[]){ 5, 6 }, (const int64_t[]){ 1, 5 });
        c.src[1] = DENSE(I32, 4);
        c.dst[0] = describe(dtype, 2, (const int64_t[]){ 4, 6 }, NULL);
        run_case(&c);
        op_case_t out = OP_CASE(FY_OP_GATHER, 1, 2, .given = { NULL, wild }, .expected_fault = 1);
        out.src[0] = describe(dtype, 3, (const int64_t[]){ 5, 2, 3 }, NULL);
        out.src[1] = DENSE(I64, 2, 3);
        out.dst[0] = describe(dtype, 4, (const int64_t[]){ 2, 3, 2, 3 }, NULL);
        run_case(&out);
    }
}

TS_TEST(concats)
{
    for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        for (int axis = 0; axis < 3; axis++) {
            const fy_axis_attrs_t attrs = { axis, 0 };
            op_case_t c = { .op = FY_OP_CONCAT, .ndst = 1, .nsrc = 10, .attrs = &attrs };
            int64_t dims[3] = { 2, 3, 4 }, length = 0;
            for (unsigned i = 0; i < c.nsrc; i++) {
                dims[axis] = i % 4; /* some are empty */
                length += dims[axis];
                c.src[i] = i == 3 ? describe(dtype, 3, dims, (const int64_t[]){ 1, 10, 40 })
                                  : describe(dtype, 3, dims, NULL);
            }
            dims[axis] = length;
            c.dst[0] = describe(dtype, 3, dims, NULL);
            run_case(&c);
        }
    }
}

/* ---- combinations that are not in the table ---- */

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

TS_TEST(dtypes_beyond_the_table_are_refused)
{
    fy_desc_t x = DENSE(I32, 4);
    fy_launch_t launch = launch_of(FY_OP_EXP, 1, &x, &x, NULL);
    int64_t before = fake.fake_cuda_all_calls();
    assert_int_equal(cuda->supports(dev, &launch), 0);
    assert_failed(cuda->launch(dev, stream, &launch), FY_STATUS_UNSUPPORTED, "exp");
    assert_int_equal(fake.fake_cuda_all_calls(), before);
}

TS_SUITE(.set_up = open_device, .tear_down = close_device, .prepare = load_or_skip);
