/* Page-locked host memory: every registered byte counts against pinned=, for every kind of caller.
 * No request exceeds the limit, not by one byte and not between threads. Memory that a transfer
 * still uses is not reused, however late the transfer. */
#include "runtime/device/pin.h"
#include "tests/support/harness.h"

enum { PAGE = 4096, KIB = 1024, MIB = 1024 * KIB };

static fy_device_t *device;

static void open_limited(const char *options, uint64_t limit_nbytes)
{
    char spec[160];
    snprintf(spec, sizeof spec, "sim:9?pinned=%llu%s%s", (unsigned long long)limit_nbytes,
             *options ? "&" : "", options);
    device = ts_open(spec);
}

static fy_memory_stats_t pinned(void)
{
    const fy_memory_stats_t stats = ts_memory_pinned(device);
    assert_int_equal(stats.reserved, stats.live + stats.cached);
    assert_int_equal(stats.reserved, atomic_load(&device->registered_nbytes));
    assert_true(stats.reserved <= stats.limit && stats.peak_reserved <= stats.limit);
    return stats;
}

static fy_tensor_t *locked(int64_t nbytes) { return ts_pinned_bytes(device, nbytes); }

static unsigned char *bytes_of(fy_tensor_t *tensor)
{
    void *bytes;
    ts_ok(fy_tensor_map(tensor, FY_ACCESS_WRITE, &bytes));
    return bytes;
}

/* ---- the limit ---- */

TS_TEST(the_limit_holds_to_the_byte)
{
    open_limited("", PAGE + 3 * MIB + 64);
    assert_int_equal(pinned().reserved, PAGE); /* the page of the fault words */
    ts_fails_with(
        fy_tensor_create_pinned(device, FY_DTYPE_U8, FY_DIMS(4 * MIB), &(fy_tensor_t *){ NULL }),
        PINNED_LIMIT, "live 4096 (peak 4096)"); /* a peak is never less than the live bytes */
    fy_tensor_t *all = locked(3 * MIB + 64), *more, *here;
    assert_int_equal(pinned().reserved, PAGE + 3 * MIB + 64);
    ts_fails(fy_tensor_create_pinned(device, FY_DTYPE_U8, FY_DIMS(1), &more), PINNED_LIMIT);
    assert_int_equal(fy_error_get()->oom->status, FY_STATUS_PINNED_LIMIT);
    ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_U8, FY_DIMS(3 * MIB + 65), &here));
    ts_fails(fy_tensor_pin(here, device), PINNED_LIMIT);
    fy_tensor_destroy(all);
    ts_fails(fy_tensor_pin(here, device), PINNED_LIMIT); /* by one byte */
    fy_tensor_destroy(here);
    ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_U8, FY_DIMS(3 * MIB + 64), &here));
    ts_ok(fy_tensor_pin(here, device)); /* the pool frees the idle bytes that it keeps */
    assert_int_equal(pinned().reserved, PAGE + 3 * MIB + 64);
    assert_int_equal(pinned().cached, 0);
    ts_fails(fy_tensor_create_pinned(device, FY_DTYPE_U8, FY_DIMS(1), &more), PINNED_LIMIT);
    fy_tensor_destroy(here);
    assert_int_equal(pinned().reserved, PAGE);
    assert_int_equal(pinned().peak_reserved, PAGE + 3 * MIB + 64);
}

TS_TEST(a_limit_below_the_device_minimum_is_refused)
{
    fy_device_t *none;
    ts_fails_with(fy_device_open("sim:9?pinned=4095", &none), PINNED_LIMIT, "pinned=");
    open_limited("", PAGE);
    fy_tensor_t *tensor;
    ts_fails(fy_tensor_create_pinned(device, FY_DTYPE_U8, FY_DIMS(1), &tensor), PINNED_LIMIT);
}

static void *take_and_give(void *failures)
{
    uint64_t random = (uint64_t)(uintptr_t)failures | 1;
    for (int i = 0; i < 300; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const int64_t nbytes = (int64_t)(random >> 40) % (700 * KIB) + 1;
        fy_tensor_t *tensor = NULL;
        fy_status_t status;
        fy_scope_t scope = fy_scope_begin("pins");
        if (i & 1)
            status = fy_tensor_create_pinned(device, FY_DTYPE_U8, 1, &nbytes, &tensor);
        else if ((status = fy_tensor_create(fy_device_host(), FY_DTYPE_U8, 1, &nbytes, &tensor)) ==
                 FY_STATUS_OK)
            status = fy_tensor_pin(tensor, device);
        const uint64_t registered = atomic_load(&device->registered_nbytes);
        if (registered > device->pinned_limit_nbytes ||
            (status != FY_STATUS_OK && status != FY_STATUS_PINNED_LIMIT))
            ++*(int *)failures;
        fy_scope_end(scope, 0, NULL);
    }
    return NULL;
}

