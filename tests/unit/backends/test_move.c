/* copy, concat, gather, fill, arange: bytes arrive at the right addresses, in every layout, and no
 * other byte changes (guards, gaps). */
#include "tests/unit/backends/kernel_fixture.h"

TS_TEST(copies_any_layout)
{
    static const struct {
        int rank;
        int64_t dims[3], to[3], from[3]; /* strides; from may be 0 */
    } cases[] = {
        { 0, { 0 }, { 0 }, { 0 } },
        { 1, { 7 }, { 1 }, { 1 } },
        { 1, { 300000 }, { 1 }, { 1 } },
        { 1, { 5000 }, { 1 }, { 0 } },
        { 2, { 45, 67 }, { 67, 1 }, { 1, 45 } },     /* transpose */
        { 2, { 400, 515 }, { 515, 1 }, { 1, 400 } }, /* on threads */
        { 3, { 6, 50, 40 }, { 2000, 40, 1 }, { 1, 6, 300 } },
        { 3, { 50, 6, 40 }, { 240, 40, 1 }, { 1, 2000, 50 } },
        { 2, { 33, 34 }, { 70, 2 }, { 34, 1 } },
        { 2, { 33, 34 }, { 34, 1 }, { 70, 2 } },
        { 2, { 33, 34 }, { 1, 40 }, { 0, 1 } },
        { 3, { 9, 0, 4 }, { 0, 4, 1 }, { 0, 4, 1 } },
    };
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
            for (uint32_t accumulate = 0; accumulate < (dtype <= FY_DTYPE_BF16 ? 2u : 1u);
                 accumulate++) {
                tensor_t dst = make(dtype, cases[c].rank, cases[c].dims, cases[c].to),
                         src = make(dtype, cases[c].rank, cases[c].dims, cases[c].from);
                const int64_t n = count_of(&dst.desc);
                fill_noise(&src.desc, 1);
                if (accumulate) {
                    for (int64_t i = 0; i < n; i++) set(&dst.desc, i, 1);
                }
                assert_int_equal(run_elementwise(FY_OP_COPY, &dst, SRCS(&src), NULL, accumulate),
                                 FY_STATUS_OK);
                for (int64_t i = 0; i < n; i++) {
                    const double x = get(&src.desc, i);
                    if (accumulate)
                        expect_near(get(&dst.desc, i), x + 1, epsilon_of(dtype) * 4, "copy", i);
                    else
                        assert_memory_equal(at(&dst.desc, i), at(&src.desc, i), size_of(dtype));
                }
                DROP(&dst, &src);
            }
        }
    }
}

/* Bytes between the elements of a strided dst must not change. */
TS_TEST(gaps_stay)
{
    const int64_t dims[2] = { 20, 30 }, strides[2] = { 80, 2 };
    static const fy_op_t ops[] = { FY_OP_COPY, FY_OP_NEG, FY_OP_FILL, FY_OP_RELU };
    for (size_t k = 0; k < COUNT_OF(ops); k++) {
        tensor_t dst = make(FY_DTYPE_F16, 2, dims, strides),
                 src = make(FY_DTYPE_F16, 2, dims, NULL);
        const fy_fill_attrs_t fill = { 3, 3 };
        memset(dst.desc.data, 0x77, dst.nbytes);
        assert_int_equal(
            run_elementwise(ops[k], &dst, ops[k] == FY_OP_FILL ? 0 : SRCS(&src), &fill, 0),
            FY_STATUS_OK);
        for (size_t i = 0; i < dst.nbytes / 2; i++) {
            const int inside = i % 80 < 60 && i % 2 == 0;
            if (inside == (((uint16_t *)dst.desc.data)[i] == 0x7777))
                fail_msg("op %u half %zu", ops[k], i);
        }
        DROP(&dst, &src);
    }
}

TS_TEST(concat_joins_along_any_axis)
{
    for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        for (int axis = 0; axis < 3; axis++) {
            const int64_t lengths[4] = { 3, 0, 5, 1 };
            int64_t dims[3] = { 4, 6, 5 };
            tensor_t part[4];
            const tensor_t *sources[4];
            for (int k = 0; k < 4; k++) {
                dims[axis] = lengths[k];
                const int64_t transposed[3] = { 1, dims[0] ? dims[0] : 1,
                                                dims[0] && dims[1] ? dims[0] * dims[1] : 1 };
                part[k] = make(dtype, 3, dims, k == 2 ? transposed : NULL);
                fill_noise(&part[k].desc, k);
                sources[k] = &part[k];
            }
            dims[axis] = 9;
            tensor_t dst = make(dtype, 3, dims, NULL);
            const fy_axis_attrs_t attrs = { axis, 0 };
            assert_int_equal(run(FY_OP_CONCAT, &dst, 4, sources, &attrs, 0, 0), FY_STATUS_OK);
            for (int64_t i = 0; i < count_of(&dst.desc); i++) {
                int64_t place[3] = { i / (dims[1] * dims[2]), i / dims[2] % dims[1], i % dims[2] };
                int k = 0;
                while (place[axis] >= lengths[k]) place[axis] -= lengths[k++];
                const fy_desc_t *from = &part[k].desc;
                const int64_t linear = (place[0] * from->dims[1] + place[1]) * from->dims[2] +
                                       place[2];
                assert_memory_equal(at(&dst.desc, i), at(from, linear), size_of(dtype));
            }
            for (int k = 0; k < 4; k++) drop(&part[k]);
            drop(&dst);
        }
    }
}

