/* launch.accumulate: every op with FY_OP_CAN_ACCUMULATE adds into a given float destination when
 * the dispatcher is told to, in every layout. Ops without the flag, and integer destinations, are
 * refused. Calls fy__dispatch, as every call does. */
#include <math.h>

#include "ops/dispatch.h"
#include "tests/support/cases.h"
#include "tests/support/harness.h"

static uint64_t g_runs, g_failures;

static void accumulate_once(const ts_case_t *row, fy_dtype_t dtype, fy_device_t *device,
                            ts_layout_t layout)
{
    const fy__op_row_t *op = fy__op_row(row->op);
    ts_inputs_t inputs;
    ts_inputs_make(&inputs, row, dtype, layout == TS_BROADCAST, 11);
    assert_true(inputs.has_oracle);
    ts_expected_t *expected = &inputs.expected;
    char what[200];
    snprintf(what, sizeof what, "%s += \"%s\" %s on %s, %s", op->info.name, row->label,
             fy_dtype_name(dtype), fy_device_name(device), ts_layout_name(layout));
    if (expected->value.f && expected->value.dtype == dtype) {
        ts_array_t before, got;
        ts_random_t random = { 99 };
        ts_array_make(&before, dtype, expected->value.rank, expected->value.dims);
        ts_array_fill(&before, TS_ANY, 0, -1, &random);
        fy_scope_t scope = fy_scope_begin("accumulate");
        ts_operand_t src[TS_MAX_OPERANDS], dst;
        const fy_tensor_t *views[TS_MAX_OPERANDS];
        for (size_t i = 0; i < inputs.plan.nsrc; i++) {
            ts_operand_make(&src[i], device, &inputs.src[i], layout);
            views[i] = src[i].view;
        }
        ts_operand_make(&dst, device, &before, layout == TS_BROADCAST ? TS_CONTIGUOUS : layout);
        _Alignas(16) unsigned char fallback[64] = { 0 };
        for (int f = 0; f < op->info.nfields && !row->attrs;
             f++) { /* fy__dispatch wants attributes; fallbacks other than 0 do not occur here */
            assert_true(op->info.fields[f].fallback == 0);
        }
        const void *attrs = row->attrs ? row->attrs : op->info.attrs_nbytes ? fallback : NULL;
        fy_tensor_t *results[TS_MAX_OPERANDS] = { dst.view }; /* further ones are made */
        ts_ok(fy__dispatch(op, inputs.plan.nsrc, views, attrs, 1, ts_ndst(op->info.op), results));
        for (uint64_t k = 0; k < before.nelem; k++) {
            expected->scale[k] += fabs(before.f[k]) + fabs(expected->value.f[k]);
            /* a kernel may round the op's result before it adds */
            if (dtype == FY_DTYPE_F16 || dtype == FY_DTYPE_BF16) {
                expected->scale[k] += fabs(expected->value.f[k]) * ts_unit(dtype) /
                                      ts_unit_compute(dtype);
            }
            if (!isfinite(expected->scale[k])) expected->scale[k] = 0;
            expected->value.f[k] += before.f[k];
        }
        ts_operand_check(&dst, false, &got, what);
        for (size_t i = 0; i < inputs.plan.nsrc; i++) ts_operand_check(&src[i], true, NULL, what);
        double slack = ts_op_row(row->op)->slack;
        if (!ts_compare(expected, &got, slack > 2 ? slack : 2, what)) g_failures++;
        g_runs++;
        fy_scope_end(scope, 0, NULL);
        for (size_t i = 0; i < inputs.plan.nsrc; i++) ts_operand_free(&src[i]);
        ts_operand_free(&dst);
        ts_array_free(&before);
        ts_array_free(&got);
    }
    ts_inputs_free(&inputs);
}

TS_DEVICE_TEST(results_are_added)
{
    g_runs = g_failures = 0;
    unsigned nops = 0;
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) {
        const fy_op_info_t *info = fy_op_get(op);
        if (!(info->flags & FY_OP_CAN_ACCUMULATE)) continue;
        nops++;
        for (size_t i = 0; i < ts_case_count(); i++) {
            const ts_case_t *row = ts_case_get(i);
            if (row->op != op || row->status != FY_STATUS_OK) continue;
            for (fy_dtype_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
                if (!(info->dtypes & FY_DTYPE_BIT(dtype)) || !ts_is_float(dtype)) continue;
                for (ts_layout_t layout = 0; layout < TS_LAYOUT_COUNT; layout++)
                    accumulate_once(row, dtype, ctx->device, layout);
            }
        }
    }
    print_message("           %u ops, %llu runs\n", nops, (unsigned long long)g_runs);
    assert_true(nops >= 20); /* gradients need at least the elementwise ops, sum, mean and matmul */
    assert_int_equal(g_failures, 0);
}

TS_DEVICE_TEST(where_it_makes_no_sense_it_is_refused)
{
    const float values[4] = { 1, 2, 3, 4 };
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(4), values), *flags, *ints, *more, *none = NULL;
    const fy_tensor_t *pair[2] = { x, x };
    ts_ok(fy_eq(x, x, &flags));
    assert_int_not_equal(fy__dispatch(fy__op_row(FY_OP_EQ), 2, pair, NULL, 1, 1, &flags),
                         FY_STATUS_OK);
    ts_ok(fy_cast(x, FY_DTYPE_I32, &ints));
    ts_ok(fy_neg(ints, &more));
    const fy_tensor_t *one[1] = { ints };
    assert_int_not_equal(fy__dispatch(fy__op_row(FY_OP_NEG), 1, one, NULL, 1, 1, &more),
                         FY_STATUS_OK);
    /* nothing to add to */
    assert_int_not_equal(fy__dispatch(fy__op_row(FY_OP_ADD), 2, pair, NULL, 1, 1, &none),
                         FY_STATUS_OK);
    assert_null(none);
}
