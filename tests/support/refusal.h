/* A refused call must not change handles, versions, any byte of an operand, or the ledger.
 * Use: make the operands of a row (ts_refusal_begin), call, then pass the status to
 * ts_refusal_expect. */
#ifndef FERRY_TESTS_SUPPORT_REFUSAL_H_
#define FERRY_TESTS_SUPPORT_REFUSAL_H_

#include "tests/support/cases.h"
#include "tests/support/harness.h"

typedef struct ts_refusal {
    fy_op_t op;
    const void *attrs;
    /* operands 0 .. nsrc-1 are sources "x0", "x1", ..., the given results after them are "y0",
     * "y1" */
    size_t nsrc, ndst;
    bool given[TS_MAX_OPERANDS + 1]; /* one more than any op has */
    ts_operand_t operand[2 * TS_MAX_OPERANDS];
    uint64_t version[2 * TS_MAX_OPERANDS];
    fy_tensor_t *src[TS_MAX_OPERANDS + 1], *dst[TS_MAX_OPERANDS + 1],
        *dst_before[TS_MAX_OPERANDS + 1];
    fy_ledger_totals_t before;
    fy_scope_t scope;
    char what[200];
} ts_refusal_t;

/* Operands of op, each a dense tensor with values: `src` and `dst` shapes with dtypes from
 * main_dtype and their domain; dst[i] with rank -1 is not given. devices[k] for operand k (sources
 * first, then all ndst). */
void ts_refusal_begin(ts_refusal_t *refusal, fy_op_t op, const void *attrs, size_t nsrc,
                      const ts_shape_t *src, size_t ndst, const ts_shape_t *dst,
                      fy_dtype_t main_dtype, fy_device_t *const *devices);
/* The same with a dtype for each operand, sources first. */
void ts_refusal_begin_as(ts_refusal_t *refusal, fy_op_t op, const void *attrs, size_t nsrc,
                         const ts_shape_t *src, size_t ndst, const ts_shape_t *dst,
                         const fy_dtype_t *dtypes, fy_device_t *const *devices);
/* Calls the op with the current src, dst, attrs, and expects `want`, an error text that names the
 * op, and no change. Returns false and prints otherwise. Ends the refusal in both cases. `extra`
 * (may be NULL) checks the error text first, and returns the missing part. */
typedef const char *(*ts_text_check_fn)(const ts_refusal_t *refusal, const char *text,
                                        const void *user);
bool ts_refusal_expect(ts_refusal_t *refusal, fy_status_t want, ts_text_check_fn extra,
                       const void *user);

/* "[3x5 f32]", as error texts show an operand. */
void ts_shape_text(const ts_operand_t *operand, char *out, size_t nbytes);

#endif
