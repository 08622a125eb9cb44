/* Shape rules: each row is a call and the shape, or the refusal, that it gives. No device, no
 * dispatcher. */
#include "rules.h"
#include "tests/support/test.h"

#define A(type, ...) (&(const type){ __VA_ARGS__ })

typedef struct row {
    fy_op_t op;
    const char *srcs, *dsts; /* dsts: given ones, of IN_PLACE ops */
    const void *attrs;
    const char *result; /* of dst[0], as texts show it */
} row_t;

/* Shapes that no row of tests/ops/cases.def has. */
static const row_t good[] = {
    { FY_OP_ADD, "1 f64|0 f64", "", NULL, "[0 f64]" },
    { FY_OP_ADD, "1x2x3x4x5x6x7x8 f32|8 f32", "", NULL, "[1x2x3x4x5x6x7x8 f32]" },
    { FY_OP_COPY, "1 u8", "0 u8", NULL, "[0 u8]" },
    { FY_OP_AXPY, "scalar f32", "4x3 f32", NULL, "[4x3 f32]" },
    { FY_OP_FILL, "", "4 u8", A(fy_fill_attrs_t, 0, 255), "[4 u8]" },
    { FY_OP_FILL, "", "4 i64", A(fy_fill_attrs_t, 0, INT64_MIN), "[4 i64]" },
    { FY_OP_FILL, "", "scalar bool", A(fy_fill_attrs_t, 0, 1), "[scalar bool]" },
    { FY_OP_ARANGE, "", "256 u8", A(fy_arange_attrs_t, 0, 1), "[256 u8]" },
    { FY_OP_ARANGE, "", "0 u8", A(fy_arange_attrs_t, 1e9, 1), "[0 u8]" },
    { FY_OP_MAX, "0x0 f32", "", A(fy_reduce_attrs_t, 2, 0), "[0 f32]" },
    { FY_OP_GATHER, "0x3 f32|0 i64", "", NULL, "[0x3 f32]" },
};

TS_TEST(test_shapes)
{
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        launch_box_t box;
        box_make(&box, good[i].op, good[i].srcs, good[i].dsts, good[i].attrs);
        fy_status_t status = box_shape(&box);
        if (status != FY_STATUS_OK)
            fail_msg("row %zu (%s): %s", i, box.row->info.name, fy_error_get()->text);
        assert_string_equal(FY__DESC_TEXT(&box.dst[0]), good[i].result);
        for (int s = 0; (box.row->info.flags & FY_OP_ELEMENTWISE) && s < box.launch.nsrc; s++) {
            assert_int_equal(box.src[s].rank, box.dst[0].rank);
            assert_memory_equal(box.src[s].dims, box.dst[0].dims,
                                sizeof(int64_t) * (size_t)box.dst[0].rank);
        }
    }
}

typedef struct bad_row {
    fy_op_t op;
    const char *srcs, *dsts;
    const void *attrs;
    fy_status_t status;
    const char *text; /* part of the error's */
} bad_row_t;

#define BAD(ENUM, srcs, dsts, attrs, status, text)                \
    {                                                             \
        FY_OP_##ENUM, srcs, dsts, attrs, FY_STATUS_##status, text \
    }
