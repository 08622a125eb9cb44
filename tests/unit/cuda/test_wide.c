/* Accesses of 16 bytes, for every family that has them: rows, bias rows, repeated values and tails.
 * Operands at unaligned addresses must give the same numbers through other accesses. The fake
 * driver refuses a launch whose operands are not aligned as it declares. With
 * FAKE_CUDA_KERNELS=ptx, each unaligned access is a fault. Both would be a fault on a card. */
#include "op_case.h"

/* Layouts of (dst, a, b): equal dims. wide: every dtype's 16-byte accesses fit it when nothing is
 * shifted. */
typedef struct layout {
    int rank, wide;
    int64_t dims[4], dst[4], a[4], b[4];
} layout_t;
static const layout_t layouts[] = {
    { 1, 1, { 1003 }, { 1 }, { 1 }, { 1 } },                           /* with a tail */
    { 1, 1, { 1003 }, { 1 }, { 1 }, { 0 } },                           /* and one repeated value */
    { 2, 1, { 5, 48 }, { 48, 1 }, { 48, 1 }, { 0, 1 } },               /* a bias */
    { 2, 1, { 5, 48 }, { 48, 1 }, { 48, 1 }, { 1, 0 } },               /* a value for each row */
    { 2, 1, { 5, 48 }, { 64, 1 }, { 80, 1 }, { 48, 1 } },              /* rows with gaps */
    { 3, 1, { 3, 2, 16 }, { 32, 16, 1 }, { 16, 48, 1 }, { 0, 0, 1 } }, /* rows in another order */
    /* every other row begins at an unaligned address */
    { 2, 0, { 5, 48 }, { 48, 1 }, { 49, 1 }, { 48, 1 } },
    { 2, 0, { 5, 9 }, { 9, 1 }, { 9, 1 }, { 0, 1 } }, /* row lengths that vectors do not divide */
    { 2, 0, { 5, 48 }, { 48, 1 }, { 1, 5 }, { 48, 1 } }, /* transposed */
    /* no axes fuse; an axis of length 1, and steps of 2 */
    { 4, 0, { 2, 3, 4, 5 }, { 60, 20, 5, 1 }, { 60, 5, 15, 1 }, { 0, 20, 0, 1 } },
    { 4, 0, { 2, 1, 4, 5 }, { 20, 20, 5, 1 }, { 40, 3, 10, 2 }, { 20, 1, 5, 1 } },
};

static void run_shifted(op_case_t *c)
{
    for (c->shifted = 0; c->shifted < 1u << (c->ndst + c->nsrc); c->shifted++) run_case(c);
    c->shifted = 0;
}

static void binary(fy_op_t op, int32_t dtype, int32_t result, const layout_t *l,
                   uint32_t accumulate)
{
    op_case_t c = { .op = op, .ndst = 1, .nsrc = 2, .accumulate = accumulate };
    c.dst[0] = describe(result, l->rank, l->dims, l->dst);
    c.src[0] = describe(dtype, l->rank, l->dims, l->a);
    c.src[1] = describe(dtype, l->rank, l->dims, l->b);
    run_case(&c);
    const char *kernel = driver.fake_cuda_last_kernel();
    const int wide = strstr(kernel, "_wide_") != NULL ||
                     (l->rank == 1 && strstr(kernel, "_flat_") != NULL);
    if (wide != l->wide)
        fail_msg("layout %d of dtype %d took %s", (int)(l - layouts), dtype,
                 driver.fake_cuda_last_kernel());
    run_shifted(&c);
}

TS_TEST(elementwise)
{
    for (size_t i = 0; i < LENGTH(layouts); i++) {
        for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
            if (dtype != FY_DTYPE_BOOL) binary(FY_OP_ADD, dtype, dtype, &layouts[i], 0);
            if (dtype <= FY_DTYPE_BF16) binary(FY_OP_MUL, dtype, dtype, &layouts[i], 1);
            binary(FY_OP_LT, dtype, FY_DTYPE_BOOL, &layouts[i], 0);
        }
    }
}

