/* Kernels of registered ops that refuse or fail, on every device and in every order. A refusal by
 * the `supports` hook refuses the call and changes nothing. A failure of the kernel is a fault with
 * status KERNEL_FAILED, and the device continues.
 * Not here: definitions that fy_op_register accepts (tests/unit/ops/test_register.c), running out
 * of memory meanwhile (tests/faults/test_kernel.c). */
#include <pthread.h>

#include "tests/support/harness.h"

typedef struct picky_attrs {
    double number; /* appears in the kernel's text */
    /* the status that the kernel returns, and whether it has no text; odd: the hook refuses */
    int32_t status, wordless, odd;
} picky_attrs_t;
static const fy_attr_field_t picky_fields[] = {
    { "number", FY_ATTR_F64, offsetof(picky_attrs_t, number), 0 },
    { "status", FY_ATTR_I32, offsetof(picky_attrs_t, status), 0 },
    { "wordless", FY_ATTR_BOOL32, offsetof(picky_attrs_t, wordless), 0 },
    { "odd", FY_ATTR_BOOL32, offsetof(picky_attrs_t, odd), 0 }
};

static int asked, ran, user_data;
static pthread_t asked_on;
static fy_launch_t asked_with;
static fy_desc_t asked_dst, asked_src;

static fy_status_t takes(const fy_launch_t *launch)
{
    const picky_attrs_t *attrs = launch->attrs;
    asked++;
    asked_on = pthread_self();
    asked_with = *launch;
    asked_dst = launch->dst[0];
    asked_src = launch->src[0];
    if (attrs->odd && attrs->wordless) return FY_STATUS_UNSUPPORTED;
    if (attrs->odd)
        return fy_error_set(FY_STATUS_INVALID_ARGUMENT, __FILE__, __LINE__, "number %g is odd",
                            attrs->number);
    if (launch->flags & FY_LAUNCH_DENSE) return FY_STATUS_OK;
    return fy_error_set(FY_STATUS_UNSUPPORTED, __FILE__, __LINE__, "dense operands only");
}

/* dst = src + dst, in memory that the host can access. */
static fy_status_t picky(const fy_launch_t *launch, void *stream)
{
    const picky_attrs_t *attrs = launch->attrs;
    const fy_status_t status = (fy_status_t)attrs->status;
    (void)stream;
    ran++;
    if (launch->user != &user_data || launch->fault)
        return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "not my launch");
    if (status != FY_STATUS_OK && attrs->wordless) return status;
    if (status != FY_STATUS_OK)
        return fy_error_set(status, __FILE__, __LINE__, "number %g is too much", attrs->number);
    for (uint64_t i = 0; i < launch->nelem; i++)
        ((float *)launch->dst[0].data)[i] += ((const float *)launch->src[0].data)[i];
    return FY_STATUS_OK;
}

static fy_op_t picky_op(void)
{
    static fy_op_t op = FY_OP_NONE;
    const fy_op_kernel_t kernels[] = { { "host", picky, takes }, { "cuda", picky, takes } };
    fy_op_def_t def = {
        .struct_size = sizeof def, .nkernels = 2, .kernels = kernels, .user = &user_data
    };
    def.info = &(fy_op_info_t){ .struct_size = sizeof *def.info,
                                .name = "test.picky",
                                .summary = "dst += src",
                                .nsrc_min = 1,
                                .nsrc_max = 1,
                                .ndst = 1,
                                .nfields = 4,
                                .flags = FY_OP_ELEMENTWISE | FY_OP_IN_PLACE,
                                .inout = 1,
                                .dtypes = FY_DTYPE_BIT(FY_DTYPE_F32),
                                .attrs_nbytes = sizeof(picky_attrs_t),
                                .fields = picky_fields };
    if (op == FY_OP_NONE) ts_ok(fy_op_register(&def, &op));
    return op;
}

static fy_status_t call(fy_tensor_t *dst, fy_tensor_t *src, picky_attrs_t attrs)
{
    return fy_op_call(picky_op(), 1, &src, &attrs, sizeof attrs, 1, &dst);
}

static void fails_in(fy_tensor_t *dst, fy_tensor_t *src, double number)
{
    ts_ok(call(dst, src, (picky_attrs_t){ .number = number, .status = FY_STATUS_UNSUPPORTED }));
}

