/* Experiment E1: A = B C, asked for element by element, column by column, at once, and in four
 * column blocks; through the dispatcher and as bare oneDNN calls. The work is the same, the number
 * of requests is not.
 * Not here: the bare call (peer_gemm.c). How to read it: docs/experiments.md. */
#include "tools/bench/peers.h"
#include "tools/cli/plan_models.h"
#include "tools/cli/tool.h"

#include <math.h>
#include <stdlib.h>

enum { WAYS = 4, BLOCKS = 4, MAX_ROWS = 2 * WAYS, SEED = 1 };
static const char *const way_names[WAYS] = { "element", "column", "full", "block" };

typedef struct problem {
    session_t *session;
    int64_t n;
    effort_t effort;
    fy_tensor_t *host_b, *host_c; /* [n, n] */
    fy_tensor_t *a, *b, *c;       /* [n, n] on the device */
    fy_tensor_t **b_rows, **c_columns;
    const float *raw_b, *raw_c; /* of the host tensors */
    float *raw_a;
    double *reference; /* f64 product of the f32 operands */
} problem_t;

/* dst = a b, written where dst views. */
static fy_status_t multiply_into(fy_tensor_t *dst, fy_tensor_t *a, fy_tensor_t *b)
{
    return fy_op_call(FY_OP_MATMUL, 2, (fy_tensor_t *[]){ a, b }, NULL, 0, 1, &dst);
}

static fy_status_t ask_elements(problem_t *p)
{
    fy_tensor_t *row, *element;
    for (int64_t i = 0; i < p->n; i++) {
        FY_TRY(fy_slice(p->a, 0, i, i + 1, &row));
        for (int64_t j = 0; j < p->n; j++) {
            FY_TRY(fy_slice(row, 1, j, j + 1, &element));
            FY_TRY(multiply_into(element, p->b_rows[i], p->c_columns[j]));
            fy_tensor_destroy(element);
        }
        fy_tensor_destroy(row);
    }
    return FY_STATUS_OK;
}

static fy_status_t ask_columns(problem_t *p)
{
    for (int64_t j = 0; j < p->n; j++) {
        fy_tensor_t *column;
        FY_TRY(fy_slice(p->a, 1, j, j + 1, &column));
        FY_TRY(multiply_into(column, p->b, p->c_columns[j]));
        fy_tensor_destroy(column);
    }
    return FY_STATUS_OK;
}

static fy_status_t ask_full(problem_t *p) { return multiply_into(p->a, p->b, p->c); }

static fy_status_t ask_blocks(problem_t *p)
{
    int64_t width = p->n / BLOCKS;
    for (int64_t k = 0; k < BLOCKS; k++) {
        fy_tensor_t *dst, *src;
        FY_TRY(fy_slice(p->a, 1, k * width, (k + 1) * width, &dst));
        FY_TRY(fy_slice(p->c, 1, k * width, (k + 1) * width, &src));
        FY_TRY(multiply_into(dst, p->b, src));
        fy_tensor_destroy(src);
        fy_tensor_destroy(dst);
    }
    return FY_STATUS_OK;
}

static fy_status_t (*const asks[WAYS])(problem_t *) = { ask_elements, ask_columns, ask_full,
                                                        ask_blocks };

/* For `ferry plan`: the product at once, then in four column blocks. */
fy_status_t vectorize_plan_step(fy_device_t *device, int64_t batch, void *user)
{
    problem_t p = { .n = (batch + BLOCKS - 1) / BLOCKS * BLOCKS };
    (void)user;
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(p.n, p.n), &p.b));
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(p.n, p.n), &p.c));
    FY_TRY(fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(p.n, p.n), &p.a));
    for (int way = 2; way < WAYS; way++) {
        fy_scope_t scope = fy_scope_begin("step");
        FY_TRY(asks[way](&p));
        fy_scope_end(scope, 0, NULL);
    }
    return FY_STATUS_OK;
}

static fy_status_t call_library(problem_t *p, int way)
{
    int64_t n = p->n,
            width = way == 0 || way == 1 ? 1
                    : way == 2           ? n
                                         : n / BLOCKS,
            height = way == 0 ? 1 : n;
    bool ok = true;
    for (int64_t i = 0; i < n && ok; i += height)
        for (int64_t j = 0; j < n && ok; j += width)
            ok = peer_gemm(height, width, n, p->raw_b + i * n, n, p->raw_c + j, n,
                           p->raw_a + i * n + j, n);
    return ok ? FY_STATUS_OK
              : TOOL_FAIL(INTERNAL, "the bare sgemm call failed for '%s'", way_names[way]);
}

