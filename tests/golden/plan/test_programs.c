/* A plan predicts the run: for thirty-eight programs, the planned peaks equal those that an
 * independent script (tests/golden/peak.awk) computes from the event file of a real run, with
 * numerics except in the largest batch with little workspace. For several limits, the batch that
 * fy_plan_fit returns runs on the device with that limit, and one more is refused, with the verdict
 * of the plan. Runs in the repository's root. Not here: special cases of the calls
 * (unit/alloc/test_plan.c). */
#include "tests/support/harness.h"

#include "tools/cli/plan_models.h"

#define SEND &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE

/* ---- programs ---- */

/* Two streams: half of the work on each; each stream reuses blocks of the other while they may be
 * in use. */
static fy_status_t overlap(fy_device_t *device, int64_t batch, void *user)
{
    fy_stream_t *side;
    fy_tensor_t *x, *y, *z;
    (void)user;
    FY_TRY(fy_stream_create(device, NULL, &side));
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(batch, 256), 1, &x));
    for (int i = 0; i < 6; i++) {
        fy_scope_t step = fy_scope_begin("step");
        fy_scope_t other = fy_scope_begin("side");
        FY_TRY(fy_stream_set_current(side));
        FY_TRY(fy_exp(x, &y));
        FY_TRY(fy_mul(y, y, &z));
        fy_scope_end(other, 1, &z);
        FY_TRY(fy_add(x, z, &y));
        fy_tensor_destroy(z);
        FY_TRY(fy_tanh(y, &z));
        fy_tensor_destroy(y);
        FY_TRY(fy_copy(x, z));
        fy_scope_end(step, 0, NULL);
    }
    return FY_STATUS_OK;
}

/* Staging: packed uploads and downloads, a conversion before the upload, chunks through the
 * ring. */
static fy_status_t staging(fy_device_t *device, int64_t batch, void *user)
{
    enum { SMALL = 24 };
    fy_tensor_t *small[SMALL], *up[SMALL], *large, *converted, *strided;
    fy_download_t *replies[SMALL];
    fy_transfer_options_t half = FY_TRANSFER_OPTIONS_HERE;
    (void)user;
    half.dtype = FY_DTYPE_F16;
    for (int i = 0; i < SMALL; i++)
        FY_TRY(fy_zeros(fy_device_host(), FY_DTYPE_F32, FY_DIMS(batch + i, 3), &small[i]));
    FY_TRY(fy_zeros(fy_device_host(), FY_DTYPE_F32, FY_DIMS(batch, 512), &large));
    for (int s = 0; s < 3; s++) {
        fy_scope_t step = fy_scope_begin("step");
        FY_TRY(fy_tensor_upload_many(SMALL, small, device, SEND, up));
        FY_TRY(fy_tensor_upload(large, device, &half, &converted));
        FY_TRY(fy_transpose(converted, NULL, &strided));
        FY_TRY(fy_tensor_download_many(SMALL, up, SEND, replies));
        for (int i = 0; i < SMALL; i++) FY_TRY(fy_download_wait(replies[i], FY_FOREVER, &up[i]));
        FY_TRY(fy_tensor_download(strided, SEND, &replies[0])); /* made dense on the device first */
        FY_TRY(fy_download_wait(replies[0], FY_FOREVER, &up[0]));
        fy_scope_end(step, 0, NULL);
    }
    return FY_STATUS_OK;
}

/* A step recorded once and replayed, beside other memory of the device. */
static fy_status_t graph(fy_device_t *device, int64_t batch, void *user)
{
    fy_tensor_t *x, *y, *z, *fresh;
    fy_graph_t *recorded;
    (void)user;
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(batch, 64), 1, &x));
    FY_TRY(fy_graph_begin(device));
    FY_TRY(fy_add(x, x, &y));
    FY_TRY(fy_relu(y, &z));
    fy_tensor_destroy(y);
    FY_TRY(fy_axpy(x, -0.5, z));
    FY_TRY(fy_graph_end(&recorded));
    for (int i = 0; i < 4; i++) {
        fy_scope_t step = fy_scope_begin("step");
        FY_TRY(fy_graph_replay(recorded, NULL));
        FY_TRY(fy_neg(x, &fresh));
        fy_scope_end(step, 0, NULL);
    }
    return FY_STATUS_OK;
}

/* Library calls with scratch: products of strided and half-precision operands, batched;
 * reductions. */
