/* fy_op_register: accepted and refused definitions with their texts, copies of the definition, and
 * registered ops run by fy_op_call on every device. */
#include "tests/support/harness.h"
#include "tests/support/own_op.h"

#include "ops/optable.h"

typedef struct scale_attrs {
    double factor;
    int32_t axis, mode;
} scale_attrs_t;

static const fy_attr_field_t scale_fields[] = {
    { "factor", FY_ATTR_F64, offsetof(scale_attrs_t, factor), 3 },
    { "axis", FY_ATTR_AXIS32, offsetof(scale_attrs_t, axis), -1 },
    { "mode", FY_ATTR_BOOL32, offsetof(scale_attrs_t, mode), 0 },
};

static scale_attrs_t seen; /* what the kernel was given last */

/* dst = factor * src0 (+ src1), f32. */
static fy_status_t scale(const fy_launch_t *launch, void *stream)
{
    (void)stream;
    seen = *(const scale_attrs_t *)launch->attrs;
    if (!(launch->flags & FY_LAUNCH_DENSE))
        return fy_error_set(FY_STATUS_UNSUPPORTED, __FILE__, __LINE__, "dense only");
    for (uint64_t i = 0; i < launch->nelem; i++) {
        float sum = 0;
        for (int s = 0; s < launch->nsrc; s++) sum += ((const float *)launch->src[s].data)[i];
        ((float *)launch->dst[0].data)[i] = (float)seen.factor * sum +
                                            (launch->user ? *(float *)launch->user : 0.0f);
    }
    return FY_STATUS_OK;
}

static ts_own_op_t own; /* that `define` made last */

static void define(const char *name)
{
    ts_own_op(&own, name, 2, scale);
    own.info.attrs_nbytes = sizeof(scale_attrs_t);
    own.info.nfields = 3;
    own.info.fields = scale_fields;
}

/* A name that this process has not used yet. */
static const char *fresh_name(void)
{
    static char name[32];
    static int next;
    snprintf(name, sizeof name, "test.op%d", next++);
    return name;
}

static double first_element(const fy_tensor_t *tensor)
{
    fy_tensor_t *one = (fy_tensor_t *)tensor, *flat;
    ts_ok(fy_reshape(one, 1, (const int64_t[]){ -1 }, &flat));
    ts_ok(fy_slice(flat, 0, 0, 1, &one));
    return ts_value(one);
}

TS_DEVICE_TEST(runs_on_every_device_and_takes_fallbacks)
{
    static float bias = 0.5f;
    define(fresh_name());
    own.def.user = &bias;
    fy_op_t op;
    fy_op_t before = fy_op_count();
    ts_ok(fy_op_register(&own.def, &op));
    assert_int_equal(op, before);
    assert_int_equal(fy_op_count(), before + 1);
    assert_ptr_equal(fy_op_find(own.info.name), fy_op_get(op));
    fy_tensor_t *x, *dst[1] = { NULL };
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(4, 3), 2.0, &x));
    ts_ok(fy_op_call(op, 1, &x, NULL, 0, 1, dst));
    assert_true(first_element(dst[0]) == 3 * 2 + 0.5);
    assert_int_equal(seen.axis, 1); /* the fallback -1, normalized */
    const scale_attrs_t attrs = { 10, -2, 1 };
    dst[0] = NULL;
    ts_ok(fy_op_call(op, 2, (fy_tensor_t *[]){ x, x }, &attrs, sizeof attrs, 1, dst));
    assert_true(first_element(dst[0]) == 10 * 4 + 0.5);
    assert_int_equal(seen.axis, 0);
    assert_int_equal(attrs.axis, -2); /* the caller's struct does not change */
    dst[0] = x;
    ts_ok(fy_op_call(op, 1, &x, &attrs, sizeof attrs, 1, dst)); /* dst is exactly a source */
    assert_true(first_element(x) == 20.5);
}

TS_DEVICE_TEST(default_rule_refuses_what_does_not_fit)
{
    define(fresh_name());
    fy_op_t op;
    ts_ok(fy_op_register(&own.def, &op));
    fy_tensor_t *x, *y, *z, *dst[1] = { NULL };
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(4, 3), &x));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(5, 3), &y));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F64, FY_DIMS(4, 3), &z));
    ts_fails_with(fy_op_call(op, 2, (fy_tensor_t *[]){ x, y }, NULL, 0, 1, dst), SHAPE_MISMATCH,
                  "do not broadcast");
    ts_fails(fy_op_call(op, 1, &z, NULL, 0, 1, dst), DTYPE_MISMATCH);
    ts_fails_with(fy_op_call(op, 3, (fy_tensor_t *[]){ x, x, x }, NULL, 0, 1, dst),
                  INVALID_ARGUMENT, "takes 1 to 2 sources, got 3");
    assert_null(dst[0]);
}

