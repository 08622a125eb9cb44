/* `ferry bench gemm`: square f32 matrix products through the dispatcher, beside bare oneDNN in the
 * same process and rounds.
 * Not here: the loop (bench.c), the bare call (peer_gemm.c). */
#include <math.h>
#include <stdlib.h>

#include "tools/bench/bench.h"
#include "tools/bench/peers.h"

enum { MAX_SIZES = 10, SEED = 1 };

typedef struct product {
    fy_tensor_t *a, *b;
    int64_t n;
    float *raw_a, *raw_b, *raw_c;
    char name[24];
} product_t;

static fy_status_t run_matmul(void *context, int64_t iters)
{
    product_t *p = context;
    for (int64_t i = 0; i < iters; i++) {
        fy_tensor_t *c;
        FY_TRY(fy_matmul(p->a, p->b, &c));
        fy_tensor_destroy(c);
    }
    return FY_STATUS_OK;
}

static fy_status_t run_bare(void *context, int64_t iters)
{
    product_t *p = context;
    for (int64_t i = 0; i < iters; i++)
        if (!peer_gemm(p->n, p->n, p->n, p->raw_a, p->n, p->raw_b, p->n, p->raw_c, p->n))
            return TOOL_FAIL(INTERNAL, "dnnl_sgemm failed at size %lld", (long long)p->n);
    return FY_STATUS_OK;
}

static fy_status_t make_product(session_t *session, int64_t n, product_t *p)
{
    fy_tensor_t *rng;
    size_t count = (size_t)n * (size_t)n;
    p->n = n;
    snprintf(p->name, sizeof p->name, "%lldx%lldx%lld", (long long)n, (long long)n, (long long)n);
    p->raw_a = tool_alloc(3 * count * sizeof(float));
    p->raw_b = p->raw_a + count;
    p->raw_c = p->raw_b + count;
    for (size_t i = 0; i < 2 * count; i++) p->raw_a[i] = (float)(i % 17) / 16.0f;
    FY_TRY(fy_rng_create(session->device, SEED, &rng));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(n, n), 0, 1, &p->a));
    return fy_rand(rng, FY_DTYPE_F32, FY_DIMS(n, n), 0, 1, &p->b);
}

static fy_status_t report(session_t *session, const effort_t *effort, const bench_case_t *cases,
                          size_t count)
{
    static const column_t columns[] = {
        { "size", "size", 0 },
        SPREAD_COLUMNS("ns_per_op", "ns/op", 0),
        { "worst_ns_per_op", "worst", 0 },
        { "gflops", "GFLOP/s", 1 },
        { "peer", "peer", 0 },
        SPREAD_HIDDEN("peer_ns_per_op", "ns/op", 0),
        { "peer_worst_ns_per_op", "worst", 0 },
        { "peer_gflops", "GFLOP/s", 1 },
        { "speed_ratio", "ratio", 3 },
        { "overhead_ns", "overhead [ns]", 0 },
        { "one_thread_ns_per_op", "1 thread", 0 },
        { "all_threads_ns_per_op", "all", 0 },
        { "threads_ratio", "choice", 3 },
        { "model_ns_per_op", NULL, 0 },
        ROUNDS_COLUMN,
    };
    double x[MAX_SIZES];
    spread_t rates[2][MAX_SIZES];
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < count; i++) {
        const bench_case_t *c = &cases[i];
        double n = (double)((const product_t *)c->context)->n, flops = 2 * n * n * n;
        x[i] = n;
        rates[0][i] = spread_rate(flops, &c->spread);
        rates[1][i] = spread_rate(flops, &c->peer_spread);
        sheet_int(sheet, (int64_t)n);
        sheet_spread(sheet, &c->spread);
        sheet_real(sheet, c->spread.worst);
        sheet_real(sheet, rates[0][i].median);
        sheet_text(sheet, c->peer);
        sheet_spread(sheet, &c->peer_spread);
        sheet_real(sheet, c->peer_spread.worst);
        sheet_real(sheet, rates[1][i].median);
        sheet_real(sheet, c->peer_spread.median / c->spread.median);
        sheet_real(sheet, c->spread.median - c->peer_spread.median);
        sheet_real(sheet, c->one_ns);
        sheet_real(sheet, c->all_ns);
        sheet_real(sheet, c->threads_ratio);
        sheet_real(sheet, c->model_ns);
        sheet_int(sheet, (int64_t)c->spread.rounds);
    }
    session_sheet(session, sheet, "rows", "wall",
                  ", wall clock; ratio above 1: faster than the peer; choice: time to the better "
                  "of one thread and all",
                  "gemm");
    session_statistics(session, effort, BENCH_WARM_UP);
    const series_t series[2] = { { "dispatcher", count, x, .spreads = rates[0] },
                                 { "dnnl_sgemm", count, x, .spreads = rates[1] } };
    const plot_t plot = { .title = "Square f32 matrix products",
                          .x_label = "rows and columns",
                          .y_label = "GFLOP/s",
                          .log_x = true,
                          .log_y = true,
                          .nseries = cases[0].peer ? 2 : 1,
                          .series = series };
    return session_finish(session, sheet, &plot);
}

int bench_gemm(int argc, char **argv)
{
    common_t common = { .device = "auto" };
    effort_t effort = { 9, 20 };
    int64_t smallest = 16, largest = 1024;
    const option_t options[] = {
        { "min-size", OPTION_INT, "N", &smallest,
          "smallest matrix; each next one is twice as large", 4, 4096 },
        { "max-size", OPTION_INT, "N", &largest, "largest matrix", 4, 4096 },
        BENCH_OPTIONS(&effort),
        COMMON_OPTIONS(&common),
    };
    const usage_t usage = {
        "ferry bench gemm",
        "Times square f32 matrix products through the dispatcher, beside bare oneDNN.", options,
        sizeof options / sizeof *options,
        "ferry bench gemm --device host --max-size 64 --rounds 1\n"
    };
    OPTIONS_TRY(options_parse(&usage, argc, argv));
    if (smallest > largest)
        return TOOL_REFUSE(STATUS_USAGE, "--min-size %lld is larger than --max-size %lld\n",
                           (long long)smallest, (long long)largest);

    session_t session;
    product_t products[MAX_SIZES] = { { .raw_a = NULL } };
    bench_case_t *cases = tool_alloc(MAX_SIZES * sizeof *cases);
    size_t count = 0;
    fy_status_t status = session_begin(&session, &common, usage.command, "bench", "gemm");
    for (int64_t n = smallest; n <= largest && count < MAX_SIZES && status == FY_STATUS_OK;
         n *= 2, count++) {
        status = make_product(&session, n, &products[count]);
        cases[count] = (bench_case_t){ .op = products[count].name,
                                       .run = run_matmul,
                                       .peer = peer_gemm_found() ? "dnnl_sgemm" : NULL,
                                       .run_peer = run_bare,
                                       .context = &products[count],
                                       .by_threads = true };
    }
    if (status == FY_STATUS_OK) status = bench_measure(&session, cases, count, &effort);
    if (status == FY_STATUS_OK) status = report(&session, &effort, cases, count);
    int exit_status = session_end(&session, status);
    for (size_t i = 0; i < MAX_SIZES; i++) free(products[i].raw_a);
    free(cases);
    return exit_status;
}
