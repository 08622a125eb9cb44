/* Figures by category. fy_scope_memory applies to tensors made after it, also in inner scopes,
 * until an inner scope sets its own. The bytes of all categories add up to the live bytes at every
 * step, now and at the peak.
 * Not here: the equations among the other figures (test_memory.c). */
#include "tests/support/harness.h"

/* Larger than the blocks that host threads cache: cached blocks have no category. */
enum { LARGE = 40000 };

/* Checks that the bytes of all categories add up. */
static fy_memory_stats_t add_up(fy_memory_stats_t stats)
{
    uint64_t live = 0, peak = 0;
    for (int i = 0; i < FY_CATEGORY_COUNT; i++) {
        live += stats.by_category[i];
        peak += stats.peak_by_category[i];
    }
    assert_int_equal(live, stats.live);
    assert_int_equal(peak, stats.peak_live);
    return stats;
}

static fy_memory_stats_t stats_of(const fy_device_t *device)
{
    return add_up(ts_memory(device, NULL));
}

/* The bytes that a new tensor adds now, and that only this category gets them. */
static void expect_made_for(fy_device_t *device, fy_category_t category)
{
    const fy_memory_stats_t before = stats_of(device);
    fy_tensor_t *tensor = ts_bytes(device, LARGE);
    const fy_memory_stats_t with = stats_of(device);
    assert_true(with.live - before.live >= LARGE);
    for (int i = 0; i < FY_CATEGORY_COUNT; i++)
        assert_int_equal(with.by_category[i] - before.by_category[i],
                         i == (int)category ? with.live - before.live : 0);
    fy_tensor_destroy(tensor);
    const fy_memory_stats_t after = stats_of(device);
    assert_memory_equal(after.by_category, before.by_category, sizeof before.by_category);
}

TS_DEVICE_TEST(a_scope_sets_the_category_of_its_tensors)
{
    expect_made_for(ctx->device, FY_CATEGORY_ACTIVATIONS);
    fy_scope_t model = fy_scope_begin("model");
    ts_ok(fy_scope_memory(FY_CATEGORY_WEIGHTS));
    expect_made_for(ctx->device, FY_CATEGORY_WEIGHTS);
    fy_scope_t layer = fy_scope_begin("layer");
    expect_made_for(ctx->device, FY_CATEGORY_WEIGHTS); /* also in an inner scope */
    ts_ok(fy_scope_memory(FY_CATEGORY_GRADIENTS));
    expect_made_for(ctx->device, FY_CATEGORY_GRADIENTS);
    ts_ok(fy_scope_memory(FY_CATEGORY_OPTIMIZER_STATE)); /* set again: applies from now on */
    expect_made_for(ctx->device, FY_CATEGORY_OPTIMIZER_STATE);
    fy_scope_end(layer, 0, NULL);
    expect_made_for(ctx->device, FY_CATEGORY_WEIGHTS);
    (void)fy_scope_begin("left open");
    ts_ok(fy_scope_memory(FY_CATEGORY_GRADIENTS));
    fy_scope_end(model, 0, NULL);
    expect_made_for(ctx->device, FY_CATEGORY_ACTIVATIONS);
}

TS_DEVICE_TEST(a_tensor_keeps_its_category)
{
    const fy_memory_stats_t before = stats_of(ctx->device);
    fy_scope_t scope = fy_scope_begin("weights");
    ts_ok(fy_scope_memory(FY_CATEGORY_WEIGHTS));
    fy_tensor_t *weight = ts_bytes(ctx->device, LARGE);
    fy_scope_end(scope, 1, &weight);
    const fy_memory_stats_t after = stats_of(ctx->device);
    assert_int_equal(after.by_category[FY_CATEGORY_WEIGHTS] -
                         before.by_category[FY_CATEGORY_WEIGHTS],
                     after.live - before.live);
}

/* A transposed download is packed on the device first. */
TS_DEVICE_TEST(transfers_pass_through_staging)
{
    fy_scope_t scope = fy_scope_begin("weights");
    ts_ok(fy_scope_memory(FY_CATEGORY_WEIGHTS));
    const fy_memory_stats_t before = stats_of(ctx->device);
    fy_tensor_t *tensor = ts_empty(ctx->device, FY_DTYPE_F32, FY_DIMS(300, 200)), *turned;
    ts_ok(fy_fill(tensor, 1));
    ts_ok(fy_transpose(tensor, (int[]){ 1, 0 }, &turned));
    (void)ts_download(turned);
    const fy_memory_stats_t after = stats_of(ctx->device);
    assert_int_equal(before.peak_live,
                     before.live); /* on a fresh device each block is a new peak */
    assert_int_equal(after.peak_by_category[FY_CATEGORY_STAGING],
                     after.by_category[FY_CATEGORY_WEIGHTS]);
    assert_int_equal(after.by_category[FY_CATEGORY_STAGING], 0);
    fy_scope_end(scope, 0, NULL);
}

