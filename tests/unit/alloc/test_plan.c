/* Plans: figures of a step without a device, whether it fits, and the largest batch that does.
 * tests/golden/plan/ and tests/property/test_fused.c compare plans with real runs. */
#include "runtime/base/asan.h"
#include "tests/support/harness.h"

enum { COLUMNS = 1024, PAIRS = 4 };

/* Allocates batch x 4 KiB for x, then PAIRS results that live at once; the last operation is
 * named. */
typedef struct program {
    int pairs, steps_seen, fails_with, wants_pinned;
} program_t;

static fy_status_t step(fy_device_t *device, int64_t batch, void *user)
{
    program_t *program = user;
    fy_tensor_t *x, *y;
    if (program->fails_with)
        return fy_error_set((fy_status_t)program->fails_with, __FILE__, __LINE__, "as told");
    fy_scope_t setup = fy_scope_begin("setup");
    if (program->wants_pinned)
        FY_TRY(fy_tensor_create_pinned(device, FY_DTYPE_U8, FY_DIMS(program->wants_pinned), &y));
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(batch, COLUMNS), 1, &x));
    for (int s = 0; s < 2; s++) {
        fy_scope_t scope = fy_scope_begin("step");
        for (int i = 0; i < program->pairs; i++) FY_TRY(fy_add(x, x, &y));
        fy_scope_end(scope, 0, NULL);
        program->steps_seen++;
    }
    fy_scope_end(setup, 0, NULL);
    return FY_STATUS_OK;
}

static fy_plan_t plan_of(const char *spec, program_t *program, int64_t batch)
{
    fy_plan_t plan = FY_PLAN_INIT;
    ts_ok(fy_plan_step(spec, step, program, batch, NULL, &plan));
    return plan;
}

TS_TEST(figures_of_a_step)
{
    program_t program = { .pairs = PAIRS };
    const fy_plan_t plan = plan_of("sim?profile=h200&limit=64MiB", &program, 100);
    assert_int_equal(plan.batch, 100);
    assert_int_equal(plan.peak_live, 100 * COLUMNS * 4 * (1 + PAIRS));
    assert_int_equal(plan.steps, 2);
    assert_int_equal(plan.limit, 64 << 20);
    assert_int_equal(plan.fits, 1);
    assert_true(plan.peak_reserved >= plan.peak_live && plan.peak_reserved <= plan.limit);
    assert_int_equal(program.steps_seen, 2);
    /* Two equal steps: the second takes the device's time for its four additions, or the host's
     * time to submit them. */
    assert_true(plan.step_model_ns > 0);
    assert_int_equal(plan.step_flops, 100 * COLUMNS * PAIRS);
    program.pairs = 2 * PAIRS;
    const fy_plan_t twice = plan_of("sim", &program, 100);
    assert_true(twice.step_model_ns > plan.step_model_ns);
    assert_int_equal(twice.step_flops, 2 * plan.step_flops);
}

TS_TEST(a_plan_does_not_change_the_callers_state)
{
    program_t program = { .pairs = 1 };
    fy_device_t *mine, *second;
    ts_ok(fy_device_open("sim:15", &mine)); /* the number that a plan would use first */
    fy_plan_t plan = plan_of("sim:15?limit=1MiB", &program, 1);
    assert_int_equal(plan.fits, 1);
    assert_int_equal(ts_live(mine), 0);
    ts_ok(
        fy_device_open("sim:14?limit=3MiB", &second)); /* the device of the plan is closed again */
    fy_device_close(second);
    fy_device_close(mine);
}

static fy_status_t opens_its_own(fy_device_t *device, int64_t batch, void *user)
{
    fy_device_t *again, *other;
    (void)batch;
    (void)user;
    ts_fails_with(fy_device_open(fy_device_name(device), &again), BUSY, "plan",
                  "until it ends and its last tensor is destroyed", "lower number");
    ts_ok(fy_device_open("sim:14", &other)); /* a lower one */
    fy_device_close(other);
    return FY_STATUS_OK;
}

