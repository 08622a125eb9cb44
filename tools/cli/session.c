/* One run of one subcommand: device, scope, outputs, exit status.
 * Not here: measurements. With --json the document is collected and printed only when it is
 * complete, so standard output holds exactly one document or nothing. */
#include "runtime/base/environment.h"
#include "runtime/base/replace.h"
#include "tools/cli/tool.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void tool_log(void *user, fy_log_level_t level, const char *text)
{
    (void)user;
    if (level == FY_LOG_INFO) return;
    fprintf(stderr, "ferry: %s: %s\n", level == FY_LOG_ERROR ? "error" : "warning", text);
}

/* Returns 0, or the errno that prevents a new file beside the one that `path` names. */
static int check_beside(const char *path)
{
    fy__replace_t probe;
    if (fy__replace_begin(&probe, path)) return probe.error;
    fy__replace_abort(&probe);
    return 0;
}

static int check_place(const char *path, bool replaces)
{
    struct stat found;
    if (stat(path, &found)) return errno == ENOENT ? check_beside(path) : errno;
    if (S_ISDIR(found.st_mode)) return EISDIR;
    if (replaces && S_ISREG(found.st_mode)) return check_beside(path);
    /* a pipe is not opened: that would wait for its reader */
    return access(path, W_OK) ? errno : 0;
}

static fy_status_t check(const char *path, bool replaces)
{
    const int error = check_place(path, replaces);
    if (!error) return FY_STATUS_OK;
    return TOOL_FAIL(IO, "cannot write %.400s: %s", path,
                     error == EISDIR ? "it is a folder" : strerror(error));
}

fy_status_t tool_check_writable(const char *path) { return check(path, false); }
fy_status_t tool_check_replaceable(const char *path) { return check(path, true); }

fy_status_t tool_check_not_input(const char *path, const char *input)
{
    struct stat out, in;
    if (stat(path, &out) || stat(input, &in) || !S_ISREG(in.st_mode)) return FY_STATUS_OK;
    if (out.st_dev != in.st_dev || out.st_ino != in.st_ino) return FY_STATUS_OK;
    return TOOL_FAIL(INVALID_ARGUMENT, "%.400s is the file that is read: write to another one",
                     path);
}

bool tool_close_text(FILE *file, char **text)
{
    const bool has_failed = !file || ferror(file);
    if ((!file || fclose(file) == 0) && !has_failed && *text) return true;
    free(*text);
    *text = NULL;
    return false;
}

fy_status_t tool_replace(const char *path, const void *text, size_t nbytes)
{
    fy__replace_t replace;
    int error = fy__replace_begin(&replace, path);
    if (!error && (error = fy__replace_write(&replace, text, nbytes)))
        fy__replace_abort(&replace);
    else if (!error)
        error = fy__replace_commit(&replace);
    return error ? TOOL_FAIL(IO, "%s", replace.problem) : FY_STATUS_OK;
}

fy_status_t session_begin(session_t *session, const common_t *common, const char *command,
                          const char *kind, const char *name)
{
    *session = (session_t){ .command = command, .common = common, .info = FY_DEVICE_INFO_INIT };
    fy_log_set(tool_log, NULL);
    machine_read(&session->machine);
    /* before the first scope, so that the file has it all */
    if (common->record) FY_TRY(fy_ledger_record(common->record));
    /* before the first scope: it may name that one, too */
    if (common->budget) FY_TRY(fy_budget_set(common->budget));
    /* at the end; or when memory ran out, since later it would be of nothing */
    if (common->snapshot) {
        FY_TRY(tool_check_replaceable(common->snapshot));
        setenv("FERRY_SNAPSHOT_ON_OOM", common->snapshot, 1);
    }
    session->scope = fy_scope_begin(name);
    if (common->csv) FY_TRY(tool_check_writable(common->csv));
    if (common->plot) FY_TRY(tool_check_writable(common->plot));
    FY_TRY(fy_device_open(common->device, &session->device));
    FY_TRY(fy_device_query(session->device, &session->info));
    if (!common->json) {
        session->out = stdout;
        return FY_STATUS_OK;
    }
    session->json.file = open_memstream(&session->text, &session->text_nbytes);
    if (!session->json.file)
        return TOOL_FAIL(OUT_OF_MEMORY, "no memory for the JSON document: %s", strerror(errno));
    json_begin_object(&session->json, NULL);
    json_text(&session->json, kind, name);
    json_text(&session->json, "version", fy_version());
    json_text(&session->json, "device", fy_device_name(session->device));
    json_text(&session->json, "device_model", session->info.model);
    return FY_STATUS_OK;
}

static fy_status_t finish_json(session_t *session)
{
    json_end(&session->json);
    const bool is_whole = tool_close_text(session->json.file, &session->text);
    session->json.file = NULL;
    if (!is_whole) return TOOL_FAIL(OUT_OF_MEMORY, "no memory for the JSON document");
    fwrite(session->text, 1, session->text_nbytes, stdout);
    return FY_STATUS_OK;
}

static fy_status_t write_snapshot(const session_t *session)
{
    const char *path = session->common->snapshot;
    const size_t length = strlen(path);
    const bool is_svg = length > 4 && strcmp(path + length - 4, ".svg") == 0;
    return fy_memory_snapshot(session->device, path, is_svg ? FY_SNAPSHOT_SVG : FY_SNAPSHOT_JSON);
}