static double max_abs_err(const problem_t *p, const float *a)
{
    double most = 0;
    for (int64_t i = 0; i < p->n * p->n; i++) {
        double d = fabs((double)a[i] - p->reference[i]);
        if (!(d <= most)) most = d;
    }
    return most;
}

typedef struct figures {
    spread_t ns, model_ns;
    double requests, max_abs_err;
} figures_t;

static fy_status_t measure_dispatcher(problem_t *p, int way, figures_t *out)
{
    sample_t ns = { 0 }, model = { 0 };
    fy_download_t *reply;
    fy_tensor_t *host_a;
    void *raw;
    fy_scope_t scope = fy_scope_begin(way_names[way]);
    FY_TRY(fy_fill(p->a, 0)); /* so that a variant that writes nothing is detected */
    uint64_t requests = ledger_read(NULL).requests;
    FY_TRY(asks[way](p));
    out->requests = (double)(ledger_read(NULL).requests - requests);
    FY_TRY(fy_tensor_download(p->a, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &reply));
    FY_TRY(fy_download_wait(reply, FY_FOREVER, &host_a));
    FY_TRY(fy_tensor_map(host_a, FY_ACCESS_READ, &raw));
    /* off: the downloaded bytes are zero */
    out->max_abs_err = p->session->info.numerics ? max_abs_err(p, raw) : NAN;
    FY_TRY(session_wait(p->session));
    while (!effort_is_met(&p->effort, p->session->info.is_simulated ? &model : &ns)) {
        double model_begin = session_model_ns(p->session), begin = wall_ns();
        FY_TRY(asks[way](p));
        FY_TRY(session_wait(p->session));
        sample_add(&ns, wall_ns() - begin);
        sample_add(&model, session_model_ns(p->session) - model_begin);
    }
    fy_scope_end(scope, 0, NULL);
    out->ns = sample_spread(&ns);
    out->model_ns = sample_spread(&model);
    return FY_STATUS_OK;
}

static fy_status_t measure_library(problem_t *p, int way, figures_t *out)
{
    sample_t ns = { 0 };
    for (int64_t i = 0; i < p->n * p->n; i++) p->raw_a[i] = 0;
    FY_TRY(call_library(p, way));
    out->max_abs_err = max_abs_err(p, p->raw_a);
    while (!effort_is_met(&p->effort, &ns)) {
        double begin = wall_ns();
        FY_TRY(call_library(p, way));
        sample_add(&ns, wall_ns() - begin);
    }
    out->ns = sample_spread(&ns);
    out->model_ns = sample_spread(&(sample_t){ 0 });
    out->requests = NAN;
    return FY_STATUS_OK;
}

static void multiply_reference(problem_t *p)
{
    int64_t n = p->n;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++) {
            double b = (double)p->raw_b[i * n + k];
            for (int64_t j = 0; j < n; j++)
                p->reference[i * n + j] += b * (double)p->raw_c[k * n + j];
        }
}

/* Standard normal operands, made on the host; two uploads. */
static fy_status_t set_up(problem_t *p)
{
    int64_t n = p->n;
    fy_tensor_t *rng;
    fy_device_t *host = fy_device_host(), *device = p->session->device;
    void *raw_b, *raw_c;
    FY_TRY(fy_rng_create(host, SEED, &rng));
    FY_TRY(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(n, n), 0, 1, &p->host_b));
    FY_TRY(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(n, n), 0, 1, &p->host_c));
    FY_TRY(fy_tensor_map(p->host_b, FY_ACCESS_READ, &raw_b));
    FY_TRY(fy_tensor_map(p->host_c, FY_ACCESS_READ, &raw_c));
    p->raw_b = raw_b;
    p->raw_c = raw_c;
    FY_TRY(fy_tensor_upload(p->host_b, device, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE,
                            &p->b));
    FY_TRY(fy_tensor_upload(p->host_c, device, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE,
                            &p->c));
    FY_TRY(fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(n, n), &p->a));
    for (int64_t i = 0; i < n; i++) {
        FY_TRY(fy_slice(p->b, 0, i, i + 1, &p->b_rows[i]));
        FY_TRY(fy_slice(p->c, 1, i, i + 1, &p->c_columns[i]));
    }
    multiply_reference(p);
    return FY_STATUS_OK;
}

static void add_row(const problem_t *p, sheet_t *sheet, int way, const char *via,
                    const figures_t *f)
{
    double flops = 2.0 * (double)p->n * (double)p->n * (double)p->n;
    sheet_text(sheet, way_names[way]);
    sheet_text(sheet, via);
    sheet_real(sheet, flops / f->ns.median);
    sheet_real(sheet, f->model_ns.median > 0 ? flops / f->model_ns.median : NAN);
    sheet_spread(sheet, &f->ns);
    sheet_real(sheet, f->requests);
    sheet_real(sheet, f->max_abs_err);
    sheet_int(sheet, (int64_t)f->ns.rounds);
}

