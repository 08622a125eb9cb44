/* Scalar formulas: the rules of ops.h for NaN, wrap-around and casts, and the index helpers. */
#include "opset/formulas/scalar.h"
#include "tests/unit/backends/kernel_fixture.h"

TS_TEST(maximum_and_minimum_propagate_nan)
{
    assert_true(isnan(fy__maximum_f32(NAN, 1)) && isnan(fy__maximum_f32(1, NAN)) &&
                isnan(fy__maximum_f32(NAN, NAN)));
    assert_true(isnan(fy__minimum_f32(NAN, 1)) && isnan(fy__minimum_f32(1, NAN)));
    assert_true(isnan(fy__maximum_f64(NAN, INFINITY)) && isnan(fy__minimum_f64(-INFINITY, NAN)));
    assert_true(fy__maximum_f32(2, 3) == 3 && fy__maximum_f32(3, 2) == 3 &&
                fy__minimum_f64(2, 3) == 2 && fy__minimum_f64(3, 2) == 2);
    assert_true(isnan(fy__relu_f32(NAN)) && fy__relu_f32(-1) == 0 && fy__relu_f32(2) == 2 &&
                fy__relu_f64(-INFINITY) == 0);
}

TS_TEST(integers_wrap_around)
{
    assert_true(fy__neg_i32(INT32_MIN) == INT32_MIN && fy__abs_i32(INT32_MIN) == INT32_MIN &&
                fy__abs_i32(-7) == 7 && fy__abs_i32(7) == 7);
    assert_true(fy__add_i32(INT32_MAX, 1) == INT32_MIN && fy__sub_i32(INT32_MIN, 1) == INT32_MAX);
    assert_true(fy__mul_i64(INT64_MAX, 2) == -2 && fy__add_i64(INT64_MAX, 1) == INT64_MIN);
    assert_true(fy__neg_u8(1) == 255 && fy__abs_u8(200) == 200 && fy__abs_u8(0) == 0 &&
                fy__add_u8(250, 10) == 4 && fy__sub_u8(0, 1) == 255);
    assert_true(fy__mul_u8(16, 17) == 16 && fy__maximum_u8(3, 250) == 250 &&
                fy__minimum_i64(-1, 1) == -1);
}

TS_TEST(sigmoid_saturates)
{
    assert_true(fy__sigmoid_f32(-1000) == 0 && fy__sigmoid_f32(1000) == 1 &&
                fy__sigmoid_f32(0) == 0.5f);
    assert_true(fy__sigmoid_f64(-INFINITY) == 0 && fy__sigmoid_f64(INFINITY) == 1 &&
                isnan(fy__sigmoid_f64(NAN)));
}

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
