/* The matrix: op x dtype x {contiguous, strided, broadcast, offset, empty} x device, against the
 * float64 oracle.
 * Every op of the table is walked; a combination that was not run and is not explained in cases.def
 * fails, so a new op without cases fails too. Each cell is run with results made by Ferry, with a
 * given destination in the same layout, and with one source at a time in the layout; guard words
 * and sources are read back each time. Not here: refusals (test_refusal_*.c), bits
 * (test_op_bits.c). */
#include <inttypes.h>

#include "tests/support/cases.h"
#include "tests/support/harness.h"

enum { MAX_DEVICES = 8 };
static fy_device_t *g_devices[MAX_DEVICES];
static size_t g_ndevices;
static uint64_t g_runs, g_failures;

/* Runs of one op: [device][dtype][column]. */
typedef struct tally {
    uint32_t n[MAX_DEVICES][FY_DTYPE_COUNT][TS_COLUMN_COUNT];
} tally_t;

static ts_column_t column_of(ts_layout_t layout, bool is_empty)
{
    if (is_empty) return TS_COLUMN_EMPTY;
    switch (layout) {
    case TS_TRANSPOSED:
    case TS_STEPPED: return TS_COLUMN_STRIDED;
    case TS_BROADCAST: return TS_COLUMN_BROADCAST;
    case TS_OFFSET: return TS_COLUMN_OFFSET;
    default: return TS_COLUMN_CONTIGUOUS;
    }
}

static void run_once(const ts_case_t *row, fy_dtype_t dtype, const ts_inputs_t *inputs,
                     size_t device, ts_layout_t layout, int only_src, bool given_dst,
                     tally_t *tally)
{
    ts_run_options_t options = { .device = g_devices[device],
                                 .src_layout = layout,
                                 .dst_layout = layout == TS_BROADCAST ? TS_CONTIGUOUS : layout,
                                 .only_src = only_src,
                                 .given_dst = given_dst };
    bool applied;
    bool ok = ts_case_run(row, dtype, inputs, &options, NULL, &applied);
    g_runs++;
    if (!ok) g_failures++;
    if (ok && applied) tally->n[device][dtype][column_of(layout, inputs->plan.is_empty)]++;
}

/* Large rows test loops over blocks and threads. They are not run for one source at a time, nor
 * with a given destination in each layout. */
static bool is_large(const ts_inputs_t *inputs)
{
    uint64_t nelem = 0;
    for (size_t i = 0; i < inputs->plan.nsrc; i++) nelem += inputs->src[i].nelem;
    return nelem > 2048;
}

static void run_case(const ts_case_t *row, fy_dtype_t dtype, tally_t *tally)
{
    const fy_op_info_t *info = fy_op_get(row->op);
    bool in_place = info->flags & FY_OP_IN_PLACE;
    ts_inputs_t plain, repeated;
    ts_inputs_make(&plain, row, dtype, false, 1);
    ts_inputs_make(&repeated, row, dtype, true, 1);
    for (size_t device = 0; device < g_ndevices; device++) {
        for (ts_layout_t layout = 0; layout < TS_LAYOUT_COUNT; layout++) {
            const ts_inputs_t *inputs = layout == TS_BROADCAST ? &repeated : &plain;
            if (!in_place)
                run_once(row, dtype, inputs, device, layout, TS_ALL_SOURCES, false, tally);
            if (in_place || layout == TS_CONTIGUOUS || !is_large(&plain))
                run_once(row, dtype, inputs, device, layout, TS_ALL_SOURCES, true, tally);
            if (plain.plan.nsrc < 2 || layout == TS_CONTIGUOUS || is_large(&plain)) continue;
            for (size_t s = 0; s < plain.plan.nsrc; s++) {
                run_once(row, dtype, inputs, device, layout, (int)s, false, tally);
            }
        }
    }
    ts_inputs_free(&plain);
    ts_inputs_free(&repeated);
}

