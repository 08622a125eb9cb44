/* Refusals that are not about devices: the BAD rows of cases.def, dtypes an op does not take or
 * that are mixed, a given dst of the wrong shape or dtype, arity, attributes, destinations that
 * overlap a source or cannot be written. For every op; nothing may change.
 * Not here: devices (test_refusal_walk.c), transfers and views (conformance). */
#include <inttypes.h>

#include "tests/support/refusal.h"
#include "tests/support/test.h"

static uint64_t g_ncalls, g_nfailures;

static void count(bool ok)
{
    g_ncalls++;
    if (!ok) g_nfailures++;
}

static void all_on(fy_device_t *device, fy_device_t **devices)
{
    for (int k = 0; k < 2 * TS_MAX_OPERANDS; k++) devices[k] = device;
}

/* A dst entry per ndst: the given ones of the row, the others left to Ferry. */
static void given_or_not(const ts_plan_t *plan, size_t ndst, ts_shape_t *dst)
{
    for (size_t i = 0; i < ndst; i++) {
        if (i < plan->ngiven)
            dst[i] = plan->given[i];
        else
            dst[i].rank = -1;
    }
}

static void start(ts_refusal_t *refusal, const ts_case_t *row, const fy_dtype_t *dtypes,
                  fy_dtype_t main_dtype, fy_device_t *device, const char *what)
{
    ts_plan_t plan = ts_case_plan(row);
    const fy_op_info_t *info = fy_op_get(row->op);
    ts_shape_t dst[TS_MAX_OPERANDS] = { 0 };
    fy_device_t *devices[2 * TS_MAX_OPERANDS];
    given_or_not(&plan, ts_ndst(info->op), dst);
    all_on(device, devices);
    if (dtypes)
        ts_refusal_begin_as(refusal, row->op, row->attrs, plan.nsrc, plan.src, ts_ndst(info->op),
                            dst, dtypes, devices);
    else
        ts_refusal_begin(refusal, row->op, row->attrs, plan.nsrc, plan.src, ts_ndst(info->op), dst,
                         main_dtype, devices);
    snprintf(refusal->what, sizeof refusal->what, "%s \"%s\" %s on %s: %s", info->name, row->label,
             fy_dtype_name(main_dtype), fy_device_name(device), what);
}

static fy_dtype_t first_dtype(uint32_t dtypes)
{
    fy_dtype_t dtype = 0;
    while (!(dtypes & FY_DTYPE_BIT(dtype))) dtype++;
    return dtype;
}

static void finish(void)
{
    print_message("           %" PRIu64 " calls, %" PRIu64 " not refused as they should be\n",
                  g_ncalls, g_nfailures);
    assert_true(g_ncalls > 0);
    uint64_t n = g_nfailures;
    g_ncalls = g_nfailures = 0;
    assert_int_equal(n, 0);
}

TS_DEVICE_TEST(bad_rows)
{
    for (size_t i = 0; i < ts_case_count(); i++) {
        const ts_case_t *row = ts_case_get(i);
        if (row->status == FY_STATUS_OK) continue;
        for (fy_dtype_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
            if (!(fy_op_get(row->op)->dtypes & FY_DTYPE_BIT(dtype))) continue;
            ts_refusal_t refusal;
            start(&refusal, row, NULL, dtype, ctx->device, "a BAD row");
            count(ts_refusal_expect(&refusal, row->status, NULL, NULL));
        }
    }
    finish();
}

TS_DEVICE_TEST(dtypes_that_the_op_does_not_take)
{
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) {
        const ts_case_t *row = ts_case_first(op);
        for (fy_dtype_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
            if (fy_op_get(op)->dtypes & FY_DTYPE_BIT(dtype)) continue;
            ts_refusal_t refusal;
            start(&refusal, row, NULL, dtype, ctx->device, "a dtype it does not take");
            count(ts_refusal_expect(&refusal, FY_STATUS_DTYPE_MISMATCH, NULL, NULL));
        }
    }
    finish();
}

/* Every operand of the main dtype in turn gets another one that the op would take, if it has a
 * companion of the main dtype. */
