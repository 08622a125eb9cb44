/* An allocator of the program (fy_device_open_with) on a simulated device: it sees every byte of
 * device memory and of page-locked memory; each of its calls fails once; limits and figures stay
 * exact. Over the CUDA plugin: tests/unit/cuda/test_hooks.c. */
#include <unistd.h>

#include "tests/support/harness.h"
#include "tests/support/own_allocator.h"

enum { KIB = 1024, MIB = 1024 * KIB, N = 100000 };

static own_allocator_t own;

/* Ferry's figures are the allocator's. */
static void expect_same_bytes(const fy_device_t *device)
{
    const fy_memory_stats_t stats = ts_memory(device, NULL);
    const fy_memory_stats_t pinned = ts_memory_pinned(device);
    assert_int_equal(stats.reserved, own.live[OWN_DEVICE]);
    assert_int_equal(pinned.reserved, own.live[OWN_PINNED]);
    /* the device may refuse a segment that the allocator gave */
    assert_true(stats.peak_reserved <= own.peak[OWN_DEVICE]);
    assert_true(pinned.peak_reserved <= own.peak[OWN_PINNED]);
}

static void expect_same_peaks(const fy_device_t *device)
{
    const fy_memory_stats_t pinned = ts_memory_pinned(device);
    assert_int_equal(ts_memory(device, NULL).peak_reserved, own.peak[OWN_DEVICE]);
    assert_int_equal(pinned.peak_reserved, own.peak[OWN_PINNED]);
}

static void expect_returned(void)
{
    assert_int_equal(own.live[OWN_DEVICE], 0);
    assert_int_equal(own.live[OWN_PINNED], 0);
    assert_int_equal(own.errors, 0);
}

static fy_device_t *open_own(const char *spec)
{
    const fy_device_options_t options = own_options(&own);
    fy_device_t *device;
    ts_ok(fy_device_open_with(spec, &options, &device));
    return device;
}

static void close_own(fy_device_t *device)
{
    fy_device_close(device);
    expect_returned();
}

/* Uploads, computes and downloads; *out is 3 times the sum of 0 .. 9. */
static fy_status_t run(fy_device_t *device, double *out)
{
    fy_tensor_t *host, *x, *pinned, *y, *sum, *large;
    fy_download_t *download;
    void *bytes;
    FY_TRY(fy_zeros(fy_device_host(), FY_DTYPE_F32, FY_DIMS(N), &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_WRITE, &bytes));
    for (int i = 0; i < 10; i++) ((float *)bytes)[i] = (float)i;
    FY_TRY(fy_tensor_upload(host, device, NULL, &x));
    FY_TRY(fy_tensor_create_pinned(device, FY_DTYPE_F32, FY_DIMS(N), &pinned));
    FY_TRY(fy_tensor_map(pinned, FY_ACCESS_WRITE, &bytes));
    memset(bytes, 0, N * sizeof(float));
    FY_TRY(fy_tensor_upload(pinned, device, NULL, &y));
    FY_TRY(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(3 * MIB), &large)); /* a dedicated segment */
    FY_TRY(fy_axpy(y, 3, x));
    FY_TRY(fy_sum(y, 0, NULL, 0, &sum));
    FY_TRY(fy_tensor_download(sum, NULL, &download));
    return fy_download_wait_f64(download, FY_FOREVER, out);
}

static fy_status_t run_in_scope(fy_device_t *device)
{
    double sum = 0;
    const fy_scope_t scope = fy_scope_begin("run");
    const fy_status_t status = run(device, &sum);
    if (status == FY_STATUS_OK) {
        assert_true(sum == 135);
        expect_same_bytes(device);
    }
    fy_scope_end(scope, 0, NULL);
    return status;
}

TS_TEST(it_sees_every_byte)
{
    static const char *const specs[] = { "sim:9", "sim:9?numerics=on&order=lazy",
                                         "sim:9?segments=virtual&debug=guard",
                                         "sim:9?limit=8MiB&pinned=4MiB" };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        fy_device_t *device = open_own(specs[i]);
        expect_same_bytes(device); /* of the device itself: the page of its fault words */
        assert_true(own.live[OWN_PINNED] > 0);
        for (int k = 0; k < 3; k++) {
            ts_ok(run_in_scope(device));
            expect_same_bytes(device);
            expect_same_peaks(device);
        }
        ts_ok(fy_memory_trim(device, 0, NULL));
        expect_same_bytes(device);
        close_own(device);
    }
}