TS_TEST(moves)
{
    const fy_fill_attrs_t fill = { 1.5, 1 };
    for (size_t i = 0; i < LENGTH(layouts); i++) {
        const layout_t *l = &layouts[i];
        for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
            op_case_t c = { .op = FY_OP_COPY, .ndst = 1, .nsrc = 1 };
            c.dst[0] = describe(dtype, l->rank, l->dims, l->dst);
            c.src[0] = describe(dtype, l->rank, l->dims, l->b);
            run_shifted(&c);
            op_case_t where = { .op = FY_OP_WHERE, .ndst = 1, .nsrc = 3, .dst = { c.dst[0] } };
            where.src[0] = describe(FY_DTYPE_BOOL, l->rank, l->dims, l->a);
            where.src[1] = c.src[0];
            where.src[2] = describe(dtype, l->rank, l->dims, l->a);
            run_shifted(&where);
            op_case_t make = { .op = FY_OP_FILL, .ndst = 1, .attrs = &fill, .dst = { c.dst[0] } };
            run_shifted(&make);
            for (int32_t to = 0; to < FY_DTYPE_COUNT; to++) {
                const fy_cast_attrs_t attrs = { to };
                op_case_t cast = OP_CASE(FY_OP_CAST, 1, 1, .attrs = &attrs, .src = { c.src[0] });
                cast.dst[0] = describe(to, l->rank, l->dims, l->dst);
                run_shifted(&cast);
            }
        }
    }
}

TS_TEST(rows_of_a_table)
{
    const int32_t picks[] = { 0, 4, 2, 2 };
    for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        for (int64_t columns = 15; columns <= 48; columns += 33) {
            op_case_t c = { .op = FY_OP_GATHER, .ndst = 1, .nsrc = 2, .given = { NULL, picks } };
            c.src[0] = DENSE_OF(dtype, 5, 2, columns);
            c.src[1] = DENSE(I32, 4);
            c.dst[0] = DENSE_OF(dtype, 4, 2, columns);
            run_shifted(&c);
        }
    }
}

/* One repeated element for each row: neighbours in the result are not neighbours in the table or
 * the image. */
TS_TEST(repeated_elements_are_not_read_as_vectors)
{
    const int32_t picks[] = { 0, 4, 2, 2 };
    const fy_pool2d_attrs_t attrs = { 3, 2, 2, 1, 1, 0, 0, 0, 0 };
    const fy_pool2d_backward_attrs_t back = { 3, 2, 2, 1, 1, 0, 0, 0, 0, 5, 6 };
    for (size_t d = 0; d < LENGTH(floats); d++) {
        op_case_t c = { .op = FY_OP_GATHER, .ndst = 1, .nsrc = 2, .given = { NULL, picks } };
        c.src[0] = describe(floats[d], 2, (const int64_t[]){ 5, 48 }, (const int64_t[]){ 1, 0 });
        c.src[1] = DENSE(I32, 4);
        c.dst[0] = DENSE_OF(floats[d], 4, 48);
        run_case(&c);
        const fy_desc_t x = describe(floats[d], 4, (const int64_t[]){ 2, 5, 6, 16 },
                                     (const int64_t[]){ 30, 6, 1, 0 });
        const fy_desc_t y = DENSE_OF(floats[d], 2, 3, 5, 16);
        op_case_t pool = OP_CASE(FY_OP_AVG_POOL2D, 1, 1, .attrs = &attrs, .close = CLOSE,
                                 .dst = { y }, .src = { x });
        run_case(&pool);
        pool.op = FY_OP_AVG_POOL2D_BACKWARD;
        pool.attrs = &back;
        pool.dst[0] = DENSE_OF(floats[d], 2, 5, 6, 16);
        pool.src[0] = describe(floats[d], 4, (const int64_t[]){ 2, 3, 5, 16 },
                               (const int64_t[]){ 15, 5, 1, 0 });
        run_case(&pool);
    }
}

/* ---- kernels that reduce rows ---- */

TS_TEST(rows_are_reduced)
{
    const fy_axis_attrs_t last = { 1, 0 };
    const fy_reduce_attrs_t over_last = { 2, 0 };
    static const fy_op_t reductions[] = { FY_OP_SUM, FY_OP_NORM, FY_OP_MAX };
    static const int64_t lengths[] = { 8, 33, 48, 512, 4096 };
    for (size_t d = 0; d < LENGTH(floats); d++) {
        for (size_t i = 0; i < LENGTH(lengths); i++) {
            const fy_desc_t rows = DENSE_OF(floats[d], 3, lengths[i]);
            op_case_t c = OP_CASE(FY_OP_SOFTMAX, 1, 1, .attrs = &last, .close = CLOSE,
                                  .dst = { rows }, .src = { rows });
            run_shifted(&c);
            c.op = FY_OP_LOG_SOFTMAX;
            run_shifted(&c);
            op_case_t back = OP_CASE(FY_OP_SOFTMAX_BACKWARD, 1, 2, .attrs = &last, .close = CLOSE,
                                     .dst = { rows });
            back.src[0] = back.src[1] = rows;
            for (back.accumulate = 0; back.accumulate < 2 && floats[d] != FY_DTYPE_F16;
                 back.accumulate++)
                run_shifted(&back);
            for (size_t r = 0; r < LENGTH(reductions); r++) {
                op_case_t reduce = OP_CASE(reductions[r], 1, 1, .attrs = &over_last, .close = CLOSE,
                                           .src = { rows });
                reduce.dst[0] = DENSE_OF(floats[d], 3);
                for (reduce.workspace_limit = 0; reduce.workspace_limit < 2 << 20;
                     reduce.workspace_limit += 1 << 20)
                    run_shifted(&reduce);
            }
        }
    }
}

