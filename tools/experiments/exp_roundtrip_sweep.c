/* The roundtrip experiment over sizes: from which size on is the device faster than the host,
 * resident and with copies?
 * On a simulated device the model clock decides, so the answer is the same in every run. */
#include "tools/experiments/parts.h"

#include <math.h>

static const int64_t sizes[] = {
    8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024
};
enum { SIZE_COUNT = sizeof sizes / sizeof *sizes };

/* Fewer iterations where each is long; by formula, so that traffic is the same in every run. */
static int64_t iters_for(int64_t size, int64_t most)
{
    double flops = 2.0 * (double)size * (double)size * (double)size;
    int64_t n = (int64_t)(2e9 / flops);
    return n < 3 ? (most < 3 ? most : 3) : n > most ? most : n;
}

/* Size past which `times` stay below `host`'s: 0 if they always are, NaN if they are not at the
 * end. Between two sizes the ratio is taken as a power of the size. */
static double crossover(const spread_t *host, const spread_t *times)
{
    int first = SIZE_COUNT;
    while (first > 0 && times[first - 1].median < host[first - 1].median) first--;
    if (first == SIZE_COUNT) return NAN;
    if (first == 0) return 0;
    double before = log(times[first - 1].median / host[first - 1].median),
           after = log(times[first].median / host[first].median);
    double low = log((double)sizes[first - 1]), high = log((double)sizes[first]);
    return exp(low + (high - low) * before / (before - after));
}

static void report_crossover(session_t *session, int variant, double size)
{
    const char *name = roundtrip_variant_name(variant);
    if (!session->out) {
        json_begin_object(&session->json, NULL);
        json_text(&session->json, "name", name);
        json_real(&session->json, "crossover_size", size > 0 ? size : NAN);
        json_text(&session->json, "faster_than_host",
                  isnan(size) ? "never"
                  : size > 0  ? "from_crossover_size"
                              : "always");
        json_end(&session->json);
    } else if (isnan(size)) {
        fprintf(session->out, "%s: not faster than the host up to size %lld\n", name,
                (long long)sizes[SIZE_COUNT - 1]);
    } else if (size > 0) {
        fprintf(session->out, "%s: faster than the host from size %.0f on\n", name, ceil(size));
    } else {
        fprintf(session->out, "%s: faster than the host at every size\n", name);
    }
}

/* Of all variants and sizes, by the session's clock. */
typedef struct curves {
    double x[SIZE_COUNT];
    spread_t ns[VARIANT_COUNT][SIZE_COUNT];
} curves_t;

static fy_status_t report(session_t *session, const effort_t *effort, const sheet_t *sheet,
                          const curves_t *curves, double most)
{
    session_sheet(session, sheet, "sweep", session_clock(session),
                  session->info.is_simulated ? ", ns per iteration by the model clock"
                                             : ", ns per iteration by the wall clock",
                  "roundtrip over sizes,");
    if (session->out) {
        fputc('\n', session->out);
    } else {
        json_real(&session->json, "max_abs_diff", most);
        json_begin_array(&session->json, "crossovers");
    }
    for (int v = VARIANT_RESIDENT; v < VARIANT_COUNT; v++)
        report_crossover(session, v, crossover(curves->ns[VARIANT_HOST], curves->ns[v]));
    if (!session->out) json_end(&session->json);
    session_statistics(session, effort, ROUNDTRIP_WARM_UP);

    series_t series[VARIANT_COUNT];
    for (int v = 0; v < VARIANT_COUNT; v++)
        series[v] = (series_t){ roundtrip_variant_name(v), SIZE_COUNT, curves->x,
                                .spreads = curves->ns[v] };
    const plot_t plot = { .title = "A matrix product over sizes",
                          .x_label = "rows and columns",
                          .y_label = session->info.is_simulated ? "ns per iteration, model clock"
                                                                : "ns per iteration",
                          .log_x = true,
                          .log_y = true,
                          .nseries = VARIANT_COUNT,
                          .series = series };
    return session_files(session, sheet, &plot);
}

fy_status_t roundtrip_sweep(session_t *session, int64_t iters, const effort_t *effort)
{
    static const column_t columns[] = {
        { "size", "size", 0 },
        { "iters", "iters", 0 },
        SPREAD_COLUMNS("host_ns_per_iter", "host [ns]", 0),
        SPREAD_COLUMNS("resident_ns_per_iter", "resident [ns]", 0),
        SPREAD_COLUMNS("copies_ns_per_iter", "copies [ns]", 0),
        { "copies_bytes_per_iter", "copied [bytes]", 0 },
        { "max_abs_diff", "max |diff|", 6 },
        ROUNDS_COLUMN,
    };
    curves_t curves;
    double most = session->info.numerics ? 0 : NAN;
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    fy_status_t status = FY_STATUS_OK;

    for (int i = 0; i < SIZE_COUNT && status == FY_STATUS_OK; i++) {
        roundtrip_t measured[VARIANT_COUNT];
        int64_t n = iters_for(sizes[i], iters);
        progress("roundtrip", i, SIZE_COUNT);
        status = roundtrip_measure(session, sizes[i], n, effort, measured);
        if (status != FY_STATUS_OK) break;
        curves.x[i] = (double)sizes[i];
        sheet_int(sheet, sizes[i]);
        sheet_int(sheet, n);
        double diff = session->info.numerics ? 0 : NAN;
        for (int v = 0; v < VARIANT_COUNT; v++) {
            const spread_t *ns = session->info.is_simulated ? &measured[v].model_ns
                                                            : &measured[v].ns;
            curves.ns[v][i] = *ns;
            if (measured[v].max_abs_diff > diff) diff = measured[v].max_abs_diff;
            sheet_spread(sheet, ns);
        }
        if (diff > most) most = diff;
        sheet_real(sheet, measured[VARIANT_COPIES].nbytes);
        sheet_real(sheet, diff);
        sheet_int(sheet, (int64_t)measured[VARIANT_COPIES].ns.rounds);
    }
    progress("roundtrip", SIZE_COUNT, SIZE_COUNT);
    if (status == FY_STATUS_OK) status = report(session, effort, sheet, &curves, most);
    sheet_destroy(sheet);
    return status;
}