static fy_tensor_t *ones(ts_ctx_t *ctx) { return ts_full(ctx->device, FY_DIMS(3, 2), 1); }

static const float k_ones[] = { 1, 1, 1, 1, 1, 1 };

/* ---- the hook ---- */

TS_DEVICE_TEST(a_refusal_changes_nothing)
{
    fy_tensor_t *x = ones(ctx), *y = ones(ctx), *row, *wide;
    ts_ok(fy_slice(x, 0, 0, 1, &row));
    ts_ok(fy_broadcast(row, FY_DIMS(3, 2), &wide));
    const fy_ledger_totals_t before = ts_ledger(NULL);
    const uint64_t version = ts_version(y), live = ts_live(ctx->device);
    const int kernels = ran, hooks = asked;
    ts_fails_with(call(y, wide, (picky_attrs_t){ 0 }), UNSUPPORTED,
                  "test.picky: its kernel does not take this call on ", fy_device_name(ctx->device),
                  ": dense operands only\n  src0 [3x2 f32, strides 0 1], dst0 [3x2 f32]");
    assert_int_equal(asked, hooks + 1);
    assert_true(pthread_equal(asked_on, pthread_self()));
    ts_expect_quiet_since(&before, "test.picky");
    assert_int_equal(ts_version(y), version);
    assert_int_equal(ts_live(ctx->device), live);
    ts_expect_f32(y, k_ones, 6);
    assert_int_equal(ran, kernels);
}

TS_DEVICE_TEST(the_hook_gets_the_call)
{
    fy_tensor_t *x = ones(ctx), *y = ones(ctx);
    /* For every status of the hook, the call is UNSUPPORTED: the hook's status says nothing about
     * the caller. */
    ts_fails_with(call(y, x, (picky_attrs_t){ .number = 7, .odd = 1 }), UNSUPPORTED,
                  "number 7 is odd");
    assert_int_equal(asked_with.op, picky_op());
    assert_ptr_equal(asked_with.user, &user_data);
    assert_int_equal(asked_with.flags, FY_LAUNCH_DENSE);
    assert_int_equal(asked_with.nelem, 6);
    assert_null(asked_with.fault);
    assert_int_equal(asked_dst.rank, 2);
    assert_int_equal(asked_dst.dims[0], 3);
    assert_int_equal(asked_src.strides[0], 2);
    assert_int_equal(asked_src.dtype, FY_DTYPE_F32);
    /* a text that must not be used as the hook's */
    ts_fails(fy_matmul(x, x, &y), SHAPE_MISMATCH);
    ts_fails_with(call(x, x, (picky_attrs_t){ .odd = 1, .wordless = 1 }), UNSUPPORTED,
                  "the kernel gives no reason");
}

TS_DEVICE_TEST(a_recording_calls_the_hook_too)
{
    fy_tensor_t *x = ones(ctx), *y = ones(ctx);
    fy_graph_t *graph;
    ts_ok(fy_graph_begin(ctx->device));
    ts_fails(call(y, x, (picky_attrs_t){ .number = 3, .odd = 1 }), UNSUPPORTED);
    ts_fails_with(fy_graph_end(&graph), UNSUPPORTED, "number 3 is odd");
    ts_expect_f32(y, k_ones, 6);
}

/* ---- the kernel ---- */

TS_DEVICE_TEST(a_failure_is_a_fault_with_the_kernels_text)
{
    fy_tensor_t *x = ones(ctx);
    for (int status = 1; status <= FY_STATUS_KERNEL_FAILED; status++) {
        if (status == FY_STATUS_DEVICE_LOST) continue;
        fy_tensor_t *y = ones(ctx), *more;
        ts_ok(call(y, x, (picky_attrs_t){ .number = status, .status = status }));
        ts_ok(fy_neg(y, &more));
        char want[96];
        snprintf(want, sizeof want, "test.picky: its kernel failed with %s: number %d is too much",
                 fy_status_name((fy_status_t)status), status);
        /* never the kernel's status: a wait's TIMEOUT or BUSY mean something else */
        ts_fails_with(ts_try_download(y), KERNEL_FAILED, want);
        ts_fails_with(ts_try_download(more), KERNEL_FAILED, want);
    }
    ts_expect_f32(x, k_ones, 6);
}

