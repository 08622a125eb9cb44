/* Reclaim callbacks, fy_memory_reserve, growth=off and segment= through the public API, on every
 * device that can have a limit: calls that a callback may make while it runs, its isolation from
 * the state of its thread (recording, guards, scopes, error record), and that removing it waits.
 * Not here: the order of the stages (tests/unit/alloc/test_pool_pressure.c). */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/harness.h"

enum { MIB = 1 << 20 };

/* Actions of a callback when it is called, and the values it saw. */
typedef struct pressure {
    fy_tensor_t *held[8]; /* destroyed one by one, one a call */
    int calls, order, inner_calls;
    fy_status_t inner;
    uint64_t id, nbytes;
    _Atomic int is_inside, may_end, entered;
} pressure_t;

static int order;

static int give_one(void *user, fy_device_t *device, uint64_t nbytes)
{
    pressure_t *pressure = user;
    assert_non_null(device);
    pressure->calls++;
    pressure->order = ++order;
    pressure->nbytes = nbytes;
    for (int i = 0; i < 8; i++)
        if (pressure->held[i]) {
            fy_tensor_destroy(pressure->held[i]);
            pressure->held[i] = NULL;
            return 1;
        }
    return 0;
}

/* NULL for the host, which takes no options. */
static fy_device_t *limited(ts_ctx_t *ctx, const char *options)
{
    return ctx->is_host ? NULL : ts_open_with(ctx, options);
}

static fy_tensor_t *bytes(fy_device_t *device, int64_t n)
{
    return ts_zeros(device, FY_DTYPE_U8, FY_DIMS(n));
}

TS_DEVICE_TEST(callbacks_free_the_missing_bytes)
{
    fy_device_t *device = limited(ctx, "limit=8MiB");
    if (!device) return;
    fy_scope_t scope = fy_scope_begin("test");
    pressure_t first = { .order = 0 }, second = { .order = 0 };
    ts_ok(fy_memory_on_pressure(device, give_one, &first, &first.id));
    ts_ok(fy_memory_on_pressure(device, give_one, &second, &second.id));
    assert_true(first.id && second.id && first.id != second.id);
    for (int i = 0; i < 4; i++) second.held[i] = bytes(device, 2 * MIB);
    assert_int_equal(first.calls + second.calls, 0);
    fy_tensor_t *x = bytes(device, 2 * MIB - 100);
    assert_int_equal(first.calls,
                     1); /* in the order in which they were set, until the request fits */
    assert_int_equal(second.calls, 1);
    assert_true(first.order < second.order);
    assert_true(first.nbytes >= 2 * MIB - 100 && first.nbytes <= 2 * MIB);
    ts_ok(fy_memory_off_pressure(device, first.id));
    fy_tensor_t *y = bytes(device, 2 * MIB);
    assert_int_equal(first.calls, 1);
    assert_int_equal(second.calls, 2);
    ts_fails_with(fy_memory_off_pressure(device, first.id), INVALID_ARGUMENT,
                  "no reclaim callback with id");
    fy_tensor_destroy(x);
    fy_tensor_destroy(y);
    fy_scope_end(scope, 0, NULL);
    ts_reopen(ctx, device); /* `second` is still set: forgotten on reopen */
    device = limited(ctx, "limit=1MiB");
    ts_fails(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(2 * MIB), &x), OUT_OF_MEMORY);
    ts_fails(fy_memory_off_pressure(device, second.id), INVALID_ARGUMENT);
    assert_int_equal(second.calls, 2);
}