static const bad_row_t bad[] = {
    BAD(ADD, "4 f32|4 i32", "", NULL, DTYPE_MISMATCH,
        "add: src0 is [4 f32], src1 is [4 i32]: Ferry promotes nothing; fy_cast one of them"),
    BAD(ADD, "4 bool|4 bool", "", NULL, DTYPE_MISMATCH, "it takes f32 f64 f16 bf16 i32 i64 u8"),
    BAD(EXP, "4 i32", "", NULL, DTYPE_MISMATCH, "exp: src0 is [4 i32], it takes f32 f64 f16 bf16"),
    BAD(ADD, "4x3 f32|5x3 f32", "", NULL, SHAPE_MISMATCH, "axis -2 (from the end) is 4 against 5"),
    BAD(ADD, "3 f32|0 f32", "", NULL, SHAPE_MISMATCH, "is 3 against 0"),
    BAD(WHERE, "4 bool|4 f32|3 f32", "", NULL, SHAPE_MISMATCH, "src2 [3 f32] does not broadcast"),
    BAD(WHERE, "4 f32|4 f32|4 f32", "", NULL, DTYPE_MISMATCH, "must be bool"),
    BAD(WHERE, "4 bool|4 f32|4 f64", "", NULL, DTYPE_MISMATCH,
        "a (src1) is [4 f32], b (src2) is [4 f64]"),
    BAD(CAST, "4 f32", "", NULL, INVALID_ARGUMENT,
        "dtype is -1, legal are 0 .. 7; there is no default: pass one of these"),
    BAD(GATHER_BACKWARD, "2x3 f32|2 i64", "", A(fy_gather_backward_attrs_t, -9007199254740993),
        INVALID_ARGUMENT, "rows is -9007199254740993, legal are numbers from 0 on"),
    BAD(MAX_POOL2D, "1x4x4x1 f32", "", NULL, INVALID_ARGUMENT,
        "kernel_h is 0, legal are numbers from 1 on; there is no default: pass one of these"),
    BAD(AVG_POOL2D, "1x4x4x1 f32", "",
        A(fy_pool2d_attrs_t, .kernel_h = 2, .kernel_w = 2, .ceil_mode = 2), INVALID_ARGUMENT,
        "avg_pool2d: ceil_mode is 2, legal are 0 .. 1"),
    BAD(MAX_POOL2D, "1x4x4x1 f32", "",
        A(fy_pool2d_attrs_t, .kernel_h = 2, .kernel_w = 2, .count_excludes_padding = 1),
        INVALID_ARGUMENT,
        "max_pool2d: count_excludes_padding is 1; padding is never the largest element"),
    BAD(CROSS_ENTROPY, "2x3 f32|2 i64", "", A(fy_class_loss_attrs_t, 0, -100, 1.0000001),
        INVALID_ARGUMENT, "label_smoothing is 1.0000001, legal are 0 .. 1"),
    BAD(COPY, "4x3 f32", "3 f32", NULL, SHAPE_MISMATCH,
        "src0 [4x3 f32] does not broadcast to dst [3 f32]"),
    BAD(COPY, "1x3 f32", "3 f32", NULL, SHAPE_MISMATCH, "which keeps its shape"),
    BAD(COPY, "3 f32", "3 f64", NULL, DTYPE_MISMATCH, "src0 is [3 f32], dst is [3 f64]"),
    BAD(AXPY, "3 i32", "3 i32", NULL, DTYPE_MISMATCH, "axpy: y (dst0) is [3 i32]"),
    BAD(FILL, "", "4 u8", A(fy_fill_attrs_t, 0, 256), INVALID_ARGUMENT,
        "int_value 256 does not fit dst [4 u8], which holds 0 .. 255"),
    BAD(FILL, "", "4 bool", A(fy_fill_attrs_t, 0, 2), INVALID_ARGUMENT, "0 .. 1"),
    BAD(ARANGE, "", "257 u8", A(fy_arange_attrs_t, 0, 1), INVALID_ARGUMENT,
        "0 .. 256 does not fit"),
    BAD(ARANGE, "", "4 i64", A(fy_arange_attrs_t, 0.5, 1), INVALID_ARGUMENT, "whole numbers"),
    BAD(ARANGE, "", "4 u8", A(fy_arange_attrs_t, 0, 0.5), INVALID_ARGUMENT, "step 0.5"),
    BAD(ARANGE, "", "4 i64", A(fy_arange_attrs_t, 9007199254740990, 1), INVALID_ARGUMENT, "2^53"),
    BAD(ARANGE, "", "4 i64", A(fy_arange_attrs_t, -9007199254740994, 2), INVALID_ARGUMENT, "2^53"),
    BAD(ARANGE, "", "4 i32", A(fy_arange_attrs_t, 3000000000, 1), INVALID_ARGUMENT,
        "3000000000 .. 3000000003 does not fit dst [4 i32], which holds -2147483648 .. 2147483647"),
    BAD(ARANGE, "", "2x2 f32", NULL, SHAPE_MISMATCH, "rank 1"),
    BAD(RAND, "", "2 i32|2 i64", NULL, DTYPE_MISMATCH, "rand: dst0"),
    BAD(RAND, "", "2 f32|2 i32", NULL, DTYPE_MISMATCH, "fy_rng_create"),
    BAD(RAND, "", "2 f32|3 i64", NULL, SHAPE_MISMATCH, "[3 i64]"),
    BAD(RAND, "", "2 f32|2 i64", A(fy_rand_attrs_t, 2, 1), INVALID_ARGUMENT,
        "low 2 is above high 1"),
    BAD(RAND, "", "2 f32|2 i64", A(fy_rand_attrs_t, 1.0000001, 1), INVALID_ARGUMENT,
        "low 1.0000001 is above high 1"),
    BAD(RAND, "", "2 f32|2 i64", A(fy_rand_attrs_t, -2e38, 2e38), INVALID_ARGUMENT,
        "their difference must be within 3.40282e+38, the largest f32"),
    BAD(RAND, "", "2 f16|2 i64", A(fy_rand_attrs_t, 0, 1e30), INVALID_ARGUMENT,
        "within 65504, the largest f16"),
    BAD(RANDN, "", "2 f32|2 i64", A(fy_randn_attrs_t, 0, -1), INVALID_ARGUMENT,
        "std is -1, legal are numbers from 0 on"),
    BAD(RANDPERM, "", "4294967296 i64|2 i64", NULL, SHAPE_MISMATCH, "2^32"),
    BAD(SUM, "4x3 f32", "", A(fy_reduce_attrs_t, 4, 0), INVALID_ARGUMENT, "axes 0x4"),
    BAD(MEAN, "4 i32", "", NULL, DTYPE_MISMATCH, "mean: src0 is [4 i32]"),
    BAD(MAX, "0 f32", "", NULL, SHAPE_MISMATCH, "max: of no elements there is none"),
    BAD(MIN, "4x0 f32", "", A(fy_reduce_attrs_t, 2, 0), SHAPE_MISMATCH, "[4x0 f32]"),
    BAD(ARGMAX, "4x0 f32", "", A(fy_axis_attrs_t, 1, 0), SHAPE_MISMATCH, "axis 1"),
    BAD(ARGMAX, "4 f32", "", A(fy_axis_attrs_t, 1, 0), INVALID_ARGUMENT,
        "axis 1 does not exist in [4 f32], whose rank is 1"),
    BAD(SOFTMAX, "scalar f32", "", A(fy_axis_attrs_t, 0, 0), INVALID_ARGUMENT, "[scalar f32]"),
    BAD(SOFTMAX, "4 f32", "", A(fy_axis_attrs_t, -1, 0), INVALID_ARGUMENT, "axis -1"),
    BAD(MATMUL, "64x784 f32|10x784 f32", "", NULL, SHAPE_MISMATCH,
        "the inner sizes 784 and 10 differ; src1 transposed would fit"),
    BAD(MATMUL, "3 f32|3x4 f32", "", NULL, SHAPE_MISMATCH, "fy_unsqueeze"),
    BAD(MATMUL, "2x4x3 f32|5x3x4 f32", "", NULL, SHAPE_MISMATCH, "2 against 5"),
    BAD(MATMUL, "4x3 i32|3x4 i32", "", NULL, DTYPE_MISMATCH, "matmul: src0"),
    BAD(MSE_LOSS, "4x3 f32|3 f32", "", NULL, SHAPE_MISMATCH, "a loss does not broadcast"),
    BAD(GATHER, "10x3 f32|4 f32", "", NULL, DTYPE_MISMATCH,
        "gather: indices (src1) is [4 f32], it takes i32 i64"),
    BAD(GATHER, "scalar f32|4 i32", "", NULL, SHAPE_MISMATCH, "rank 1 or more"),
    BAD(GATHER, "0x3 f32|4 i32", "", NULL, SHAPE_MISMATCH, "has no row"),
    BAD(GATHER, "2x2x2x2x2 f32|1x1x1x1x1 i32", "", NULL, SHAPE_MISMATCH, "rank 9"),
    BAD(CONCAT, "2x3 u8|2x4 u8", "", A(fy_axis_attrs_t, 0, 0), SHAPE_MISMATCH, "all but axis 0"),
    BAD(CONCAT, "2x3 u8|2x3x1 u8", "", A(fy_axis_attrs_t, 0, 0), SHAPE_MISMATCH,
        "src1 is [2x3x1 u8]"),
    BAD(CONCAT, "2 u8|2 i32", "", A(fy_axis_attrs_t, 0, 0), DTYPE_MISMATCH,
        "src0 is [2 u8], src1 is [2 i32]"),
};

