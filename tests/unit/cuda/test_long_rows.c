/* Few long rows, and losses of many scores, are split over several blocks. The cases cover lengths
 * just below and above the split, shorter last pieces, strides, unaligned addresses, NaN and
 * infinities in one piece only. They assert the number of launches, and that the same launch gives
 * the same bits. With FAKE_CUDA_KERNELS=ptx the kernels' PTX computes. See
 * backends/cuda/pack_rows.c. */
#include "op_case.h"

/* The fake device has 4 processors: a row that is one block's work is split from 4 pieces of 4,096
 * elements on. */
enum { CUT = 4 * 4096, SPACE = 1 << 20 };

typedef struct rows {
    int rank, axis, cut;
    int64_t dims[3], strides[3];
} rows_t;
static const rows_t shapes[] = {
    { 1, 0, 0, { CUT - 1 }, { 1 } },
    { 1, 0, 1, { CUT }, { 1 } },
    { 1, 0, 1, { CUT + 1 }, { 1 } }, /* no 16-byte accesses, a last piece of one element or a few */
    { 1, 0, 1, { 70000 }, { 1 } },
    { 1, 0, 1, { CUT + 8 }, { 3 } }, /* with gaps */
    { 1, 0, 1, { CUT }, { 0 } },     /* one value for all */
    { 2, 1, 1, { 2, CUT }, { CUT + 32, 1 } },
    { 2, 1, 1, { 3, CUT + 5 }, { CUT + 5, 1 } },
    { 2, 1, 0, { 5, CUT }, { CUT, 1 } }, /* five blocks: too many to split */
    { 2, 0, 1, { CUT, 2 }, { 2, 1 } },   /* rows of a transposed matrix */
    { 2, 0, 1, { 515, 33 }, { 33, 1 } }, /* each thread has a separate piece */
    { 2, 0, 0, { 255, 33 }, { 33, 1 } },
    { 3, 1, 1, { 2, CUT, 1 }, { CUT, 1, 1 } },
};

static fy_desc_t rows_of(const rows_t *r, int32_t dtype)
{
    return describe(dtype, r->rank, r->dims, r->strides);
}
static fy_desc_t result_of(const rows_t *r, int32_t dtype)
{
    return describe(dtype, r->rank, r->dims, NULL);
}

static fy_desc_t joined_of(const rows_t *r)
{
    int64_t dims[3];
    int rank = 0;
    for (int axis = 0; axis < r->rank; axis++)
        if (axis != r->axis) dims[rank++] = r->dims[axis];
    return describe(FY_DTYPE_I64, rank, dims, NULL);
}

TS_TEST(few_long_rows_are_split)
{
    for (size_t s = 0; s < LENGTH(shapes); s++) {
        const rows_t *r = &shapes[s];
        const fy_axis_attrs_t attrs = { r->axis, 0 };
        for (size_t d = 0; d < LENGTH(floats); d++) {
            op_case_t c = {
                .ndst = 1, .nsrc = 1, .attrs = &attrs, .close = CLOSE, .workspace_limit = SPACE
            };
            c.dst[0] = result_of(r, floats[d]);
            c.src[0] = c.src[1] = rows_of(r, floats[d]);
            static const fy_op_t ops[] = { FY_OP_SOFTMAX, FY_OP_LOG_SOFTMAX, FY_OP_SOFTMAX_BACKWARD,
                                           FY_OP_LOG_SOFTMAX_BACKWARD };
            for (size_t i = 0; i < LENGTH(ops); i++) {
                c.op = ops[i];
                c.nsrc = i < 2 ? 1 : 2;
                c.accumulate = i == 3 && floats[d] != FY_DTYPE_F16;
                for (c.shifted = 0; c.shifted < 4; c.shifted += 3) run_in(&c, 1 + r->cut);
            }
        }
        for (int32_t dtype = 0; dtype < FY_DTYPE_BOOL; dtype++) {
            op_case_t c = OP_CASE(FY_OP_ARGMAX, 1, 1, .attrs = &attrs, .workspace_limit = SPACE);
            c.dst[0] = joined_of(r);
            c.src[0] = rows_of(r, dtype);
            for (c.shifted = 0; c.shifted < 4; c.shifted += 2) run_in(&c, 1 + r->cut);
        }
    }
}