TS_DEVICE_TEST(refusals)
{
    pressure_t pressure = { .order = 0 };
    uint64_t id = 7;
    ts_fails(fy_memory_on_pressure(NULL, give_one, &pressure, &id), INVALID_ARGUMENT);
    assert_int_equal(id, 0);
    ts_fails(fy_memory_on_pressure(ctx->device, NULL, &pressure, &id), INVALID_ARGUMENT);
    ts_fails(fy_memory_on_pressure(ctx->device, give_one, &pressure, NULL), INVALID_ARGUMENT);
    ts_fails(fy_memory_off_pressure(NULL, 1), INVALID_ARGUMENT);
    ts_fails(fy_memory_off_pressure(ctx->device, 0), INVALID_ARGUMENT);
    ts_fails(fy_memory_reserve(NULL, 1), INVALID_ARGUMENT);
    ts_ok(fy_memory_on_pressure(ctx->device, give_one, &pressure, &id));
    ts_ok(fy_memory_off_pressure(ctx->device, id));
}

/* The callback allocates memory, moves data, fails, leaves a scope open, and tries to remove
 * itself. */
static int busy_body(void *user, fy_device_t *device, uint64_t nbytes)
{
    pressure_t *pressure = user;
    fy_tensor_t *x = NULL, *host;
    pressure->calls++;
    pressure->inner = fy_zeros(device, FY_DTYPE_U8, FY_DIMS((int64_t)nbytes), &x);
    assert_null(x);
    /* no nested reclaim */
    assert_int_equal(pressure->calls, 1 + pressure->inner_calls);
    ts_fails(fy_memory_off_pressure(device, pressure->id), BUSY);
    (void)fy_scope_begin("left open");
    if (!pressure->held[0]) return 0;
    ts_ok(fy_tensor_create(fy_device_host(), FY_DTYPE_U8, FY_DIMS(2 * MIB), &host));
    ts_ok(
        fy_tensor_download_into(host, pressure->held[0], NULL)); /* spilled to the host, and kept */
    fy_tensor_keep(host);
    fy_tensor_destroy(pressure->held[0]);
    pressure->held[0] = NULL;
    pressure->held[1] = host;
    pressure->inner_calls = pressure->calls;
    return 1;
}

TS_DEVICE_TEST(a_callback_does_not_change_its_thread)
{
    fy_device_t *device = limited(ctx, "limit=4MiB");
    if (!device) return;
    pressure_t pressure = { .order = 0 };
    fy_tensor_t *x;
    void *data;
    fy_scope_t scope = fy_scope_begin("guest");
    ts_ok(fy_memory_on_pressure(device, busy_body, &pressure, &pressure.id));
    ts_ok(fy_full(device, FY_DTYPE_U8, FY_DIMS(2 * MIB), 7, &pressure.held[0]));
    x = bytes(device, 2 * MIB);
    ts_fails(fy_tensor_map(NULL, FY_ACCESS_READ, &data), INVALID_ARGUMENT);
    char before[64];
    snprintf(before, sizeof before, "%.60s", fy_error_get()->text);
    const fy_ledger_totals_t ledger = ts_ledger("test/guest/pressure");
    (void)bytes(device, 2 * MIB);
    assert_int_equal(pressure.calls, 1);
    assert_int_equal(pressure.inner, FY_STATUS_OUT_OF_MEMORY);
    /* the error record is the thread's, not the callback's */
    assert_int_equal(strncmp(before, fy_error_get()->text, strlen(before)), 0);
    assert_int_equal(ts_ledger("test/guest/pressure").download.nbytes - ledger.download.nbytes,
                     2 * MIB);
    /* in "test", not in the scope that the callback left open */
    (void)ts_bytes(fy_device_host(), 4);
    fy_scope_t inner = fy_scope_begin("inner");
    fy_scope_end(inner, 0, NULL);
    ts_ok(fy_tensor_map(pressure.held[1], FY_ACCESS_READ, &data));
    assert_int_equal(((uint8_t *)data)[2 * MIB - 1], 7);
    fy_tensor_destroy(pressure.held[1]);
    fy_tensor_destroy(x);
    fy_scope_end(scope, 0, NULL);
    ts_ok(fy_memory_off_pressure(device, pressure.id));
}

/* Under a guard a callback may make the same calls as the scope. */
static int tries_to_wait(void *user, fy_device_t *device, uint64_t nbytes)
{
    pressure_t *pressure = user;
    pressure->inner = fy_device_wait(device, FY_FOREVER);
    return give_one(user, device, nbytes);
}