/* It computes nothing: a program that opened it by its number would get wrong values. */
TS_TEST(no_program_gets_the_device_of_a_plan)
{
    fy_plan_t plan = FY_PLAN_INIT;
    fy_device_t *device;
    ts_ok(fy_plan_step("sim", opens_its_own, NULL, 1, NULL, &plan));
    ts_ok(fy_device_open("sim:15", &device));
    fy_device_close(device);
}

TS_TEST(a_step_that_does_not_fit)
{
    program_t program = { .pairs = PAIRS };
    const fy_plan_t plan = plan_of("sim?limit=1MiB", &program, 100);
    assert_int_equal(plan.fits, 0);
    /* in full: the bytes that the step would need */
    assert_int_equal(plan.peak_live, 100 * COLUMNS * 4 * (1 + PAIRS));
    /* no request was refused in it, in both runs */
    assert_int_equal(program.steps_seen, 4);
    assert_int_equal(plan.verdict.status, FY_STATUS_OUT_OF_MEMORY);
    assert_int_equal(plan.verdict.reason, FY_OOM_LIMIT);
    assert_int_equal(plan.verdict.limit, 1 << 20);
    /* x and one result were live: the second result is refused */
    assert_int_equal(plan.verdict.live, 100 * COLUMNS * 4 * 2);
    assert_true(strlen(plan.verdict.text) > 0);
    const fy_plan_t small = plan_of("sim?capacity=1MiB", &program, 300);
    assert_int_equal(small.fits, 0);
    assert_int_equal(small.verdict.reason, FY_OOM_TOO_LARGE);
    const fy_plan_t full = plan_of("sim?capacity=1MiB", &program, 100);
    assert_int_equal(full.verdict.reason, FY_OOM_DEVICE_FULL);
}

/* Runs the step on a simulated device with that limit. */
static fy_status_t run_really(const char *spec, program_t *program, int64_t batch,
                              fy_oom_verdict_t *out_verdict)
{
    fy_device_t *device;
    ts_ok(fy_device_open(spec, &device));
    fy_scope_t scope = fy_scope_begin("real");
    const fy_status_t status = step(device, batch, program);
    if (status == FY_STATUS_OUT_OF_MEMORY) *out_verdict = *fy_error_get()->oom;
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    return status;
}

TS_TEST(the_largest_batch)
{
    static const char *const limits[] = {
        "limit=1MiB",    "limit=1000000",   "limit=33333333",         "capacity=1MiB",
        "capacity=5MiB", "capacity=100MiB", "limit=20480&pinned=1MiB"
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        program_t program = { .pairs = PAIRS };
        char planned[64], real[64];
        fy_oom_verdict_t verdict = { 0 };
        fy_plan_t plan = FY_PLAN_INIT;
        int64_t batch;
        snprintf(planned, sizeof planned, "sim?%s", limits[i]);
        snprintf(real, sizeof real, "sim:2?numerics=off&%s", limits[i]);
        ts_ok(fy_plan_fit(planned, step, &program, 1 << 20, &batch, &plan));
        assert_int_equal(plan.batch, batch);
        assert_int_equal(plan.fits, 1);
        ts_ok(run_really(real, &program, batch, &verdict));
        assert_int_equal(run_really(real, &program, batch + 1, &verdict), FY_STATUS_OUT_OF_MEMORY);
        /* The real verdict has the same figures as the predicted one. */
        const fy_plan_t refused = plan_of(planned, &program, batch + 1);
        assert_int_equal(refused.fits, 0);
        assert_int_equal(refused.verdict.reason, verdict.reason);
        assert_int_equal(refused.verdict.asked, verdict.asked);
        assert_int_equal(refused.verdict.live, verdict.live);
        assert_int_equal(refused.verdict.reserved, verdict.reserved);
        assert_int_equal(refused.verdict.would_help, verdict.would_help);
    }
}