static fy_status_t gather(tensor_t *dst, const tensor_t *table, const tensor_t *indices,
                          uint32_t *fault)
{
    fy_desc_t sources[2] = { table->desc, indices->desc };
    fy_launch_t launch = launch_of(FY_OP_GATHER, 1, &dst->desc, 2, sources, NULL);
    launch.fault = fault;
    return fy__kernels_launch(&api, &launch);
}

TS_TEST(gather_takes_rows)
{
    for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        for (int variant = 0; variant < 8; variant++) {
            const int64_t table_dims[3] = { 50, 3, 4 }, table_gaps[3] = { 1, 50, 151 },
                          index_dims[2] = { 6, variant & 4 ? 3000 : 7 };
            const int64_t index_gaps[2] = { 1, 6 }, dst_dims[4] = { 6, index_dims[1], 3, 4 };
            tensor_t table = make(dtype, 3, table_dims, variant & 1 ? table_gaps : NULL);
            tensor_t indices = make(variant & 2 ? FY_DTYPE_I32 : FY_DTYPE_I64, 2, index_dims,
                                    variant & 1 ? index_gaps : NULL);
            tensor_t dst = make(dtype, 4, dst_dims, NULL);
            uint32_t fault = 0;
            fill_noise(&table.desc, 0);
            for (int64_t i = 0; i < count_of(&indices.desc); i++)
                set(&indices.desc, i, (double)(i * 37 % 50));
            assert_int_equal(gather(&dst, &table, &indices, &fault), FY_STATUS_OK);
            assert_int_equal(fault, 0);
            for (int64_t i = 0; i < count_of(&dst.desc); i++) {
                assert_memory_equal(at(&dst.desc, i),
                                    at(&table.desc, i / 12 * 37 % 50 * 12 + i % 12),
                                    size_of(dtype));
            }
            DROP(&table, &indices, &dst);
        }
    }
}

TS_TEST(gather_clamps_and_flags)
{
    const int64_t rows = 5, n = 6, none = 0;
    tensor_t table = make(FY_DTYPE_F32, 1, &rows, NULL), indices = make(FY_DTYPE_I64, 1, &n, NULL),
             dst = make(FY_DTYPE_F32, 1, &n, NULL);
    tensor_t empty = make(FY_DTYPE_F32, 1, &none, NULL),
             nothing = make(FY_DTYPE_I64, 1, &none, NULL);
    const int64_t asked[6] = { -1, 0, 4, 5, INT64_MAX, INT64_MIN };
    const double want[6] = { 10, 10, 14, 14, 14, 10 };
    uint32_t fault = 0;
    for (int64_t i = 0; i < rows; i++) set(&table.desc, i, 10 + (double)i);
    memcpy(indices.desc.data, asked, sizeof asked);
    assert_int_equal(gather(&dst, &table, &indices, &fault), FY_STATUS_OK);
    assert_int_equal(fault, 1);
    for (int64_t i = 0; i < n; i++) assert_true(get(&dst.desc, i) == want[i]);
    fault = 0;
    assert_int_equal(gather(&dst, &empty, &indices, &fault), FY_STATUS_OK);
    assert_int_equal(fault, 1);
    for (int64_t i = 0; i < n; i++) assert_true(get(&dst.desc, i) == 0);
    fault = 0;
    assert_int_equal(gather(&empty, &table, &nothing, &fault), FY_STATUS_OK);
    assert_int_equal(fault, 0);
    DROP(&table, &indices, &dst, &empty, &nothing);
}

TS_TEST(fill_writes_the_value_of_the_dtype)
{
    const int64_t sizes[] = { 0, 1, 4, 33, 300000 };
    for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        for (size_t s = 0; s < COUNT_OF(sizes); s++) {
            tensor_t dst = make(dtype, 1, &sizes[s], NULL);
            const fy_fill_attrs_t attrs = { -0.3, 5 };
            const double want[FY_DTYPE_COUNT] = { (double)-0.3f,
                                                  -0.3,
                                                  (double)fy__f32_from_f16(0xb4cd),
                                                  (double)fy__f32_from_bf16(0xbe9a),
                                                  5,
                                                  5,
                                                  5,
                                                  1 };
            assert_int_equal(run_elementwise(FY_OP_FILL, &dst, 0, NULL, &attrs, 0), FY_STATUS_OK);
            for (int64_t i = 0; i < sizes[s]; i++) assert_true(get(&dst.desc, i) == want[dtype]);
            drop(&dst);
        }
    }
}

TS_TEST(arange_counts_in_f64)
{
    const int64_t n = 40000, gap = 3;
    for (int32_t dtype = 0; dtype <= FY_DTYPE_U8; dtype++) {
        for (int strided = 0; strided < 2; strided++) {
            tensor_t dst = make(dtype, 1, &n, strided ? &gap : NULL);
            const fy_arange_attrs_t attrs = { -3.5, 0.1 };
            assert_int_equal(run_elementwise(FY_OP_ARANGE, &dst, 0, NULL, &attrs, 0), FY_STATUS_OK);
            for (int64_t i = 0; i < n; i++) {
                const double x = -3.5 + (double)i * 0.1;
                double want = x;
                if (dtype == FY_DTYPE_F32) want = (double)(float)x;
                if (dtype == FY_DTYPE_F16) want = (double)fy__f32_from_f16(fy__f16_from_f64(x));
                if (dtype == FY_DTYPE_BF16) want = (double)fy__f32_from_bf16(fy__bf16_from_f64(x));
                if (dtype >= FY_DTYPE_I32) want = trunc(x);
                if (dtype == FY_DTYPE_U8) want = fmin(fmax(trunc(x), 0), 255);
                expect_near(get(&dst.desc, i), want, 0, "arange", i);
            }
            drop(&dst);
        }
    }
}
