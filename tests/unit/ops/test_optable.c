/* The op table: its rows agree with FY_OP_LIST and with themselves, and introspection finds what is
 * there and nothing else. */
#include <float.h>
#include <math.h>

#include "rules.h"
#include "tests/support/test.h"

static const char *const listed_names[] = {
#define X(ENUM, name) #name,
    FY_OP_LIST(X)
#undef X
};

TS_TEST(test_names_and_numbers_agree_with_the_list)
{
    assert_int_equal(fy_op_count(), FY_OP_BUILTIN_COUNT);
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) {
        const fy_op_info_t *info = fy_op_get(op);
        assert_non_null(info);
        assert_int_equal(info->op, op);
        assert_int_equal(info->struct_size, sizeof *info);
        assert_string_equal(info->name, listed_names[op]);
        assert_ptr_equal(fy_op_find(listed_names[op]), info);
        assert_true(info->summary && *info->summary && !strchr(info->summary, '\n'));
        assert_non_null(fy__op_row(op)->shape);
        assert_non_null(fy__op_row(op)->cost);
    }
}

TS_TEST(test_unknown_names_are_not_found)
{
    const char *const wrong[] = { "", "Add", "add ", "ad", "addd", "fy_add", "matmul2", "\xff" };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) assert_null(fy_op_find(wrong[i]));
    assert_null(fy_op_find(NULL));
    assert_null(fy_op_get(FY_OP_BUILTIN_COUNT));
    assert_null(fy_op_get(FY_OP_NONE));
}

TS_TEST(test_rows_are_consistent)
{
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) {
        const fy_op_info_t *info = fy_op_get(op);
        assert_true(info->nsrc_min <= info->nsrc_max);
        assert_in_range(info->ndst, 1, 8);
        assert_int_equal(info->inout >> info->ndst, 0);
        assert_true(info->dtypes != 0 && info->dtypes < FY_DTYPE_BIT(FY_DTYPE_COUNT));
        assert_int_equal(info->inout & ~fy__op_row(op)->given, 0);
        if (info->flags & FY_OP_ELEMENTWISE) assert_true(info->nsrc_min >= 1 && info->ndst == 1);
        if (info->nsrc_min == 0) assert_true(info->flags & FY_OP_IN_PLACE);
        const int nsrc = info->nsrc_max == FY_OP_VARIADIC ? 1 : info->nsrc_max;
        int optional = 0;
        for (int i = 0; i < nsrc; i++) {
            assert_true(info->src[i].name && *info->src[i].name);
            optional += (info->src[i].flags & FY_OPERAND_OPTIONAL) != 0;
        }
        assert_int_equal(info->nsrc_min, nsrc - optional);
        for (int i = 0; i < info->ndst; i++) {
            assert_true(info->dst[i].name && *info->dst[i].name);
            assert_int_equal((info->dst[i].flags & FY_OPERAND_INOUT) != 0, info->inout >> i & 1);
        }
        assert_int_equal(info->nfields == 0, info->attrs_nbytes == 0);
        assert_int_equal(info->nfields == 0, fy__op_row(op)->default_attrs == NULL);
        assert_true(info->attrs_nbytes <= FY_OP_ATTRS_MAX_NBYTES);
    }
}

static double read_field(const fy_attr_field_t *field, const void *attrs)
{
    const unsigned char *at = (const unsigned char *)attrs + field->offset;
    double f64;
    int64_t i64;
    int32_t i32;
    switch (field->type) {
    case FY_ATTR_F64: memcpy(&f64, at, sizeof f64); return f64;
    case FY_ATTR_I64: memcpy(&i64, at, sizeof i64); return (double)i64;
    default: memcpy(&i32, at, sizeof i32); return i32;
    }
}

TS_TEST(test_fields_lie_inside_their_struct_and_hold_their_fallback)
{
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) {
        const fy__op_row_t *row = fy__op_row(op);
        uint64_t taken[FY_OP_ATTRS_MAX_NBYTES] = { 0 };
        for (int i = 0; i < row->info.nfields; i++) {
            const fy_attr_field_t *field = &row->info.fields[i];
            size_t nbytes = field->type == FY_ATTR_F64 || field->type == FY_ATTR_I64 ? 8 : 4;
            assert_true(field->name && *field->name);
            assert_int_equal(field->offset % nbytes, 0);
            assert_true(field->offset + nbytes <= row->info.attrs_nbytes);
            for (size_t at = 0; at < nbytes; at++) assert_int_equal(taken[field->offset + at]++, 0);
            assert_true(read_field(field, row->default_attrs) == field->fallback);
            assert_int_equal(field->type == FY_ATTR_ENUM32, field->nchoices > 0);
            assert_true(field->low <= field->high);
            for (uint32_t at = 0; at < field->nchoices; at++)
                assert_true(field->choices[at] && *field->choices[at]);
        }
    }
}

