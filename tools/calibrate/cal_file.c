/* Writes a profile as docs/simulator.md describes it and backends/sim/profile_file.c reads it. The
 * file is there whole or not at all. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/calibrate/cal.h"

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
    if (!file)
        return TOOL_FAIL(OUT_OF_MEMORY, "no memory for the profile %s: %s", path, strerror(errno));
    write_document(cal, origin, file);
    if (fclose(file) != 0) {
        free(text);
        return TOOL_FAIL(OUT_OF_MEMORY, "no memory for the profile %s: %s", path, strerror(errno));
    }
    const fy_status_t status = tool_replace(path, text, nbytes);
    free(text);
    return status;
}