/* ---- a shape rule that can return wrong shapes ---- */

static fy_desc_t lie;
static fy_status_t lying_rule(const fy_op_info_t *info, fy_launch_t *launch)
{
    (void)info;
    launch->dst[0].dtype = lie.dtype;
    launch->dst[0].rank = lie.rank;
    memcpy(launch->dst[0].dims, lie.dims, sizeof lie.dims);
    return FY_STATUS_OK;
}

TS_DEVICE_TEST(shape_rules_are_not_trusted)
{
    define(fresh_name());
    own.def.shape = lying_rule;
    fy_op_t op;
    ts_ok(fy_op_register(&own.def, &op));
    fy_tensor_t *x, *dst[1] = { NULL };
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(3), &x));
    lie = (fy_desc_t){ .rank = 9 };
    ts_fails_with(fy_op_call(op, 1, &x, NULL, 0, 1, dst), INVALID_ARGUMENT, "rank 9");
    lie = (fy_desc_t){ .rank = 1, .dims = { -2 } };
    ts_fails_with(fy_op_call(op, 1, &x, NULL, 0, 1, dst), INVALID_ARGUMENT, "length -2");
    lie = (fy_desc_t){ .dtype = 77 };
    ts_fails_with(fy_op_call(op, 1, &x, NULL, 0, 1, dst), INVALID_ARGUMENT, "dtype 77");
    lie = (fy_desc_t){ .rank = 1, .dims = { 2 } };
    ts_fails(fy_op_call(op, 1, &x, NULL, 0, 1, dst), SHAPE_MISMATCH);
    assert_null(dst[0]);
}

TS_DEVICE_TEST(needs_a_kernel_for_the_device)
{
    const fy_op_kernel_t kernel = { "elsewhere", scale, NULL };
    define(fresh_name());
    own.def.kernels = &kernel;
    fy_op_t op;
    ts_ok(fy_op_register(&own.def, &op));
    fy_tensor_t *x, *dst[1] = { NULL };
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(3), &x));
    ts_fails(fy_op_call(op, 1, &x, NULL, 0, 1, dst), UNSUPPORTED);
    assert_null(dst[0]);
}

/* Integers of 64 bits, in the value and in the range. */
TS_DEVICE_TEST(integers_are_whole_in_texts)
{
    fy_attr_field_t field = { "rows", FY_ATTR_I64, 0, 0, -5000000000, 5000000000, 0, 0, NULL };
    define(fresh_name());
    own.info.fields = &field;
    own.info.nfields = 1;
    own.info.attrs_nbytes = sizeof(int64_t);
    fy_op_t op;
    ts_ok(fy_op_register(&own.def, &op));
    const int64_t rows = INT64_MAX;
    fy_tensor_t *x, *dst[1] = { NULL };
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(3), &x));
    ts_fails_with(fy_op_call(op, 1, &x, &rows, sizeof rows, 1, dst), INVALID_ARGUMENT,
                  "rows is 9223372036854775807, legal are -5000000000 .. 5000000000");
}

static fy_status_t takes_all(const fy_launch_t *launch) { return (void)launch, FY_STATUS_OK; }

TS_DEVICE_TEST(everything_is_copied)
{
    char name[32], summary[] = "s1", field_name[] = "factor", backend[] = "host";
    snprintf(name, sizeof name, "%s", fresh_name());
    fy_attr_field_t field = { field_name, FY_ATTR_F64, 0, 2.5 };
    fy_op_kernel_t kernel = { backend, scale, takes_all };
    define(name);
    own.info.summary = summary;
    own.info.fields = &field;
    own.info.nfields = 1;
    own.def.kernels = &kernel;
    fy_op_t op;
    ts_ok(fy_op_register(&own.def, &op));
    const fy_op_info_t *got = fy_op_get(op);
    char want[32];
    snprintf(want, sizeof want, "%s", name);
    memset(name, '#', sizeof name - 1), summary[0] = field_name[0] = backend[0] = '#';
    memset(&field, 0xFF, sizeof field), memset(&kernel, 0xFF, sizeof kernel);
    assert_string_equal(got->name, want);
    assert_string_equal(got->summary, "s1");
    assert_string_equal(got->fields[0].name, "factor");
    assert_true(got->fields[0].fallback == 2.5);
    assert_true(*(const double *)fy__op_row(op)->default_attrs == 2.5);
    assert_string_equal(fy__op_row(op)->kernels[0].backend, "host");
    assert_true(fy__op_row(op)->kernels[0].kernel == scale &&
                fy__op_row(op)->kernels[0].supports == takes_all);
}

/* ---- refusals ---- */

