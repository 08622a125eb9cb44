/* Same bits: every row of cases.def, in every dtype and layout, gives bit for bit on sim:0 (eager)
 * what it gives on the host, and twice the same on one device. A device whose kernels are others (a
 * real GPU) is held to the oracle's bounds instead, in test_op_matrix. */
#include <inttypes.h>

#include "tests/support/cases.h"
#include "tests/support/harness.h"

static uint64_t g_compared, g_failures;

static void compare_row(const ts_case_t *row, fy_dtype_t dtype, fy_device_t *sim)
{
    ts_inputs_t inputs;
    ts_inputs_make(&inputs, row, dtype, false, 7);
    for (ts_layout_t layout = 0; layout < TS_LAYOUT_COUNT; layout++) {
        if (layout == TS_BROADCAST) continue; /* its values repeat; the matrix has it */
        fy_device_t *devices[3] = { fy_device_host(), sim, sim };
        ts_array_t got[3] = { { 0 } };
        bool ok = true, applied;
        for (int i = 0; i < 3; i++) {
            ts_run_options_t options = { devices[i], layout, layout, TS_ALL_SOURCES, false };
            ok = ts_case_run(row, dtype, &inputs, &options, &got[i], &applied) && ok;
        }
        char what[160];
        snprintf(what, sizeof what, "%s \"%s\" %s %s", fy_op_get(row->op)->name, row->label,
                 fy_dtype_name(dtype), ts_layout_name(layout));
        if (!ok || !ts_same(&got[0], &got[1], what) || !ts_same(&got[1], &got[2], what))
            g_failures++;
        g_compared++;
        for (int i = 0; i < 3; i++) ts_array_free(&got[i]);
    }
    ts_inputs_free(&inputs);
}

TS_TEST(host_and_sim_give_the_same_bits)
{
    fy_device_t *sim;
    ts_ok(fy_device_open("sim:0", &sim));
    for (size_t i = 0; i < ts_case_count(); i++) {
        const ts_case_t *row = ts_case_get(i);
        if (row->status != FY_STATUS_OK) continue;
        for (fy_dtype_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
            if (fy_op_get(row->op)->dtypes & FY_DTYPE_BIT(dtype)) compare_row(row, dtype, sim);
        }
    }
    fy_device_close(sim);
    print_message("  %" PRIu64 " comparisons, %" PRIu64 " differ\n", g_compared, g_failures);
    assert_int_equal(g_failures, 0);
}

static int prepare(void)
{
    for (size_t i = 0; i < ts_device_count(); i++) {
        if (strncmp(ts_device_spec(i), "host", 4) != 0 &&
            strncmp(ts_device_spec(i), "sim", 3) != 0) {
            print_message("skipped: the bits of %s's own kernels may differ; "
                          "test_op_matrix compares it with the oracle\n",
                          ts_device_spec(i));
            return 77;
        }
    }
    return 0;
}

TS_SUITE(.prepare = prepare);