TS_DEVICE_TEST(guards_hold_inside)
{
    fy_device_t *device = limited(ctx, "limit=4MiB");
    if (!device) return;
    pressure_t pressure = { .order = 0 };
    fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT;
    pressure.held[0] = bytes(device, 4 * MIB);
    ts_ok(fy_memory_on_pressure(device, tries_to_wait, &pressure, &pressure.id));
    guard.syncs = 0;
    guard.device_allocs = 0;
    guard.upload_nbytes = 1000;
    fy_scope_t step = fy_scope_begin("step");
    ts_ok(fy_scope_guard(&guard));
    (void)bytes(device, 4 * MIB);
    assert_int_equal(pressure.calls, 1);
    assert_int_equal(pressure.inner, FY_STATUS_REFUSED_BY_GUARD);
    ts_fails(fy_memory_reserve(device, 5 * MIB), OUT_OF_MEMORY);
    fy_scope_end(step, 0, NULL);
    assert_int_equal(fy_memory_trim(device, 0, NULL), FY_STATUS_OK);
    ts_ok(fy_device_wait(device, FY_FOREVER));
    ts_ok(fy_memory_trim(device, 0, NULL));
    step = fy_scope_begin("step");
    ts_ok(fy_scope_guard(&guard));
    ts_fails(fy_memory_reserve(device, 2 * MIB), REFUSED_BY_GUARD);
    fy_scope_end(step, 0, NULL);
}

/* Calls of a callback on a recording thread run at once, and are not recorded. */
static int works_now(void *user, fy_device_t *device, uint64_t nbytes)
{
    pressure_t *pressure = user;
    ts_ok(fy_axpy(pressure->held[1], 1, pressure->held[2]));
    fy_tensor_t *small = pressure->held[3];
    /* refused while recording; the callback does not record */
    if (pressure->calls == 0) ts_ok(fy_device_wait(device, FY_FOREVER));
    assert_non_null(small);
    pressure->calls++;
    fy_tensor_destroy(pressure->held[0]);
    const int gave = pressure->held[0] != NULL && nbytes > 0;
    pressure->held[0] = NULL;
    return gave;
}

TS_DEVICE_TEST(a_callback_is_not_recorded)
{
    fy_device_t *device = limited(ctx, "limit=8MiB&segment=64KiB");
    if (!device) return;
    pressure_t pressure = { .order = 0 };
    fy_graph_t *graph;
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(1), &pressure.held[1]));
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(1), 5, &pressure.held[2]));
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(1), &pressure.held[3]));
    pressure.held[0] = bytes(device, 4 * MIB);
    fy_tensor_t *big = ts_full(device, FY_DIMS(768 * 1024), 1), *sum;
    ts_ok(fy_memory_on_pressure(device, works_now, &pressure, &pressure.id));
    ts_ok(fy_graph_begin(device));
    fy_tensor_t *twice;
    ts_ok(fy_affine(big, 2, 0, &twice)); /* 3 MiB of graph memory */
    ts_ok(fy_sum(twice, 0, NULL, 0, &sum));
    ts_ok(fy_graph_end(&graph));
    assert_int_equal(pressure.calls, 1);
    ts_expect_f32(pressure.held[1], (float[]){ 5 }, 1);
    ts_ok(fy_graph_replay(graph, NULL));
    ts_ok(fy_graph_replay(graph, NULL));
    ts_expect_f32(sum, (float[]){ 2.0f * 768 * 1024 }, 1);
    ts_expect_f32(pressure.held[1], (float[]){ 5 }, 1); /* was not recorded */
}

/* ---- several threads, forks ---- */

static int lingers(void *user, fy_device_t *device, uint64_t nbytes)
{
    pressure_t *pressure = user;
    (void)device;
    (void)nbytes;
    if (atomic_fetch_add(&pressure->entered, 1)) return 0; /* only the first call frees memory */
    atomic_store(&pressure->is_inside, 1);
    while (!atomic_load(&pressure->may_end)) sched_yield();
    atomic_store(&pressure->is_inside, 0);
    return 0;
}