static fy_status_t workspace(fy_device_t *device, int64_t batch, void *user)
{
    fy_tensor_t *a, *b, *at, *part, *product, *sum;
    (void)user;
    FY_TRY(fy_full(device, FY_DTYPE_F16, FY_DIMS(3, batch, 160), 1, &a));
    FY_TRY(fy_full(device, FY_DTYPE_F16, FY_DIMS(3, 160, 96), 1, &b));
    FY_TRY(fy_transpose(a, NULL, &at));
    for (int i = 0; i < 2; i++) {
        fy_scope_t step = fy_scope_begin("step");
        FY_TRY(fy_matmul(a, b, &product));
        FY_TRY(fy_sum(product, FY_AXES(0, 2), 0, &sum));
        FY_TRY(fy_softmax(product, 1, &sum));
        FY_TRY(fy_slice(a, 2, 1, 97, &part));
        FY_TRY(fy_transpose(part, (int[]){ 0, 2, 1 }, &part));
        FY_TRY(fy_matmul(part, a, &product)); /* [3, 96, batch] [3, batch, 160] */
        FY_TRY(fy_sum(product, FY_ALL_AXES, 0, &sum));
        fy_scope_end(step, 0, NULL);
    }
    return FY_STATUS_OK;
}

/* Frees out of order, views that outlive their tensors, sizes that do not divide, page-locked
 * sources that are borrowed. */
static fy_status_t disorder(fy_device_t *device, int64_t batch, void *user)
{
    enum { COUNT = 12 };
    fy_tensor_t *tensors[COUNT], *view, *lent, *up;
    fy_transfer_options_t borrow = FY_TRANSFER_OPTIONS_HERE;
    (void)user;
    borrow.contract = FY_HOST_BORROW;
    FY_TRY(fy_tensor_create_pinned(device, FY_DTYPE_F32, FY_DIMS(batch, 100), &lent));
    FY_TRY(fy_fill(lent, 1));
    for (int s = 0; s < 3; s++) {
        fy_scope_t step = fy_scope_begin("step");
        for (int i = 0; i < COUNT; i++)
            FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(batch, 37 * (i + 1)), 1, &tensors[i]));
        FY_TRY(fy_slice(tensors[5], 1, 0, 7, &view));
        for (int i = 0; i < COUNT; i += 2) fy_tensor_destroy(tensors[i]);
        fy_tensor_destroy(tensors[5]); /* the view keeps its bytes */
        FY_TRY(fy_tensor_upload(lent, device, &borrow, &up));
        FY_TRY(fy_ticket_wait(fy_tensor_ticket(up), FY_FOREVER));
        FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(batch, 333), 1, &tensors[0]));
        FY_TRY(fy_exp(view, &tensors[2]));
        fy_tensor_destroy(tensors[0]);
        FY_TRY(fy_full(device, FY_DTYPE_U8, FY_DIMS(batch, 1001), 1, &tensors[0]));
        fy_scope_end(step, 0, NULL);
    }
    return FY_STATUS_OK;
}

/* Data is sent from a second device and back. */
static fy_status_t two_devices(fy_device_t *device, int64_t batch, void *user)
{
    fy_device_t *other = user;
    fy_tensor_t *there, *here, *result;
    FY_TRY(fy_full(other, FY_DTYPE_F32, FY_DIMS(batch, 128), 1, &there));
    for (int i = 0; i < 3; i++) {
        fy_scope_t step = fy_scope_begin("step");
        FY_TRY(fy_tensor_send(there, device, SEND, &here));
        FY_TRY(fy_exp(here, &result));
        FY_TRY(fy_transpose(result, NULL, &result));
        FY_TRY(fy_tensor_send(result, other, SEND, &result));
        fy_scope_end(step, 0, NULL);
    }
    return FY_STATUS_OK;
}

static fy_status_t fill(void *user, fy_batch_t *batch)
{
    (void)user;
    batch->is_end = batch->index == 5;
    return batch->is_end ? FY_STATUS_OK : fy_fill(batch->host[0], 1);
}