#define REFUSED(change, part)                                                 \
    do {                                                                      \
        define("test.refused");                                               \
        fy_op_t op = 0;                                                       \
        change;                                                               \
        ts_fails_with(fy_op_register(&own.def, &op), INVALID_ARGUMENT, part); \
        assert_int_equal(op, FY_OP_NONE);                                     \
        assert_null(fy_op_find("test.refused"));                              \
    } while (0)

TS_DEVICE_TEST(refuses_malformed_definitions)
{
    char long_name[80];
    memset(long_name, 'a', sizeof long_name), long_name[79] = 0;
    fy_attr_field_t fields[3];
#define FIELDS(change) memcpy(fields, scale_fields, sizeof fields), change, own.info.fields = fields
    REFUSED(own.def.struct_size = 8, "def->struct_size is 8");
    REFUSED(own.info.struct_size = 0, "def->info->struct_size is 0");
    REFUSED(own.info.name = NULL, "op name ''");
    REFUSED(own.info.name = "", "op name ''");
    REFUSED(own.info.name = "Big", "op name 'Big'");
    REFUSED(own.info.name = "0a", "begin with a letter");
    REFUSED(own.info.name = ".a", "op name '.a'");
    REFUSED(own.info.name = long_name, "1 to 63");
    REFUSED(own.info.name = "matmul", "the name is taken");
    REFUSED(own.info.nsrc_min = 3, "nsrc_min 3 is above nsrc_max 2");
    REFUSED(own.info.nsrc_min = 0, "needs a source");
    REFUSED(own.info.ndst = 0, "ndst is 0");
    REFUSED(own.info.ndst = 9, "ndst is 9");
    REFUSED(own.info.ndst = 2, "no shape rule");
    REFUSED(own.info.flags = 128, "flags 0x80");
    REFUSED(own.info.flags = 0, "no shape rule");
    REFUSED(own.info.inout = 2, "past ndst 1");
    REFUSED(own.info.dtypes = 0, "dtypes 0x0");
    REFUSED(own.info.dtypes = 1u << FY_DTYPE_COUNT, "dtypes 0x100");
    REFUSED(own.info.attrs_nbytes = 257, "257 bytes, the most is 256");
    REFUSED(own.info.attrs_nbytes = 0, "all or none");
    REFUSED(own.info.nfields = 0, "all or none");
    REFUSED(own.info.fields = NULL, "all or none");
    REFUSED(FIELDS(fields[1].name = "ax is"), "'ax is'");
    REFUSED(FIELDS(fields[1].name = NULL), "field 1");
    REFUSED(FIELDS(fields[1].type = (fy_attr_type_t)8), "type 8");
    REFUSED(FIELDS(fields[1].offset = 16), "outside the struct of 16 bytes");
    REFUSED(FIELDS(fields[1].offset = UINT32_MAX - 3), "outside");
    REFUSED(FIELDS(fields[1].offset = 10), "misaligned");
    REFUSED(FIELDS(fields[1].offset = 4), "overlap");
    REFUSED(FIELDS(fields[1].name = "factor"), "one name");
    REFUSED(FIELDS(fields[1].fallback = 0.5), "cannot hold its fallback 0.5");
    REFUSED(FIELDS(fields[1].fallback = 3e9), "cannot hold");
    REFUSED(own.def.nkernels = 0, "no kernel");
    REFUSED(own.def.kernels = NULL, "no kernel");
    const fy_op_kernel_t nameless = { NULL, scale, NULL }, empty = { "host", NULL, NULL },
                         twice[] = { { "host", scale, NULL }, { "host", scale, NULL } };
    REFUSED(own.def.kernels = &nameless, "kernel 0 of 1");
    REFUSED(own.def.kernels = &empty, "kernel 0 of 1");
    REFUSED((own.def.kernels = twice, own.def.nkernels = 2), "two kernels for backend 'host'");
    fy_op_t op = 0;
    ts_fails(fy_op_register(NULL, &op), INVALID_ARGUMENT);
    assert_int_equal(op, FY_OP_NONE);
    define("test.refused");
    ts_fails(fy_op_register(&own.def, NULL), INVALID_ARGUMENT);
}

TS_DEVICE_TEST(refuses_a_name_twice)
{
    define(fresh_name());
    fy_op_t op, again;
    ts_ok(fy_op_register(&own.def, &op));
    fy_op_t count = fy_op_count();
    ts_fails(fy_op_register(&own.def, &again), INVALID_ARGUMENT);
    assert_int_equal(again, FY_OP_NONE);
    assert_int_equal(fy_op_count(), count);
}

/* A registered op has no gradient rule: an op on a watched tensor is refused, a tensor that it
 * overwrites becomes a constant. */
