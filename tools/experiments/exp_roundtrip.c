/* Experiment E6: one matrix product, (1) on the host, (2) resident on the device, (3) on the device
 * with both operands sent and the result fetched every time. The resident loop runs in a scope
 * whose guard refuses any transfer and any sync.
 * Not here: the sweep's crossover and figures (exp_roundtrip_sweep.c). How to read it:
 * docs/experiments.md. */
#include "tools/experiments/parts.h"

#include <math.h>

#include "tools/cli/plan_models.h"

enum { WARMUP = 3, SEED = 1 };

typedef struct operands {
    fy_tensor_t *host_a, *host_b, *device_a, *device_b;
    int64_t size;
} operands_t;

typedef fy_status_t (*step_fn)(const operands_t *operands, fy_device_t *device,
                               fy_tensor_t **out_product);

static fy_status_t step_host(const operands_t *o, fy_device_t *device, fy_tensor_t **out_product)
{
    (void)device;
    return fy_matmul(o->host_a, o->host_b, out_product);
}

static fy_status_t step_resident(const operands_t *o, fy_device_t *device,
                                 fy_tensor_t **out_product)
{
    (void)device;
    return fy_matmul(o->device_a, o->device_b, out_product);
}

/* Makes a host tensor, as a program does that thinks of the device as a subroutine. */
static fy_status_t step_copies(const operands_t *o, fy_device_t *device, fy_tensor_t **out_product)
{
    fy_tensor_t *a, *b, *product;
    fy_download_t *reply;
    FY_TRY(
        fy_tensor_upload(o->host_a, device, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &a));
    FY_TRY(
        fy_tensor_upload(o->host_b, device, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &b));
    FY_TRY(fy_matmul(a, b, &product));
    FY_TRY(fy_tensor_download(product, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &reply));
    fy_tensor_destroy(product);
    fy_tensor_destroy(b);
    fy_tensor_destroy(a);
    return fy_download_wait(reply, FY_FOREVER, out_product);
}

/* For `ferry plan`: two products of resident operands. */
fy_status_t roundtrip_plan_step(fy_device_t *device, int64_t batch, void *user)
{
    operands_t operands = { .size = batch };
    (void)user;
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(batch, batch), &operands.device_a));
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(batch, batch), &operands.device_b));
    for (int i = 0; i < 2; i++) {
        fy_tensor_t *product;
        fy_scope_t scope = fy_scope_begin("step");
        FY_TRY(step_resident(&operands, device, &product));
        fy_scope_end(scope, 0, NULL);
    }
    return FY_STATUS_OK;
}

static const struct {
    const char *name, *loop_path;
    step_fn step;
    bool light_only;
} variants[VARIANT_COUNT] = {
    { "host", "roundtrip/host/loop", step_host, false },
    { "resident", "roundtrip/resident/loop", step_resident, true },
    { "copies", "roundtrip/copies/loop", step_copies, false },
};

const char *roundtrip_variant_name(int variant) { return variants[variant].name; }

/* The timed loop, in a separate scope so that the ledger separates it from warm-up and set-up. */
static fy_status_t run_loop(session_t *session, int variant, const operands_t *operands,
                            int64_t iters)
{
    fy_scope_t loop = fy_scope_begin("loop");
    if (variants[variant].light_only)
        FY_TRY(fy_scope_guard(&(fy_guard_options_t)FY_GUARD_LIGHT_ONLY));
    for (int64_t i = 0; i < iters; i++) {
        fy_tensor_t *product;
        FY_TRY(variants[variant].step(operands, session->device, &product));
        fy_tensor_destroy(product);
    }
    fy_scope_end(loop, 0, NULL);
    return FY_STATUS_OK;
}

/* One more product, outside the timed loop, as a host tensor. */
static fy_status_t fetch_product(session_t *session, int variant, const operands_t *operands,
                                 fy_tensor_t **out_host)
{
    fy_tensor_t *product;
    fy_download_t *reply;
    FY_TRY(variants[variant].step(operands, session->device, &product));
    if (variant != VARIANT_RESIDENT) {
        *out_host = product;
        return FY_STATUS_OK;
    }
    FY_TRY(fy_tensor_download(product, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &reply));
    return fy_download_wait(reply, FY_FOREVER, out_host);
}

static fy_status_t warm_up(session_t *session, int variant, const operands_t *operands)
{
    fy_tensor_t *product;
    fy_scope_t scope = fy_scope_begin(variants[variant].name);
    for (int i = 0; i < WARMUP; i++) {
        FY_TRY(variants[variant].step(operands, session->device, &product));
        fy_tensor_destroy(product);
    }
    FY_TRY(session_wait(session));
    fy_scope_end(scope, 0, NULL);
    return FY_STATUS_OK;
}

