/* Reads tests/ops/cases.def, parses its notation for shapes and domains, and makes the values of a
 * row.
 * Not here: running a row (case_run.c). */
#include "tests/support/cases.h"

#include <math.h>

#include "opset/dtypes.h"
#include "tests/support/harness.h"

enum {
    ANY = FY__SET_ANY,
    FLOAT = FY__SET_FLOAT,
    NUMBER = FY__SET_NUMBER,
    INTEGER = FY__SET_INTEGER,
    REAL = FY__SET_REAL,
    INT64 = FY__SET_I64,
    INDEX = FY__SET_INDEX,
    F64 = FY__SET_F64
};

static const ts_op_row_t k_ops[] = {
#define EXACT                                 0
#define VALUE                                 0
#define TERMS                                 0
#define PARTS                                 1
#define OP(ENUM, dtypes, slack, of, gradient) { FY_OP_##ENUM, dtypes, slack, gradient, of },
#include "tests/ops/cases.def"
};

static const ts_case_t k_cases[] = {
#define CASE(ENUM, label, shapes, domains, attrs) \
    { FY_OP_##ENUM, label, shapes, domains, attrs, FY_STATUS_OK },
#define BAD(ENUM, label, shapes, domains, attrs, status) \
    { FY_OP_##ENUM, label, shapes, domains, attrs, FY_STATUS_##status },
#include "tests/ops/cases.def"
};

static const ts_not_run_t k_not_run[] = {
#define NOT_RUN(ENUM, dtypes, column, device, reason) \
    { FY_OP_##ENUM, dtypes, TS_COLUMN_##column, device, reason },
#include "tests/ops/cases.def"
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const char *ts_column_name(ts_column_t column)
{
    static const char *const names[] = { "contiguous", "strided", "broadcast", "offset", "empty" };
    return column < TS_COLUMN_COUNT ? names[column] : "?";
}

const ts_op_row_t *ts_op_row(fy_op_t op)
{
    for (size_t i = 0; i < COUNT(k_ops); i++) {
        if (k_ops[i].op == op) return &k_ops[i];
    }
    return NULL;
}

size_t ts_case_count(void) { return COUNT(k_cases); }
const ts_case_t *ts_case_get(size_t index) { return &k_cases[index]; }

const ts_case_t *ts_case_first(fy_op_t op)
{
    for (size_t i = 0; i < COUNT(k_cases); i++) {
        if (k_cases[i].op == op && k_cases[i].status == FY_STATUS_OK) return &k_cases[i];
    }
    return NULL;
}

const char *ts_not_run_reason(fy_op_t op, fy_dtype_t dtype, ts_column_t column, const char *device)
{
    for (size_t i = 0; i < COUNT(k_not_run); i++) {
        const ts_not_run_t *row = &k_not_run[i];
        if (row->op == op && row->column == column && (row->dtypes & FY_DTYPE_BIT(dtype)) &&
            strncmp(device, row->device, strlen(row->device)) == 0) {
            return row->reason;
        }
    }
    return NULL;
}

/* ---- parsing ---- */

static void bad_row(const ts_case_t *row, const char *where)
{
    print_error("cases.def: %s \"%s\": cannot read \"%s\"\n", fy_op_get(row->op)->name, row->label,
                where);
    fail();
}

static const char *skip_blanks(const char *text) { return text + strspn(text, " "); }

/* "3,5" or "." */
static const char *parse_shape(const ts_case_t *row, const char *text, ts_shape_t *shape)
{
    memset(shape, 0, sizeof *shape);
    if (*text == '.') return skip_blanks(text + 1);
    for (;;) {
        char *end;
        shape->dims[shape->rank++] = strtoll(text, &end, 10);
        if (end == text || shape->rank > FY_MAX_RANK) bad_row(row, text);
        if (*end != ',') return skip_blanks(end);
        text = end + 1;
    }
}

static size_t parse_list(const ts_case_t *row, const char **text, ts_shape_t *shapes)
{
    size_t n = 0;
    while (**text && strncmp(*text, "->", 2) != 0) {
        if (n == TS_MAX_OPERANDS) bad_row(row, *text);
        *text = parse_shape(row, *text, &shapes[n++]);
        if (**text == '/') *text = skip_blanks(*text + 1);
    }
    return n;
}

static const char *parse_domain(const ts_case_t *row, const char *text, ts_shape_t *shape)
{
    static const char *const names[TS_DOMAIN_COUNT] = {
        "any",   "pos",     "unit", "big",   "wide",  "ties",    "special", "nans",    "cond",
        "index", "index32", "rng",  "below", "parts", "scaling", "full",    "fullpos", "ends"
    };
    size_t n = strcspn(text, " :");
    for (int d = 0; d < TS_DOMAIN_COUNT; d++) {
        if (strlen(names[d]) != n || strncmp(names[d], text, n) != 0) continue;
        shape->domain = (ts_domain_t)d;
        text += n;
        if (*text == ':') {
            char *end;
            shape->limit = strtoll(text + 1, &end, 10);
            text = end;
        }
        return skip_blanks(text);
    }
    bad_row(row, text);
    return text;
}

static bool has_no_elements(const ts_shape_t *shape)
{
    for (int axis = 0; axis < shape->rank; axis++) {
        if (shape->dims[axis] == 0) return true;
    }
    return false;
}

ts_plan_t ts_case_plan(const ts_case_t *row)
{
    ts_plan_t plan = { 0 };
    const char *text = skip_blanks(row->shapes);
    plan.nsrc = parse_list(row, &text, plan.src);
    if (*text) {
        text = skip_blanks(text + 2);
        plan.ngiven = parse_list(row, &text, plan.given);
    }
    const char *domain = row->domains;
    for (size_t i = 0; i < plan.nsrc + plan.ngiven; i++) {
        ts_shape_t *shape = i < plan.nsrc ? &plan.src[i] : &plan.given[i - plan.nsrc];
        const char *next = parse_domain(row, domain, shape);
        if (*next) domain = next;
        plan.is_empty = plan.is_empty || has_no_elements(shape);
    }
    return plan;
}

/* ---- values ---- */

/* The expected results of a row: dst[0], if it has an oracle, and the others. The random state is
 * the second result or the second source. */
static bool oracle(ts_inputs_t *inputs, const ts_case_t *row, const ts_array_t *before)
{
    const fy_reduce_attrs_t all_but_channels = { 7, 0 };
    const ts_array_t *rng = inputs->plan.ngiven > 1 ? &inputs->given[1] : &inputs->src[1];
    ts_expected_t all[TS_MAX_OPERANDS] = { 0 };
    if (ts_oracle_training(row->op, inputs->plan.nsrc, inputs->src, row->attrs, inputs->given,
                           all) ||
        ts_oracle_attention(row->op, inputs->plan.nsrc, inputs->src, row->attrs, all) ||
        ts_oracle_norm(row->op, inputs->plan.nsrc, inputs->src, row->attrs, inputs->given, all) ||
        ts_oracle_along(row->op, inputs->src, row->attrs, all)) {
        inputs->expected = all[0];
        inputs->nmore = ts_ndst(row->op) - 1u;
        memcpy(inputs->more, all + 1, sizeof inputs->more);
        return true;
    }
    while (inputs->nmore + 1 < ts_ndst(row->op) &&
           ts_oracle_state(row->op, inputs->nmore + 1, inputs->given, &inputs->more[inputs->nmore]))
        inputs->nmore++;
    if (row->op == FY_OP_CONV2D_BACKWARD_PARAMS)
        inputs->nmore =
            ts_oracle(FY_OP_SUM, 1, inputs->src, &all_but_channels, NULL, &inputs->more[0]);
    if (ts_oracle_random(row->op, inputs->plan.nsrc ? &inputs->src[0] : before, rng, row->attrs,
                         &inputs->expected))
        return true;
    return ts_oracle(row->op, inputs->plan.nsrc, inputs->src, row->attrs, before,
                     &inputs->expected);
}

void ts_inputs_make(ts_inputs_t *inputs, const ts_case_t *row, fy_dtype_t dtype, bool repeat,
                    uint64_t seed)
{
    memset(inputs, 0, sizeof *inputs);
    inputs->plan = ts_case_plan(row);
    ts_random_t random = { seed + 1000003u * row->op + 10007u * dtype };
    for (const char *c = row->label; *c; c++) random.state = random.state * 31 + (unsigned char)*c;
    for (size_t i = 0; i < inputs->plan.nsrc + inputs->plan.ngiven; i++) {
        bool is_src = i < inputs->plan.nsrc;
        const ts_shape_t *shape = is_src ? &inputs->plan.src[i]
                                         : &inputs->plan.given[i - inputs->plan.nsrc];
        ts_array_t *array = is_src ? &inputs->src[i] : &inputs->given[i - inputs->plan.nsrc];
        ts_array_make(array,
                      ts_operand_dtype(row->op, ts_domain_dtype(shape->domain, dtype),
                                       i == 0 || i == inputs->plan.nsrc),
                      shape->rank, shape->dims);
        int axis = repeat && is_src ? ts_broadcast_axis(shape->rank, shape->dims) : -1;
        ts_array_fill(array, shape->domain, shape->limit, axis, &random);
    }
    if (row->status == FY_STATUS_OK) {
        const ts_array_t *before = inputs->plan.ngiven ? &inputs->given[0] : NULL;
        inputs->has_oracle = oracle(inputs, row, before);
        if (inputs->nmore + 1 != ts_ndst(row->op)) {
            print_error("%s: dst%zu has no oracle in oracle_*.c\n", fy_op_get(row->op)->name,
                        inputs->nmore + 1);
            fail();
        }
        if (inputs->has_oracle && inputs->expected.value.nelem == 0) inputs->plan.is_empty = true;
    }
}

void ts_inputs_free(ts_inputs_t *inputs)
{
    for (size_t i = 0; i < TS_MAX_OPERANDS; i++) {
        ts_array_free(&inputs->src[i]);
        ts_array_free(&inputs->given[i]);
    }
    if (inputs->has_oracle) ts_expected_free(&inputs->expected);
    for (size_t i = 0; i < inputs->nmore; i++) ts_expected_free(&inputs->more[i]);
}