TS_TEST(losses_of_rows)
{
    const int64_t targets[] = { 3, 0, 7 };
    for (size_t d = 0; d < LENGTH(floats); d++) {
        for (int64_t classes = 8; classes <= 65; classes += 19) {
            const fy_desc_t rows = DENSE_OF(floats[d], 3, classes);
            for (int32_t reduction = FY_REDUCTION_MEAN; reduction <= FY_REDUCTION_NONE;
                 reduction++) {
                const fy_class_loss_attrs_t attrs = { reduction, -100, 0 };
                op_case_t c = OP_CASE(FY_OP_CROSS_ENTROPY, 1, 2, .attrs = &attrs, .close = CLOSE,
                                      .given = { NULL, targets });
                c.dst[0] = describe(floats[d], reduction == FY_REDUCTION_NONE,
                                    (const int64_t[]){ 3 }, NULL);
                c.src[0] = rows;
                c.src[1] = DENSE(I64, 3);
                run_shifted(&c);
                op_case_t back =
                    OP_CASE(FY_OP_CROSS_ENTROPY_BACKWARD, 1, 3, .attrs = &attrs, .close = CLOSE);
                back.given[2] = targets;
                back.dst[0] = back.src[1] = rows;
                back.src[0] = c.dst[0];
                back.src[2] = c.src[1];
                run_shifted(&back);
            }
        }
    }
}

/* ---- images, dropout ---- */

TS_TEST(channels_are_pooled)
{
    for (size_t d = 0; d < LENGTH(floats); d++) {
        for (int64_t channels = 3; channels <= 16; channels += 13) {
            for (int32_t activation = 0; activation < 2; activation++) {
                const fy_pool2d_attrs_t attrs = { 3, 2, 2, 1, 1, 0, activation, 0, 0 };
                const fy_pool2d_backward_attrs_t back = {
                    3, 2, 2, 1, 1, 0, activation, 0, 0, 5, 6
                };
                const fy_desc_t x = DENSE_OF(floats[d], 2, 5, 6, channels);
                const fy_desc_t y = DENSE_OF(floats[d], 2, 3, 5, channels);
                op_case_t c = OP_CASE(FY_OP_MAX_POOL2D, 1, 1, .attrs = &attrs, .close = CLOSE,
                                      .dst = { y }, .src = { x });
                run_shifted(&c);
                c.op = FY_OP_AVG_POOL2D;
                run_shifted(&c);
                op_case_t g = OP_CASE(FY_OP_MAX_POOL2D_BACKWARD, 1, 2, .close = CLOSE, .dst = { x },
                                      .src = { y, x });
                g.attrs = &attrs;
                run_shifted(&g);
                g.op = FY_OP_AVG_POOL2D_BACKWARD;
                g.attrs = &back;
                g.nsrc = activation ? 2 : 1;
                run_shifted(&g);
            }
        }
    }
}

TS_TEST(dropout_of_groups)
{
    const fy_dropout_attrs_t attrs = { 0.25 };
    const int64_t rng[2] = { 12345, 77 };
    for (size_t d = 0; d < LENGTH(floats); d++) {
        for (int64_t n = 60; n < 700; n += 211) {
            op_case_t c =
                OP_CASE(FY_OP_DROPOUT_BACKWARD, 1, 2, .attrs = &attrs, .given = { NULL, rng });
            c.dst[0] = c.src[0] = describe(floats[d], 1, &n, NULL);
            c.src[1] = DENSE(I64, 2);
            run_shifted(&c);
        }
    }
}

TS_SUITE(.set_up = open_device, .tear_down = close_device, .prepare = load_or_skip);
