/* The refusal walk: for every op of the table, built in or registered, and every operand position,
 * given dst included, moving that one operand to another device is DEVICE_MISMATCH. The text names
 * the op, the tensors with their shapes, both devices, the bytes that would have to move and the
 * call that moves them; no handle, version, byte or ledger figure changes. A new op is walked
 * without being asked for.
 * Not here: shapes, dtypes, arity (test_refusal_shapes.c). */
#include <inttypes.h>

#include "tests/support/own_op.h"
#include "tests/support/refusal.h"
#include "tests/support/test.h"

typedef struct pair {
    const char *home, *away;
} pair_t;
static const pair_t k_pairs[] = { { "host", "sim:0" }, { "sim:0", "host" }, { "sim:0", "sim:1" } };

/* The pairs to walk: with FERRY_TEST_DEVICE=cuda:0, that device against the host and against sim:0
 * (which stands in for a second card). */
static size_t pairs_to_walk(pair_t *pairs)
{
    const char *other = NULL;
    for (size_t i = 0; i < ts_device_count(); i++) {
        if (strncmp(ts_device_spec(i), "host", 4) != 0 && strncmp(ts_device_spec(i), "sim", 3) != 0)
            other = ts_device_spec(i);
    }
    memcpy(pairs, k_pairs, sizeof k_pairs);
    if (other) {
        pairs[0].away = other;
        pairs[1].home = other;
        pairs[2] = (pair_t){ other, "sim:0" };
    }
    return sizeof k_pairs / sizeof k_pairs[0];
}

typedef struct walk {
    uint64_t ncalls, nfailures, nalone;
} walk_t;

typedef struct moved {
    size_t position;
    const char *home, *away;
} moved_t;

/* Is `number` in the text as a number of its own? */
static bool has_number(const char *text, uint64_t number)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIu64, number);
    size_t n = strlen(digits);
    for (const char *at = text; (at = strstr(at, digits)); at++) {
        bool starts = at == text || at[-1] < '0' || at[-1] > '9';
        if (starts && (at[n] < '0' || at[n] > '9')) return true;
    }
    return false;
}

static const char *check_text(const ts_refusal_t *refusal, const char *text, const void *user)
{
    const moved_t *moved = user;
    static char missing[256];
    size_t nnamed = 0;
    bool moved_is_named = false, bytes_are_there = false;
    for (size_t k = 0; k < refusal->nsrc + refusal->ndst; k++) {
        const ts_operand_t *operand = &refusal->operand[k];
        if (!operand->view) continue;
        char name[16], shape[96];
        snprintf(name, sizeof name, "'%s'", ts_info(operand->view).name);
        ts_shape_text(operand, shape, sizeof shape);
        bool named = strstr(text, name) && strstr(text, shape);
        nnamed += named;
        if (k == moved->position) moved_is_named = named;
        if (named && has_number(text, ts_info(operand->view).nbytes)) bytes_are_there = true;
    }
    const char *wrong = NULL;
    if (!moved_is_named)
        wrong = "the operand that is elsewhere, with its name and shape";
    else if (nnamed < 2)
        wrong = "a second tensor, with its name and shape";
    else if (!strstr(text, moved->home))
        wrong = moved->home;
    else if (!strstr(text, moved->away))
        wrong = moved->away;
    else if (!bytes_are_there)
        wrong = "the bytes that would have to move";
    else if (!strstr(text, "fy_tensor_upload") && !strstr(text, "fy_tensor_download") &&
             !strstr(text, "fy_tensor_send"))
        wrong = "the call that would fix it";
    if (!wrong) return NULL;
    snprintf(missing, sizeof missing, "operand %zu on %s, the rest on %s: missing in the text: %s",
             moved->position, moved->away, moved->home, wrong);
    return missing;
}

/* Shapes of an op's operands: its first row, or for an op without rows [2, 3] everywhere. dst that
 * the row leaves to Ferry gets the shape it would have. */