int session_end(session_t *session, fy_status_t status)
{
    /* --device or --budget was not understood */
    int usage = status == FY_STATUS_INVALID_ARGUMENT && !session->device;
    if (status == FY_STATUS_OK && session->common->snapshot) status = write_snapshot(session);
    if (status == FY_STATUS_OK && session->json.file) status = finish_json(session);
    if (status != FY_STATUS_OK && session->out) fflush(stdout);
    tool_end(status);
    if (session->json.file) fclose(session->json.file);
    free(session->text);
    fy_scope_end(session->scope, 0, NULL);
    fy_device_close(session->device);
    /* the device is closed: everything is in it */
    if (session->common->record && fy_ledger_record(NULL) != FY_STATUS_OK) {
        fprintf(stderr, "ferry: %s\n", fy_error_get()->text);
        if (status == FY_STATUS_OK) status = FY_STATUS_IO;
    }
    fy_log_set(NULL, NULL);
    return usage ? STATUS_USAGE : status_to_exit(status);
}

int session_end_experiment(session_t *session, fy_status_t status)
{
    if (status == FY_STATUS_OK && session->out)
        ledger_print(session->out, session->common->traffic);
    if (status == FY_STATUS_OK && !session->out) ledger_json(&session->json);
    return session_end(session, status);
}

fy_status_t session_wait(session_t *session) { return fy_device_wait(session->device, FY_FOREVER); }

fy_status_t session_open_sibling(const session_t *session, size_t i, fy_device_t **out_device)
{
    char spec[256];
    const char *first = session->common->device, *zero = strstr(first, ":0");
    if (!zero)
        return TOOL_FAIL(INVALID_ARGUMENT,
                         "--device %s: several devices are taken from :0 on, such as sim:0", first);
    if (snprintf(spec, sizeof spec, "%.*s:%zu%s", (int)(zero - first), first, i, zero + 2) >=
        (int)sizeof spec)
        return TOOL_FAIL(INVALID_ARGUMENT,
                         "--device %s: with another number it is longer than %zu bytes", first,
                         sizeof spec - 1);
    return fy_device_open(spec, out_device);
}

double session_model_ns(const session_t *session)
{
    fy_device_clock_t clock = FY_DEVICE_CLOCK_INIT;
    if (fy_device_clock_query(session->device, &clock) != FY_STATUS_OK ||
        clock.kind != FY_CLOCK_MODEL)
        return NAN;
    return (double)clock.now_ns;
}

const char *session_clock(const session_t *session)
{
    return session->info.is_simulated ? "model" : "wall";
}

void session_sheet(session_t *session, const sheet_t *sheet, const char *key, const char *clock,
                   const char *how, const char *title, ...)
{
    va_list arguments;
    if (!session->out) {
        json_text(&session->json, "clock", clock);
        sheet_json(sheet, &session->json, key);
        return;
    }
    va_start(arguments, title);
    vfprintf(session->out, title, arguments);
    va_end(arguments);
    fprintf(session->out, " on %s (%s)%s\n\n", fy_device_name(session->device), session->info.model,
            how);
    sheet_print(sheet, session->out);
}

static void print_statistics(const session_t *session, const effort_t *effort, const char *warm_up)
{
    fprintf(session->out, "\n%s%lld round%s", effort->rounds > 1 ? "medians of " : "",
            (long long)effort->rounds, effort->rounds == 1 ? "" : "s");
    if (effort->until > 0)
        fprintf(session->out, " or more (until %g %%, at most %d)", 100 * effort->until,
                ROUNDS_MOST);
    fprintf(session->out, warm_up ? " after %s" : " without a warm-up", warm_up);
    fprintf(session->out, "; +-%%: half of the median's %d %% interval; ", CONFIDENCE_PERCENT);
    machine_print(&session->machine, session->out);
    fputc('\n', session->out);
}

void session_statistics(session_t *session, const effort_t *effort, const char *warm_up)
{
    json_t *json = &session->json;
    if (session->out) {
        print_statistics(session, effort, warm_up);
        return;
    }
    json_begin_object(json, "statistics");
    json_int(json, "rounds", effort->rounds);
    json_real(json, "until_percent", effort->until > 0 ? 100 * effort->until : NAN);
    json_int(json, "most_rounds", ROUNDS_MOST);
    json_text(json, "warm_up", warm_up);
    json_text(json, "interval", "percentile bootstrap of the median");
    json_int(json, "confidence_percent", CONFIDENCE_PERCENT);
    json_int(json, "resamples", RESAMPLES);
    json_int(json, "seed", RESAMPLE_SEED);
    json_end(json);
    machine_json(&session->machine, json);
}

fy_status_t session_files(const session_t *session, const sheet_t *sheet, const plot_t *plot)
{
    const char *path = session->common->plot;
    if (session->common->csv) FY_TRY(sheet_csv(sheet, session->common->csv));
    if (!path || !plot) return FY_STATUS_OK;
    bool drawn;
    char subtitle[256];
    plot_t named = *plot;
    snprintf(subtitle, sizeof subtitle, "%s (%s), ferry %s", fy_device_name(session->device),
             session->info.model, fy_version());
    named.subtitle = subtitle;
    FY_TRY(plot_write(&named, path, sheet, &drawn));
    if (drawn && session->out) fprintf(session->out, "plot: %s\n", path);
    return FY_STATUS_OK;
}

fy_status_t session_finish(const session_t *session, sheet_t *sheet, const plot_t *plot)
{
    const fy_status_t status = session_files(session, sheet, plot);
    sheet_destroy(sheet);
    return status;
}

/* ---- data sets ---- */

const char *data_folder(const char *given)
{
    const char *environment = fy__env_file("FERRY_DATA");
    return given ? given : environment ? environment : "data";
}

bool data_may_be_made_up(const char *given, const char *name, fy_status_t status)
{
    if (given || status != FY_STATUS_UNAVAILABLE) return false;
    fprintf(stderr,
            "ferry: the data set %s is not in %s (--data, else $FERRY_DATA, else data/); made-up "
            "data in the same form serve\n",
            name, data_folder(NULL));
    return true;
}