TS_TEST(without_workspace_a_row_is_not_split)
{
    const fy_axis_attrs_t attrs = { 0, 0 };
    op_case_t c = { .op = FY_OP_SOFTMAX, .ndst = 1, .nsrc = 1, .attrs = &attrs, .close = CLOSE };
    c.dst[0] = c.src[0] = DENSE(F32, CUT);
    for (c.workspace_limit = 0; c.workspace_limit < 4 * 16; c.workspace_limit += 16) run_in(&c, 1);
    run_in(&c, 2); /* four pieces, two numbers of 8 bytes each */
}

/* The largest value, NaN and infinities of one piece must reach the result; pieces of only -inf
 * must not change it. */
TS_TEST(pieces_of_special_values)
{
    static float x[CUT + 100];
    const fy_axis_attrs_t attrs = { 0, 0 };
    const int64_t n = (int64_t)LENGTH(x);
    static const struct {
        float all, one, other;
        int64_t at, also;
    } rows[] = {
        { 0.25f, 80, 80, 5, 9000 },                /* the largest value, twice */
        { 0.25f, -INFINITY, 1, 16400, 3 },         /* in a separate piece */
        { -INFINITY, 2, 3, 0, CUT + 99 },          /* all other pieces have only -inf */
        { -INFINITY, -INFINITY, -INFINITY, 0, 1 }, /* only -inf */
        { 1, NAN, 7, 12000, 2 },
        { -INFINITY, NAN, NAN, 9000, 5000 },
        { 3, INFINITY, -INFINITY, 8191, 8192 },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        for (int64_t k = 0; k < n; k++) x[k] = rows[i].all;
        x[rows[i].at] = rows[i].one;
        x[rows[i].also] = rows[i].other;
        op_case_t c = { .ndst = 1,
                        .nsrc = 1,
                        .attrs = &attrs,
                        .close = CLOSE,
                        .workspace_limit = SPACE,
                        .given = { x } };
        c.dst[0] = c.src[0] = describe(FY_DTYPE_F32, 1, &n, NULL);
        c.op = FY_OP_SOFTMAX;
        run_in(&c, 2);
        c.op = FY_OP_LOG_SOFTMAX;
        run_in(&c, 2);
        c.op = FY_OP_ARGMAX;
        c.close = EXACT;
        c.dst[0] = describe(FY_DTYPE_I64, 0, NULL, NULL);
        run_in(&c, 2);
    }
}

/* 2^53 + 1 is not an f64: integers are compared as integers. */
TS_TEST(long_integers_are_not_rounded)
{
    static int64_t x[CUT];
    const fy_axis_attrs_t attrs = { 0, 0 };
    for (int64_t k = 0; k < CUT; k++) x[k] = INT64_C(9007199254740992);
    x[13000] = INT64_C(9007199254740993);
    op_case_t c =
        OP_CASE(FY_OP_ARGMAX, 1, 1, .attrs = &attrs, .workspace_limit = SPACE, .given = { x });
    c.dst[0] = describe(FY_DTYPE_I64, 0, NULL, NULL);
    c.src[0] = DENSE(I64, CUT);
    for (c.workspace_limit = 0; c.workspace_limit <= SPACE; c.workspace_limit += SPACE)
        run_case(&c);
}

/* The same launch twice: the same bits. */
TS_TEST(bits_are_the_same_every_time)
{
    const int64_t n = 70000;
    const fy_axis_attrs_t attrs = { 0, 0 };
    float *x = malloc((size_t)n * sizeof *x), *results[2];
    for (int64_t k = 0; k < n; k++) random_element(&x[k], FY_DTYPE_F32);
    for (int i = 0; i < 2; i++) {
        fy_desc_t src = describe(FY_DTYPE_F32, 1, &n, NULL), dst = src;
        src.data = device_bytes(x, (uint64_t)n * sizeof *x);
        dst.data = device_bytes(x, (uint64_t)n * sizeof *x);
        fy_launch_t launch = launch_of(FY_OP_SOFTMAX, 1, &dst, &src, &attrs);
        launch.workspace_nbytes = cuda->workspace(dev, &launch, SPACE);
        assert_ok(cuda->alloc(dev, launch.workspace_nbytes, &launch.workspace));
        assert_ok(cuda->launch(dev, stream, &launch));
        results[i] = malloc((size_t)n * sizeof *x);
        fetch(results[i], dst.data, (uint64_t)n * sizeof *x);
        cuda->free(dev, launch.workspace, launch.workspace_nbytes);
        cuda->free(dev, src.data, (uint64_t)n * sizeof *x);
        cuda->free(dev, dst.data, (uint64_t)n * sizeof *x);
    }
    assert_memory_equal(results[0], results[1], (size_t)n * sizeof *x);
    free(x), free(results[0]), free(results[1]);
}