static size_t operands_of(const fy_op_info_t *info, fy_dtype_t dtype, ts_shape_t *src,
                          ts_shape_t *dst, const void **attrs)
{
    const ts_case_t *row = info->op < FY_OP_BUILTIN_COUNT ? ts_case_first(info->op) : NULL;
    if (!row) {
        const ts_shape_t plain = { .rank = 2, .dims = { 2, 3 }, .domain = TS_POS };
        size_t n = info->nsrc_min < 2 && info->nsrc_max >= 2 ? 2 : info->nsrc_min;
        assert_in_range(n, 0, TS_MAX_OPERANDS);
        for (size_t i = 0; i < n; i++) src[i] = plain;
        for (size_t i = 0; i < ts_ndst(info->op); i++) dst[i] = plain;
        *attrs = NULL;
        return n;
    }
    ts_inputs_t inputs;
    ts_inputs_make(&inputs, row, dtype, false, 3);
    memcpy(src, inputs.plan.src, sizeof inputs.plan.src);
    memcpy(dst, inputs.plan.given, sizeof inputs.plan.given);
    if (inputs.plan.ngiven == 0) {
        assert_true(inputs.has_oracle);
        const ts_array_t *value = &inputs.expected.value;
        dst[0] = (ts_shape_t){ .rank = value->rank, .domain = TS_POS };
        if (value->dtype == FY_DTYPE_BOOL)
            dst[0].domain = TS_COND;
        else if (value->dtype != dtype)
            dst[0].domain = value->dtype == FY_DTYPE_I64 ? TS_INDEX : TS_POS;
        memcpy(dst[0].dims, value->dims, sizeof value->dims);
    }
    *attrs = row->attrs;
    size_t n = inputs.plan.nsrc;
    ts_inputs_free(&inputs);
    return n;
}

static void walk_op(const fy_op_info_t *info, const pair_t *pair, fy_device_t *home,
                    fy_device_t *away, walk_t *walk)
{
    fy_dtype_t dtype = 0;
    while (!(info->dtypes & FY_DTYPE_BIT(dtype))) dtype++;
    for (int given = 0; given < 2; given++) { /* dst made by Ferry, then given */
        ts_shape_t src[TS_MAX_OPERANDS] = { 0 }, dst[TS_MAX_OPERANDS] = { 0 };
        const void *attrs;
        size_t nsrc = operands_of(info, dtype, src, dst, &attrs);
        bool in_place = info->flags & FY_OP_IN_PLACE || info->inout;
        if (in_place && !given) continue;
        for (size_t i = 0; i < ts_ndst(info->op) && !given; i++) dst[i].rank = -1;
        size_t noperands = nsrc + (given ? ts_ndst(info->op) : 0);
        if (noperands < 2) {
            if (given || in_place) walk->nalone++;
            continue;
        }
        for (size_t position = 0; position < noperands; position++) {
            fy_device_t *devices[2 * TS_MAX_OPERANDS];
            for (size_t k = 0; k < nsrc + ts_ndst(info->op); k++)
                devices[k] = k == position ? away : home;
            ts_refusal_t refusal;
            ts_refusal_begin(&refusal, info->op, attrs, nsrc, src, ts_ndst(info->op), dst, dtype,
                             devices);
            moved_t moved = { position, pair->home, pair->away };
            walk->ncalls++;
            if (!ts_refusal_expect(&refusal, FY_STATUS_DEVICE_MISMATCH, check_text, &moved))
                walk->nfailures++;
        }
    }
}

static fy_status_t scaled_sub_kernel(const fy_launch_t *launch, void *stream)
{
    (void)stream;
    (void)launch;
    return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__,
                        "test_scaled_sub: the walk must never reach a kernel");
}

TS_TEST(every_operand_on_another_device)
{
    ts_own_op_t own;
    fy_op_t stranger;
    ts_own_op(&own, "test_scaled_sub", 2, scaled_sub_kernel);
    own.info.nsrc_min = 2;
    ts_ok(fy_op_register(&own.def, &stranger)); /* the walk must cover it, too */
    assert_int_equal(stranger, FY_OP_BUILTIN_COUNT);
    uint64_t nfailures = 0;
    pair_t pairs[sizeof k_pairs / sizeof k_pairs[0]];
    size_t npairs = pairs_to_walk(pairs);
    for (size_t p = 0; p < npairs; p++) {
        fy_device_t *home, *away;
        ts_ok(fy_device_open(pairs[p].home, &home));
        ts_ok(fy_device_open(pairs[p].away, &away));
        walk_t walk = { 0 };
        for (fy_op_t op = 0; op < fy_op_count(); op++) {
            uint64_t before = walk.ncalls + walk.nalone;
            walk_op(fy_op_get(op), &pairs[p], home, away, &walk);
            if (walk.ncalls + walk.nalone == before)
                fail_msg("%s was not walked", fy_op_get(op)->name);
        }
        print_message("           %s, one operand on %s: %" PRIu64 " calls refused, %" PRIu64
                      " wrongly; %" PRIu64 " ops have one operand only\n",
                      pairs[p].home, pairs[p].away, walk.ncalls, walk.nfailures, walk.nalone);
        nfailures += walk.nfailures;
        assert_int_equal(walk.nalone, 3); /* fill, arange, update_scaling */
        fy_device_close(home);
        fy_device_close(away);
    }
    assert_int_equal(nfailures, 0);
}