/* Fails for each cell without a run and without a reason; prints one line per op and device. */
static uint64_t judge(const fy_op_info_t *info, const tally_t *tally)
{
    uint64_t nholes = 0;
    for (size_t device = 0; device < g_ndevices; device++) {
        char line[256];
        int n = snprintf(line, sizeof line, "  %-22s %-8s", info->name,
                         fy_device_name(g_devices[device]));
        for (ts_column_t column = 0; column < TS_COLUMN_COUNT; column++) {
            uint32_t runs = 0, ndtypes = 0, nexplained = 0;
            for (fy_dtype_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
                if (!(info->dtypes & FY_DTYPE_BIT(dtype))) continue;
                uint32_t cell = tally->n[device][dtype][column];
                const char *reason =
                    ts_not_run_reason(info->op, dtype, column, fy_device_name(g_devices[device]));
                runs += cell;
                ndtypes += cell > 0;
                nexplained += cell == 0 && reason;
                if (cell == 0 && !reason) {
                    nholes++;
                    print_error("hole: %s %s %s on %s was not run and has no reason in cases.def\n",
                                info->name, fy_dtype_name(dtype), ts_column_name(column),
                                fy_device_name(g_devices[device]));
                }
                if (cell > 0 && reason) {
                    nholes++;
                    print_error("%s %s %s on %s runs, but cases.def says why not: %s\n", info->name,
                                fy_dtype_name(dtype), ts_column_name(column),
                                fy_device_name(g_devices[device]), reason);
                }
            }
            char text[32];
            if (ndtypes == 0 && nexplained > 0)
                snprintf(text, sizeof text, "explained");
            else
                snprintf(text, sizeof text, "%ux%u", ndtypes, ndtypes ? runs / ndtypes : 0);
            n += snprintf(line + n, sizeof line - (size_t)n, " %-11s", text);
        }
        print_message("%s\n", line);
    }
    return nholes;
}

TS_TEST(every_op_in_every_layout)
{
    const char *only = getenv("FERRY_TEST_OP");
    uint64_t nholes = 0;
    print_message("  op                     device   dtypes x runs: contiguous, strided, "
                  "broadcast, offset, empty\n");
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) {
        const fy_op_info_t *info = fy_op_get(op);
        if (only && *only && strcmp(only, info->name) != 0) continue;
        const ts_op_row_t *promised = ts_op_row(op);
        if (!promised || !ts_case_first(op)) {
            print_error("%s has no row in tests/ops/cases.def\n", info->name);
            nholes++;
            continue;
        }
        if (promised->dtypes != info->dtypes) {
            print_error("%s: ops.h promises dtypes 0x%x, the table has 0x%x\n", info->name,
                        promised->dtypes, info->dtypes);
            nholes++;
        }
        tally_t *tally = calloc(1, sizeof *tally);
        assert_non_null(tally);
        for (size_t i = 0; i < ts_case_count(); i++) {
            const ts_case_t *row = ts_case_get(i);
            if (row->op != op || row->status != FY_STATUS_OK) continue;
            for (fy_dtype_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
                if (info->dtypes & FY_DTYPE_BIT(dtype)) run_case(row, dtype, tally);
            }
        }
        nholes += judge(info, tally);
        free(tally);
    }
    print_message("  %" PRIu64 " runs, %" PRIu64 " wrong, %" PRIu64 " holes\n", g_runs, g_failures,
                  nholes);
    assert_int_equal(nholes, 0);
    assert_int_equal(g_failures, 0);
}

static int close_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < g_ndevices; i++) fy_device_close(g_devices[i]);
    return 0;
}

static int prepare(void)
{
    for (size_t i = 0; i < ts_device_count() && i < MAX_DEVICES; i++) {
        fy_status_t status = fy_device_open(ts_device_spec(i), &g_devices[g_ndevices]);
        if (status == FY_STATUS_UNAVAILABLE && !getenv("FERRY_TEST_REQUIRE")) {
            print_message("%s: %s\n", ts_device_spec(i), fy_error_get()->text);
        } else if (status != FY_STATUS_OK) {
            print_error("%s: %s: %s\n", ts_device_spec(i), fy_status_name(status),
                        fy_error_get()->text);
            return 1;
        } else {
            g_ndevices++;
        }
    }
    if (g_ndevices == 0) return 77;
    return 0;
}

TS_SUITE(.end = close_all, .prepare = prepare);
