/* copy with any strides, rows that flip reverses, and indices of gather and take_along_axis that
 * are out of range. Values of the other ops that move elements: tests/ops/cases_move.def, and long
 * ones in test_elementwise.c. */
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
        { 3, { 6, 50, 4 }, { 200, 4, 1 }, { 4, 24, 1 } },     /* short runs */
        { 3, { 6, 50, 7 }, { 400, 8, 1 }, { 7, 42, 1 } },     /* and with gaps */
        { 3, { 60, 500, 8 }, { 4000, 8, 1 }, { 8, 480, 1 } }, /* on threads */
        { 3, { 6, 50, 16 }, { 800, 16, 1 }, { 16, 96, 1 } },
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
                ts_ok(run_elementwise(FY_OP_COPY, &dst, SRCS(&src), NULL, accumulate));
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

static fy_status_t gather(tensor_t *dst, const tensor_t *table, const tensor_t *indices,
                          uint32_t *fault)
{
    fy_desc_t sources[2] = { table->desc, indices->desc };
    fy_launch_t launch = launch_of(FY_OP_GATHER, 1, &dst->desc, 2, sources, NULL);
    launch.fault = fault;
    return fy__kernels_launch(&api, &launch);
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
    ts_ok(gather(&dst, &table, &indices, &fault));
    assert_int_equal(fault, 1);
    for (int64_t i = 0; i < n; i++) assert_true(get(&dst.desc, i) == want[i]);
    fault = 0;
    ts_ok(gather(&dst, &empty, &indices, &fault));
    assert_int_equal(fault, 1);
    for (int64_t i = 0; i < n; i++) assert_true(get(&dst.desc, i) == 0);
    fault = 0;
    ts_ok(gather(&empty, &table, &nothing, &fault));
    assert_int_equal(fault, 0);
    DROP(&table, &indices, &dst, &empty, &nothing);
}

/* Elements of every size, by both index types, dense and not. */
TS_TEST(take_along_axis_clamps_and_flags)
{
    const int64_t dims[2] = { 2, 5 }, taken[2] = { 2, 37 }, apart[2] = { 100, 2 };
    for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        for (int variant = 0; variant < 8; variant++) {
            const int32_t by = variant & 1 ? FY_DTYPE_I32 : FY_DTYPE_I64;
            const int wrong = variant & 2;
            const int64_t *strides = variant & 4 ? apart : NULL;
            tensor_t src = make(dtype, 2, dims, strides), indices = make(by, 2, taken, strides),
                     dst = make(dtype, 2, taken, strides);
            fy_desc_t sources[2] = { src.desc, indices.desc };
            fy_launch_t launch = launch_of(FY_OP_TAKE_ALONG_AXIS, 1, &dst.desc, 2, sources, NULL);
            uint32_t fault = 0;
            launch.fault = &fault;
            fill_noise(&src.desc, 1);
            for (int64_t i = 0; i < 74; i++) set(&indices.desc, i, (double)(i * 3 % 5));
            if (wrong) set(&indices.desc, 40, -1), set(&indices.desc, 73, INT32_MAX);
            ts_ok(fy__kernels_launch(&api, &launch));
            assert_int_equal(fault, wrong != 0);
            for (int64_t i = 0; i < 74; i++) {
                const int64_t asked = (int64_t)get(&indices.desc, i);
                const int64_t k = asked < 0 ? 0 : asked > 4 ? 4 : asked;
                assert_memory_equal(at(&dst.desc, i), at(&src.desc, i / 37 * 5 + k),
                                    size_of(dtype));
            }
            DROP(&src, &indices, &dst);
        }
    }
}

/* Rows of every length up to two vectors of the smallest elements. */
TS_TEST(flip_reverses_rows_of_any_length)
{
    const fy_flip_attrs_t attrs = { 2 };
    for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        for (int64_t n = 0; n <= 130; n++) {
            const int64_t dims[2] = { 2, n };
            tensor_t src = make(dtype, 2, dims, NULL), dst = make(dtype, 2, dims, NULL);
            fill_noise(&src.desc, 1);
            ts_ok(run(FY_OP_FLIP, &dst, SRCS(&src), &attrs, 0, 0));
            for (int64_t i = 0; i < 2 * n; i++)
                assert_memory_equal(at(&dst.desc, i), at(&src.desc, i / n * n + n - 1 - i % n),
                                    size_of(dtype));
            DROP(&src, &dst);
        }
    }
}
