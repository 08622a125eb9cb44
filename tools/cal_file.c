/* Writes a profile as docs/simulator.md describes it and backends/sim/profile_file.c reads it. The file is there whole or not at all. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/cal.h"

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
        if (isfinite(figure->spread) && figure->spread >= 0) json_real(&json, "spread", figure->spread);
        json_text(&json, "how", figure->how);
        json_end(&json);
    }
    json_end(&json);
    json_end(&json);
}

/* To `name`, which is a temporary file, a pipe, a device, or a link to nothing yet. */
static fy_status_t write_to(const cal_t *cal, const cal_origin_t *origin, const char *name)
{
    FILE *file = fopen(name, "we");
    if (!file) return TOOL_FAIL(IO, "cannot write %s: %s", name, strerror(errno));
    write_document(cal, origin, file);
    const int failed = ferror(file);
    return (fclose(file) != 0) | failed ? TOOL_FAIL(IO, "cannot write %s: %s", name, strerror(errno)) : FY_STATUS_OK;
}

static fy_status_t replace(const cal_t *cal, const cal_origin_t *origin, const char *path)
{
    char *temporary = tool_alloc(strlen(path) + 8);
    sprintf(temporary, "%s.part", path);
    fy_status_t status = write_to(cal, origin, temporary);
    if (status == FY_STATUS_OK && rename(temporary, path) != 0) status = TOOL_FAIL(IO, "cannot write %s: %s", path, strerror(errno));
    if (status != FY_STATUS_OK) unlink(temporary);
    free(temporary);
    return status;
}

fy_status_t cal_write(const cal_t *cal, const cal_origin_t *origin, const char *path)
{
    struct stat found;
    char *target = realpath(path, NULL); /* a link stays, and what it names is replaced; NULL: there is no such file yet */
    const char *name = target ? target : path;
    const bool is_special = stat(name, &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
    const bool is_dangling = !target && lstat(path, &found) == 0 && S_ISLNK(found.st_mode);
    const fy_status_t status = is_special || is_dangling ? write_to(cal, origin, name) : replace(cal, origin, name);
    free(target);
    return status;
}