TS_DEVICE_TEST(a_kernel_without_a_text)
{
    fy_tensor_t *x = ones(ctx), *y = ones(ctx);
    ts_fails(fy_matmul(x, x, &x), SHAPE_MISMATCH);
    ts_ok(call(y, x = ones(ctx), (picky_attrs_t){ .status = FY_STATUS_IO, .wordless = 1 }));
    ts_fails_with(ts_try_download(y), KERNEL_FAILED,
                  "test.picky: its kernel failed with IO: the kernel gives no reason");
}

TS_DEVICE_TEST(the_device_goes_on)
{
    fy_tensor_t *x = ones(ctx), *y = ones(ctx), *z;
    ts_ok(fy_add(x, x, &z));
    fails_in(y, x, 1);
    ts_fails(fy_device_wait(ctx->device, FY_FOREVER), KERNEL_FAILED); /* once */
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    ts_expect_f32(z, (float[]){ 2, 2, 2, 2, 2, 2 }, 6);
    ts_fails(ts_try_download(y), KERNEL_FAILED);
    ts_ok(fy_copy(y, z)); /* a complete overwrite clears the poison */
    ts_expect_f32(y, (float[]){ 2, 2, 2, 2, 2, 2 }, 6);
    /* this kernel computes in memory that the host can access */
    if (strncmp(ctx->spec, "cuda", 4) == 0) return;
    ts_ok(call(y, x, (picky_attrs_t){ 0 }));
    ts_expect_f32(y, (float[]){ 3, 3, 3, 3, 3, 3 }, 6);
}

TS_DEVICE_TEST(the_ticket_reports_the_failure)
{
    fy_tensor_t *x = ones(ctx), *y = ones(ctx);
    fails_in(y, x, 1);
    const fy_ticket_t ticket = fy_tensor_ticket(y);
    ts_fails(fy_ticket_wait(ticket, FY_FOREVER), KERNEL_FAILED);
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_FAILED);
}

/* More requests than there are flags, and nearly as many failures; each has its text. */
TS_DEVICE_TEST(many_at_once)
{
    enum { MANY = 90 };
    fy_tensor_t *x = ones(ctx), *y[MANY];
    for (int i = 0; i < MANY; i++) {
        y[i] = ones(ctx);
        if (i % 3)
            fails_in(y[i], x, i);
        else
            ts_ok(fy_axpy(y[i], 2, x));
    }
    for (int i = MANY - 1; i >= 0; i--) {
        char want[64];
        snprintf(want, sizeof want, "number %d is too much", i);
        if (i % 3 == 0) {
            ts_expect_f32(y[i], (float[]){ 3, 3, 3, 3, 3, 3 }, 6);
            continue;
        }
        ts_fails_with(ts_try_download(y[i]), KERNEL_FAILED, want);
    }
}

TS_DEVICE_TEST(in_a_graph)
{
    fy_tensor_t *x = ones(ctx), *y = ones(ctx), *z = ones(ctx), *sum;
    ts_ok(fy_graph_begin(ctx->device));
    fails_in(y, x, 5);
    ts_ok(fy_add(y, x, &sum));
    ts_ok(fy_axpy(z, 1, x));
    fy_graph_t *graph = ts_graph_end();
    for (int i = 0; i < 3; i++) {
        ts_ok(fy_copy(y, x));
        fy_status_t status = fy_graph_replay(graph, NULL);
        /* A device that runs kernels inside the call detects the failure there; the replay then
         * stops. */
        if (status == FY_STATUS_OK) {
            ts_expect_f32(z,
                          (float[]){ 2 + (float)i, 2 + (float)i, 2 + (float)i, 2 + (float)i,
                                     2 + (float)i, 2 + (float)i },
                          6);
            status = ts_try_download(sum);
        }
        ts_fails_with(status, KERNEL_FAILED,
                      "test.picky: its kernel failed with UNSUPPORTED: number 5 is too much");
        ts_fails(ts_try_download(y), KERNEL_FAILED);
        ts_fails(ts_try_download(sum), KERNEL_FAILED);
    }
    fy_graph_destroy(graph);
    (void)!fy_device_wait(ctx->device, FY_FOREVER);
    ts_expect_f32(x, k_ones, 6);
}

static const ts_exclusion_t k_exclusions[] = {
    { "host", "the_ticket_reports_the_failure",
      "a host tensor's ticket is {0, 0}: its request ran inside the call; map and download tell" },
    { NULL, NULL, NULL },
};

TS_SUITE(.exclusions = k_exclusions);