TS_TEST(fit_handles_extreme_limits)
{
    program_t program = { .pairs = PAIRS };
    int64_t batch;
    /* the largest batch that the caller allows */
    ts_ok(fy_plan_fit("sim?limit=1GiB", step, &program, 7, &batch, NULL));
    assert_int_equal(batch, 7);
    ts_ok(fy_plan_fit("sim?limit=20480", step, &program, 7, &batch, NULL));
    assert_int_equal(batch, 1);
    batch = 5;
    ts_fails(fy_plan_fit("sim?limit=20479", step, &program, 7, &batch, NULL), OUT_OF_MEMORY);
    assert_int_equal(batch, 0);
    assert_non_null(fy_error_get()->oom);
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_LIMIT);
    ts_fails(fy_plan_fit("sim", step, &program, 0, &batch, NULL), INVALID_ARGUMENT);
    ts_fails(fy_plan_fit("sim", step, &program, 1, NULL, NULL), INVALID_ARGUMENT);
    ts_fails_with(fy_plan_fit("cuda:0", step, &program, 1, &batch, NULL), INVALID_ARGUMENT,
                  "simulated");
    /* Options that a plan sets itself are accepted; options without meaning are refused. */
    ts_ok(fy_plan_fit("sim?numerics=on", step, &program, 1, &batch, NULL));
    ts_fails_with(fy_plan_fit("sim?numerics=maybe", step, &program, 1, &batch, NULL),
                  INVALID_ARGUMENT, "maybe");
}

static fy_status_t step_of_two_or_more(fy_device_t *device, int64_t batch, void *user)
{
    if (batch < 2)
        return fy_error_set(FY_STATUS_SHAPE_MISMATCH, __FILE__, __LINE__, "1 is refused");
    return step(device, batch, user);
}

/* As batch norm in training. */
TS_TEST(fit_begins_at_two_if_one_is_refused)
{
    program_t program = { .pairs = PAIRS };
    int64_t batch;
    ts_ok(fy_plan_fit("sim?limit=1GiB", step_of_two_or_more, &program, 7, &batch, NULL));
    assert_int_equal(batch, 7);
    ts_fails(fy_plan_fit("sim?limit=1GiB", step_of_two_or_more, &program, 1, &batch, NULL),
             SHAPE_MISMATCH);
    ts_fails(fy_plan_fit("sim?limit=20480", step_of_two_or_more, &program, 7, &batch, NULL),
             OUT_OF_MEMORY);
    assert_int_equal(batch, 0);
}

/* Downloads `batch` tensors of 1 GiB, and keeps the bytes. */
static fy_status_t download_much(fy_device_t *device, int64_t batch, void *user)
{
    (void)user;
    for (int64_t i = 0; i < batch; i++) {
        fy_tensor_t *x, *host;
        fy_download_t *download;
        void *data;
        FY_TRY(fy_empty(device, FY_DTYPE_U8, FY_DIMS(1 << 30), &x));
        FY_TRY(fy_tensor_download(x, NULL, &download));
        FY_TRY(fy_download_wait(download, FY_FOREVER, &host));
        FY_TRY(fy_tensor_map(host, FY_ACCESS_READ, &data));
        const unsigned char *bytes = data;
        assert_int_equal(bytes[0] | bytes[(1 << 30) - 1], 0);
        fy_tensor_destroy(x);
    }
    return FY_STATUS_OK;
}

static uint64_t resident_nbytes(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*u %llu", &pages), 1);
    (void)fclose(file);
    return pages * 4096;
}

/* More than most machines have: it is counted, not held. */
TS_TEST(page_locked_memory_is_counted_only)
{
    fy_plan_t plan = FY_PLAN_INIT;
    const uint64_t before = resident_nbytes();
    ts_ok(fy_plan_step("sim", download_much, NULL, 48, NULL, &plan));
    assert_true(plan.pinned_peak_reserved >= 48ull << 30);
    /* AddressSanitizer's shadow of the address range takes an eighth of it */
    if (!FY__HAS_ASAN) assert_true(resident_nbytes() < before + (256u << 20));
}

