/* Cost rules: flops and bytes of a launch, counted by hand here. */
#include "rules.h"
#include "tests/support/test.h"

typedef struct row {
    fy_op_t op;
    const char *srcs, *dsts;
    const void *attrs;
    uint64_t flops, nbytes;
} row_t;

static const fy_cast_attrs_t to_f64 = { FY_DTYPE_F64 };
static const fy_matmul_attrs_t both_transposed = { 1, 1 };
static const fy_reduce_attrs_t first_axis = { 1, 0 };
static const fy_axis_attrs_t axis_0 = { 0, 0 };

static const row_t rows[] = {
    { FY_OP_NEG, "10 f32", "", NULL, 10, 80 },
    { FY_OP_ADD, "4x3 f32|4x3 f32", "", NULL, 12, 3 * 48 },
    { FY_OP_ADD, "4x3 f32|3 f32", "", NULL, 12, 48 + 12 + 48 },
    { FY_OP_ADD, "0 f32|1 f32", "", NULL, 0, 0 },
    { FY_OP_EXP, "10 f64", "", NULL, 10 * FY__FLOPS_TRANSCENDENTAL, 160 },
    { FY_OP_AFFINE, "10 f32", "", NULL, 20, 80 },
    { FY_OP_CAST, "10 f32", "", &to_f64, 0, 40 + 80 },
    { FY_OP_EQ, "10 f32|10 f32", "", NULL, 10, 90 },
    { FY_OP_COPY, "1 f32", "10 f32", NULL, 0, 44 },
    { FY_OP_AXPY, "10 f32", "10 f32", NULL, 20, 120 },
    { FY_OP_FILL, "", "10 u8", NULL, 0, 10 },
    { FY_OP_RAND, "", "10 f32|2 i64", NULL, 10 * FY__FLOPS_RANDOM, 40 + 16 },
    { FY_OP_SUM, "4x3 f32", "", &first_axis, 12, 48 + 12 },
    { FY_OP_MATMUL, "64x784 f32|784x10 f32", "", NULL, 2ull * 64 * 784 * 10,
      4ull * (64 * 784 + 784 * 10 + 64 * 10) },
    { FY_OP_MATMUL, "3x2 f32|4x3 f32", "", &both_transposed, 2 * 2 * 3 * 4, 4 * (6 + 12 + 8) },
    { FY_OP_MATMUL, "5x2x3 f32|3x4 f32", "", NULL, 2 * 5 * 2 * 3 * 4, 4 * (30 + 12 + 40) },
    { FY_OP_MATMUL, "2x0 f32|0x4 f32", "", NULL, 0, 32 },
    { FY_OP_SOFTMAX, "4x3 f32", "", &axis_0, 12 * (4 + FY__FLOPS_TRANSCENDENTAL), 96 },
    { FY_OP_MSE_LOSS, "4x3 f32|4x3 f32", "", NULL, 36, 100 },
    { FY_OP_GATHER, "1000x3 f32|2 i64", "", NULL, 0, 24 + 24 + 16 },
    { FY_OP_CONCAT, "2x3 u8|4x3 u8", "", NULL, 0, 36 },
};

static void run(launch_box_t *box, const row_t *row, uint32_t flags)
{
    box_make(box, row->op, row->srcs, row->dsts, row->attrs);
    assert_int_equal(box_shape(box), FY_STATUS_OK);
    box->launch.flags = flags;
    box->row->cost(&box->launch);
}

TS_TEST(test_costs)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        launch_box_t box;
        run(&box, &rows[i], 0);
        if (box.launch.flops != rows[i].flops || box.launch.nbytes != rows[i].nbytes) {
            fail_msg("row %zu (%s): %llu flops, %llu bytes", i, box.row->info.name,
                     (unsigned long long)box.launch.flops, (unsigned long long)box.launch.nbytes);
        }
    }
}

TS_TEST(test_dense_launches_cost_the_same)
{
    const row_t dense[] = { rows[0], rows[1], rows[4], rows[7], rows[9] };
    for (size_t i = 0; i < sizeof dense / sizeof dense[0]; i++) {
        launch_box_t box;
        run(&box, &dense[i], FY_LAUNCH_DENSE);
        assert_int_equal(box.launch.flops, dense[i].flops);
        assert_int_equal(box.launch.nbytes, dense[i].nbytes);
    }
}

TS_TEST(test_accumulating_reads_the_result_too)
{
    launch_box_t box;
    run(&box, &rows[1], FY_LAUNCH_DENSE);
    box.launch.accumulate = 1;
    box.row->cost(&box.launch);
    assert_int_equal(box.launch.flops, 24);
    assert_int_equal(box.launch.nbytes, 4 * 48);
}

TS_TEST(test_costs_saturate)
{
    const row_t huge = {
        FY_OP_MATMUL, "4000000000x4000000000 f32|4000000000x4000000000 f32", "", NULL, 0, 0
    };
    launch_box_t box;
    run(&box, &huge, 0);
    assert_true(box.launch.flops == UINT64_MAX);
    assert_true(box.launch.nbytes == UINT64_MAX);
}