TS_TEST(test_refusals)
{
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        launch_box_t box;
        box_make(&box, bad[i].op, bad[i].srcs, bad[i].dsts, bad[i].attrs);
        fy_status_t status = box_shape(&box);
        const char *text = fy_error_get()->text;
        if (status != bad[i].status)
            fail_msg("row %zu (%s): %s, %s", i, box.row->info.name, fy_status_name(status), text);
        if (!strstr(text, bad[i].text))
            fail_msg("row %zu: '%s' does not say '%s'", i, text, bad[i].text);
        if (strncmp(text, box.row->info.name, strlen(box.row->info.name)) != 0)
            fail_msg("row %zu: '%s' does not begin with the op", i, text);
    }
}

TS_TEST(test_broadcast_gives_stride_zero_where_a_source_repeats)
{
    launch_box_t box;
    box_make(&box, FY_OP_WHERE, "4x1x2 bool|3x1 f32|2 f32", "", NULL);
    box.src[1].strides[0] = 5; /* a view */
    assert_int_equal(box_shape(&box), FY_STATUS_OK);
    const int64_t want[3][3] = { { 2, 0, 1 }, { 0, 5, 0 }, { 0, 0, 1 } };
    for (int i = 0; i < 3; i++) assert_memory_equal(box.src[i].strides, want[i], sizeof want[i]);

    fy_desc_t once[3]; /* a second time changes nothing */
    memcpy(once, box.src, sizeof once);
    fy__broadcast_sources(&box.launch);
    assert_memory_equal(once, box.src, sizeof once);
}

TS_TEST(test_equal_shapes_keep_their_strides)
{
    launch_box_t box;
    box_make(&box, FY_OP_ADD, "4x3 f32|4x3 f32", "", NULL);
    box.src[1].strides[0] = 1, box.src[1].strides[1] = 4; /* transposed */
    assert_int_equal(box_shape(&box), FY_STATUS_OK);
    assert_int_equal(box.src[1].strides[0], 1);
    assert_int_equal(box.src[1].strides[1], 4);
}