TS_TEST(pinned_memory_has_its_limit)
{
    program_t program = { .pairs = 1, .wants_pinned = 3 << 20 };
    fy_plan_t plan = plan_of("sim?pinned=8MiB", &program, 1);
    assert_int_equal(plan.fits, 1);
    assert_true(plan.pinned_peak_reserved >= 3 << 20);
    plan = plan_of("sim?pinned=2MiB", &program, 1);
    assert_int_equal(plan.fits, 0);
    assert_int_equal(plan.verdict.status, FY_STATUS_PINNED_LIMIT);
}

TS_TEST(a_step_that_fails)
{
    program_t program = { .pairs = 1, .fails_with = FY_STATUS_BAD_VALUE };
    fy_plan_t plan = FY_PLAN_INIT;
    int64_t batch;
    plan.batch = 77;
    ts_fails_with(fy_plan_step("sim", step, &program, 1, NULL, &plan), BAD_VALUE, "as told");
    assert_int_equal(plan.batch, 77); /* unchanged */
    ts_fails(fy_plan_fit("sim", step, &program, 9, &batch, NULL), BAD_VALUE);
    ts_fails(fy_plan_step("sim", NULL, NULL, 1, NULL, &plan), INVALID_ARGUMENT);
    ts_fails(fy_plan_step(NULL, step, &program, 1, NULL, &plan), INVALID_ARGUMENT);
    ts_fails(fy_plan_step("sim", step, &program, 1, NULL, NULL), INVALID_ARGUMENT);
    plan.struct_size = 0;
    ts_fails(fy_plan_step("sim", step, &program, 1, NULL, &plan), INVALID_ARGUMENT);
}

typedef struct timeline {
    uint64_t count, peak, last_live, last_ns, steps;
} timeline_t;

static void note_point(void *user, const fy_plan_point_t *point)
{
    timeline_t *line = user;
    uint64_t sum = 0;
    for (int i = 0; i < FY_CATEGORY_COUNT; i++) sum += point->by_category[i];
    assert_int_equal(sum, point->live);
    assert_true(point->model_ns >= line->last_ns && point->reserved >= point->live);
    line->last_ns = point->model_ns;
    line->last_live = point->live;
    if (point->live > line->peak) line->peak = point->live;
    line->steps += strcmp(point->scope, "setup/step") == 0;
    line->count++;
}

TS_TEST(the_timeline)
{
    program_t program = { .pairs = PAIRS };
    timeline_t line = { 0 };
    fy_plan_options_t options = FY_PLAN_OPTIONS_INIT;
    fy_plan_t plan = FY_PLAN_INIT;
    options.on_point = note_point;
    options.user = &line;
    fy_scope_t scope = fy_scope_begin("outside");
    ts_ok(fy_plan_step("sim?limit=1MiB", step, &program, 100, &options, &plan));
    fy_scope_end(scope, 0, NULL);
    assert_int_equal(line.count, 2 * (1 + 2 * PAIRS));
    assert_int_equal(line.steps, 4 * PAIRS);
    assert_int_equal(line.peak, plan.peak_live);
    assert_int_equal(line.last_live, 0);
    options.struct_size = 0;
    ts_fails(fy_plan_step("sim", step, &program, 1, &options, &plan), INVALID_ARGUMENT);
}

/* A graph allocates 1 MiB at a time, or less: a refusal of the 1 MiB alone does not mean that the
 * step does not fit. */
static fy_status_t graph_step(fy_device_t *device, int64_t batch, void *user)
{
    fy_tensor_t *x, *y;
    fy_graph_t *graph;
    (void)user;
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(batch, COLUMNS), 1, &x));
    FY_TRY(fy_graph_begin(device));
    FY_TRY(fy_add(x, x, &y));
    FY_TRY(fy_graph_end(&graph));
    return fy_graph_replay(graph, NULL);
}

TS_TEST(a_graph_fits_with_smaller_segments)
{
    int64_t batch;
    fy_plan_t plan = FY_PLAN_INIT;
    ts_ok(fy_plan_fit("sim?limit=256KiB", graph_step, NULL, 1000, &batch, &plan));
    assert_int_equal(batch, 32);
    assert_int_equal(plan.fits, 1);
    ts_ok(fy_plan_step("sim?limit=256KiB", graph_step, NULL, batch + 1, NULL, &plan));
    assert_int_equal(plan.fits, 0);
}