static fy_status_t run(problem_t *p)
{
    static const column_t columns[] = {
        { "name", "way", 0 },
        { "via", "via", 0 },
        { "gflops", "GFLOP/s", 3 },
        { "model_gflops", "model GFLOP/s", 3 },
        SPREAD_COLUMNS("ns", "ns", 0),
        { "requests", "requests", 0 },
        { "max_abs_err", "max |err|", 6 },
        ROUNDS_COLUMN,
    };
    /* On a real accelerator the host's library is no peer. */
    bool library = peer_gemm_found() && (p->session->info.is_host || p->session->info.is_simulated);
    spread_t gflops[MAX_ROWS];
    const double flops = 2.0 * (double)p->n * (double)p->n * (double)p->n;
    char names[MAX_ROWS][32];
    const char *bars[MAX_ROWS];
    size_t rows = 0;
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    fy_status_t status = set_up(p);
    for (int way = 0; way < WAYS && status == FY_STATUS_OK; way++) {
        figures_t f;
        for (int via = 0; via < (library ? 2 : 1) && status == FY_STATUS_OK; via++) {
            progress("vectorize", way, WAYS);
            status = via ? measure_library(p, way, &f) : measure_dispatcher(p, way, &f);
            if (status != FY_STATUS_OK) break;
            add_row(p, sheet, way, via ? "library" : "dispatcher", &f);
            snprintf(names[rows], sizeof names[rows], "%s%s", way_names[way], via ? " (bare)" : "");
            bars[rows] = names[rows];
            gflops[rows++] = spread_rate(flops, &f.ns);
        }
    }
    progress("vectorize", WAYS, WAYS);
    if (status == FY_STATUS_OK) {
        if (!p->session->out) json_int(&p->session->json, "size", p->n);
        session_sheet(p->session, sheet, "variants", "wall", "",
                      "vectorize: A = B C, %lldx%lld f32,", (long long)p->n, (long long)p->n);
        session_statistics(p->session, &p->effort, "the product of each way");
        const series_t series = { "GFLOP/s", rows, .spreads = gflops };
        const plot_t plot = { .title = "One matrix product, more or fewer requests",
                              .x_label = "how it was asked for",
                              .y_label = "GFLOP/s",
                              .log_y = true,
                              .bars = bars,
                              .nseries = 1,
                              .series = &series };
        status = session_files(p->session, sheet, &plot);
    }
    sheet_destroy(sheet);
    return status;
}

int exp_vectorize(int argc, char **argv)
{
    common_t common = { .device = "auto" };
    problem_t p = { .n = 256, .effort = { .rounds = ROUNDS_FOR_INTERVAL } };
    const option_t options[] = {
        { "size", OPTION_INT, "N", &p.n, "rows and columns of the matrices; a multiple of 4", 4,
          2048 },
        EFFORT_OPTIONS(&p.effort),
        TRAFFIC_OPTION(&common),
        COMMON_OPTIONS(&common),
    };
    const usage_t usage = {
        "ferry experiment vectorize",
        "Asks for one matrix product in n^2 requests, in n, in one and in four.", options,
        sizeof options / sizeof *options,
        "ferry experiment vectorize --device sim:0 --size 64\n"
        "ferry experiment vectorize --device host --size 32 --csv vectorize.csv\n"
    };
    OPTIONS_TRY(options_parse(&usage, argc, argv));
    if (p.n % BLOCKS)
        return TOOL_REFUSE(STATUS_USAGE,
                           "--size: %lld is no multiple of %d, the number of column blocks\n",
                           (long long)p.n, BLOCKS);

    session_t session;
    size_t count = (size_t)p.n * (size_t)p.n;
    p.session = &session;
    p.b_rows = tool_alloc((size_t)p.n * sizeof *p.b_rows);
    p.c_columns = tool_alloc((size_t)p.n * sizeof *p.c_columns);
    p.raw_a = tool_alloc(count * sizeof *p.raw_a);
    p.reference = tool_alloc(count * sizeof *p.reference);
    fy_status_t status = session_begin(&session, &common, usage.command, "experiment", "vectorize");
    if (status == FY_STATUS_OK) status = run(&p);
    int exit_status = session_end_experiment(&session, status);
    free(p.reference);
    free(p.raw_a);
    free(p.c_columns);
    free(p.b_rows);
    return exit_status;
}
