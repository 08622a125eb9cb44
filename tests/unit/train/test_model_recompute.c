/* fy_model_options_t.recompute: the same weights, buffers and generator after training steps, bit
 * for bit, with fewer bytes kept for the backward, and no device allocation in a steady step.
 * Not here: fy_tape_recompute itself (tests/unit/ops/test_recompute.c). */
#include "tests/unit/train/descent.h"

enum { BATCH = 4, STEPS = 4, STEADY = 2 };
enum { CHEAP = 1000, OFFLOAD = 2000 }; /* added to `recompute`: recompute_cheap; offload, too */

typedef struct state {
    bits_t bits;   /* values, gradients, buffers, generator; last the logits */
    uint64_t kept; /* bytes before the last backward */
} state_t;

/* Of the next models. */
typedef struct given {
    size_t count;
    const fy_segment_t *segments;
} given_t;
static given_t given;

static void train(ts_ctx_t *ctx, const char *name, int recompute, state_t *out)
{
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    descent_t d = { 0 };
    uint64_t allocs = 0;
    const fy_scope_t scope = fy_scope_begin("train");
    options.recompute_cheap = recompute >= CHEAP;
    options.recompute = recompute < OFFLOAD ? recompute % CHEAP : 0;
    options.offload = recompute < OFFLOAD ? 0 : recompute % CHEAP;
    options.nsegments = given.count, options.segments = given.segments;
    model_batch(ctx->device, name, BATCH, &d.x, &d.y);
    d.model = known_model(ctx->device, name, &options);
    ts_ok(descent_begin(&d));
    for (int i = 0; i < STEPS; i++) {
        if (i == STEADY) allocs = ts_ledger(NULL).device_allocs;
        ts_ok(descent_step(&d));
    }
    assert_int_equal(ts_ledger(NULL).device_allocs, allocs);
    *out = (state_t){ descent_bits(&d), d.kept }; /* segments without a record, too */
    fy_model_destroy(d.model);
    fy_scope_end(scope, 0, NULL);
}

TS_DEVICE_TEST(steps_have_the_same_bits_with_less_memory)
{
    static const struct {
        const char *name;
        int recompute;
    } cases[] = { { "mnist", 2 },
                  { "resnet18:size=8", FY_RECOMPUTE_SQRT },
                  { "resnet18:size=8", CHEAP },
                  { "resnet18:size=8", CHEAP + 3 },
                  { "resnet18:size=8", OFFLOAD + 5 },
                  { "resnet18:size=8", 7 },
                  { "mobilenet_v3_large:classes=10,size=32", FY_RECOMPUTE_SQRT },
                  { "mobilenet_v3_large:classes=10,size=32", CHEAP },
                  { "vit_tiny:size=32", CHEAP },
                  { "gpt:layers=3,heads=2,width=16,context=8,vocab=32", CHEAP },
                  { "gpt:layers=3,heads=2,width=16,context=8,vocab=32", 4 } };
    state_t plain = { 0 }, again;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!i || strcmp(cases[i].name, cases[i - 1].name) != 0) {
            free(plain.bits.bytes);
            train(ctx, cases[i].name, 0, &plain);
        }
        train(ctx, cases[i].name, cases[i].recompute, &again);
        print_message("           %s, recompute %d: %llu of %llu bytes before the backward\n",
                      cases[i].name, cases[i].recompute, (unsigned long long)again.kept,
                      (unsigned long long)plain.kept);
        expect_bits(again.bits, &plain.bits);
        if (cases[i].recompute < OFFLOAD || !ctx->is_host) assert_true(again.kept < plain.kept);
    }
    free(plain.bits.bytes);
}

TS_DEVICE_TEST(more_segments_than_places_are_refused)
{
    fy_model_t *model;
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    options.recompute = 1000;
    ts_fails_with(fy_model_open(ctx->device, "resnet18:size=8", &options, &model), INVALID_ARGUMENT,
                  "recompute asks for 1000 segments; it has ");
    options.recompute = -2;
    ts_fails_with(fy_model_open(ctx->device, "mnist", &options, &model), INVALID_ARGUMENT,
                  "recompute is -2");
    options.recompute = 1; /* none */
    ts_ok(fy_model_open(ctx->device, "linear", &options, &model));
    fy_model_destroy(model);
    options.recompute = FY_RECOMPUTE_SQRT;
    ts_ok(fy_model_open(ctx->device, "linear", &options, &model));
    fy_model_destroy(model);
}

/* Uneven ones, some layers in none. */
TS_DEVICE_TEST(given_segments_have_the_same_bits)
{
    static const fy_segment_t segments[] = { { 0, 2 }, { 2, 8 }, { 14, 26 } };
    state_t plain, again;
    train(ctx, "resnet18:size=8", 0, &plain);
    given = (given_t){ 3, segments };
    train(ctx, "resnet18:size=8", 0, &again);
    given = (given_t){ 0, NULL };
    print_message("           given segments: %llu of %llu bytes before the backward\n",
                  (unsigned long long)again.kept, (unsigned long long)plain.kept);
    expect_bits(again.bits, &plain.bits);
    assert_true(again.kept < plain.kept);
    free(plain.bits.bytes);
}

TS_DEVICE_TEST(given_segments_that_cannot_be_are_refused)
{
    static const struct {
        fy_segment_t segments[2];
        const char *text;
    } cases[] = {
        { { { 0, 0 }, { 0, 1 } }, "segment 0 is from layer 0 to before 0; segments are in order" },
        { { { 0, 8 }, { 2, 14 } }, "segment 1 is from layer 2 to before 14" },
        { { { 0, 1 }, { 8, 1000 } }, "segment 1 is from layer 8 to before 1000" },
        { { { 0, 1 }, { 2, 5 } }, "segment 1 cannot end before layer 5 ('layer1.0" },
        { { { 0, 2 }, { 6, 8 } }, "segment 1 cannot begin with layer 6 ('layer1.0" },
    };
    fy_model_t *model;
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    options.nsegments = 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        options.segments = cases[i].segments;
        ts_fails_with(fy_model_open(ctx->device, "resnet18:size=8", &options, &model),
                      INVALID_ARGUMENT, cases[i].text);
    }
    options.segments = NULL;
    ts_fails_with(fy_model_open(ctx->device, "mlp", &options, &model), INVALID_ARGUMENT,
                  "segments is NULL");
    options.segments = cases[0].segments;
    options.recompute = 2;
    ts_fails_with(fy_model_open(ctx->device, "mlp", &options, &model), INVALID_ARGUMENT,
                  "recompute or offload: one of them");
}
