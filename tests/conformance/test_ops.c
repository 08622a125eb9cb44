/* The op interface beyond single ops: results belong to the scope, registered ops run on host and
 * sim, long chains keep their order. Values of single ops: tests/ops; that typed calls equal
 * fy_op_call: tests/unit/ops/test_typed_calls.c. */
#include <math.h>

#include "tests/support/harness.h"
#include "tests/support/oracle.h"

static fy_tensor_t *call(const char *name, size_t nsrc, fy_tensor_t *const *src, const void *attrs)
{
    fy_tensor_t *dst = NULL;
    const fy_op_info_t *info = fy_op_find(name);
    assert_non_null(info);
    ts_ok(fy_op_call(info->op, nsrc, src, attrs, attrs ? info->attrs_nbytes : 0, 1, &dst));
    return dst;
}

TS_DEVICE_TEST(making_tensors)
{
    fy_tensor_t *x = ts_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(3));
    ts_expect_f32(x, (float[]){ 0, 0, 0 }, 3);
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(2), -1.5, &x));
    ts_expect_f32(x, (float[]){ -1.5f, -1.5f }, 2);
    ts_ok(fy_arange(ctx->device, FY_DTYPE_F32, 1, 0.5, 3, &x));
    ts_expect_f32(x, (float[]){ 1, 1.5f, 2 }, 3);
    ts_ok(fy_empty(ctx->device, FY_DTYPE_I64, FY_DIMS(2, 2), &x));
    assert_int_equal(ts_info(x).nelem, 4);
    ts_fails(fy_full(ctx->device, FY_DTYPE_U8, FY_DIMS(2), 256, &x), INVALID_ARGUMENT);
    assert_null(x);
    ts_fails(fy_full(ctx->device, FY_DTYPE_I32, FY_DIMS(2), 0.5, &x), INVALID_ARGUMENT);
    ts_fails(fy_full(ctx->device, FY_DTYPE_BOOL, FY_DIMS(2), 2, &x), INVALID_ARGUMENT);
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_U8, FY_DIMS(2), &x));
    ts_fails(fy_fill(x, -1), INVALID_ARGUMENT);
    ts_fails(fy_fill(x, NAN), INVALID_ARGUMENT);
    ts_fails(fy_arange(ctx->device, FY_DTYPE_U8, 250, 1, 10, &x), INVALID_ARGUMENT);
    assert_null(x);
    ts_fails(fy_arange(ctx->device, FY_DTYPE_F32, 0, 1, -1, &x), INVALID_ARGUMENT);
}

TS_DEVICE_TEST(bad_axes)
{
    fy_tensor_t *a = ts_iota(ctx->device, FY_DIMS(3, 4), 1), *x = a;
    ts_fails(fy_sum(a, 1, (int[]){ 2 }, 0, &x), INVALID_ARGUMENT);
    assert_null(x);
    ts_fails(fy_sum(a, 1, (int[]){ -3 }, 0, &x), INVALID_ARGUMENT);
    ts_fails(fy_sum(a, 2, (int[]){ 1, -1 }, 0, &x), INVALID_ARGUMENT); /* the same axis twice */
    ts_fails(fy_softmax(a, 5, &x), INVALID_ARGUMENT);
    ts_fails(fy_argmax(a, -3, 0, &x), INVALID_ARGUMENT);
    ts_fails(fy_concat(0, NULL, 0, &x), INVALID_ARGUMENT);
    ts_fails(fy_add(a, NULL, &x), INVALID_ARGUMENT);
    ts_fails(fy_add(NULL, a, &x), INVALID_ARGUMENT);
    ts_fails(fy_fill(NULL, 0), INVALID_ARGUMENT);
    ts_fails(fy_add(a, a, NULL), INVALID_ARGUMENT);
}

/* More operands than a record is likely to store inline. */
TS_DEVICE_TEST(very_many_sources)
{
    enum { MOST = 300 };
    fy_tensor_t *src[MOST], *all;
    float want[MOST];
    for (int i = 0; i < MOST; i++) {
        want[i] = (float)i;
        ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(1), i, &src[i]));
    }
    for (int n = 1; n <= MOST; n = n * 3 / 2 + 1) {
        ts_ok(fy_concat((size_t)n, src, 0, &all));
        ts_expect_f32(all, want, (size_t)n);
    }
    fy_tensor_t *host = ts_host_f32(FY_DIMS(1), (float[]){ 0 }), *none = host;
    if (!ctx->is_host) {
        src[200] = host; /* the last of many is checked too */
        ts_fails_with(fy_concat(MOST, src, 0, &none), DEVICE_MISMATCH, "src200");
        assert_null(none);
    }
}