/* What the rounds of a variant have so far, per product. */
typedef struct rounds {
    sample_t ns, model_ns;
} rounds_t;

static fy_status_t measure_round(session_t *session, int variant, const operands_t *operands,
                                 int64_t iters, rounds_t *rounds)
{
    fy_scope_t scope = fy_scope_begin(variants[variant].name);
    const double model_begin = session_model_ns(session), begin = wall_ns();
    FY_TRY(run_loop(session, variant, operands, iters));
    FY_TRY(session_wait(session));
    const double end = wall_ns(), model_end = session_model_ns(session), n = (double)iters;
    sample_add(&rounds->ns, (end - begin) / n);
    sample_add(&rounds->model_ns, model_end > model_begin ? (model_end - model_begin) / n : NAN);
    fy_scope_end(scope, 0, NULL);
    return FY_STATUS_OK;
}

/* Traffic of the timed loop alone: its totals less those `before`. */
static void summarize(int variant, const rounds_t *rounds, int64_t iters,
                      const fy_ledger_totals_t *before, roundtrip_t *out)
{
    const fy_ledger_totals_t after = ledger_read(variants[variant].loop_path);
    const double n = (double)iters * (double)rounds->ns.count;
    out->ns = sample_spread(&rounds->ns);
    out->model_ns = sample_spread(&rounds->model_ns);
    out->uploads = (double)(after.upload.count - before->upload.count) / n;
    out->downloads = (double)(after.download.count - before->download.count) / n;
    out->nbytes = (double)(after.upload.nbytes - before->upload.nbytes + after.download.nbytes -
                           before->download.nbytes) /
                  n;
}

/* The product that each variant has come to, on the host. */
static fy_status_t check_variant(session_t *session, int variant, const operands_t *operands,
                                 fy_tensor_t **out_product)
{
    fy_scope_t scope = fy_scope_begin(variants[variant].name);
    FY_TRY(fetch_product(session, variant, operands, out_product));
    fy_scope_end(scope, 1, out_product);
    return FY_STATUS_OK;
}

static bool are_met(const session_t *session, const effort_t *effort, const rounds_t *rounds)
{
    for (int v = 0; v < VARIANT_COUNT; v++)
        if (!effort_is_met(effort,
                           session->info.is_simulated ? &rounds[v].model_ns : &rounds[v].ns))
            return false;
    return true;
}

static fy_status_t make_operands(session_t *session, int64_t size, operands_t *out)
{
    fy_tensor_t *rng;
    fy_device_t *host = fy_device_host();
    out->size = size;
    FY_TRY(fy_rng_create(host, SEED, &rng));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(size, size), -1, 1, &out->host_a));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(size, size), -1, 1, &out->host_b));
    FY_TRY(fy_tensor_upload(out->host_a, session->device,
                            &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &out->device_a));
    return fy_tensor_upload(out->host_b, session->device,
                            &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &out->device_b);
}

static fy_status_t max_abs_diff(fy_tensor_t *a, fy_tensor_t *b, int64_t count, double *out_diff)
{
    void *x, *y;
    double most = 0;
    FY_TRY(fy_tensor_map(a, FY_ACCESS_READ, &x));
    FY_TRY(fy_tensor_map(b, FY_ACCESS_READ, &y));
    for (int64_t i = 0; i < count; i++) {
        double d = fabs((double)((float *)x)[i] - (double)((float *)y)[i]);
        if (!(d <= most)) most = d; /* a NaN stays */
    }
    *out_diff = most;
    return FY_STATUS_OK;
}

fy_status_t roundtrip_measure(session_t *session, int64_t size, int64_t iters,
                              const effort_t *effort, roundtrip_t out[VARIANT_COUNT])
{
    operands_t operands;
    fy_tensor_t *products[VARIANT_COUNT];
    fy_ledger_totals_t before[VARIANT_COUNT];
    rounds_t rounds[VARIANT_COUNT] = { 0 };
    FY_TRY(make_operands(session, size, &operands));
    for (int v = 0; v < VARIANT_COUNT; v++) {
        FY_TRY(warm_up(session, v, &operands));
        before[v] = ledger_read(variants[v].loop_path);
    }
    while (!are_met(session, effort, rounds))
        for (int v = 0; v < VARIANT_COUNT; v++)
            FY_TRY(measure_round(session, v, &operands, iters, &rounds[v]));
    for (int v = 0; v < VARIANT_COUNT; v++) {
        summarize(v, &rounds[v], iters, &before[v], &out[v]);
        FY_TRY(check_variant(session, v, &operands, &products[v]));
    }
    for (int v = 0; v < VARIANT_COUNT; v++) {
        FY_TRY(max_abs_diff(products[0], products[v], size * size, &out[v].max_abs_diff));
        /* the downloaded bytes are all zero */
        if (v != VARIANT_HOST && !session->info.numerics) out[v].max_abs_diff = NAN;
    }
    /* The session's scope would do, but a sweep would pile them up. */
    for (int v = 0; v < VARIANT_COUNT; v++) fy_tensor_destroy(products[v]);
    fy_tensor_destroy(operands.device_b);
    fy_tensor_destroy(operands.device_a);
    fy_tensor_destroy(operands.host_b);
    fy_tensor_destroy(operands.host_a);
    return FY_STATUS_OK;
}