/* Of the ops that existed when rows were ordered by number. */
TS_TEST(test_flags_match_the_headers)
{
    assert_int_equal(FY_OP_FILL, 0);
    assert_int_equal(FY_OP_ONE_HOT, 84);
    for (fy_op_t op = 0; op <= FY_OP_ONE_HOT; op++) {
        uint32_t flags = fy_op_get(op)->flags;
        int indexes = op == FY_OP_GATHER || op == FY_OP_ONE_HOT ||
                      (op >= FY_OP_NLL_LOSS && op <= FY_OP_CROSS_ENTROPY_BACKWARD);
        int given = op <= FY_OP_RANDPERM || op == FY_OP_COPY || op == FY_OP_AXPY ||
                    op == FY_OP_DROPOUT || op == FY_OP_DROPOUT2D ||
                    (op >= FY_OP_CLIP_BY_NORM && op <= FY_OP_ADADELTA_STEP);
        int elementwise = (op >= FY_OP_NEG && op <= FY_OP_WHERE) ||
                          (op >= FY_OP_RELU6 && op <= FY_OP_GELU_BACKWARD) || op == FY_OP_CLAMP ||
                          op == FY_OP_TANH_BACKWARD || op == FY_OP_SIGMOID_BACKWARD ||
                          op == FY_OP_CLIP_BY_NORM;
        int adds = (op >= FY_OP_NEG && op <= FY_OP_AFFINE) || op == FY_OP_COPY ||
                   (op >= FY_OP_ADD && op <= FY_OP_POW) || op == FY_OP_SUM || op == FY_OP_MEAN ||
                   op == FY_OP_MATMUL || op == FY_OP_CONV2D_BACKWARD_INPUT ||
                   op == FY_OP_CONV2D_BACKWARD_WEIGHT || op == FY_OP_LINEAR_BACKWARD_PARAMS ||
                   op == FY_OP_CLAMP ||
                   (op >= FY_OP_TANH_BACKWARD && op <= FY_OP_MSE_LOSS_BACKWARD) ||
                   op == FY_OP_MAX_POOL2D_BACKWARD || op == FY_OP_AVG_POOL2D_BACKWARD ||
                   (op >= FY_OP_RELU6 && op <= FY_OP_GELU_BACKWARD) ||
                   op == FY_OP_NLL_LOSS_BACKWARD || op == FY_OP_CROSS_ENTROPY_BACKWARD ||
                   op == FY_OP_CONV2D_BACKWARD_PARAMS;
        assert_int_equal(!!(flags & FY_OP_CAN_FAULT), indexes);
        assert_int_equal(!!(flags & FY_OP_IN_PLACE), given);
        assert_int_equal(!!(flags & FY_OP_ELEMENTWISE), elementwise);
        assert_int_equal(!!(flags & FY_OP_CAN_ACCUMULATE), adds);
    }
    assert_int_equal(fy_op_get(FY_OP_AXPY)->inout, 1);
    assert_int_equal(fy_op_get(FY_OP_RAND)->inout, 2);
    assert_int_equal(fy_op_get(FY_OP_CONCAT)->nsrc_max, FY_OP_VARIADIC);
}

TS_TEST(test_numbers_are_formatted)
{
    assert_string_equal(FY__NUMBER_TEXT(0), "0");
    assert_string_equal(FY__NUMBER_TEXT(-3e9), "-3000000000");
    assert_string_equal(FY__NUMBER_TEXT(0x1p63), "9223372036854775808");
    assert_string_equal(FY__NUMBER_TEXT(1e30), "1e+30");
    assert_string_equal(FY__NUMBER_TEXT(0.1), "0.1");
    assert_string_equal(FY__NUMBER_TEXT(0.1 + 0.2), "0.30000000000000004");
    assert_string_equal(FY__NUMBER_TEXT(1.0000001), "1.0000001");
    assert_string_equal(FY__NUMBER_TEXT(-INFINITY), "-inf");
    assert_true(strstr(FY__NUMBER_TEXT(NAN), "nan") != NULL);
    assert_true(strlen(FY__NUMBER_TEXT(-DBL_TRUE_MIN)) < FY__NUMBER_TEXT_NBYTES - 1);
    assert_string_equal(FY__NUMBER_TEXT(-DBL_MAX), "-1.7976931348623157e+308");
}

