/* fy_op_call with attribute structs of other sizes than the library's: those of older and newer
 * headers, and sizes that no header has. Each struct is a block of exactly its size, so that
 * AddressSanitizer detects a read past it.
 * Not here: arity and values of attributes (test_typed.c). */
#include "tests/support/harness.h"

#include "ops/optable.h"

static fy_status_t call_with(fy_op_t op, fy_tensor_t *x, const void *attrs, size_t attrs_nbytes,
                             fy_tensor_t **out)
{
    unsigned char *exact = malloc(attrs_nbytes ? attrs_nbytes : 1);
    assert_non_null(exact);
    memcpy(exact, attrs, attrs_nbytes);
    *out = NULL;
    const fy_status_t status = fy_op_call(op, 1, &x, exact, attrs_nbytes, 1, out);
    free(exact);
    return status;
}

TS_DEVICE_TEST(an_older_struct_has_fallbacks_behind_it)
{
    const float want[3] = { 3, 3, 3 };
    const fy_affine_attrs_t attrs = { .scale = 3, .shift = 7 };
    fy_tensor_t *x, *y;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(3), 1, &x));
    ts_ok(call_with(FY_OP_AFFINE, x, &attrs, sizeof attrs.scale, &y));
    ts_expect_f32(y, want, 3);
}

TS_DEVICE_TEST(a_newer_struct_is_used_if_its_new_fields_are_zero)
{
    struct {
        fy_affine_attrs_t known;
        int32_t more[3];
    } attrs = { { 3, 7 }, { 0, 0, 0 } };
    const float want[3] = { 10, 10, 10 };
    fy_tensor_t *x, *y;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(3), 1, &x));
    ts_ok(call_with(FY_OP_AFFINE, x, &attrs, sizeof attrs.known + 12, &y));
    ts_expect_f32(y, want, 3);
    attrs.more[2] = 1;
    ts_fails_with(call_with(FY_OP_AFFINE, x, &attrs, sizeof attrs.known + 12, &y), INVALID_ARGUMENT,
                  "affine: attrs_nbytes is 28 and byte 24 is not 0", "knows the first 16 bytes");
    assert_null(y);
}

/* The axis of a completed copy is normalized in that copy; a tape saves the completed struct. */
TS_DEVICE_TEST(an_older_struct_with_a_negative_axis)
{
    const fy_axis_attrs_t attrs = { .axis = -1 };
    float by_name[6], typed[6];
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2, 3), 1), *y, *loss, *like;
    fy_tape_t *tape;
    for (int i = 0; i < 2; i++) {
        tape = ts_record(x, NULL);
        ts_ok(i ? fy_softmax(x, -1, &y)
                : call_with(FY_OP_SOFTMAX, x, &attrs, sizeof attrs.axis, &y));
        ts_ok(fy_mul(y, x, &like));
        ts_ok(fy_sum(like, FY_ALL_AXES, 0, &loss));
        ts_ok(fy_tape_backward(tape, loss, NULL));
        ts_read(ts_grad(tape, x), i ? typed : by_name, sizeof typed);
        fy_tape_destroy(tape);
    }
    assert_memory_equal(by_name, typed, sizeof typed);
}

TS_DEVICE_TEST(sizes_that_no_header_has)
{
    const fy_affine_attrs_t attrs = { 3, 7 };
    fy_tensor_t *x, *y = NULL;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(3), 1, &x));
    ts_fails_with(fy_op_call(FY_OP_AFFINE, 1, &x, &attrs, 0, 1, &y), INVALID_ARGUMENT,
                  "attrs_nbytes is 0; give sizeof your attribute struct, which has 16 bytes here");
    ts_fails(fy_op_call(FY_OP_AFFINE, 1, &x, &attrs, SIZE_MAX, 1, &y), INVALID_ARGUMENT);
    ts_fails_with(call_with(FY_OP_AFFINE, x, &attrs, 12, &y), INVALID_ARGUMENT,
                  "attrs_nbytes is 12, which ends inside 'shift'");
    ts_fails_with(fy_op_call(FY_OP_AFFINE, 1, &x, NULL, 16, 1, &y), INVALID_ARGUMENT,
                  "attrs is NULL, attrs_nbytes is 16");
    ts_fails_with(fy_op_call(FY_OP_NEG, 1, &x, &attrs, 16, 1, &y), INVALID_ARGUMENT,
                  "takes no attributes");
    assert_null(y);
}

/* Whether a struct of `nbytes` ends inside a field. */
static bool ends_inside(const fy_op_info_t *info, size_t nbytes)
{
    for (uint32_t i = 0; i < info->nfields; i++) {
        const fy_attr_field_t *field = &info->fields[i];
        if (field->offset < nbytes && nbytes < field->offset + fy__attr_nbytes(field->type))
            return true;
    }
    return false;
}

/* Other errors may follow: the operands suit few ops. */
TS_DEVICE_TEST(every_size_for_every_op)
{
    fy_tensor_t *src[8], *dst[8];
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) {
        const fy_op_info_t *info = fy_op_get(op);
        const size_t own = info->attrs_nbytes;
        for (size_t nbytes = 1; own && nbytes <= own + 9; nbytes++) {
            const fy_scope_t scope = fy_scope_begin("sizes");
            unsigned char *attrs = calloc(1, nbytes);
            assert_non_null(attrs);
            memcpy(attrs, fy__op_row(op)->default_attrs, nbytes < own ? nbytes : own);
            for (int i = 0; i < 8; i++) {
                ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(2), &src[i]));
                dst[i] = fy__op_row(op)->given >> i & 1 ? src[i] : NULL;
            }
            const fy_status_t status =
                fy_op_call(op, info->nsrc_min, src, attrs, nbytes, info->ndst, dst);
            const bool is_refused = status == FY_STATUS_INVALID_ARGUMENT &&
                                    strstr(fy_error_get()->text, "attrs_nbytes");
            if (is_refused != ends_inside(info, nbytes))
                fail_msg("%s, %zu bytes: %s: %s", info->name, nbytes, fy_status_name(status),
                         fy_error_get()->text);
            free(attrs);
            fy_scope_end(scope, 0, NULL);
        }
    }
}
