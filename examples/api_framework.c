/* A framework without a built-in list of ops: it queries Ferry's ops (introspection), prints a
 * signature of each, and runs a small program given as text through fy_op_call. A binding for
 * another language works the same way.
 * Usage: api_framework [device] ["program"]. A program is postfix: a number pushes a [2x3] tensor
 * of it, a word applies the op of that name to the topmost tensors, name=value sets an attribute of
 * the next op. */
#include <stdlib.h>
#include <string.h>

#include <ferry/ferry.h>

#include "example.h"

#define FAIL(...) fy_error_set(FY_STATUS_INVALID_ARGUMENT, __FILE__, __LINE__, __VA_ARGS__)

/* "sum(src0; axes: axes = 0, keepdims: bool = 0) -> dst0" and what it does. */
static void print_signature(const fy_op_info_t *info)
{
    printf("%s(", info->name);
    for (int i = 0; i < info->nsrc_min; i++) printf("%ssrc%d", i ? ", " : "", i);
    if (info->nsrc_max == FY_OP_VARIADIC) printf(", ...");
    for (int i = 0; i < info->nfields; i++) {
        const fy_attr_field_t *field = &info->fields[i];
        printf("%s%s: %s = %g", i ? ", " : "; ", field->name, fy_attr_type_name(field->type),
               field->fallback);
    }
    printf(") ->");
    for (int i = 0; i < info->ndst; i++)
        printf(" dst%d%s", i, info->inout & (1u << i) ? " (read and written)" : "");
    printf("%s    # %s;", info->flags & FY_OP_IN_PLACE ? ", given" : "", info->summary);
    for (int dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        if (info->dtypes & FY_DTYPE_BIT(dtype)) printf(" %s", fy_dtype_name((fy_dtype_t)dtype));
    }
    printf("\n");
}

/* ---- attributes: any op's struct, filled field by field as introspection says ---- */

typedef struct call {
    fy_tensor_t *stack[16];
    size_t depth;
    struct {
        char name[24];
        double value;
    } settings[4]; /* name=value seen since the last op */
    size_t nsettings;
} call_t;

static void write_field(const fy_attr_field_t *field, double value, unsigned char *attrs)
{
    int64_t i64 = (int64_t)value;
    int32_t i32 = (int32_t)value; /* all other types have four bytes */
    switch (field->type) {
    case FY_ATTR_F64: memcpy(attrs + field->offset, &value, sizeof value); return;
    case FY_ATTR_I64: memcpy(attrs + field->offset, &i64, sizeof i64); return;
    default: memcpy(attrs + field->offset, &i32, sizeof i32); return;
    }
}

static fy_status_t fill_attrs(const fy_op_info_t *info, const call_t *call, unsigned char *attrs)
{
    for (int i = 0; i < info->nfields; i++)
        write_field(&info->fields[i], info->fields[i].fallback, attrs);
    for (size_t s = 0; s < call->nsettings; s++) {
        int i = 0;
        while (i < info->nfields && strcmp(info->fields[i].name, call->settings[s].name) != 0) i++;
        if (i == info->nfields)
            return FAIL("%s has no attribute '%s'", info->name, call->settings[s].name);
        write_field(&info->fields[i], call->settings[s].value, attrs);
    }
    return FY_STATUS_OK;
}

/* ---- one word of the program ---- */

static fy_status_t apply(call_t *call, const char *word)
{
    const fy_op_info_t *info = fy_op_find(word);
    if (!info) return FAIL("no op is called '%s'; there are %" PRIu32, word, fy_op_count());
    if ((info->flags & FY_OP_IN_PLACE) || info->ndst != 1)
        return FAIL("%s does not give one new tensor: not in this little language", word);
    size_t nsrc = info->nsrc_min;
    if (nsrc > call->depth)
        return FAIL("%s takes %zu tensors, the stack has %zu", word, nsrc, call->depth);
    _Alignas(16) unsigned char attrs[FY_OP_ATTRS_MAX_NBYTES] = { 0 };
    if (info->attrs_nbytes > sizeof attrs)
        return FAIL("%s: attributes of %zu bytes", word, info->attrs_nbytes);
    FY_TRY(fill_attrs(info, call, attrs));
    fy_tensor_t *dst[1] = { NULL }; /* NULL: to be made */
    FY_TRY(fy_op_call(info->op, nsrc, &call->stack[call->depth - nsrc],
                      info->attrs_nbytes ? attrs : NULL, info->attrs_nbytes, info->ndst, dst));
    call->depth -= nsrc;
    call->stack[call->depth++] = dst[0];
    call->nsettings = 0;
    return FY_STATUS_OK;
}

static fy_status_t evaluate(fy_device_t *device, const char *program, call_t *call)
{
    char text[256], *rest = NULL;
    snprintf(text, sizeof text, "%s", program);
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *end, *equals = strchr(word, '=');
        double number = strtod(word, &end);
        if (equals) {
            if (call->nsettings == 4) return FAIL("more than 4 attributes before one op");
            snprintf(call->settings[call->nsettings].name, sizeof call->settings[0].name, "%.*s",
                     (int)(equals - word), word);
            call->settings[call->nsettings++].value = strtod(equals + 1, NULL);
        } else if (*end) {
            FY_TRY(apply(call, word));
        } else {
            if (call->depth == 16) return FAIL("the stack is full");
            FY_TRY(
                fy_full(device, FY_DTYPE_F32, FY_DIMS(2, 3), number, &call->stack[call->depth++]));
        }
    }
    return call->depth == 1 ? FY_STATUS_OK
                            : FAIL("the program leaves %zu tensors, not one", call->depth);
}

static fy_status_t run(const char *spec, const char *program)
{
    fy_device_t *device;
    for (fy_op_t op = 0; op < fy_op_count(); op++) print_signature(fy_op_get(op));
    FY_TRY(fy_device_open(spec, &device));
    fy_scope_t scope = fy_scope_begin("framework");
    call_t call = { .depth = 0 };
    fy_download_t *download;
    double value = 0;
    fy_status_t status = evaluate(device, program, &call);
    if (status == FY_STATUS_OK) status = fy_tensor_download(call.stack[0], NULL, &download);
    if (status == FY_STATUS_OK) status = fy_download_wait_f64(download, FY_FOREVER, &value);
    if (status == FY_STATUS_OK) printf("\n%s  ->  %g\n", program, value);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    return status;
}

int main(int argc, char **argv)
{
    /* sum(tanh(2 * (3 x 0.5^T) - 9)): a transposed matmul gives [2x2] of 4.5, so the result is 4
     * tanh(0) = 0; then + 1 */
    const char *program =
        argc > 2
            ? argv[2]
            : "3 0.5 transpose_b=1 matmul scale=2 shift=-9 affine tanh axes=0 sum shift=1 affine";
    return example_finish(argv[0], run(argc > 1 ? argv[1] : "sim:0", program));
}
