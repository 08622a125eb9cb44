/* Dense launches of one axis use the short argument struct (args.h) of at most 128 bytes, which the
 * driver copies at each launch. This covers every op of elementwise arithmetic, copies, casts,
 * fills and optimizer steps. The results are those of the portable kernels, aligned or not. */
#include "op_case.h"

enum { MOST = 128 };

/* Runs the case with each choice of operands, of the first three, that begin one element behind an
 * aligned address. Checks the arguments of all launches. */
static void run_flat(op_case_t *c)
{
    for (c->shifted = 0; c->shifted < 1u << (c->ndst + c->nsrc) && c->shifted < 8; c->shifted++) {
        (void)driver.fake_cuda_longest_args();
        run_case(c);
        const uint64_t nbytes = driver.fake_cuda_longest_args();
        if (nbytes == 0 || nbytes > MOST)
            fail_msg("%s took %llu bytes of arguments", op_names[c->op],
                     (unsigned long long)nbytes);
        if (strstr(driver.fake_cuda_last_kernel(), "_flat") == NULL)
            fail_msg("%s ran %s", op_names[c->op], driver.fake_cuda_last_kernel());
    }
    c->shifted = 0;
}

/* Shapes that are one dense axis, or fuse into one: with a tail, of one element, a scalar, of fused
 * axes, shorter than an access. */
static const struct {
    int rank;
    int64_t dims[3];
} shapes[] = { { 1, { 1003 } }, { 1, { 1 } }, { 0, { 0 } }, { 3, { 5, 4, 8 } }, { 1, { 3 } } };

static void each_shape(fy_op_t op, int32_t dtype, int32_t result, unsigned nsrc, const void *attrs,
                       uint32_t accumulate)
{
    for (size_t i = 0; i < LENGTH(shapes); i++) {
        op_case_t c = OP_CASE(op, 1, nsrc, .attrs = attrs, .accumulate = accumulate);
        c.dst[0] = describe(result, shapes[i].rank, shapes[i].dims, NULL);
        for (unsigned k = 0; k < nsrc; k++)
            c.src[k] = describe(dtype, shapes[i].rank, shapes[i].dims, NULL);
        run_flat(&c);
    }
}

TS_TEST(arithmetic)
{
    int nops = 0;
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) {
        const fy_op_info_t *info = fy_op_get(op);
        if (!(info->flags & FY_OP_ELEMENTWISE) || info->nfields > 0 || op == FY_OP_WHERE) continue;
        for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
            const int adds = (info->flags & FY_OP_CAN_ACCUMULATE) && dtype <= FY_DTYPE_BF16;
            const int32_t result = info->dst->dtypes != 0 ? FY_DTYPE_BOOL : dtype;
            if (info->dtypes & FY_DTYPE_BIT(dtype))
                each_shape(op, dtype, result, info->nsrc_min, NULL, adds && op % 2);
        }
        nops++;
    }
    assert_true(nops > 40);
}

TS_TEST(arithmetic_with_attributes)
{
    const fy_affine_attrs_t affine = { 2.5, -1 };
    const fy_axpy_attrs_t axpy = { -0.75 };
    const fy_clamp_attrs_t clamp = { -0.5, 0.25 };
    for (size_t d = 0; d < LENGTH(floats); d++) {
        each_shape(FY_OP_AFFINE, floats[d], floats[d], 1, &affine, 0);
        each_shape(FY_OP_AXPY, floats[d], floats[d], 1, &axpy, 0);
        each_shape(FY_OP_CLAMP, floats[d], floats[d], 1, &clamp, 1);
    }
}

/* One repeated element: a scalar operand that was broadcast. */
TS_TEST(a_repeated_value)
{
    static const int64_t dims[] = { 1003 }, once[] = { 0 };
    const fy_clip_attrs_t clip = { 0.5 };
    for (size_t d = 0; d < LENGTH(floats); d++) {
        const fy_desc_t all = describe(floats[d], 1, dims, NULL),
                        one = describe(floats[d], 1, dims, once);
        op_case_t c = OP_CASE(FY_OP_MUL, 1, 2, .dst = { all }, .src = { all, one });
        run_flat(&c);
        op_case_t first = OP_CASE(FY_OP_SUB, 1, 2, .dst = { all }, .src = { one, all });
        run_flat(&first);
        op_case_t clips =
            OP_CASE(FY_OP_CLIP_BY_NORM, 1, 1, .attrs = &clip, .dst = { all }, .src = { one });
        run_flat(&clips);
    }
}

TS_TEST(copies_and_fills)
{
    const fy_fill_attrs_t fill = { 1.5, 1 };
    const fy_arange_attrs_t arange = { 3, 0.25 };
    for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        each_shape(FY_OP_COPY, dtype, dtype, 1, NULL, 0);
        each_shape(FY_OP_FILL, dtype, dtype, 0, &fill, 0);
        for (int32_t to = 0; to < FY_DTYPE_COUNT; to++) {
            const fy_cast_attrs_t cast = { to };
            each_shape(FY_OP_CAST, dtype, to, 1, &cast, 0);
        }
        op_case_t where = { .op = FY_OP_WHERE, .ndst = 1, .nsrc = 3 };
        where.dst[0] = where.src[1] = where.src[2] = describe(dtype, 1, shapes[0].dims, NULL);
        where.src[0] = describe(FY_DTYPE_BOOL, 1, shapes[0].dims, NULL);
        run_flat(&where);
        op_case_t make =
            OP_CASE(FY_OP_ARANGE, 1, 0, .attrs = &arange, .dst = { DENSE_OF(dtype, 101) });
        if (dtype != FY_DTYPE_BOOL) run_flat(&make);
    }
    for (size_t d = 0; d < LENGTH(floats); d++)
        each_shape(FY_OP_COPY, floats[d], floats[d], 1, NULL, 1);
}

