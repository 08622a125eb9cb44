/* Rounds, medians and the list of figures of `ferry calibrate`, and the profile that it writes: as
 * docs/simulator.md describes it and backends/sim/profile_file.c reads it, complete or not at all.
 * Not here: the measurements (cal_device.c, cal_host.c). */
#include "tools/calibrate/cal.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double cal_now_ns(const cal_t *cal)
{
    fy_device_clock_t clock = FY_DEVICE_CLOCK_INIT;
    if (!cal->is_model || fy_device_clock_query(cal->device, &clock) != FY_STATUS_OK)
        return wall_ns();
    return (double)clock.now_ns;
}

/* Worst over best, less 1: 0 on a model clock, and what to distrust on a busy machine. */
static double spread_of(const double *values, size_t count)
{
    double least = values[0], most = values[0];
    for (size_t i = 1; i < count; i++) {
        least = fmin(least, values[i]);
        most = fmax(most, values[i]);
    }
    return least > 0 ? most / least - 1 : NAN;
}

fy_status_t cal_measure(cal_t *cal, cal_probe_t *probes, size_t count)
{
    const int64_t total = (cal->rounds + 1) * (int64_t)count;
    for (int64_t r = -1; r < cal->rounds; r++)
        for (size_t i = 0; i < count; i++) {
            double value;
            progress(cal->what, (r + 1) * (int64_t)count + (int64_t)i, total);
            FY_TRY(probes[i].run(cal, probes[i].context, &value));
            if (r >= 0) probes[i].rounds[r] = value;
        }
    progress(cal->what, total, total);
    for (size_t i = 0; i < count; i++) {
        probes[i].spread = spread_of(probes[i].rounds, (size_t)cal->rounds);
        probes[i].value = median(probes[i].rounds, (size_t)cal->rounds);
    }
    return FY_STATUS_OK;
}

double cal_less(double value, double overhead) { return fmax(value - overhead, value / 2); }

void cal_note(cal_t *cal, const char *key, const char *unit, double value, double least,
              double spread, const char *how, ...)
{
    cal_figure_t *figure = &cal->figures[cal->nfigures++];
    va_list args;
    *figure = (cal_figure_t){
        .key = key, .unit = unit, .value = value >= least ? round(value) : least, .spread = spread
    };
    if (!(value >= 1 && isfinite(value)) && least >= 1 && !cal->failed) cal->failed = key;
    va_start(args, how);
    vsnprintf(figure->how, sizeof figure->how, how, args);
    va_end(args);
}

const cal_figure_t *cal_figure(const cal_t *cal, const char *key)
{
    for (size_t i = 0; i < cal->nfigures; i++)
        if (strcmp(cal->figures[i].key, key) == 0) return &cal->figures[i];
    return NULL;
}

/* ---- the profile ---- */

static void write_document(const cal_t *cal, const cal_origin_t *origin, FILE *file)
{
    char date[32];
    const time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_t json = { .file = file };
    json_begin_object(&json, NULL);
    json_int(&json, "ferry_profile", 1);
    json_text(&json, "name", origin->name);
    if (origin->base) json_text(&json, "base", origin->base);
    if (origin->model) json_text(&json, "model", origin->model);
    if (origin->driver) json_text(&json, "driver", origin->driver);
    if (origin->host) json_text(&json, "host", origin->host);
    json_text(&json, "date", date);
    json_text(&json, "clock", origin->clock);
    json_text(&json, "version", fy_version());
    json_begin_object(&json, "figures");
    for (size_t i = 0; i < cal->nfigures; i++) {
        const cal_figure_t *figure = &cal->figures[i];
        json_begin_object(&json, figure->key);
        json_uint(&json, "value", (uint64_t)figure->value);
        json_text(&json, "unit", figure->unit);
        if (isfinite(figure->spread) && figure->spread >= 0)
            json_real(&json, "spread", figure->spread);
        json_text(&json, "how", figure->how);
        json_end(&json);
    }
    json_end(&json);
    json_end(&json);
}

fy_status_t cal_write(const cal_t *cal, const cal_origin_t *origin, const char *path)
{
    char *text = NULL;
    size_t nbytes = 0;
    FILE *file = open_memstream(&text, &nbytes);
    if (file) write_document(cal, origin, file);
    if (!tool_close_text(file, &text))
        return TOOL_FAIL(OUT_OF_MEMORY, "no memory for the profile %s", path);
    const fy_status_t status = tool_replace(path, text, nbytes);
    free(text);
    return status;
}
