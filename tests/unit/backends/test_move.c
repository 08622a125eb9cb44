/* copy with any strides, and indices of gather that are out of range. Values of the other ops that
 * move elements: tests/ops/cases_move.def, and long ones in test_elementwise.c. */
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
