/* Scalar formulas: the ends of the ranges of casts, and the index helpers. Not here: NaN and
 * wrap-around (tests/ops/test_op_matrix.c, test_edges.c). */
#include "opset/formulas/scalar.h"
#include "tests/unit/backends/kernel_fixture.h"

TS_TEST(floats_clamp_to_integers)
{
    assert_true(fy__i32_from_f32(NAN) == 0 && fy__i32_from_f32(3e9f) == INT32_MAX &&
                fy__i32_from_f32(-INFINITY) == INT32_MIN);
    assert_true(fy__i32_from_f32(-2.9f) == -2 && fy__i32_from_f32(2.9f) == 2 &&
                fy__i32_from_f64(2147483646.9) == 2147483646);
    assert_true(fy__i32_from_f64(2147483647.5) == INT32_MAX &&
                fy__i32_from_f64(-2147483648.5) == INT32_MIN);
    assert_true(fy__i64_from_f32(INFINITY) == INT64_MAX && fy__i64_from_f64(-1e300) == INT64_MIN &&
                fy__i64_from_f64(NAN) == 0);
    assert_true(fy__i64_from_f64(9223372036854774784.0) == 9223372036854774784LL &&
                fy__i64_from_f64(-9223372036854775808.0) == INT64_MIN);
    assert_true(fy__u8_from_f32(-1) == 0 && fy__u8_from_f32(256) == 255 &&
                fy__u8_from_f32(254.9f) == 254 && fy__u8_from_f32(NAN) == 0);
    assert_true(fy__u8_from_f64(255.5) == 255 && fy__u8_from_f64(-0.5) == 0 &&
                fy__u8_from_f64(NAN) == 0);
    assert_true(fy__bool_from_f32(NAN) == 1 && fy__bool_from_f32(-0.0f) == 0 &&
                fy__bool_from_f64(1e-320) == 1);
}

TS_TEST(offsets_follow_strides)
{
    const int64_t dims[3] = { 2, 3, 4 }, strides[3] = { 100, 0, 7 };
    int64_t linear = 0;
    for (int64_t i = 0; i < 2; i++) {
        for (int64_t j = 0; j < 3; j++) {
            for (int64_t k = 0; k < 4; k++)
                assert_true(fy__offset_of(linear++, 3, dims, strides) == 100 * i + 7 * k);
        }
    }
    assert_true(fy__offset_of(0, 0, NULL, NULL) == 0);
}

TS_TEST(axes_fuse_only_where_every_operand_allows)
{
    const int64_t dims[4] = { 2, 1, 3, 4 };
    const int64_t dense[4] = { 12, 12, 4, 1 }, row[4] = { 0, 0, 0, 1 },
                  transposed[4] = { 1, 5, 2, 6 };
    const int64_t *const same[2] = { dense, dense }, *const with_row[2] = { dense, row },
                         *const with_other[2] = { dense, transposed };
    fy__index_t index;
    fy__index_make(&index, 4, dims, 2, same);
    assert_true(index.rank == 1 && index.dims[0] == 24 && index.strides[1][0] == 1);
    fy__index_make(&index, 4, dims, 2, with_row);
    assert_true(index.rank == 2 && index.dims[0] == 6 && index.dims[1] == 4 &&
                index.strides[0][0] == 4 && index.strides[1][0] == 0);
    fy__index_make(&index, 4, dims, 2, with_other);
    assert_true(index.rank == 3 && index.dims[0] == 2 && index.dims[1] == 3 && index.dims[2] == 4);
    /* After any fusing, element i has the same address. */
    for (int64_t i = 0; i < 24; i++) {
        assert_true(fy__offset_of(i, index.rank, index.dims, index.strides[1]) ==
                    fy__offset_of(i, 4, dims, transposed));
    }
    fy__index_make(&index, 0, NULL, 1, same);
    assert_true(index.rank == 1 && index.dims[0] == 1);
}