/* A cache of the program that frees memory when its reclaim callback runs; and growth only where
 * the step allows it. */
typedef struct cache {
    fy_tensor_t *kept;
    int asked;
} cache_t;

static int drop_cache(void *user, fy_device_t *device, uint64_t nbytes)
{
    cache_t *cache = user;
    (void)device;
    (void)nbytes;
    cache->asked++;
    if (!cache->kept) return 0;
    fy_tensor_destroy(cache->kept);
    cache->kept = NULL;
    return 1;
}

static fy_status_t step_with_a_cache(fy_device_t *device, int64_t batch, void *user)
{
    cache_t *cache = user;
    fy_tensor_t *x;
    uint64_t id;
    FY_TRY(fy_tensor_create(device, FY_DTYPE_U8, FY_DIMS(1 << 20), &cache->kept));
    fy_tensor_keep(cache->kept);
    FY_TRY(fy_memory_on_pressure(device, drop_cache, cache, &id));
    const fy_status_t status = fy_tensor_create(device, FY_DTYPE_U8, FY_DIMS(batch << 20), &x);
    FY_TRY(fy_memory_off_pressure(device, id));
    fy_tensor_destroy(cache->kept);
    return status;
}

TS_TEST(reclaim_callbacks_run_in_plans)
{
    cache_t cache = { 0 };
    int64_t batch;
    ts_ok(fy_plan_fit("sim?limit=8MiB", step_with_a_cache, &cache, 100, &batch, NULL));
    assert_int_equal(batch, 8); /* not 7 */
    assert_true(cache.asked > 0);
}

static fy_status_t step_that_reserves(fy_device_t *device, int64_t batch, void *user)
{
    fy_tensor_t *x;
    (void)user;
    FY_TRY(fy_memory_reserve(device, 4 << 20));
    return fy_tensor_create(device, FY_DTYPE_U8, FY_DIMS(batch << 20), &x);
}

TS_TEST(growth_may_be_off)
{
    int64_t batch;
    fy_plan_t plan = FY_PLAN_INIT;
    ts_ok(fy_plan_fit("sim?growth=off", step_that_reserves, NULL, 100, &batch, NULL));
    assert_int_equal(batch, 4);
    ts_ok(fy_plan_step("sim?growth=off", step_that_reserves, NULL, 5, NULL, &plan));
    assert_int_equal(plan.fits, 0);
    assert_int_equal(plan.verdict.reason, FY_OOM_GROWTH_OFF);
    /* the reservation is refused */
    ts_ok(fy_plan_step("sim?limit=3MiB", step_that_reserves, NULL, 1, NULL, &plan));
    assert_int_equal(plan.fits, 0);
    assert_int_equal(plan.verdict.reason, FY_OOM_LIMIT);
}

TS_TEST(a_plan_counts_under_its_own_scope)
{
    program_t program = { .pairs = PAIRS };
    const uint64_t before = ts_ledger("plan").requests, outside = ts_ledger("setup").requests;
    (void)plan_of("sim", &program, 10);
    assert_int_equal(ts_ledger("plan").requests - before, 1 + 2 * PAIRS);
    assert_int_equal(ts_ledger("setup").requests, outside);
}

TS_TEST(a_plan_needs_a_free_device_number)
{
    fy_device_t *devices[16];
    program_t program = { .pairs = 1 };
    fy_plan_t plan = FY_PLAN_INIT;
    for (int i = 0; i < 16; i++) {
        char spec[16];
        snprintf(spec, sizeof spec, "sim:%d", i);
        ts_ok(fy_device_open(spec, &devices[i]));
    }
    ts_fails(fy_plan_step("sim", step, &program, 1, NULL, &plan), UNAVAILABLE);
    fy_device_close(devices[4]);
    ts_ok(fy_plan_step("sim", step, &program, 1, NULL, &plan));
    for (int i = 0; i < 16; i++)
        if (i != 4) fy_device_close(devices[i]);
}
