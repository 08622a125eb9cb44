/* `ferry bench copy`: uploads and downloads by size, waited for each time, beside a memcpy of as
 * many bytes on the host.
 * Not here: the loop (bench.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/bench.h"

enum { MAX_CASES = 64 };

typedef struct transfer {
    fy_device_t *device;
    fy_tensor_t *on_host, *on_device;
    int64_t nbytes;
    char *from, *to; /* the peer's */
} transfer_t;

static fy_status_t run_upload(void *context, int64_t iters)
{
    transfer_t *t = context;
    for (int64_t i = 0; i < iters; i++) {
        fy_ticket_t ticket;
        FY_TRY(fy_tensor_upload_into(t->on_device, t->on_host,
                                     &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &ticket));
        FY_TRY(fy_ticket_wait(ticket, FY_FOREVER));
    }
    return FY_STATUS_OK;
}

static fy_status_t run_download(void *context, int64_t iters)
{
    transfer_t *t = context;
    for (int64_t i = 0; i < iters; i++) {
        fy_download_t *reply;
        fy_tensor_t *host;
        FY_TRY(fy_tensor_download(t->on_device, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE,
                                  &reply));
        FY_TRY(fy_download_wait(reply, FY_FOREVER, &host));
        fy_tensor_destroy(host);
    }
    return FY_STATUS_OK;
}

static fy_status_t run_memcpy(void *context, int64_t iters)
{
    transfer_t *t = context;
    for (int64_t i = 0; i < iters; i++) {
        memcpy(t->to, t->from, (size_t)t->nbytes);
        __asm__ volatile("" : : "r"(t->to) : "memory");
    }
    return FY_STATUS_OK;
}

static fy_status_t make_transfer(session_t *session, int64_t nbytes, char *from, char *to,
                                 transfer_t *t)
{
    *t = (transfer_t){ session->device, NULL, NULL, nbytes, from, to };
    FY_TRY(fy_zeros(fy_device_host(), FY_DTYPE_U8, FY_DIMS(nbytes), &t->on_host));
    return fy_zeros(session->device, FY_DTYPE_U8, FY_DIMS(nbytes), &t->on_device);
}

static fy_status_t report(session_t *session, const effort_t *effort, const bench_case_t *cases,
                          size_t count)
{
    static const column_t columns[] = {
        { "direction", "direction", 0 },
        { "nbytes", "bytes", 0 },
        SPREAD_COLUMNS("ns", "ns", 0),
        { "worst_ns", "worst", 0 },
        { "gbytes_per_s", "GB/s", 3 },
        { "model_ns", "model ns", 0 },
        { "model_gbytes_per_s", "model GB/s", 3 },
        { "peer", "peer", 0 },
        SPREAD_HIDDEN("peer_ns", "peer ns", 0),
        { "peer_gbytes_per_s", "peer GB/s", 3 },
        ROUNDS_COLUMN,
    };
    const bool by_model = session->info.is_simulated;
    double x[2][MAX_CASES];
    spread_t rates[2][MAX_CASES];
    size_t points[2] = { 0, 0 };
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < count; i++) {
        const bench_case_t *c = &cases[i];
        double nbytes = (double)((const transfer_t *)c->context)->nbytes;
        int way = c->run == run_download;
        const spread_t by_clock = { .median = nbytes / c->model_ns, .low = NAN, .high = NAN };
        x[way][points[way]] = nbytes;
        rates[way][points[way]++] = by_model ? by_clock : spread_rate(nbytes, &c->spread);
        sheet_text(sheet, c->op);
        sheet_int(sheet, (int64_t)nbytes);
        sheet_spread(sheet, &c->spread);
        sheet_real(sheet, c->spread.worst);
        sheet_real(sheet, nbytes / c->spread.median);
        sheet_real(sheet, c->model_ns);
        sheet_real(sheet, c->model_ns > 0 ? nbytes / c->model_ns : NAN);
        sheet_text(sheet, c->peer);
        sheet_spread(sheet, &c->peer_spread);
        sheet_real(sheet, nbytes / c->peer_spread.median);
        sheet_int(sheet, (int64_t)c->spread.rounds);
    }
    session_sheet(session, sheet, "rows", "wall", ", each transfer waited for", "copy");
    session_statistics(session, effort, BENCH_WARM_UP);
    const series_t series[2] = { { "upload", points[0], x[0], .spreads = rates[0] },
                                 { "download", points[1], x[1], .spreads = rates[1] } };
    const plot_t plot = { .title = "Transfers by size",
                          .x_label = "bytes",
                          .y_label = by_model ? "GB/s, model clock" : "GB/s",
                          .log_x = true,
                          .log_y = true,
                          .nseries = 2,
                          .series = series };
    return session_finish(session, sheet, &plot);
}

int bench_copy(int argc, char **argv)
{
    common_t common = { .device = "auto" };
    effort_t effort = { 7, 10 };
    int64_t largest = (int64_t)64 << 20;
    const option_t options[] = {
        { "max-bytes", OPTION_BYTES, "SIZE", &largest,
          "largest transfer; from 4 bytes up, each next one is four times as large", 4,
          (int64_t)1 << 32 },
        BENCH_OPTIONS(&effort),
        COMMON_OPTIONS(&common),
    };
    const usage_t usage = { "ferry bench copy",
                            "Times uploads and downloads by size, beside memcpy.", options,
                            sizeof options / sizeof *options,
                            "ferry bench copy --device sim:0 --max-bytes 1MiB --rounds 1\n" };
    OPTIONS_TRY(options_parse(&usage, argc, argv));

    session_t session;
    transfer_t transfers[MAX_CASES];
    bench_case_t *cases = tool_alloc(MAX_CASES * sizeof *cases);
    char *from = tool_alloc((size_t)largest), *to = tool_alloc((size_t)largest);
    size_t count = 0;
    /* touched, so that the peer reads memory and not the page of zeros */
    memset(from, 1, (size_t)largest);
    fy_status_t status = session_begin(&session, &common, usage.command, "bench", "copy");
    for (int64_t n = 4; n <= largest && count + 2 <= MAX_CASES && status == FY_STATUS_OK;
         n *= 4, count += 2) {
        status = make_transfer(&session, n, from, to, &transfers[count]);
        cases[count] = (bench_case_t){ .op = "upload",
                                       .run = run_upload,
                                       .peer = "memcpy",
                                       .run_peer = run_memcpy,
                                       .context = &transfers[count] };
        cases[count + 1] = cases[count];
        cases[count + 1].op = "download";
        cases[count + 1].run = run_download;
    }
    if (status == FY_STATUS_OK) status = bench_measure(&session, cases, count, &effort);
    if (status == FY_STATUS_OK) status = report(&session, &effort, cases, count);
    int exit_status = session_end(&session, status);
    free(to);
    free(from);
    free(cases);
    return exit_status;
}