/* ---- losses ---- */

TS_TEST(losses_of_many_scores_are_split)
{
    static const struct {
        int64_t rows, classes;
        int cross_entropy, nll; /* launches of a sum; a mean takes two at most */
    } sizes[] = {
        { 1, 7, 1, 1 },
        { 409, 10, 1, 1 },
        { 410, 10, 2, 1 }, /* 4,096 scores are the work of one block */
        { 4096, 1, 1, 1 },
        { 4097, 1, 2, 2 },
        { 33, 130, 2, 1 },
        /* the rows' losses: complete pieces, the rest, the sum of both */
        { 2, 3000, 2, 1 },
        { 9, 2049, 2, 1 }, /* each at another distance from 16 bytes */
        { 3, 16387, 2, 1 },
        { 70001, 2, 4, 4 },
    };
    int32_t *targets = calloc(70001, sizeof *targets);
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        for (int64_t row = 0; row < sizes[i].rows; row++)
            targets[row] = (int32_t)(row % sizes[i].classes);
        for (size_t d = 0; d < LENGTH(floats); d++) {
            for (int32_t reduction = FY_REDUCTION_MEAN; reduction <= FY_REDUCTION_SUM;
                 reduction++) {
                const fy_class_loss_attrs_t attrs = { reduction, -100, 0 };
                op_case_t c = { .ndst = 1,
                                .nsrc = 2,
                                .attrs = &attrs,
                                .close = CLOSE,
                                .workspace_limit = SPACE,
                                .given = { NULL, targets } };
                /* beyond its range */
                if (reduction == FY_REDUCTION_SUM && floats[d] == FY_DTYPE_F16) continue;
                c.dst[0] = describe(floats[d], 0, NULL, NULL);
                c.src[0] = DENSE_OF(floats[d], sizes[i].rows, sizes[i].classes);
                c.src[1] = describe(FY_DTYPE_I32, 1, &sizes[i].rows, NULL);
                c.op = FY_OP_CROSS_ENTROPY;
                const int most = reduction == FY_REDUCTION_MEAN ? 2 : 4;
                run_in(&c, sizes[i].cross_entropy < most ? sizes[i].cross_entropy : most);
                c.op = FY_OP_NLL_LOSS;
                run_in(&c, sizes[i].nll < most ? sizes[i].nll : most);
                c.workspace_limit = 0;
                run_in(&c, 1);
            }
        }
    }
    free(targets);
}

/* Gradients of rows of odd length, whose logits and results lie alike or not. */
TS_TEST(gradients_of_odd_rows)
{
    static const int64_t sizes[][2] = { { 9, 2049 }, { 3, 16387 }, { 5, 37 }, { 2, 9000 } };
    static const float smoothings[] = { 0, 0.25f };
    const int32_t targets[9] = { 0, 1, 7, 8, -100, 3, 30, 31, 2 };
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        for (size_t k = 0; k < LENGTH(floats) * LENGTH(smoothings); k++) {
            const int32_t dtype = floats[k / LENGTH(smoothings)];
            const fy_class_loss_attrs_t attrs = { FY_REDUCTION_NONE, -100,
                                                  smoothings[k % LENGTH(smoothings)] };
            op_case_t c = OP_CASE(FY_OP_CROSS_ENTROPY_BACKWARD, 1, 3, .attrs = &attrs,
                                  .close = CLOSE, .given = { NULL, NULL, targets });
            c.dst[0] = c.src[1] = DENSE_OF(dtype, sizes[i][0], sizes[i][1]);
            c.src[0] = describe(dtype, 1, sizes[i], NULL);
            c.src[2] = describe(FY_DTYPE_I32, 1, sizes[i], NULL);
            for (c.shifted = 0; c.shifted < 8; c.shifted++) run_in(&c, 1);
            c.accumulate = 1;
            run_in(&c, 1);
        }
    }
}

TS_SUITE(.set_up = open_device, .tear_down = close_device, .prepare = load_or_skip);