TS_TEST(threads_together_stay_within_the_limit)
{
    enum { THREADS = 4 };
    int failures[THREADS] = { 0 };
    open_limited("", 1500 * KIB);
    ts_on_threads(THREADS, take_and_give, failures, sizeof *failures);
    for (int i = 0; i < THREADS; i++) assert_int_equal(failures[i], 0);
    assert_int_equal(pinned().live, PAGE);
    assert_true(pinned().peak_reserved <= 1500 * KIB);
    ts_ok(fy_memory_trim(device, 0, NULL));
    assert_int_equal(pinned().reserved, PAGE);
}

/* ---- hints ---- */

/* A transfer through the ring, a block, memory locked in place, and one more block, which may be
 * refused. All of it is freed. */
typedef struct program {
    int64_t block, here, more;
    bool uses_ring;
} program_t;

static fy_status_t run(const program_t *program, bool frees_all)
{
    fy_scope_t scope = fy_scope_begin("program"), inner;
    fy_tensor_t *host, *there, *more;
    if (program->uses_ring) {
        ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_U8, FY_DIMS(1000), &host));
        ts_ok(fy_tensor_upload(host, device, NULL, &there));
        ts_ok(fy_device_wait(device, FY_FOREVER));
    }
    inner = fy_scope_begin("what may go");
    if (program->block) (void)locked(program->block);
    if (program->here) {
        ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_U8, 1, &program->here, &host));
        ts_ok(fy_tensor_pin(host, device));
    }
    if (frees_all) fy_scope_end(inner, 0, NULL);
    const fy_status_t status =
        fy_tensor_create_pinned(device, FY_DTYPE_U8, 1, &program->more, &more);
    fy_scope_end(scope, 0, NULL);
    return status;
}

/* Every hint of the refusal that promises success is followed and succeeds. */
static void follow(const program_t *program, uint64_t limit)
{
    fy_oom_verdict_t verdict;
    open_limited("", limit);
    fy_status_t status = run(program, false);
    assert_int_equal(status, FY_STATUS_PINNED_LIMIT);
    verdict = *fy_error_get()->oom;
    assert_int_equal(verdict.limit, limit);
    assert_int_equal(verdict.reserved, verdict.live + verdict.cached);
    status = run(program, true);
    if ((status == FY_STATUS_OK) != (verdict.would_help != 0))
        print_error("freeing all gives %s, but:\n%s\n", fy_status_name(status), verdict.text);
    assert_int_equal(status == FY_STATUS_OK, verdict.would_help != 0);
    ts_close();

    const char *higher = strstr(verdict.text, "a limit higher by "),
               *least = strstr(verdict.text, "a limit of at least ");
    assert_true(higher || least);
    const uint64_t then = higher ? limit + strtoull(higher + 18, NULL, 10)
                                 : strtoull(least + 20, NULL, 10);
    open_limited("", then);
    status = run(program, false);
    if (status != FY_STATUS_OK)
        print_error("with %llu, told so by\n%s\nit is\n%s\n", (unsigned long long)then,
                    verdict.text, fy_error_get()->text);
    assert_int_equal(status, FY_STATUS_OK);
    ts_close();
}

TS_TEST(hints_count_the_ring_and_what_is_locked_in_place)
{
    static const program_t programs[] = {
        { .block = MIB, .more = 3 * MIB },
        /* with the higher limit the ring is larger */
        { .block = MIB, .more = 7 * MIB, .uses_ring = true },
        { .block = MIB, .here = MIB + 1000, .more = 6 * MIB, .uses_ring = true },
        { .here = 5 * MIB, .more = 4 * MIB }, /* freeing the whole pool is not enough */
        { .here = 5 * MIB, .more = 4 * MIB, .uses_ring = true },
        /* the ring leaves less, whatever is freed */
        { .block = KIB, .more = 8 * MIB, .uses_ring = true },
        { .block = KIB, .more = 100 * MIB, .uses_ring = true }, /* more than the limit */
    };
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        const program_t *p = &programs[i];
        const int64_t needs = p->block + p->here + p->more;
        for (uint64_t limit = 7 * MIB; limit <= 9 * MIB + 64 * KIB; limit += 200 * KIB + 64) {
            open_limited("", limit);
            const bool is_refused = (uint64_t)(p->block + p->here) + 3 * MIB < limit &&
                                    run(p, false) != FY_STATUS_OK;
            ts_close();
            if (is_refused) follow(p, limit);
            assert_true(is_refused || (uint64_t)needs < limit ||
                        (uint64_t)(p->block + p->here) + 3 * MIB >= limit);
        }
    }
}