TS_DEVICE_TEST(a_tape_meets_it)
{
    define(fresh_name());
    fy_op_t op;
    fy_tensor_t *w, *x, *y, *grad, *sum, *dst[1] = { NULL };
    ts_ok(fy_op_register(&own.def, &op));
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(4, 3), 2.0, &w));
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(4, 3), 3.0, &x));
    fy_tape_t *tape = ts_record(w, NULL);
    ts_fails_with(fy_op_call(op, 1, &w, NULL, 0, 1, dst), UNSUPPORTED, "no gradient rule");
    ts_ok(fy_mul(w, x, &y));
    dst[0] = y;
    ts_ok(fy_op_call(op, 1, &x, NULL, 0, 1, dst)); /* y is a constant from here on */
    ts_ok(fy_add(y, w, &sum));
    ts_ok(fy_sum(sum, FY_ALL_AXES, 0, &sum));
    ts_ok(fy_tape_backward(tape, sum, NULL));
    ts_ok(fy_tape_grad(tape, w, &grad));
    assert_true(first_element(grad) == 1);
}

/* ---- in-out is per result: of five results two are the caller's, the others are made ---- */

enum { SOURCES = 5, RESULTS = 5, WIDTH = 3 };

/* As a batch normalisation has them: x and four of [C]; y, two running values, two saved ones. */
static fy_status_t running_shape(const fy_op_info_t *info, fy_launch_t *launch)
{
    (void)info;
    for (int i = 0; i < launch->ndst; i++) {
        launch->dst[i].dtype = FY_DTYPE_F32;
        launch->dst[i].rank = i ? 1 : 2;
        launch->dst[i].dims[0] = launch->src[0].dims[i ? 1 : 0];
        launch->dst[i].dims[1] = launch->src[0].dims[1];
    }
    return FY_STATUS_OK;
}

/* dst0 = src0, dst1 += 1, dst2 += 2, dst3 = src3, dst4 = src4. */
static fy_status_t running(const fy_launch_t *launch, void *stream)
{
    (void)stream;
    memcpy(launch->dst[0].data, launch->src[0].data, launch->nelem * sizeof(float));
    for (int c = 0; c < WIDTH; c++) {
        ((float *)launch->dst[1].data)[c] += 1;
        ((float *)launch->dst[2].data)[c] += 2;
        ((float *)launch->dst[3].data)[c] = ((const float *)launch->src[3].data)[c];
        ((float *)launch->dst[4].data)[c] = ((const float *)launch->src[4].data)[c];
    }
    return FY_STATUS_OK;
}

TS_DEVICE_TEST(some_results_are_given_and_others_made)
{
    ts_own_op(&own, fresh_name(), SOURCES, running);
    own.info.nsrc_min = SOURCES;
    own.info.ndst = RESULTS;
    own.info.inout = 6;
    own.info.flags = 0;
    own.def.shape = running_shape;
    fy_op_t op;
    fy_tensor_t *src[SOURCES], *dst[RESULTS] = { NULL }, *wrong;
    ts_ok(fy_op_register(&own.def, &op));
    src[0] = ts_iota(ctx->device, FY_DIMS(2, WIDTH), 5);
    for (int i = 1; i < SOURCES; i++) src[i] = ts_iota(ctx->device, FY_DIMS(WIDTH), (float)i);
    ts_fails_with(fy_op_call(op, SOURCES, src, NULL, 0, RESULTS, dst), INVALID_ARGUMENT,
                  "dst1 is NULL: the op writes into it, so it must be given");
    dst[1] = ts_iota(ctx->device, FY_DIMS(WIDTH), 10);
    dst[2] = wrong = ts_iota(ctx->device, FY_DIMS(WIDTH + 1), 20);
    ts_fails(fy_op_call(op, SOURCES, src, NULL, 0, RESULTS, dst), SHAPE_MISMATCH);
    assert_null(dst[0]);
    fy_tensor_destroy(wrong);
    dst[2] = ts_iota(ctx->device, FY_DIMS(WIDTH), 20);
    fy_tensor_t *const running_sum = dst[1];
    for (int call = 0; call < 2; call++) {
        dst[0] = dst[3] = dst[4] = NULL;
        ts_ok(fy_op_call(op, SOURCES, src, NULL, 0, RESULTS, dst));
        assert_ptr_equal(dst[1], running_sum);
    }
    ts_expect_f32(dst[0], (const float[]){ 5, 6, 7, 8, 9, 10 }, 6);
    ts_expect_f32(dst[1], (const float[]){ 12, 13, 14 }, WIDTH);
    ts_expect_f32(dst[2], (const float[]){ 24, 25, 26 }, WIDTH);
    ts_expect_f32(dst[3], (const float[]){ 3, 4, 5 }, WIDTH);
    ts_expect_f32(dst[4], (const float[]){ 4, 5, 6 }, WIDTH);
}
