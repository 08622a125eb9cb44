/* Prepares operands for a call that must be refused, and checks that it changed nothing.
 * Not here: the calls (tests/ops/test_refusal_*.c). */
#include "tests/support/refusal.h"

#include <inttypes.h>

void ts_shape_text(const ts_operand_t *operand, char *out, size_t nbytes)
{
    size_t n = (size_t)snprintf(out, nbytes, "[");
    for (int axis = 0; axis < operand->rank; axis++) {
        n += (size_t)snprintf(out + n, nbytes - n, "%s%" PRId64, axis ? "x" : "",
                              operand->dims[axis]);
    }
    snprintf(out + n, nbytes - n, "%s%s]", operand->rank ? " " : "scalar ",
             fy_dtype_name(operand->dtype));
}

void ts_refusal_begin_as(ts_refusal_t *refusal, fy_op_t op, const void *attrs, size_t nsrc,
                         const ts_shape_t *src, size_t ndst, const ts_shape_t *dst,
                         const fy_dtype_t *dtypes, fy_device_t *const *devices)
{
    memset(refusal, 0, sizeof *refusal);
    refusal->op = op;
    refusal->attrs = attrs;
    refusal->nsrc = nsrc;
    refusal->ndst = ndst;
    refusal->scope = fy_scope_begin("refusal");
    snprintf(refusal->what, sizeof refusal->what, "%s", fy_op_get(op)->name);
    ts_random_t random = { 5 + op };
    for (size_t k = 0; k < nsrc + ndst; k++) {
        const ts_shape_t *shape = k < nsrc ? &src[k] : &dst[k - nsrc];
        if (shape->rank < 0) continue;
        ts_array_t values;
        ts_array_make(&values, dtypes[k], shape->rank, shape->dims);
        if (ts_is_float(dtypes[k]) == ts_is_float(ts_domain_dtype(shape->domain, dtypes[k]))) {
            ts_array_fill(&values,
                          shape->domain == TS_RNG && dtypes[k] != FY_DTYPE_I64 ? TS_ANY
                                                                               : shape->domain,
                          shape->limit ? shape->limit : 2, -1, &random);
        }
        ts_operand_make(&refusal->operand[k], devices[k], &values, TS_CONTIGUOUS);
        char name[8];
        snprintf(name, sizeof name, "%c%zu", k < nsrc ? 'x' : 'y', k < nsrc ? k : k - nsrc);
        fy_tensor_set_name(refusal->operand[k].view, name);
        if (k < nsrc) {
            refusal->src[k] = refusal->operand[k].view;
        } else {
            refusal->dst[k - nsrc] = refusal->operand[k].view;
            refusal->given[k - nsrc] = true;
        }
        ts_array_free(&values);
    }
    for (size_t k = 0; k < nsrc + ndst; k++) {
        if (refusal->operand[k].view) refusal->version[k] = ts_version(refusal->operand[k].view);
    }
    refusal->before = ts_ledger(NULL);
}

void ts_refusal_begin(ts_refusal_t *refusal, fy_op_t op, const void *attrs, size_t nsrc,
                      const ts_shape_t *src, size_t ndst, const ts_shape_t *dst,
                      fy_dtype_t main_dtype, fy_device_t *const *devices)
{
    fy_dtype_t dtypes[2 * TS_MAX_OPERANDS];
    for (size_t k = 0; k < nsrc + ndst; k++)
        dtypes[k] = ts_operand_dtype(
            op, ts_domain_dtype(k < nsrc ? src[k].domain : dst[k - nsrc].domain, main_dtype),
            k == 0 || k == nsrc);
    ts_refusal_begin_as(refusal, op, attrs, nsrc, src, ndst, dst, dtypes, devices);
}

/* Returns the error in the way the call failed, or NULL. */
static const char *judge_call(ts_refusal_t *refusal, fy_status_t status, fy_status_t want,
                              ts_text_check_fn extra, const void *user)
{
    const char *text = fy_error_get()->text;
    if (status != want) return "another status";
    if (fy_error_get()->status != want) return "the record has another status";
    if (!strstr(text, fy_op_get(refusal->op)->name)) return "the text does not name the op";
    for (size_t i = 0; i < refusal->ndst; i++) {
        if (refusal->dst[i] != refusal->dst_before[i]) return "a dst handle was changed";
    }
    return extra ? extra(refusal, text, user) : NULL;
}

bool ts_refusal_expect(ts_refusal_t *refusal, fy_status_t want, ts_text_check_fn extra,
                       const void *user)
{
    memcpy(refusal->dst_before, refusal->dst, sizeof refusal->dst);
    const fy_op_info_t *info = fy_op_get(refusal->op);
    fy_status_t status = fy_op_call(refusal->op, refusal->nsrc, refusal->src, refusal->attrs,
                                    info && refusal->attrs ? info->attrs_nbytes : 0, refusal->ndst,
                                    refusal->dst);
    const char *wrong = judge_call(refusal, status, want, extra, user);
    if (wrong) {
        print_error("%s: %s\n  want %s, got %s: %s\n", refusal->what, wrong, fy_status_name(want),
                    fy_status_name(status), fy_error_get()->text);
    } else {
        fy_ledger_totals_t after = ts_ledger(NULL);
        ts_expect_quiet(&refusal->before, &after, refusal->what);
        for (size_t k = 0; k < 2 * TS_MAX_OPERANDS; k++) {
            ts_operand_t *operand = &refusal->operand[k];
            if (!operand->view) continue;
            if (ts_version(operand->view) != refusal->version[k]) {
                print_error("%s: operand %zu went from version %" PRIu64 " to %" PRIu64 "\n",
                            refusal->what, k, refusal->version[k], ts_version(operand->view));
                wrong = "version";
            }
            ts_operand_check(operand, true, NULL, refusal->what);
        }
    }
    fy_scope_end(refusal->scope, 0, NULL);
    for (size_t k = 0; k < 2 * TS_MAX_OPERANDS; k++) ts_operand_free(&refusal->operand[k]);
    return wrong == NULL;
}