/* ---- a block is reused only after its last transfer ---- */

/* Uploads a block, frees it at once and requests another one that needs its bytes. */
static void reuse(const char *options, uint64_t slow_ns)
{
    enum { N = 3 * MIB };
    open_limited(options, PAGE + N);
    fy_scope_t scope = fy_scope_begin("step");
    fy_tensor_t *src = locked(N), *there, *next;
    fy_ticket_t ticket;
    memset(bytes_of(src), 0x11, N);
    ts_ok(fy_tensor_create(device, FY_DTYPE_U8, FY_DIMS(N), &there));
    ts_ok(fy_tensor_upload_into(there, src, &ts_borrow, &ticket));
    fy_tensor_destroy(src);
    assert_int_equal(pinned().live, PAGE);
    if (slow_ns) assert_int_equal(pinned().pending, N); /* a second query changes nothing */

    fy_scope_t inner = fy_scope_begin("no syncs");
    ts_guard(syncs, 0);
    ts_fails(fy_tensor_create_pinned(device, FY_DTYPE_U8, FY_DIMS(N), &next), PINNED_LIMIT);
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_WOULD_FIT_AFTER_SYNC);
    fy_scope_end(inner, 0, NULL);

    const fy_device_clock_t before = ts_clock_now(device);
    next = locked(N); /* waits, because the host is the next user */
    const fy_device_clock_t after = ts_clock_now(device);
    if (slow_ns) assert_true(after.now_ns - before.now_ns >= slow_ns);
    memset(bytes_of(next), 0x22, N); /* would be uploaded if the upload had not happened yet */
    unsigned char *back = malloc(N);
    assert_non_null(back);
    fy_tensor_destroy(next);
    fy_tensor_t *result = ts_download(there);
    memcpy(back, bytes_of(result), N);
    for (int i = 0; i < N; i++) assert_int_equal(back[i], 0x11);
    free(back);
    fy_scope_end(scope, 0, NULL);
    ts_close();
}

TS_TEST(a_late_transfer_keeps_its_block)
{
    reuse("faults=slow@1:1s", 900000000);
    reuse("order=lazy", 0);
    reuse("order=lazy&faults=slow@1:1s", 900000000);
    for (int seed = 1; seed <= 5; seed++) {
        char options[64];
        snprintf(options, sizeof options, "order=random&seed=%d", seed);
        reuse(options, 0);
    }
}

/* ---- locked bytes that were freed and are still read count until the read is done: a request
 * waits for that ---- */

enum { HERE = 3 * MIB };

/* Locks bytes, uploads from them and frees them at once. */
static void give_up(fy_tensor_t *src)
{
    fy_ticket_t ticket;
    fy_tensor_t *there = ts_bytes(device, HERE);
    ts_ok(fy_tensor_upload_into(there, src, &ts_borrow, &ticket));
    fy_tensor_destroy(src);
}

static fy_tensor_t *locked_here(void)
{
    fy_tensor_t *here = ts_zeros(fy_device_host(), FY_DTYPE_U8, FY_DIMS(HERE));
    ts_ok(fy_tensor_pin(here, device));
    return here;
}

static fy_status_t ask(bool in_place)
{
    fy_tensor_t *more;
    if (!in_place) return fy_tensor_create_pinned(device, FY_DTYPE_U8, FY_DIMS(HERE), &more);
    ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_U8, FY_DIMS(HERE), &more));
    return fy_tensor_pin(more, device);
}

TS_TEST(a_request_waits_for_freed_bytes_that_are_still_read)
{
    for (int i = 0; i < 8; i++) {
        const bool is_here = i & 1, in_place = i & 2;
        open_limited(i & 4 ? "faults=slow@1:1s" : "order=lazy&faults=slow@1:1s", PAGE + HERE);
        fy_scope_t scope = fy_scope_begin("step");
        give_up(is_here ? locked_here() : locked(HERE));
        fy_scope_t inner = fy_scope_begin("no syncs");
        ts_guard(syncs, 0);
        ts_fails(ask(in_place), PINNED_LIMIT);
        assert_int_equal(fy_error_get()->oom->reason, FY_OOM_WOULD_FIT_AFTER_SYNC);
        fy_scope_end(inner, 0, NULL);
        const uint64_t syncs = ts_ledger(NULL).syncs;
        ts_ok(ask(in_place));
        assert_int_equal(ts_ledger(NULL).syncs, syncs + 1);
        fy_scope_end(scope, 0, NULL);
        assert_int_equal(pinned().live, PAGE);
        ts_close();
    }
}