static void *runs_out(void *device)
{
    fy_tensor_t *x;
    fy_scope_t scope = fy_scope_begin("thread");
    ts_fails(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(2 * MIB), &x), OUT_OF_MEMORY);
    fy_scope_end(scope, 0, NULL);
    return NULL;
}

typedef struct away {
    fy_device_t *device;
    pressure_t *pressure;
    _Atomic int is_over;
} away_t;

static void *takes_away(void *user)
{
    away_t *away = user;
    ts_ok(fy_memory_off_pressure(away->device, away->pressure->id));
    assert_int_equal(atomic_load(&away->pressure->is_inside), 0); /* the removal waited */
    atomic_store(&away->is_over, 1);
    return NULL;
}

TS_DEVICE_TEST(removing_a_callback_waits)
{
    fy_device_t *device = limited(ctx, "limit=2MiB");
    if (!device) return;
    pressure_t pressure = { .order = 0 };
    away_t away = { .device = device, .pressure = &pressure };
    (void)bytes(device, MIB);
    ts_ok(fy_memory_on_pressure(device, lingers, &pressure, &pressure.id));
    const pthread_t asker = ts_thread(runs_out, device);
    while (!atomic_load(&pressure.is_inside)) sched_yield();
    (void)bytes(device, 4096); /* no lock is held while it runs */
    const pthread_t taker = ts_thread(takes_away, &away);
    fy_tensor_t *x;
    /* until no request can start it any more: the removing thread waits, or is about to */
    for (int last = -1; last != atomic_load(&pressure.entered);) {
        last = atomic_load(&pressure.entered);
        ts_fails(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(2 * MIB), &x), OUT_OF_MEMORY);
    }
    for (int i = 0; i < 1000; i++) sched_yield();
    assert_int_equal(atomic_load(&away.is_over), 0);
    const pid_t child = ts_fork(); /* with one thread inside the callback, and one that waits */
    if (child == 0)
        _exit(fy_memory_off_pressure(device, pressure.id) == FY_STATUS_INVALID_ARGUMENT ? 0 : 1);
    ts_child_ends(child);
    atomic_store(&pressure.may_end, 1);
    pthread_join(asker, NULL);
    pthread_join(taker, NULL);
    assert_int_equal(atomic_load(&away.is_over), 1);
}

/* A child forked inside the callback continues, and can remove the callback once it has
 * returned. */
static int forks(void *user, fy_device_t *device, uint64_t nbytes)
{
    pressure_t *pressure = user;
    (void)nbytes;
    const pid_t child = fork();
    if (child == 0) {
        if (fy_memory_off_pressure(device, pressure->id) != FY_STATUS_BUSY) _exit(1);
        fy_tensor_t *x;
        _exit(fy_zeros(fy_device_host(), FY_DTYPE_F32, FY_DIMS(1000000), &x) == FY_STATUS_OK ? 0
                                                                                             : 2);
    }
    assert_int_equal(waitpid(child, &pressure->calls, 0), child);
    return 0;
}

TS_DEVICE_TEST(a_fork_inside_a_callback)
{
    fy_device_t *device = limited(ctx, "limit=2MiB");
    if (!device) return;
    pressure_t pressure = { .calls = -1 };
    fy_tensor_t *x;
    ts_ok(fy_memory_on_pressure(device, forks, &pressure, &pressure.id));
    (void)bytes(device, MIB);
    ts_fails(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(2 * MIB), &x), OUT_OF_MEMORY);
    assert_int_equal(pressure.calls, 0);
    pressure.calls = -1;
    ts_ok(fy_graph_begin(device)); /* then the graph's pool is growing */
    ts_fails(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(2 * MIB), &x), OUT_OF_MEMORY);
    assert_int_equal(pressure.calls, 0);
    fy_graph_t *graph;
    ts_fails(fy_graph_end(&graph), OUT_OF_MEMORY);
}

/* ---- reserve and the spec ---- */

