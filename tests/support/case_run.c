/* Runs one row of cases.def on one device in one layout and checks every tensor it touched.
 * Not here: the choice of rows and layouts (tests/ops/test_op_matrix.c), values (cases.c). */
#include <inttypes.h>

#include "tests/support/cases.h"
#include "tests/support/harness.h"

typedef struct run {
    const ts_case_t *row;
    const ts_inputs_t *inputs;
    const ts_run_options_t *options;
    ts_operand_t src[TS_MAX_OPERANDS], dst[TS_MAX_OPERANDS];
    bool dst_given[TS_MAX_OPERANDS];
    size_t ndst;
    char what[256];
} run_t;

static void describe(run_t *run, fy_dtype_t dtype)
{
    const ts_run_options_t *o = run->options;
    int n = snprintf(run->what, sizeof run->what, "%s \"%s\" %s on %s, src %s",
                     fy_op_get(run->row->op)->name, run->row->label, fy_dtype_name(dtype),
                     fy_device_name(o->device), ts_layout_name(o->src_layout));
    if (o->only_src != TS_ALL_SOURCES)
        n +=
            snprintf(run->what + n, sizeof run->what - (size_t)n, " (source %d only)", o->only_src);
    if (o->given_dst || run->inputs->plan.ngiven) {
        snprintf(run->what + n, sizeof run->what - (size_t)n, ", dst given, %s",
                 ts_layout_name(o->dst_layout));
    }
}

/* Makes the sources and the given dsts. Returns whether any operand got the requested layout, if it
 * is not contiguous. */
static bool make_operands(run_t *run)
{
    const ts_run_options_t *o = run->options;
    const ts_plan_t *plan = &run->inputs->plan;
    bool applied = o->src_layout == TS_CONTIGUOUS;
    for (size_t i = 0; i < plan->nsrc; i++) {
        bool chosen = o->only_src == TS_ALL_SOURCES || (size_t)o->only_src == i;
        ts_operand_make(&run->src[i], o->device, &run->inputs->src[i],
                        chosen ? o->src_layout : TS_CONTIGUOUS);
        applied = applied || (chosen && run->src[i].layout == o->src_layout);
    }
    for (size_t i = 0; i < run->ndst; i++) {
        const ts_array_t *before = NULL;
        ts_array_t scratch = { 0 };
        if (i < plan->ngiven) {
            before = &run->inputs->given[i];
        } else if (o->given_dst && i == 0 && run->inputs->has_oracle) {
            const ts_array_t *want = &run->inputs->expected.value;
            ts_array_make(&scratch, want->dtype, want->rank, want->dims);
            before = &scratch;
        }
        if (!before) continue;
        ts_operand_make(&run->dst[i], o->device, before, i == 0 ? o->dst_layout : TS_CONTIGUOUS);
        run->dst_given[i] = true;
        if (i == 0) applied = applied || run->dst[i].layout == o->src_layout;
        ts_array_free(&scratch);
    }
    return applied;
}

static bool is_permutation(const ts_array_t *got, const char *what)
{
    unsigned char *seen = calloc(got->nelem + 1, 1);
    assert_non_null(seen);
    bool ok = true;
    for (uint64_t k = 0; ok && k < got->nelem; k++) {
        int64_t x = got->i[k];
        ok = x >= 0 && (uint64_t)x < got->nelem && !seen[x];
        if (ok) seen[x] = 1;
        if (!ok)
            print_error("%s: element %" PRIu64 " is %" PRId64 ": out of range or there twice\n",
                        what, k, x);
    }
    free(seen);
    return ok;
}

/* Calls the op. The ledger must count one request and no tensor data, and the version of each
 * written storage must rise by one. */
static bool call(run_t *run, fy_tensor_t **dst)
{
    fy_tensor_t *src[TS_MAX_OPERANDS];
    uint64_t versions[TS_MAX_OPERANDS] = { 0 };
    for (size_t i = 0; i < run->inputs->plan.nsrc; i++) src[i] = run->src[i].view;
    for (size_t i = 0; i < run->ndst; i++) {
        dst[i] = run->dst_given[i] ? run->dst[i].view : NULL;
        if (dst[i]) versions[i] = ts_version(dst[i]);
    }
    fy_ledger_totals_t before = ts_ledger(NULL);
    fy_status_t status = fy_op_call(run->row->op, run->inputs->plan.nsrc, src, run->row->attrs,
                                    run->row->attrs ? fy_op_get(run->row->op)->attrs_nbytes : 0,
                                    run->ndst, dst);
    if (status != FY_STATUS_OK) {
        print_error("%s: %s: %s\n", run->what, fy_status_name(status), fy_error_get()->text);
        return false;
    }
    fy_ledger_totals_t after = ts_ledger(NULL);
    if (after.requests != before.requests + 1 &&
        !(run->inputs->plan.is_empty && after.requests == before.requests)) {
        print_error("%s: counted as %" PRIu64 " requests\n", run->what,
                    after.requests - before.requests);
        return false;
    }
    after.requests = before.requests;
    after.device_allocs = before.device_allocs;
    ts_expect_quiet(&before, &after, run->what);
    for (size_t i = 0; i < run->ndst; i++) {
        bool is_empty = run->dst_given[i] && ts_info(dst[i]).nelem == 0;
        if (run->dst_given[i] && !is_empty && ts_version(dst[i]) != versions[i] + 1) {
            print_error("%s: dst%zu's version went from %" PRIu64 " to %" PRIu64 "\n", run->what, i,
                        versions[i], ts_version(dst[i]));
            return false;
        }
    }
    return true;
}

bool ts_case_run(const ts_case_t *row, fy_dtype_t dtype, const ts_inputs_t *inputs,
                 const ts_run_options_t *options, ts_array_t *out, bool *out_applied)
{
    run_t run = { .row = row, .inputs = inputs, .options = options, .ndst = ts_ndst(row->op) };
    fy_tensor_t *dst[TS_MAX_OPERANDS] = { NULL };
    ts_array_t got = { 0 };
    describe(&run, dtype);
    fy_scope_t scope = fy_scope_begin("case");
    *out_applied = make_operands(&run);
    bool ok = call(&run, dst);
    if (ok) {
        if (run.dst_given[0]) {
            ts_operand_check(&run.dst[0], false, &got, run.what);
        } else {
            ts_result_read(dst[0], options->device, &got, run.what);
        }
        for (size_t i = 0; i < inputs->plan.nsrc; i++)
            ts_operand_check(&run.src[i], true, NULL, run.what);
        ok = inputs->has_oracle
                 ? ts_compare(&inputs->expected, &got, ts_op_row(row->op)->slack, run.what)
                 : is_permutation(&got, run.what);
        for (size_t i = 0; i < inputs->nmore; i++) {
            ts_array_t more;
            if (run.dst_given[i + 1])
                ts_operand_check(&run.dst[i + 1], false, &more, run.what);
            else
                ts_result_read(dst[i + 1], options->device, &more, run.what);
            if (!ts_compare(&inputs->more[i], &more, ts_op_row(row->op)->slack, run.what)) {
                print_error("%s: that was dst%zu\n", run.what, i + 1);
                ok = false;
            }
            ts_array_free(&more);
        }
    }
    fy_scope_end(scope, 0, NULL);
    for (size_t i = 0; i < TS_MAX_OPERANDS; i++) {
        ts_operand_free(&run.src[i]);
        ts_operand_free(&run.dst[i]);
    }
    if (out && ok) {
        *out = got;
    } else {
        ts_array_free(&got);
    }
    return ok;
}