/* Batches that a thread of the library fills and uploads. */
static fy_status_t stream_in(fy_device_t *device, int64_t batch, void *user)
{
    const fy_batch_spec_t specs[] = { { FY_DTYPE_F32, 2, { batch, 48 } } };
    fy_prefetch_t *batches;
    fy_tensor_t *x, *y;
    int64_t rows;
    (void)user;
    FY_TRY(fy_prefetch_create(device, 1, specs, fill, NULL, NULL, &batches));
    for (;;) {
        FY_TRY(fy_prefetch_next(batches, &x, &rows));
        if (!rows) return FY_STATUS_OK;
        fy_scope_t step = fy_scope_begin("step");
        FY_TRY(fy_exp(x, &y));
        fy_scope_end(step, 0, NULL);
    }
}

static const fy_model_options_t
    in_segments = { sizeof in_segments, NULL, FY_DTYPE_F32, 1, FY_RECOMPUTE_SQRT, 0 },
    in_three = { sizeof in_three, NULL, FY_DTYPE_F32, 1, 3, 0 },
    offloaded = { sizeof offloaded, NULL, FY_DTYPE_F32, 1, .offload = 4 },
    cheap_offloaded = { sizeof cheap_offloaded, NULL, FY_DTYPE_F32, 1, 0, 1, .offload = 3 },
    cheap = { sizeof cheap, NULL, FY_DTYPE_F32, 1, 0, 1 },
    cheap_in_three = { sizeof cheap_in_three, NULL, FY_DTYPE_F32, 1, 3, 1 };
