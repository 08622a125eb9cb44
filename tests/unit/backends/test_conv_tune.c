/* autotune=on of the host: the first calls of a shape are timed, later ones are not, in all of the
 * process; the table is bounded, and may lack its memory. */
#include <math.h>

#include "backends/kernels/conv_tune.h"
#include "tests/support/harness.h"
#include "tests/support/host_memory.h"

static void open_host(const char *text)
{
    fy_device_t *host;
    ts_ok(fy_device_open(text, &host));
    fy_device_close(host);
}

static void forget_all(void) { open_host("host?autotune=off"); }

/* The first test: the table exists from the first use on. */
TS_TEST(without_memory_for_the_table_nothing_is_timed)
{
    const fy__conv_shape_t shape = { .op = FY_OP_CONV2D };
    ts_fail_allocation(0);
    fy__conv_tune_measure(1);
    assert_true(ts_allocation_failed());
    ts_fail_allocation(0);
    const fy__tune_ticket_t ticket = fy__conv_tune_begin(&shape, 3u);
    assert_true(ts_allocation_failed());
    ts_fail_allocation(-1);
    assert_true(ticket.way == FY__TUNE_FIXED && !ticket.measured);
    assert_int_equal(fy__conv_tune_facts().shapes, 0);
    forget_all();
}

/* ---- calls ---- */

enum { Y = 2 * 12 * 12 * 16 };

static fy_dtype_t dtype = FY_DTYPE_F32;

static void convolve(float out[Y])
{
    fy_tensor_t *rng, *x, *w, *y;
    const fy_conv2d_attrs_t attrs = { .stride_h = 1,
                                      .stride_w = 1,
                                      .padding_h = 1,
                                      .padding_w = 1,
                                      .dilation_h = 1,
                                      .dilation_w = 1,
                                      .groups = 1 };
    const fy_scope_t scope = fy_scope_begin("convolve");
    ts_ok(fy_rng_create(fy_device_host(), 1, &rng));
    ts_ok(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(2, 12, 12, 8), -1, 1, &x));
    ts_ok(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(16, 3, 3, 8), -1, 1, &w));
    ts_ok(fy_cast(x, dtype, &x));
    ts_ok(fy_cast(w, dtype, &w));
    ts_ok(fy_conv2d(x, w, NULL, &attrs, &y));
    ts_ok(fy_cast(y, FY_DTYPE_F32, &y));
    ts_read(y, out, Y * sizeof *out);
    fy_scope_end(scope, 0, NULL);
}

TS_TEST(the_first_calls_are_timed)
{
    float fixed[Y], tuned[Y], again[Y];
    forget_all();
    convolve(fixed);
    const uint64_t before = fy__conv_tune_facts().timed;
    convolve(fixed);
    assert_int_equal(fy__conv_tune_facts().timed, before); /* off by default */
    open_host("host?autotune=on");
    for (int i = 0; i < 3 * FY__TUNE_WAYS; i++) {
        convolve(tuned); /* each call's result is right, whatever the way */
        for (int k = 0; k < Y; k++) assert_true(fabsf(tuned[k] - fixed[k]) < 1e-4f);
    }
    const fy__tune_facts_t settled = fy__conv_tune_facts();
    assert_true(settled.shapes == 1 && settled.timed > before &&
                settled.timed <= before + 3 * FY__TUNE_WAYS);
    convolve(tuned);
    convolve(again);
    assert_int_equal(fy__conv_tune_facts().timed, settled.timed);
    assert_memory_equal(tuned, again, sizeof tuned);
    open_host("host?autotune=on"); /* choices are of the process, not of a handle */
    convolve(again);
    assert_int_equal(fy__conv_tune_facts().timed, settled.timed);
    assert_memory_equal(tuned, again, sizeof tuned);
    forget_all();
    assert_int_equal(fy__conv_tune_facts().shapes, 0);
    convolve(again);
    assert_memory_equal(fixed, again, sizeof fixed);
    assert_int_equal(fy__conv_tune_facts().timed, settled.timed);
}

/* f16 and bf16 are other problems than f32, with separate choices. */
TS_TEST(half_precision_is_timed)
{
    const fy_dtype_t dtypes[] = { FY_DTYPE_F16, FY_DTYPE_BF16 };
    const float ulp[] = { 1.f / 1024, 1.f / 128 };
    float fixed[Y], tuned[Y], again[Y];
    for (int k = 0; k < 2; k++) {
        dtype = dtypes[k];
        forget_all();
        convolve(fixed);
        open_host("host?autotune=on");
        for (int i = 0; i < 3 * FY__TUNE_WAYS; i++) {
            convolve(tuned); /* sums in f32 or more, one rounding: at most one step apart */
            for (int j = 0; j < Y; j++)
                assert_true(fabsf(tuned[j] - fixed[j]) <= ulp[k] * fmaxf(fabsf(fixed[j]), 0.01f));
        }
        const fy__tune_facts_t settled = fy__conv_tune_facts();
        convolve(tuned);
        convolve(again);
        assert_true(fy__conv_tune_facts().timed == settled.timed && settled.shapes == 1);
        assert_memory_equal(tuned, again, sizeof tuned);
        const fy_dtype_t others[] = { dtypes[!k], FY_DTYPE_F32 };
        for (unsigned i = 0; i < 2; i++) {
            dtype = others[i];
            convolve(again);
            assert_int_equal(fy__conv_tune_facts().timed, settled.timed + i + 1);
        }
    }
    forget_all();
}

TS_TEST(wrong_options_are_refused)
{
    fy_device_t *device;
    ts_fails_with(fy_device_open("sim:3?autotune=on", &device), INVALID_ARGUMENT,
                  "the same bits in every run");
    ts_fails_with(fy_device_open("sim:3?tune=x", &device), INVALID_ARGUMENT,
                  "unknown option tune=x");
    ts_fails_with(fy_device_open("host?autotune=maybe", &device), INVALID_ARGUMENT,
                  "autotune may be on or off");
    ts_fails_with(fy_device_open("host?autotune=on&tune=x", &device), INVALID_ARGUMENT,
                  "unknown option 'tune'; the host takes threads and autotune only");
    assert_false(fy__conv_tune_facts().measures); /* nothing has changed */
}

/* ---- the table ---- */

/* Runs shape number `n` until it is settled; ways above FIXED fail. */
static void settle(int64_t n)
{
    const fy__conv_shape_t shape = { .op = FY_OP_CONV2D, .n = n };
    for (int i = 0; i < 3 * FY__TUNE_WAYS; i++) {
        const fy__tune_ticket_t ticket = fy__conv_tune_begin(&shape, 3u);
        assert_true(ticket.way == FY__TUNE_FIXED || ticket.way == FY__TUNE_PLAIN);
        fy__conv_tune_end(&ticket, ticket.way == FY__TUNE_FIXED);
    }
}

TS_TEST(the_table_is_bounded)
{
    const fy__conv_shape_t last = { .op = FY_OP_CONV2D, .n = FY__TUNE_CAPACITY + 99 };
    forget_all();
    fy__conv_tune_measure(1);
    for (int64_t n = 0; n < FY__TUNE_CAPACITY + 100; n++) settle(n);
    assert_int_equal(fy__conv_tune_facts().shapes, FY__TUNE_CAPACITY);
    assert_int_equal(fy__conv_tune_way(&last), FY__TUNE_FIXED);
    assert_int_equal(fy__conv_tune_way(&(fy__conv_shape_t){ .op = FY_OP_CONV2D }), -1);
    forget_all();
}

TS_SUITE();