/* Scopes, categories, tensors, ops and transfers in random order. The test keeps its own count
 * beside the device's. */
TS_DEVICE_TEST(bytes_add_up_at_every_step)
{
    enum { STEPS = 1500, MOST = 40, DEEP = 6 };
    struct {
        fy_tensor_t *tensor;
        uint64_t nbytes;
        fy_category_t category;
    } held[MOST];
    fy_scope_t scopes[DEEP];
    fy_category_t said[DEEP + 1] = { FY_CATEGORY_ACTIVATIONS };
    uint64_t count[FY_CATEGORY_COUNT] = { 0 }, state = 88172645463325252u;
    int nheld = 0, depth = 0;
    const fy_memory_stats_t before = stats_of(ctx->device);
    for (int step = 0; step < STEPS; step++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        const uint64_t what = state >> 8, n = LARGE / 4 + (state >> 20) % 50000;
        switch (what % 8) {
        case 0:
            if (depth == DEEP) break;
            scopes[depth++] = fy_scope_begin("inner");
            said[depth] = said[depth - 1];
            break;
        case 1:
            if (depth) fy_scope_end(scopes[--depth], 0, NULL);
            break;
        case 2:
            if (!depth) break;
            said[depth] = (fy_category_t)(n % FY_CATEGORY_COUNT);
            ts_ok(fy_scope_memory(said[depth]));
            break;
        case 3:
        case 4: {
            if (!nheld) break;
            const int i = (int)(n % (uint64_t)nheld);
            fy_tensor_destroy(held[i].tensor);
            count[held[i].category] -= held[i].nbytes;
            held[i] = held[--nheld];
            break;
        }
        case 5:
            if (nheld) ts_ok(fy_fill(held[n % (uint64_t)nheld].tensor, 2));
            break;
        default: {
            if (nheld == MOST) break;
            const uint64_t live = stats_of(ctx->device).live;
            int64_t dim = (int64_t)n;
            fy_tensor_t *host, *tensor;
            if (what & 8) {
                ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_F32, 1, &dim, &tensor));
            } else {
                ts_ok(fy_tensor_create_pinned(ctx->device, FY_DTYPE_F32, 1, &dim, &host));
                ts_ok(fy_tensor_upload(host, ctx->device, NULL, &tensor));
                fy_tensor_destroy(host);
            }
            fy_tensor_keep(tensor);
            held[nheld].tensor = tensor;
            held[nheld].category = said[depth];
            held[nheld].nbytes = stats_of(ctx->device).live - live;
            count[said[depth]] += held[nheld++].nbytes;
        }
        }
        const fy_memory_stats_t now = stats_of(ctx->device);
        for (int i = 0; i < FY_CATEGORY_COUNT; i++)
            assert_int_equal(now.by_category[i] - before.by_category[i], count[i]);
    }
    if (depth) fy_scope_end(scopes[0], 0, NULL);
    while (nheld) fy_tensor_destroy(held[--nheld].tensor);
    stats_of(ctx->device);
}

TS_DEVICE_TEST(pinned_bytes_add_up)
{
    ts_ok(fy_scope_memory(FY_CATEGORY_WEIGHTS));
    (void)ts_pinned_bytes(ctx->device, 100000);
    ts_ok(fy_tensor_pin(ts_bytes(fy_device_host(), 50000), ctx->device));
    const fy_memory_stats_t stats = add_up(ts_memory_pinned(ctx->device));
    if (!ctx->is_host) assert_true(stats.by_category[FY_CATEGORY_WEIGHTS] >= 100000);
}

TS_DEVICE_TEST(names_and_refusals)
{
    assert_string_equal(fy_category_name(FY_CATEGORY_ACTIVATIONS), "activations");
    assert_string_equal(fy_category_name(FY_CATEGORY_OPTIMIZER_STATE), "optimizer_state");
    assert_string_equal(fy_category_name(FY_CATEGORY_COUNT), "?");
    ts_fails(fy_scope_memory(FY_CATEGORY_COUNT), INVALID_ARGUMENT);
    fy_scope_t scopes[70];
    int n = 0;
    while (n < 70) scopes[n++] = fy_scope_begin("deep");
    ts_fails_with(fy_scope_memory(FY_CATEGORY_WEIGHTS), INVALID_ARGUMENT, "64");
    fy_scope_end(scopes[0], 0, NULL);
    expect_made_for(ctx->device, FY_CATEGORY_ACTIVATIONS);
}

static const ts_exclusion_t k_exclusions[] = {
    { "host", "transfers_pass_through_staging",
      "the host's pool is never fresh, and its copies need no packing in between" },
    { NULL, NULL, NULL },
};

TS_SUITE(.exclusions = k_exclusions);
