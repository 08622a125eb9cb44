/* Each pair of values is one execution of the schedule. */
#include "tools/program/predict.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

enum { LINKS = 6, LATENCIES = 5 };

static const char *const links[LINKS] = {
    "3GB/s", "6GB/s", "12GB/s", "25GB/s", "52GB/s", "104GB/s"
};
static const double link_rates[LINKS] = { 3, 6, 12, 25, 52, 104 };
static const double latencies[LATENCIES] = { 0.5, 1, 2, 4, 8 };

typedef struct sweep {
    const schedule_t *schedule;
    const figures_t *machines;
    sheet_t *sheet;
    double times_us[LATENCIES][LINKS];
} sweep_t;

static uint64_t link_of(const figures_t *machines, size_t ndevices)
{
    for (size_t i = 0; i < ndevices; i++)
        if (machines[i].device.memory_nbytes) return machines[i].device.pinned_bytes_per_s;
    return 0;
}

/* link, latency: indices; negative: unchanged. */
static fy_status_t run_one(sweep_t *sweep, int link, int latency)
{
    const size_t ndevices = sweep->schedule->program->ndevices;
    const size_t nbytes = (ndevices + 1) * sizeof(figures_t);
    figures_t *machines = memcpy(tool_alloc(nbytes), sweep->machines, nbytes);
    const double factor = latency < 0 ? 1 : latencies[latency];
    fy_status_t status = FY_STATUS_OK;
    for (size_t i = 0; i < ndevices && status == FY_STATUS_OK; i++) {
        if (!machines[i].device.memory_nbytes) continue;
        if (link >= 0) status = figures_set_link(&machines[i], links[link]);
        figures_scale_latency(&machines[i], factor);
    }
    if (status == FY_STATUS_OK) {
        prediction_t prediction;
        predict_run(sweep->schedule, machines, &prediction);
        sheet_int(sweep->sheet, (int64_t)link_of(machines, ndevices));
        sheet_real(sweep->sheet, factor);
        sheet_int(sweep->sheet, (int64_t)prediction.step_ns);
        sheet_int(sweep->sheet, (int64_t)prediction.total_ns);
        sheet_int(sweep->sheet, (int64_t)prediction.exposed_ns);
        sweep->times_us[latency < 0 ? 0 : latency][link < 0 ? 0 : link] =
            (double)(prediction.nsteps ? prediction.step_ns : prediction.total_ns) / 1000;
    }
    free(machines);
    return status;
}

static fy_status_t draw(const sweep_t *sweep, sweep_axes_t axes, const char *path)
{
    char names[LATENCIES][32], title[400];
    double over_latency[LATENCIES];
    series_t series[LATENCIES];
    bool drawn;
    const bool is_link = axes != SWEEP_LATENCY;
    const size_t nseries = axes == SWEEP_BOTH ? LATENCIES : 1;
    for (size_t i = 0; i < LATENCIES; i++) {
        snprintf(names[i], sizeof names[i], "latency x %g", axes == SWEEP_BOTH ? latencies[i] : 1);
        over_latency[i] = sweep->times_us[i][0];
        series[i] = is_link ? (series_t){ .name = names[i],
                                          .count = LINKS,
                                          .x = link_rates,
                                          .y = sweep->times_us[i] }
                            : (series_t){ .name = "this link",
                                          .count = LATENCIES,
                                          .x = latencies,
                                          .y = over_latency };
    }
    snprintf(title, sizeof title, "%s, model clock, ferry %s",
             *sweep->schedule->program->step_path ? sweep->schedule->program->step_path : "all",
             fy_version());
    const plot_t plot = { .title = title,
                          .x_label = is_link ? "link [GB/s]" : "latency, times the profile's",
                          .y_label = "step [us]",
                          .log_x = true,
                          .log_y = true,
                          .nseries = nseries,
                          .series = series };
    return plot_write(&plot, path, sweep->sheet, &drawn);
}

sheet_t *sweep_run(const schedule_t *schedule, const figures_t *machines, sweep_axes_t axes,
                   const char *plot_path, fy_status_t *out_status)
{
    static const column_t columns[] = { { "link_bytes_per_s", "link [B/s]", 0 },
                                        { "latency", "latency", 1 },
                                        { "step_ns", "step [ns]", 0 },
                                        { "model_ns", "program [ns]", 0 },
                                        { "exposed_ns", "exposed transfers [ns]", 0 } };
    sweep_t sweep = { .schedule = schedule,
                      .machines = machines,
                      .sheet = sheet_create(columns, sizeof columns / sizeof *columns) };
    const bool has_links = axes != SWEEP_LATENCY, has_latencies = axes != SWEEP_LINK;
    *out_status = FY_STATUS_OK;
    for (int link = has_links ? 0 : -1; link < (has_links ? LINKS : 0); link++)
        for (int latency = has_latencies ? 0 : -1; latency < (has_latencies ? LATENCIES : 0);
             latency++)
            if (*out_status == FY_STATUS_OK) *out_status = run_one(&sweep, link, latency);
    if (plot_path && *out_status == FY_STATUS_OK) *out_status = draw(&sweep, axes, plot_path);
    return sweep.sheet;
}
