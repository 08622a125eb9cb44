/* fy_segments_fit: what it finds fits the limit to the byte, on a device that has no more, with
 * no more operations than segments of equal results; what it refuses; and host memory that is
 * refused. */
#include "tests/support/host_memory.h"
#include "tests/unit/train/descent.h"

enum { BATCH = 64 };
static const char model_spec[] = "resnet18:size=32";

static fy_status_t open_model(fy_device_t *device, const fy_model_options_t *options, void *user,
                              fy_model_t **out_model)
{
    (void)user;
    return fy_model_open(device, model_spec, options, out_model);
}

static fy_status_t train(fy_model_t *model, int64_t batch)
{
    descent_t d = { .model = model };
    int rank;
    int64_t dims[FY_MAX_RANK] = { batch };
    FY_TRY(descent_begin(&d));
    FY_TRY(fy_model_sample_shape(model_spec, &rank, dims + 1));
    FY_TRY(fy_zeros(d.info.device, FY_DTYPE_F32, rank + 1, dims, &d.x));
    FY_TRY(fy_zeros(d.info.device, FY_DTYPE_I64, FY_DIMS(batch), &d.y));
    for (int i = 0; i < 2; i++) FY_TRY(descent_step(&d));
    return FY_STATUS_OK;
}

static fy_status_t step(fy_model_t *model, int64_t batch, void *user)
{
    (void)user;
    const fy_scope_t scope = fy_scope_begin("run");
    const fy_status_t status = train(model, batch);
    fy_scope_end(scope, 0, NULL);
    return status;
}

/* user: options of the model. */
static fy_status_t whole(fy_device_t *device, int64_t batch, void *user)
{
    fy_model_t *model;
    FY_TRY(open_model(device, user, NULL, &model));
    const fy_status_t status = step(model, batch, NULL);
    fy_model_destroy(model);
    return status;
}

static fy_plan_t plan_of(const char *spec, fy_model_options_t options)
{
    fy_plan_t plan = FY_PLAN_INIT;
    ts_ok(fy_plan_step(spec, whole, &options, BATCH, NULL, &plan));
    return plan;
}

TS_TEST(the_result_fits_to_the_byte)
{
    for (int cheap = 0; cheap < 2; cheap++) {
        fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
        options.recompute_cheap = cheap;
        const fy_plan_t plain = plan_of("sim", options);
        fy_model_options_t equal = options;
        uint64_t least = plain.peak_reserved;
        for (equal.recompute = 2; equal.recompute < 9; equal.recompute++) {
            const uint64_t reserved = plan_of("sim", equal).peak_reserved;
            if (reserved < least) least = reserved;
        }
        assert_true(least < plain.peak_live); /* without segments no limit below that is enough */
        for (int part = 0; part < 3; part++) {
            const uint64_t limit = least + (plain.peak_live - least) * (uint64_t)part / 3;
            fy_segments_t found = FY_SEGMENTS_INIT;
            fy_plan_t plan = FY_PLAN_INIT;
            fy_memory_stats_t real = FY_MEMORY_STATS_INIT;
            char spec[64];
            snprintf(spec, sizeof spec, "sim:7?numerics=off&limit=%llu", (unsigned long long)limit);
            ts_ok(fy_segments_fit(spec, open_model, step, NULL, BATCH, &options, &found, &plan));
            print_message("           limit %llu of %llu: %zu segments, %llu bytes less, %llu "
                          "operations more\n",
                          (unsigned long long)limit, (unsigned long long)plain.peak_live,
                          found.count, (unsigned long long)found.saved_nbytes,
                          (unsigned long long)found.flops);
            assert_int_equal(plan.fits, 1);
            assert_true(found.count > 0 && found.saved_nbytes > 0);
            assert_int_equal(plan.step_flops, plain.step_flops + found.flops);
            for (equal.recompute = 2; equal.recompute < 9; equal.recompute++) {
                const fy_plan_t other = plan_of(spec, equal);
                assert_true(!other.fits || other.step_flops >= plan.step_flops);
            }
            fy_device_t *device;
            fy_model_options_t chosen = options;
            chosen.nsegments = found.count, chosen.segments = found.segments;
            ts_ok(fy_device_open(spec, &device));
            ts_ok(whole(device, BATCH, &chosen));
            ts_ok(fy_memory_query(device, NULL, &real));
            assert_int_equal(real.peak_live, plan.peak_live);
            assert_int_equal(real.peak_reserved, plan.peak_reserved);
            fy_device_close(device);
        }
    }
}

TS_TEST(without_need_there_are_none)
{
    fy_segments_t found = FY_SEGMENTS_INIT;
    fy_plan_t plan = FY_PLAN_INIT;
    ts_ok(fy_segments_fit("sim", open_model, step, NULL, 2, NULL, &found, &plan));
    assert_int_equal(found.count, 0);
    assert_int_equal(found.flops, 0);
    assert_int_equal(plan.fits, 1);
    ts_ok(fy_segments_fit("sim?limit=1MiB", open_model, step, NULL, 2, NULL, &found, &plan));
    assert_int_equal(plan.fits, 0);
}

/* Of the allocations of host memory, more rarely the later ones: plans are many. */
TS_TEST(failing_allocations_leave_nothing)
{
    int failures = 0;
    for (int n = 0, done = 0; !done; n += 1 + n / 8) {
        fy_segments_t found = FY_SEGMENTS_INIT;
        fy_plan_t plan = FY_PLAN_INIT;
        ts_fail_allocation(n);
        const fy_status_t status =
            fy_segments_fit("sim?limit=200MiB", open_model, step, NULL, 8, NULL, &found, &plan);
        done = !ts_allocation_failed();
        ts_fail_allocation(-1);
        failures += status != FY_STATUS_OK;
        /* a container reports that its child's maker failed */
        if (status != FY_STATUS_OK && status != FY_STATUS_OUT_OF_MEMORY &&
            !strstr(fy_error_get()->text, "no host memory"))
            fail_msg("allocation %d: %s: %s", n, fy_status_name(status), fy_error_get()->text);
        if (status == FY_STATUS_OK) continue;
        ts_ok(fy_segments_fit("sim?limit=200MiB", open_model, step, NULL, 8, NULL, &found, NULL));
    }
    assert_true(failures > 20);
}

TS_TEST(refusals_name_the_cause)
{
    fy_segments_t found = FY_SEGMENTS_INIT;
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    ts_fails_with(fy_segments_fit("sim", NULL, step, NULL, 2, NULL, &found, NULL), INVALID_ARGUMENT,
                  "open, step or out_segments is NULL");
    options.recompute = 2;
    ts_fails_with(fy_segments_fit("sim", open_model, step, NULL, 2, &options, &found, NULL),
                  INVALID_ARGUMENT, "it chooses the segments");
    ts_fails_with(fy_segments_fit("host", open_model, step, NULL, 2, NULL, &found, NULL),
                  INVALID_ARGUMENT, "is no simulated device");
}