TS_DEVICE_TEST(mixed_dtypes)
{
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) {
        const ts_case_t *row = ts_case_first(op);
        const fy_op_info_t *info = fy_op_get(op);
        ts_plan_t plan = ts_case_plan(row);
        size_t n = plan.nsrc + plan.ngiven, nmain = 0;
        fy_dtype_t main_dtype = first_dtype(info->dtypes), dtypes[2 * TS_MAX_OPERANDS] = { 0 };
        bool is_main[2 * TS_MAX_OPERANDS] = { false };
        for (size_t k = 0; k < n; k++) {
            ts_domain_t domain = k < plan.nsrc ? plan.src[k].domain
                                               : plan.given[k - plan.nsrc].domain;
            dtypes[k] = ts_operand_dtype(row->op, ts_domain_dtype(domain, main_dtype),
                                         k == 0 || k == plan.nsrc);
            is_main[k] = domain != TS_COND && domain != TS_INDEX && domain != TS_INDEX32 &&
                         domain != TS_RNG && domain != TS_PARTS && domain != TS_SCALING;
            nmain += is_main[k];
        }
        for (size_t k = 0; k < n && nmain >= 2; k++) {
            /* f32 or f64, whatever the parameter is */
            const bool is_rate = k == 1 && info->src[1].name && !strcmp(info->src[1].name, "lr");
            if (!is_main[k] || is_rate) continue;
            fy_dtype_t other = first_dtype(info->dtypes & ~FY_DTYPE_BIT(main_dtype));
            dtypes[k] = other;
            ts_refusal_t refusal;
            start(&refusal, row, dtypes, main_dtype, ctx->device, "mixed dtypes");
            count(ts_refusal_expect(&refusal, FY_STATUS_DTYPE_MISMATCH, NULL, NULL));
            dtypes[k] = main_dtype;
        }
    }
    finish();
}

/* dst[0] given with one element more on its last axis, with an axis more, in another dtype, or as a
 * broadcast view. */
TS_DEVICE_TEST(given_destinations_that_do_not_fit)
{
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) {
        const fy_op_info_t *info = fy_op_get(op);
        if (info->flags & FY_OP_IN_PLACE) continue; /* their dst decides the shape: BAD rows */
        const ts_case_t *row = ts_case_first(op);
        fy_dtype_t dtype = first_dtype(info->dtypes);
        ts_inputs_t inputs;
        ts_inputs_make(&inputs, row, dtype, false, 1);
        const ts_array_t *want = &inputs.expected.value;
        for (int kind = 0; kind < 3; kind++) {
            int64_t dims[FY_MAX_RANK + 1] = { 0 };
            memcpy(dims, want->dims, sizeof want->dims);
            int rank = want->rank;
            fy_dtype_t given = want->dtype;
            if (kind == 0 && rank == 0) continue;
            if (kind == 0) dims[rank - 1]++;
            if (kind == 1) dims[rank++] = 1;
            if (kind == 2) given = given == FY_DTYPE_F64 ? FY_DTYPE_F32 : FY_DTYPE_F64;
            ts_refusal_t refusal;
            start(&refusal, row, NULL, dtype, ctx->device,
                  kind == 2 ? "dst of another dtype" : "dst of another shape");
            ts_ok(fy_tensor_create(ctx->device, given, rank, dims, &refusal.dst[0]));
            refusal.before = ts_ledger(NULL);
            count(ts_refusal_expect(&refusal,
                                    kind == 2 ? FY_STATUS_DTYPE_MISMATCH : FY_STATUS_SHAPE_MISMATCH,
                                    NULL, NULL));
        }
        ts_inputs_free(&inputs);
    }
    finish();
}

TS_DEVICE_TEST(a_broadcast_view_is_not_written)
{
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) {
        const ts_case_t *row = ts_case_first(op);
        const fy_op_info_t *info = fy_op_get(op);
        fy_dtype_t dtype = first_dtype(info->dtypes);
        ts_inputs_t inputs;
        ts_inputs_make(&inputs, row, dtype, false, 1);
        const ts_array_t *like = inputs.plan.ngiven ? &inputs.given[0] : &inputs.expected.value;
        if (ts_broadcast_axis(like->rank, like->dims) >= 0) {
            int64_t dims[FY_MAX_RANK];
            memcpy(dims, like->dims, sizeof dims);
            dims[ts_broadcast_axis(like->rank, like->dims)] = 1;
            ts_refusal_t refusal;
            start(&refusal, row, NULL, dtype, ctx->device, "dst is a broadcast view");
            fy_tensor_t *narrow;
            ts_ok(fy_tensor_create(ctx->device, like->dtype, like->rank, dims, &narrow));
            ts_ok(fy_broadcast(narrow, like->rank, like->dims, &refusal.dst[0]));
            refusal.before = ts_ledger(NULL);
            count(ts_refusal_expect(&refusal, FY_STATUS_INVALID_ARGUMENT, NULL, NULL));
        }
        ts_inputs_free(&inputs);
    }
    finish();
}

