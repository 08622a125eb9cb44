/* The rows of tests/ops/cases.def as data, and one function that runs a row: it makes the operands
 * in a layout on a device, calls the op, and reads back results, guard words and sources. See
 * tests/ops/test_op_matrix.c. */
#ifndef FERRY_TESTS_SUPPORT_CASES_H_
#define FERRY_TESTS_SUPPORT_CASES_H_

#include <ferry/ferry.h>

#include "tests/support/operand.h"
#include "tests/support/oracle.h"

/* Columns of the matrix. */
typedef enum ts_column {
    TS_COLUMN_CONTIGUOUS,
    TS_COLUMN_STRIDED,
    TS_COLUMN_BROADCAST,
    TS_COLUMN_OFFSET,
    TS_COLUMN_EMPTY,
    TS_COLUMN_COUNT
} ts_column_t;
const char *ts_column_name(ts_column_t column);

typedef struct ts_op_row {
    fy_op_t op;
    uint32_t dtypes;        /* promised by ops.h */
    double slack, gradient; /* the errors, see cases.def */
    bool has_parts;
} ts_op_row_t;

typedef struct ts_case {
    fy_op_t op;
    const char *label, *shapes, *domains;
    const void *attrs;
    fy_status_t status; /* OK, or the status of its refusal */
} ts_case_t;

typedef struct ts_not_run {
    fy_op_t op;
    uint32_t dtypes;
    ts_column_t column;
    const char *device, *reason;
} ts_not_run_t;

const ts_op_row_t *ts_op_row(fy_op_t op); /* NULL: the op has no row */
size_t ts_case_count(void);
const ts_case_t *ts_case_get(size_t index);
/* The op's first row that is not refused; NULL: none. */
const ts_case_t *ts_case_first(fy_op_t op);
const char *ts_not_run_reason(fy_op_t op, fy_dtype_t dtype, ts_column_t column, const char *device);

/* ---- a row, parsed ---- */

enum { TS_MAX_OPERANDS = 8 };
typedef struct ts_shape {
    int rank;
    int64_t dims[FY_MAX_RANK];
    ts_domain_t domain;
    int64_t limit; /* of an index */
} ts_shape_t;
typedef struct ts_plan {
    size_t nsrc, ngiven;
    ts_shape_t src[TS_MAX_OPERANDS], given[TS_MAX_OPERANDS];
    bool is_empty; /* an operand or the result has no elements */
} ts_plan_t;
/* Fails the test if the row is malformed. */
ts_plan_t ts_case_plan(const ts_case_t *row);

/* ---- a row with values ---- */

typedef struct ts_inputs {
    ts_plan_t plan;
    ts_array_t src[TS_MAX_OPERANDS], given[TS_MAX_OPERANDS];
    ts_expected_t expected; /* for dst[0]; has_oracle */
    bool has_oracle;
    ts_expected_t more[TS_MAX_OPERANDS - 1]; /* for dst[1], ... */
    size_t nmore;
} ts_inputs_t;
/* Values from the row, the dtype and the seed. `repeat`: equal along the axis that TS_BROADCAST
 * repeats. */
void ts_inputs_make(ts_inputs_t *inputs, const ts_case_t *row, fy_dtype_t dtype, bool repeat,
                    uint64_t seed);
void ts_inputs_free(ts_inputs_t *inputs);

enum { TS_ALL_SOURCES = -1 };
typedef struct ts_run_options {
    fy_device_t *device;
    ts_layout_t src_layout, dst_layout;
    int only_src;   /* only this source has src_layout; TS_ALL_SOURCES: all */
    bool given_dst; /* pass dst[0] also where the op could make it */
} ts_run_options_t;
/* Runs the row. Returns true if dst[0] is right, no other byte was written and the ledger counts
 * one request. `out` (may be NULL) gets dst[0].
 * *out_applied: whether any operand really has the requested layout. */
bool ts_case_run(const ts_case_t *row, fy_dtype_t dtype, const ts_inputs_t *inputs,
                 const ts_run_options_t *options, ts_array_t *out, bool *out_applied);

#endif