static uint64_t device_allocs(const fy_device_t *device)
{
    return ts_memory(device, NULL).device_allocs;
}

TS_DEVICE_TEST(reserve_grows_now)
{
    fy_memory_stats_t stats = ts_memory(ctx->device, NULL);
    const uint64_t all = stats.reserved + 3 * MIB;
    const fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_memory_reserve(ctx->device, all));
    stats = ts_memory(ctx->device, NULL);
    assert_true(stats.reserved >= all && stats.reserved < all + 4096);
    const uint64_t allocs = stats.device_allocs;
    ts_ok(fy_memory_reserve(ctx->device, all));
    assert_int_equal(device_allocs(ctx->device), allocs);
    assert_int_equal(ts_ledger(NULL).device_allocs - before.device_allocs, ctx->is_host ? 0 : 1);
    fy_tensor_t *x = bytes(ctx->device, 2 * MIB), *y = bytes(ctx->device, MIB / 2);
    assert_int_equal(device_allocs(ctx->device), allocs);
    fy_tensor_destroy(x);
    fy_tensor_destroy(y);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    ts_ok(fy_memory_trim(ctx->device, 0, NULL));
}

TS_DEVICE_TEST(growth_off)
{
    fy_device_t *device = limited(ctx, "growth=off&limit=64MiB");
    if (!device) return;
    fy_tensor_t *x = NULL;
    ts_fails(fy_tensor_create(device, FY_DTYPE_U8, FY_DIMS(100), &x), OUT_OF_MEMORY);
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_GROWTH_OFF);
    ts_text_has("Would help: fy_memory_reserve 256 more (256 in all)");
    ts_ok(fy_memory_reserve(device, 256)); /* the hint is true */
    ts_ok(fy_tensor_create(device, FY_DTYPE_U8, FY_DIMS(100), &x));
    ts_ok(fy_memory_reserve(device, 16 * MIB));
    const uint64_t allocs = device_allocs(device);
    for (int i = 0; i < 20; i++) { /* a steady step */
        fy_scope_t step = fy_scope_begin("step");
        fy_tensor_t *a = ts_iota(device, FY_DIMS(100000), 1), *b;
        ts_ok(fy_affine(a, 2, 0, &b));
        ts_ok(fy_add(a, b, &b));
        fy_scope_end(step, 0, NULL);
    }
    assert_int_equal(device_allocs(device), allocs);
    ts_ok(fy_graph_begin(device));
    ts_fails(fy_memory_reserve(device, 17 * MIB), UNSUPPORTED);
    fy_graph_t *graph;
    ts_fails(fy_graph_end(&graph), UNSUPPORTED);
    ts_fails(fy_memory_reserve(device, 65 * MIB), OUT_OF_MEMORY);
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_LIMIT);
}

TS_DEVICE_TEST(options)
{
    fy_device_t *device = limited(ctx, "segment=64KiB");
    if (!device) return;
    fy_tensor_t *x = bytes(device, 100);
    const fy_memory_stats_t stats = ts_memory(device, NULL);
    assert_int_equal(stats.reserved, 64 * 1024);
    fy_tensor_destroy(x);
    ts_reopen(ctx, device);
    if (!ctx->is_sim) return;
    static const struct {
        const char *spec, *says;
    } wrong[] = {
        { "sim:9?growth=maybe", "neither on nor off" },
        { "sim:9?segment=4095", "from 4096 to the" },
        { "sim:9?segment=0", "more than 0" },
        { "sim:9?segment=lots", "no byte size" },
        { "sim:9?capacity=1MiB&segment=2MiB", "to the 1048576 bytes that sim:9 has" },
        { "sim:9?growht=off", "growth=on|off" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ts_fails(fy_device_open(wrong[i].spec, &device), INVALID_ARGUMENT);
        assert_null(device);
        ts_text_has(wrong[i].says);
    }
    ts_ok(fy_device_open("sim:9?capacity=1MiB&segment=1MiB&growth=on", &device));
    fy_device_close(device);
}