TS_DEVICE_TEST(arity_and_attributes)
{
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) {
        const ts_case_t *row = ts_case_first(op);
        const fy_op_info_t *info = fy_op_get(op);
        fy_dtype_t dtype = first_dtype(info->dtypes);
        for (int kind = 0; kind < 5; kind++) {
            ts_refusal_t refusal;
            start(&refusal, row, NULL, dtype, ctx->device, "arity");
            bool applies = true;
            switch (kind) {
            case 0:
                applies = info->nsrc_min > 0, refusal.nsrc = applies ? info->nsrc_min - 1u : 0;
                break;
            case 1:
                applies = info->nsrc_max != FY_OP_VARIADIC && info->nsrc_max > 0;
                while (applies && refusal.nsrc <= info->nsrc_max)
                    refusal.src[refusal.nsrc++] = refusal.src[0];
                break;
            case 2: refusal.ndst = ts_ndst(info->op) + 1u; break;
            case 3:
                applies = info->nsrc_min > 0;
                if (applies) refusal.src[info->nsrc_min - 1] = NULL;
                break;
            default: applies = info->attrs_nbytes == 0, refusal.attrs = &refusal; break;
            }
            snprintf(refusal.what, sizeof refusal.what, "%s: %s", info->name,
                     (const char *[]){ "a source too few", "a source too many", "a dst too many",
                                       "a NULL source", "attributes" }[kind]);
            if (applies) {
                count(ts_refusal_expect(&refusal, FY_STATUS_INVALID_ARGUMENT, NULL, NULL));
            } else {
                fy_scope_end(refusal.scope, 0, NULL);
                for (int k = 0; k < 2 * TS_MAX_OPERANDS; k++) ts_operand_free(&refusal.operand[k]);
            }
        }
    }
    fy_tensor_t *none = NULL;
    ts_fails(fy_op_call(fy_op_count(), 0, NULL, NULL, 0, 1, &none), INVALID_ARGUMENT);
    assert_null(none);
    finish();
}

TS_DEVICE_TEST(overlap)
{
    const float values[6] = { 1, -2, 3, -4, 5, -6 };
    fy_tensor_t *line = ts_f32(ctx->device, FY_DIMS(6), values), *low, *high, *dst, *square,
                *turned;
    ts_ok(fy_slice(line, 0, 0, 4, &low));
    ts_ok(fy_slice(line, 0, 2, 6, &high));
    fy_ledger_totals_t before = ts_ledger(NULL);
    dst = high; /* partly the source: refused */
    ts_fails(fy_op_call(FY_OP_NEG, 1, &low, NULL, 0, 1, &dst), INVALID_ARGUMENT);
    ts_fails(fy_copy(high, low), INVALID_ARGUMENT);
    ts_ok(fy_slice(line, 0, 0, 4, &square));
    ts_ok(fy_reshape(square, FY_DIMS(2, 2), &square));
    ts_ok(fy_transpose(square, NULL, &turned));
    dst = turned; /* the same bytes in another order: refused */
    ts_fails(fy_op_call(FY_OP_NEG, 1, &square, NULL, 0, 1, &dst), INVALID_ARGUMENT);
    fy_tensor_t *both[2] = { square, square };
    dst = square; /* not elementwise: even an exact alias is refused */
    ts_fails(fy_op_call(FY_OP_MATMUL, 2, both, NULL, 0, 1, &dst), INVALID_ARGUMENT);
    ts_expect_quiet_since(&before, "overlap");
    ts_expect_f32(line, values, 6);

    dst = low; /* exactly the source: done */
    ts_ok(fy_op_call(FY_OP_NEG, 1, &low, NULL, 0, 1, &dst));
    ts_expect_f32(line, (float[]){ -1, 2, -3, 4, 5, -6 }, 6);
    fy_tensor_t *pair[2] = { low, low };
    ts_ok(fy_op_call(FY_OP_ADD, 2, pair, NULL, 0, 1, &dst));
    ts_expect_f32(line, (float[]){ -2, 4, -6, 8, 5, -6 }, 6);
    ts_ok(fy_slice(line, 0, 4, 6, &high));
    ts_ok(fy_slice(line, 0, 0, 2, &low));
    dst = high; /* neighbours in one buffer do not overlap */
    ts_ok(fy_op_call(FY_OP_NEG, 1, &low, NULL, 0, 1, &dst));
    ts_expect_f32(line, (float[]){ -2, 4, -6, 8, 2, -4 }, 6);
}