static fy_status_t report(session_t *session, int64_t size, int64_t iters, const effort_t *effort,
                          const roundtrip_t measured[VARIANT_COUNT])
{
    static const column_t columns[] = {
        { "name", "variant", 0 },
        SPREAD_COLUMNS("ns_per_iter", "wall ns/iter", 0),
        SPREAD_HIDDEN("model_ns_per_iter", "model ns/iter", 0),
        { "uploads_per_iter", "uploads/iter", 0 },
        { "downloads_per_iter", "downloads/iter", 0 },
        { "bytes_per_iter", "bytes/iter", 0 },
        { "max_abs_diff", "max |diff|", 6 },
        ROUNDS_COLUMN,
    };
    const char *names[VARIANT_COUNT];
    spread_t ns[VARIANT_COUNT];
    double most = session->info.numerics ? 0 : NAN;
    bool model = session->info.is_simulated;
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (int v = 0; v < VARIANT_COUNT; v++) {
        const roundtrip_t *m = &measured[v];
        names[v] = variants[v].name;
        ns[v] = model ? m->model_ns : m->ns;
        if (m->max_abs_diff > most) most = m->max_abs_diff;
        sheet_text(sheet, names[v]);
        sheet_spread(sheet, &m->ns);
        sheet_spread(sheet, &m->model_ns);
        sheet_real(sheet, m->uploads);
        sheet_real(sheet, m->downloads);
        sheet_real(sheet, m->nbytes);
        sheet_real(sheet, m->max_abs_diff);
        sheet_int(sheet, (int64_t)m->ns.rounds);
    }
    if (!session->out) {
        json_int(&session->json, "size", size);
        json_int(&session->json, "iters", iters);
    }
    /* the clock of ns_per_iter; model_ns_per_iter says its own */
    session_sheet(session, sheet, "variants", "wall", "",
                  "roundtrip: a %lldx%lld f32 matrix product, %lld times a round,", (long long)size,
                  (long long)size, (long long)iters);
    if (!session->out) json_real(&session->json, "max_abs_diff", most);
    session_statistics(session, effort, ROUNDTRIP_WARM_UP);
    const series_t series = { "ns", VARIANT_COUNT, .spreads = ns };
    const plot_t plot = { .title = "A matrix product: where the operands live decides",
                          .x_label = "variant",
                          .y_label = model ? "ns per iteration, model clock" : "ns per iteration",
                          .bars = names,
                          .nseries = 1,
                          .series = &series };
    return session_finish(session, sheet, &plot);
}

int exp_roundtrip(int argc, char **argv)
{
    common_t common = { .device = "auto" };
    effort_t effort = { .rounds = ROUNDS_FOR_INTERVAL };
    int64_t size = 200, iters = 100;
    bool sweep = false;
    const option_t options[] = {
        { "size", OPTION_INT, "N", &size, "rows and columns of the matrices", 1, 8192 },
        { "iters", OPTION_INT, "N", &iters, "products per variant in a round", 1, 1000000000 },
        { "sweep", OPTION_FLAG, NULL, &sweep,
          "go through sizes from 8 to 1024 and find where the device begins to pay" },
        EFFORT_OPTIONS(&effort),
        TRAFFIC_OPTION(&common),
        COMMON_OPTIONS(&common),
    };
    const usage_t usage = {
        "ferry experiment roundtrip",
        "Multiplies two square matrices on the host, resident on the device, and on the device "
        "with copies every time.",
        options, sizeof options / sizeof *options,
        "ferry experiment roundtrip --device sim:0\n"
        "ferry experiment roundtrip --device sim:0 --size 512 --iters 10 --traffic\n"
    };
    OPTIONS_TRY(options_parse(&usage, argc, argv));

    session_t session;
    roundtrip_t measured[VARIANT_COUNT];
    fy_status_t status = session_begin(&session, &common, usage.command, "experiment", "roundtrip");
    if (status == FY_STATUS_OK && sweep) status = roundtrip_sweep(&session, iters, &effort);
    if (status == FY_STATUS_OK && !sweep)
        status = roundtrip_measure(&session, size, iters, &effort, measured);
    if (status == FY_STATUS_OK && !sweep) status = report(&session, size, iters, &effort, measured);
    return session_end_experiment(&session, status);
}