/* Without numerics a device has no bytes; the program's do not change. */
TS_TEST(a_device_without_numerics_leaves_the_bytes_alone)
{
    fy_device_t *device = open_own("sim:9?numerics=off");
    fy_tensor_t *x = ts_full(device, FY_DIMS(N), 0);
    expect_same_bytes(device);
    fy_tensor_destroy(x);
    close_own(device);
}

/* ---- failures ---- */

TS_TEST(a_refusal_is_out_of_memory)
{
    fy_device_t *device = open_own("sim:9");
    fy_tensor_t *x = ts_zeros(device, FY_DTYPE_U8, FY_DIMS(4 * MIB)), *y;
    own.fail_at = own.fail_ever = 1;
    ts_fails_with(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(4 * MIB), &y), OUT_OF_MEMORY,
                  "the program's allocator (fy_device_options_t) has no more",
                  "Would help: free 4194304 live bytes");
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_DEVICE_FULL);
    ts_fails(fy_memory_reserve(device, 64 * MIB), OUT_OF_MEMORY);
    ts_fails_with(fy_tensor_create_pinned(device, FY_DTYPE_U8, FY_DIMS(4 * MIB), &y), PINNED_LIMIT,
                  "the program's allocator (fy_device_options_t) has no more");
    fy_tensor_destroy(x);
    ts_ok(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(4 * MIB), &y)); /* the cached segment */
    expect_same_bytes(device);
    fy_tensor_destroy(y);
    close_own(device);
}

/* The reason is of this refusal, not of an earlier one. */
TS_TEST(a_limit_is_not_blamed_on_the_allocator)
{
    fy_device_t *device = open_own("sim:9?limit=8MiB");
    fy_tensor_t *x;
    own.fail_at = own.calls + 1;
    own.fail_ever = 1;
    ts_fails(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(4 * MIB), &x), OUT_OF_MEMORY);
    const int calls = own.calls;
    ts_fails_with(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(9 * MIB), &x), OUT_OF_MEMORY,
                  "more than the limit leaves");
    assert_int_equal(own.calls, calls); /* not asked */
    fy_device_close(device);
    /* more than the simulated device has: the allocator gets its block back */
    device = open_own("sim:9?capacity=8MiB");
    ts_fails(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(9 * MIB), &x), OUT_OF_MEMORY);
    expect_same_bytes(device);
    close_own(device);
}

/* Each call of the allocator fails once, or from then on. */
TS_TEST(every_call_fails_once)
{
    for (int ever = 0; ever < 2; ever++) {
        int has_failed = 1;
        for (int n = 1; has_failed; n++) {
            const fy_device_options_t options = own_options(&own);
            fy_device_t *device = NULL;
            own.fail_at = n;
            own.fail_ever = ever;
            fy_status_t status = fy_device_open_with("sim:9", &options, &device);
            if (status == FY_STATUS_OK) status = run_in_scope(device);
            has_failed = own.calls >= n;
            if (status != FY_STATUS_OK && status != FY_STATUS_OUT_OF_MEMORY &&
                status != FY_STATUS_PINNED_LIMIT)
                fail_msg("call %d: %s", n, fy_error_get()->text);
            assert_true(has_failed || status == FY_STATUS_OK);
            own.fail_at = 0;
            if (device) {
                expect_same_bytes(device);
                ts_ok(run_in_scope(device)); /* still usable */
                fy_device_close(device);
            } else
                ts_text_has("the program's allocator returned NULL for 4096 bytes");
            expect_returned();
            assert_true(n < 100);
        }
    }
}

/* The device refuses a segment after the allocator gave it. */
TS_TEST(a_refused_segment_is_returned)
{
    static const char *const specs[] = { "sim:9?faults=alloc@1", "sim:9?faults=pin@2" };
    for (size_t i = 0; i < 2; i++) {
        fy_device_t *device = open_own(specs[i]);
        (void)run_in_scope(device);
        expect_same_bytes(device);
        ts_ok(run_in_scope(device));
        close_own(device);
    }
}