/* Small images and few tokens: the models are the same, and the arithmetic is real. */
#define RESNET    "resnet18:size=16"
#define MOBILENET "mobilenet_v3_large:size=33,classes=10"
#define VIT       "vit_tiny:size=16,patch=4,classes=10,layers=2"
#define GPT       "gpt:layers=2,heads=2,width=32,context=16,vocab=256"
static struct {
    const char *name;
    /* optimizers by their index in TRAIN_OPTIMIZERS: 1 SGD, 2 with momentum, 3 Adam; 0 is the
     * model's */
    plan_request_t request;
    int64_t batches[3]; /* of real runs with numerics */
    int too_small;      /* the number of the first limits below that do not hold a single sample */
    fy_step_fn step;    /* NULL: model_plan_step of the request */
} programs[] = {
    { "mlp with SGD", { "mlp", 1 }, { 1, 64, 1000 } },
    { "mlp with momentum", { "mlp", 2 }, { 3, 257, 2000 } },
    { "lenet", { "lenet" }, { 1, 17, 64 } },
    { "mnist2018 with Adam", { "mnist2018", 3 }, { 2, 33, 128 } },
    { "linear", { "linear" }, { 1, 10, 5000 } },
    { "mnist with Adadelta", { "mnist" }, { 1, 5, 32 }, 3 },
    { "resnet18", { RESNET }, { 1, 7, 64 }, 5 },
    { "resnet18, inference", { RESNET, .inference = true }, { 1, 7, 64 }, 5 },
    { "resnet18, recomputed", { RESNET, .options = &in_segments }, { 1, 7, 24 }, 5 },
    { "resnet18, cheap ops again", { RESNET, .options = &cheap }, { 1, 7, 24 }, 5 },
    { "resnet18, both", { RESNET, .options = &cheap_in_three }, { 1, 7, 24 }, 5 },
    { "resnet18, offloaded", { RESNET, .options = &offloaded }, { 1, 7, 24 }, 5 },
    { "resnet18, offloaded, cheap ops again",
      { RESNET, .options = &cheap_offloaded },
      { 1, 7, 24 },
      5 },
    { "lenet, offloaded", { "lenet", .options = &cheap_offloaded }, { 1, 17, 64 } },
    { "gpt, offloaded", { GPT, .options = &offloaded }, { 1, 7, 64 }, 1 },
    { "lenet, cheap ops again", { "lenet", .options = &cheap }, { 1, 17, 64 } },
    { "mobilenet_v3_large, cheap ops again", { MOBILENET, .options = &cheap }, { 1, 5, 24 }, 5 },
    { "gpt, cheap ops again", { GPT, .options = &cheap }, { 1, 7, 64 }, 1 },
    { "resnet18, bf16", { RESNET, .precision = 1 }, { 1, 7, 24 }, 5 },
    { "lenet, bf16", { "lenet", .precision = 1 }, { 1, 17, 64 } },
    { "lenet, f16", { "lenet", .precision = 2 }, { 1, 17, 64 } },
    { "mobilenet_v3_large", { MOBILENET }, { 1, 7, 64 }, 5 },
    { "mobilenet_v3_large, inference", { MOBILENET, .inference = true }, { 1, 7, 64 }, 5 },
    { "vit_tiny", { VIT }, { 1, 7, 64 }, 5 },
    { "vit_tiny, inference", { VIT, .inference = true }, { 1, 7, 64 }, 5 },
    { "gpt", { GPT }, { 1, 7, 64 }, 1 },
    { "gpt, recomputed", { GPT, .options = &in_three }, { 1, 7, 64 }, 1 },
    { "gpt, inference", { GPT, .inference = true }, { 1, 7, 64 }, 1 },
    { "roundtrip", { 0 }, { 1, 200, 411 }, 0, roundtrip_plan_step },
    { "vectorize", { 0 }, { 4, 64, 300 }, 0, vectorize_plan_step },
    { "minibatch", { 0 }, { 1, 10, 1501 }, 0, minibatch_plan_step },
    { "overlap of two streams", { 0 }, { 1, 100, 3000 }, 0, overlap },
    { "staging", { 0 }, { 1, 100, 2500 }, 0, staging },
    { "graph", { 0 }, { 1, 3000, 20000 }, 0, graph },
    { "workspace", { 0 }, { 1, 64, 700 }, 0, workspace },
    { "disorder", { 0 }, { 1, 61, 900 }, 0, disorder },
    { "batches streaming in", { 0 }, { 1, 500, 7000 }, 0, stream_in },
    { "two devices", { 0 }, { 1, 1000, 9000 }, 0, two_devices },
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

/* two_devices needs the second device. */
static fy_device_t *other;
static fy_step_fn step_of(int index)
{
    return programs[index].step ? programs[index].step : model_plan_step;
}
static void *user_of(int index)
{
    return programs[index].step == two_devices ? (void *)other : (void *)&programs[index].request;
}

static int open_other(void **state)
{
    (void)state;
    ts_ok(fy_device_open("sim:1", &other));
    return 0;
}

static int close_other(void **state)
{
    (void)state;
    fy_device_close(other);
    return 0;
}

/* ---- plan = actual ---- */

typedef struct actual {
    /* the last from fy_memory_query_pinned: memory that is page-locked in place belongs to no
     * pool */
    uint64_t live, reserved, pinned_reserved;
} actual_t;

static actual_t run_and_read(int index, int64_t batch, const char *spec)
{
    char path[] = "/tmp/ferry-plan-XXXXXX", command[256], line[256], name[128];
    actual_t actual = { 0 };
    fy_device_t *device;
    const int file = mkstemp(path);
    assert_true(file >= 0);
    ts_ok(fy_ledger_record(path));
    ts_ok(fy_device_open(spec, &device));
    fy_scope_t scope = fy_scope_begin("real");
    ts_ok(step_of(index)(device, batch, user_of(index)));
    fy_scope_end(scope, 0, NULL);
    fy_memory_stats_t pinned = FY_MEMORY_STATS_INIT;
    ts_ok(fy_memory_query_pinned(device, &pinned));
    actual.pinned_reserved = pinned.peak_reserved;
    fy_device_close(device);
    ts_ok(fy_ledger_record(NULL));
    snprintf(command, sizeof command, "awk -f tests/golden/peak.awk %s", path);
    FILE *script = popen(command, "r");
    assert_non_null(script);
    while (fgets(line, sizeof line, script)) {
        unsigned long long live, reserved;
        assert_int_equal(sscanf(line, "%127[^\t]\t%llu\t%llu", name, &live, &reserved), 3);
        if (strcmp(name, ts_spec_name(spec)) == 0) actual.live = live, actual.reserved = reserved;
        if (strncmp(name, "pinned memory of ", 17) == 0 &&
            strcmp(name + 17, ts_spec_name(spec)) == 0)
            assert_true(reserved <= actual.pinned_reserved);
    }
    assert_int_equal(pclose(script), 0);
    remove(path);
    return actual;
}

TS_TEST(plans_are_what_happens)
{
    static const char *const options[] = { "profile=h200",
                                           "capacity=256MiB&profile=t4&workspace=1MiB" };
    uint64_t staged = 0, scratch = 0, gradients = 0;
    for (int p = 0; p < PROGRAMS; p++)
        for (int b = 0; b < 3; b++)
            for (int o = 0; o < 2; o++) {
                char planned[96], real[96];
                fy_plan_t plan = FY_PLAN_INIT;
                uint64_t sum = 0;
                const int64_t batch = programs[p].batches[b];
                snprintf(planned, sizeof planned, "sim?%s", options[o]);
                /* the small workspace leaves slow plain loops: large batches without numerics */
                snprintf(real, sizeof real, "sim:3?%s%s", options[o],
                         b == 2 && o == 1 ? "&numerics=off" : "");
                ts_ok(fy_plan_step(planned, step_of(p), user_of(p), batch, NULL, &plan));
                const actual_t actual = run_and_read(p, batch, real);
                if (plan.peak_live != actual.live || plan.peak_reserved != actual.reserved ||
                    plan.pinned_peak_reserved != actual.pinned_reserved)
                    print_error("%s, batch %lld, on %s\n", programs[p].name, (long long)batch,
                                real);
                assert_int_equal(plan.peak_live, actual.live);
                assert_int_equal(plan.peak_reserved, actual.reserved);
                assert_int_equal(plan.pinned_peak_reserved, actual.pinned_reserved);
                assert_true(plan.steps >= 2 && plan.step_model_ns > 0);
                for (int c = 0; c < FY_CATEGORY_COUNT; c++) sum += plan.peak_by_category[c];
                assert_int_equal(sum, plan.peak_live);
                staged += plan.peak_by_category[FY_CATEGORY_STAGING];
                scratch += plan.peak_by_category[FY_CATEGORY_WORKSPACE];
                gradients += plan.peak_by_category[FY_CATEGORY_GRADIENTS];
            }
    assert_true(staged && scratch && gradients); /* each of them occurs */
}

/* ---- fit ---- */

static fy_status_t run_within(int index, int64_t batch, const char *spec,
                              fy_oom_verdict_t *out_verdict, fy_memory_stats_t *out_stats)
{
    fy_device_t *device;
    ts_ok(fy_device_open(spec, &device));
    fy_scope_t scope = fy_scope_begin("real");
    const fy_status_t status = step_of(index)(device, batch, user_of(index));
    if (status == FY_STATUS_OUT_OF_MEMORY) *out_verdict = *fy_error_get()->oom;
    fy_scope_end(scope, 0, NULL);
    ts_ok(fy_memory_query(device, NULL, out_stats));
    fy_device_close(device);
    return status;
}

TS_TEST(the_batch_that_fits)
{
    static const char *const limits[] = { "limit=3MiB",        "limit=7340033",
                                          "capacity=24MiB",    "limit=40MiB&segment=4MiB",
                                          "capacity=90000001", "limit=400MiB" };
    for (int p = 0; p < PROGRAMS; p++)
        for (size_t i = (size_t)programs[p].too_small; i < sizeof limits / sizeof *limits; i++) {
            char planned[96], real[96];
            int64_t batch;
            fy_plan_t plan = FY_PLAN_INIT;
            fy_oom_verdict_t verdict = { 0 };
            fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
            snprintf(planned, sizeof planned, "sim?%s", limits[i]);
            snprintf(real, sizeof real, "sim:3?numerics=off&%s", limits[i]);
            ts_ok(fy_plan_fit(planned, step_of(p), user_of(p), 1 << 24, &batch, &plan));
            if (run_within(p, batch, real, &verdict, &stats) != FY_STATUS_OK)
                fail_msg("%s, %s: %lld was found to fit, and did not: %s", programs[p].name,
                         limits[i], (long long)batch, verdict.text);
            assert_int_equal(plan.peak_live, stats.peak_live);
            assert_int_equal(plan.peak_reserved, stats.peak_reserved); /* within the limit */
            if (run_within(p, batch + 1, real, &verdict, &stats) != FY_STATUS_OUT_OF_MEMORY)
                fail_msg("%s, %s: %lld was found not to fit, and did", programs[p].name, limits[i],
                         (long long)batch + 1);
            ts_ok(fy_plan_step(planned, step_of(p), user_of(p), batch + 1, NULL, &plan));
            assert_int_equal(plan.fits, 0);
            assert_int_equal(plan.verdict.reason, verdict.reason);
            assert_int_equal(plan.verdict.asked, verdict.asked);
            assert_int_equal(plan.verdict.live, verdict.live);
            assert_int_equal(plan.verdict.reserved, verdict.reserved);
            assert_int_equal(plan.verdict.largest_free, verdict.largest_free);
            assert_int_equal(plan.verdict.would_help, verdict.would_help);
            assert_int_equal(plan.verdict.tried, verdict.tried);
        }
}

TS_SUITE(.begin = open_other, .end = close_other);