TS_TEST(test_descriptors_are_formatted_within_their_buffer)
{
    fy_desc_t desc = desc_of("64x784 f32"), scalar = desc_of("scalar bool"),
              wide = { .rank = FY_MAX_RANK, .dtype = FY_DTYPE_BF16 };
    assert_string_equal(FY__DESC_TEXT(&desc), "[64x784 f32]");
    assert_string_equal(FY__DESC_TEXT(&scalar), "[scalar bool]");
    for (int i = 0; i < FY_MAX_RANK; i++) wide.dims[i] = INT64_MAX;
    /* 19 digits and one separator each, "[" counted, " bf16]" */
    assert_int_equal(strlen(FY__DESC_TEXT(&wide)), FY_MAX_RANK * 20 + 6);
    for (size_t nbytes = 1; nbytes < 40; nbytes++) {
        char buf[41];
        memset(buf, '#', sizeof buf);
        assert_ptr_equal(fy__desc_format(&wide, buf, nbytes), buf);
        assert_true(strlen(buf) < nbytes);
        assert_int_equal(buf[nbytes], '#');
    }
    assert_string_equal(FY__DTYPES_TEXT(FY_DTYPE_BIT(FY_DTYPE_COUNT) - 1),
                        "f32 f64 f16 bf16 i32 i64 u8 bool");
    assert_string_equal(FY__DTYPES_TEXT(0), "");
}

/* ---- the ranges of opset/attrs.def are enforced, for every op ---- */

static void write_field(unsigned char *attrs, const fy_attr_field_t *field, double value)
{
    const int64_t i64 = (int64_t)value;
    const int32_t i32 = (int32_t)value;
    if (field->type == FY_ATTR_F64)
        memcpy(attrs + field->offset, &value, sizeof value);
    else if (field->type == FY_ATTR_I64)
        memcpy(attrs + field->offset, &i64, sizeof i64);
    else
        memcpy(attrs + field->offset, &i32, sizeof i32);
}

static double legal_value(const fy_attr_field_t *field)
{
    if (!(field->excludes & 1)) return field->low;
    return isinf(field->high) ? field->low + 1 : (field->low + field->high) / 2;
}

static void expect_status(const fy_op_info_t *info, const unsigned char *attrs,
                          const fy_attr_field_t *field, double value, fy_status_t want)
{
    if (fy__attrs_check(info, attrs) != want)
        fail_msg("%s: %s %g: want %s", info->name, field->name, value, fy_status_name(want));
    if (want != FY_STATUS_OK && !strstr(fy_error_get()->text, field->name))
        fail_msg("'%s' does not name %s", fy_error_get()->text, field->name);
}

TS_TEST(test_every_range_is_enforced)
{
    int nranges = 0;
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) {
        const fy_op_info_t *info = fy_op_get(op);
        _Alignas(8) unsigned char attrs[FY_OP_ATTRS_MAX_NBYTES] = { 0 };
        if (!info->attrs_nbytes) continue;
        memcpy(attrs, fy__op_row(op)->default_attrs, info->attrs_nbytes);
        for (uint32_t i = 0; i < info->nfields; i++)
            if (fy__attr_has_range(&info->fields[i]))
                write_field(attrs, &info->fields[i], legal_value(&info->fields[i]));
        for (uint32_t i = 0; i < info->nfields; i++) {
            const fy_attr_field_t *field = &info->fields[i];
            const double legal = legal_value(field);
            if (!fy__attr_has_range(field)) continue;
            nranges++;
            assert_ptr_equal(fy__op_row(op)->shape, fy__attrs_then_rule);
            const struct {
                double value;
                fy_status_t want;
            } tries[] = { { legal, FY_STATUS_OK },
                          { field->low - 1, FY_STATUS_INVALID_ARGUMENT },
                          { field->low,
                            field->excludes & 1 ? FY_STATUS_INVALID_ARGUMENT : FY_STATUS_OK },
                          { isinf(field->high) ? legal : field->high,
                            !isinf(field->high) && field->excludes & 2 ? FY_STATUS_INVALID_ARGUMENT
                                                                       : FY_STATUS_OK },
                          { isinf(field->high) ? field->low - 2 : field->high + 1,
                            FY_STATUS_INVALID_ARGUMENT } };
            for (size_t k = 0; k < sizeof tries / sizeof *tries; k++) {
                write_field(attrs, field, tries[k].value);
                expect_status(info, attrs, field, tries[k].value, tries[k].want);
            }
            if (field->type == FY_ATTR_F64) {
                write_field(attrs, field, NAN);
                expect_status(info, attrs, field, NAN, FY_STATUS_INVALID_ARGUMENT);
                write_field(attrs, field, INFINITY);
                expect_status(info, attrs, field, INFINITY,
                              isinf(field->high) && !(field->excludes & 2)
                                  ? FY_STATUS_OK
                                  : FY_STATUS_INVALID_ARGUMENT);
            }
            write_field(attrs, field, legal);
        }
    }
    assert_true(nranges > 40);
}