TS_TEST(a_misaligned_address_is_refused)
{
    const fy_device_options_t options = own_options(&own);
    fy_device_t *device;
    fy_tensor_t *x;
    own.shift = 8;
    ts_fails_with(fy_device_open_with("sim:9", &options, &device), INVALID_ARGUMENT,
                  "the address must be a multiple of 64");
    expect_returned();
    own.shift = 0;
    ts_ok(fy_device_open_with("sim:9", &options, &device));
    own.shift = 8;
    ts_fails_with(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(4), &x), INVALID_ARGUMENT,
                  "the address must be a multiple of");
    expect_same_bytes(device);
    own.shift = 0;
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(4), &x));
    fy_tensor_destroy(x);
    close_own(device);
}

/* ---- the options ---- */

TS_TEST(options_are_those_of_the_first_open)
{
    own_allocator_t second;
    fy_device_options_t options = own_options(&own), other = own_options(&second), half = options,
                        none = FY_DEVICE_OPTIONS_INIT;
    fy_device_t *device, *again;
    half.free_device = NULL;
    ts_fails_with(fy_device_open_with("sim:9", &half, &device), INVALID_ARGUMENT,
                  "options->free_device is NULL");
    half = none;
    half.free_pinned = own_free_pinned;
    ts_fails_with(fy_device_open_with("sim:9", &half, &device), INVALID_ARGUMENT,
                  "options->alloc_pinned is NULL");
    ts_fails_with(fy_device_open_with("host", &options, &device), UNSUPPORTED, "fy_tensor_wrap");
    assert_null(device);
    ts_ok(fy_device_open_with("host", &none, &device));
    ts_ok(fy_device_open_with("sim:9", &options, &device));
    ts_fails_with(fy_device_open_with("sim:9", &other, &again), INVALID_ARGUMENT,
                  "sim:9 is open with another allocator");
    ts_ok(fy_device_open_with("sim:9", &options, &again));
    fy_device_close(again);
    ts_ok(fy_device_open("sim:9", &again));
    fy_device_close(again);
    ts_ok(fy_device_open_with("sim:9", &none, &again));
    fy_device_close(again);
    close_own(device);
    ts_ok(fy_device_open("sim:9", &device)); /* the next first open has no allocator */
    ts_fails_with(fy_device_open_with("sim:9", &options, &again), INVALID_ARGUMENT,
                  "no allocator of yours");
    const fy_scope_t scope = fy_scope_begin("run");
    ts_ok(run(device, &(double){ 0 }));
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    assert_int_equal(own.errors, 0);
}

/* One kind alone: the other memory is Ferry's. */
TS_TEST(one_pair_is_enough)
{
    for (int kind = 0; kind < OWN_KINDS; kind++) {
        fy_device_options_t options = own_options(&own);
        fy_device_t *device;
        if (kind == OWN_DEVICE)
            options.alloc_pinned = NULL, options.free_pinned = NULL;
        else
            options.alloc_device = NULL, options.free_device = NULL;
        ts_ok(fy_device_open_with("sim:9", &options, &device));
        double sum;
        const fy_scope_t scope = fy_scope_begin("run");
        ts_ok(run(device, &sum));
        assert_true(sum == 135);
        assert_true(own.live[kind] > 0 && own.live[!kind] == 0);
        fy_scope_end(scope, 0, NULL);
        close_own(device);
    }
}

static fy_status_t step(fy_device_t *device, int64_t batch, void *user)
{
    double sum;
    (void)batch, (void)user;
    return run(device, &sum);
}

/* A plan predicts the peaks of the device with the allocator, and never calls it. */
TS_TEST(plans_do_not_call_it)
{
    fy_device_t *device = open_own("sim:9");
    fy_plan_t plan = FY_PLAN_INIT;
    const int calls = own.calls;
    ts_ok(fy_plan_step("sim", step, NULL, 1, NULL, &plan));
    assert_int_equal(own.calls, calls);
    ts_ok(run_in_scope(device));
    assert_int_equal(plan.peak_reserved, own.peak[OWN_DEVICE]);
    close_own(device);
}

TS_TEST(a_forked_child_calls_no_hook)
{
    fy_device_t *device = open_own("sim:9");
    fy_tensor_t *x = ts_full(device, FY_DIMS(N), 0), *y = ts_pinned(device, N);
    const int calls = own.calls + own.frees;
    const pid_t pid = ts_fork();
    if (pid == 0) {
        fy_tensor_destroy(x);
        fy_tensor_destroy(y);
        fy_device_close(device);
        _exit(own.calls + own.frees != calls);
    }
    ts_child_ends(pid);
    fy_tensor_destroy(x);
    fy_tensor_destroy(y);
    close_own(device);
}