/* A chain whose every op depends on the one before; the sources are destroyed early. */
TS_DEVICE_TEST(chains_keep_their_order)
{
    fy_tensor_t *x;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F64, FY_DIMS(10), 1, &x));
    double want = 1;
    for (int i = 0; i < 300; i++) {
        fy_tensor_t *y, *z;
        ts_ok(fy_affine(x, 0.5, i, &y));
        ts_ok(fy_add(y, x, &z));
        fy_tensor_destroy(x);
        fy_tensor_destroy(y);
        x = z;
        want = (0.5 * want + i) + want;
        if (i % 50 == 49) {
            ts_ok(fy_affine(x, 1.0 / 1048576, 0, &y));
            want /= 1048576;
            fy_tensor_destroy(x);
            x = y;
        }
    }
    double got[10];
    ts_read(x, got, sizeof got);
    assert_true(fabs(got[9] - want) <= 1e-9 * fabs(want));
}

/* ---- a registered op ---- */

typedef struct hypot_attrs {
    double scale;
} hypot_attrs_t;

static fy_status_t hypot_kernel(const fy_launch_t *launch, void *stream)
{
    const hypot_attrs_t *attrs = launch->attrs;
    if (stream)
        return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__,
                            "test_hypot: no native stream on host and sim");
    for (uint64_t k = 0; k < launch->nelem; k++) {
        int64_t coords[FY_MAX_RANK], at[3] = { 0 };
        ts_unravel(k, launch->dst[0].rank, launch->dst[0].dims, coords);
        for (int axis = 0; axis < launch->dst[0].rank; axis++) {
            at[0] += coords[axis] * launch->src[0].strides[axis];
            at[1] += coords[axis] * launch->src[1].strides[axis];
            at[2] += coords[axis] * launch->dst[0].strides[axis];
        }
        float a = ((float *)launch->src[0].data)[at[0]], b = ((float *)launch->src[1].data)[at[1]];
        ((float *)launch->dst[0].data)[at[2]] = (float)attrs->scale * *(float *)launch->user *
                                                hypotf(a, b);
    }
    return FY_STATUS_OK;
}

TS_DEVICE_TEST(registered_ops_run)
{
    static float factor = 2;
    static fy_op_t op = FY_OP_NONE;
    const fy_attr_field_t field = { "scale", FY_ATTR_F64, 0, 1 };
    const fy_op_kernel_t kernel = { "host", hypot_kernel, NULL };
    fy_op_def_t def = {
        .struct_size = sizeof def, .nkernels = 1, .kernels = &kernel, .user = &factor
    };
    fy_op_info_t info = { .struct_size = sizeof info,
                          .name = "test_hypot",
                          .summary = "scale * |(a, b)|",
                          .nsrc_min = 2,
                          .nsrc_max = 2,
                          .ndst = 1,
                          .nfields = 1,
                          .flags = FY_OP_ELEMENTWISE,
                          .dtypes = FY_DTYPE_BIT(FY_DTYPE_F32),
                          .attrs_nbytes = sizeof(hypot_attrs_t),
                          .fields = &field };
    def.info = &info;
    if (op == FY_OP_NONE)
        ts_ok(fy_op_register(&def, &op)); /* it stays registered until the process ends */
    assert_ptr_equal(fy_op_find("test_hypot"), fy_op_get(op));
    assert_int_equal(fy_op_get(op)->op, op);
    assert_string_equal(fy_op_get(op)->fields[0].name, "scale");
    fy_op_t again = 7;
    ts_fails(fy_op_register(&def, &again), INVALID_ARGUMENT); /* the name is taken */
    info.name = "Bad Name";
    ts_fails(fy_op_register(&def, &again), INVALID_ARGUMENT);
    info.name = "test_no_kernel";
    def.nkernels = 0;
    ts_fails(fy_op_register(&def, &again), INVALID_ARGUMENT);
    def.nkernels = 1;
    fy_attr_field_t outside = { "scale", FY_ATTR_F64, 4, 1 };
    info.fields = &outside;
    ts_fails(fy_op_register(&def, &again), INVALID_ARGUMENT);

    fy_tensor_t *a = ts_f32(ctx->device, FY_DIMS(2, 2), (float[]){ 3, 6, 5, 8 }),
                *b = ts_f32(ctx->device, FY_DIMS(2), (float[]){ 4, 8 }), *turned;
    ts_ok(fy_transpose(a, NULL, &turned)); /* 3 5 / 6 8 against 4 8 */
    fy_tensor_t *pair[2] = { turned, b };
    float want[4] = { 10, 2 * hypotf(5, 8), 2 * hypotf(6, 4), 2 * hypotf(8, 8) };
    ts_expect_f32(call("test_hypot", 2, pair, NULL), want, 4);
    want[0] = 15;
    for (int i = 1; i < 4; i++)
        want[i] = 1.5f * 2 * (float[]){ 0, hypotf(5, 8), hypotf(6, 4), hypotf(8, 8) }[i];
    fy_tensor_t *scaled = call("test_hypot", 2, pair, &(hypot_attrs_t){ 1.5 });
    float got[4];
    ts_read(scaled, got, sizeof got);
    for (int i = 0; i < 4; i++) assert_true(fabsf(got[i] - want[i]) < 1e-4f);
}

static const ts_exclusion_t k_exclusions[] = {
    { "cuda", "registered_ops_run", "the op has a host kernel only, which serves host and sim" },
    { NULL, NULL, NULL },
};

TS_SUITE(.exclusions = k_exclusions);