/* From 1 MiB on, dense copies without accumulation use cuMemcpyDtoDAsync, aligned or not; no other
 * launch does. */
TS_TEST(large_copies_are_the_drivers)
{
    static const struct {
        int64_t n, stride;
        uint32_t accumulate;
        int is_driver;
    } cases[] = { { 1 << 18, 1, 0, 1 },
                  { (1 << 18) - 1, 1, 0, 0 },
                  { 1 << 18, 1, 1, 0 },
                  { 1 << 18, 0, 0, 0 },
                  { 1 << 18, 2, 0, 0 } };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        const int64_t dims[] = { cases[i].n }, strides[] = { cases[i].stride };
        op_case_t c = { .op = FY_OP_COPY, .ndst = 1, .nsrc = 1, .accumulate = cases[i].accumulate };
        c.dst[0] = describe(FY_DTYPE_F32, 1, dims, NULL);
        c.src[0] = describe(FY_DTYPE_F32, 1, dims, strides);
        for (c.shifted = 0; c.shifted < 3; c.shifted++) {
            const int64_t copies = driver.fake_cuda_calls("cuMemcpyDtoDAsync");
            run_in(&c, !cases[i].is_driver);
            assert_int_equal(driver.fake_cuda_calls("cuMemcpyDtoDAsync") - copies,
                             cases[i].is_driver);
        }
    }
}

TS_TEST(optimizer_steps)
{
    const fy_sgd_attrs_t sgd = { .momentum = 0.9, .weight_decay = 0.01, .nesterov = 1 };
    const fy_adam_attrs_t adam = { .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.01 };
    const fy_adadelta_attrs_t adadelta = { .rho = 0.9, .eps = 1e-6, .weight_decay = 0.01 };
    const fy_rmsprop_attrs_t rmsprop = { .alpha = 0.9, .eps = 1e-8, .weight_decay = 0.01 },
                             momentum = { .alpha = 0.9, .eps = 1e-8, .momentum = 0.9 };
    const struct {
        fy_op_t op;
        unsigned nstates, counts;
        const void *attrs;
        size_t nbytes;
    } ops[] = { { FY_OP_SGD_STEP, 0, 0, &sgd, sizeof sgd },
                { FY_OP_SGD_MOMENTUM_STEP, 1, 1, &sgd, sizeof sgd },
                { FY_OP_ADAM_STEP, 2, 1, &adam, sizeof adam },
                { FY_OP_ADADELTA_STEP, 2, 0, &adadelta, sizeof adadelta },
                { FY_OP_RMSPROP_STEP, 1, 0, &rmsprop, sizeof rmsprop },
                { FY_OP_RMSPROP_MOMENTUM_STEP, 2, 0, &momentum, sizeof momentum } };
    static const double lr = 0.1;
    static const int64_t number = 3;
    double squares[1003];
    float squares_f32[1003];
    for (size_t i = 0; i < LENGTH(squares); i++)
        squares_f32[i] = (float)(squares[i] = 0.001 * (double)i);
    for (size_t d = 0; d < 2; d++) {
        for (size_t i = 0; i < LENGTH(ops); i++) {
            op_case_t c = OP_CASE(ops[i].op, 1 + ops[i].nstates + ops[i].counts, 2, .close = CLOSE);
            c.attrs = ops[i].attrs;
            c.attrs_nbytes = ops[i].nbytes;
            for (unsigned k = 0; k <= ops[i].nstates; k++)
                c.dst[k] = describe(floats[d], 1, shapes[0].dims, NULL);
            for (unsigned k = 1; k <= ops[i].nstates; k++)
                c.given_dst[k] = d == 0 ? (const void *)squares_f32 : squares;
            if (ops[i].counts) c.dst[c.ndst - 1] = describe(FY_DTYPE_I64, 0, NULL, NULL);
            if (ops[i].counts) c.given_dst[c.ndst - 1] = &number;
            c.src[0] = c.dst[0];
            c.src[1] = describe(FY_DTYPE_F64, 0, NULL, NULL);
            c.given[1] = &lr;
            run_flat(&c);
        }
    }
}

/* Two axes need the long struct; otherwise the checks above would prove nothing. */
TS_TEST(two_axes_use_the_long_arguments)
{
    op_case_t c = { .op = FY_OP_ADD, .ndst = 1, .nsrc = 2 };
    c.dst[0] = c.src[0] = DENSE(F32, 5, 48);
    c.src[1] = describe(FY_DTYPE_F32, 2, (const int64_t[]){ 5, 48 }, (const int64_t[]){ 0, 1 });
    (void)driver.fake_cuda_longest_args();
    run_case(&c);
    assert_true(driver.fake_cuda_longest_args() > MOST);
    const int64_t dims[] = { 100 }, twice[] = { 2 };
    op_case_t gaps = { .op = FY_OP_NEG, .ndst = 1, .nsrc = 1 };
    gaps.dst[0] = describe(FY_DTYPE_F32, 1, dims, NULL);
    gaps.src[0] = describe(FY_DTYPE_F32, 1, dims, twice);
    run_case(&gaps);
    assert_true(driver.fake_cuda_longest_args() > MOST);
}

TS_SUITE(.set_up = open_device, .tear_down = close_device, .prepare = load_or_skip);
