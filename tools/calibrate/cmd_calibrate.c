/* `ferry calibrate [DEVICE]`: measures a device, and the host, into a profile that simulated
 * devices read.
 * Not here: the measurements (cal_device.c, cal_host.c). See docs/simulator.md, "Profiles from
 * files". */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/calibrate/cal.h"

typedef struct request {
    const char *out, *name, *base, *peer;
    bool host_only;
    int64_t rounds, most_nbytes;
} request_t;

/* Requirements of calibrating on a device: memory for large transfers in flight, so that small ones
 * can queue behind them. */
static const char *with_options(const char *spec, char *text, size_t size)
{
    snprintf(text, size, "%s%cwindow=2GiB&queue=4GiB&ahead=16384", spec,
             strchr(spec, '?') ? '&' : '?');
    return text;
}

/* "NVIDIA H200" is nvidia-h200. */
static void name_from(const char *model, char *name, size_t size)
{
    size_t used = 0;
    for (; *model && used + 1 < size; model++) {
        const bool plain = isalnum((unsigned char)*model);
        if (plain || (used > 0 && name[used - 1] != '-'))
            name[used++] = plain ? (char)tolower((unsigned char)*model) : '-';
    }
    while (used > 0 && name[used - 1] == '-') used--;
    name[used] = '\0';
    if (used == 0) snprintf(name, size, "calibrated");
}

enum { DRIVER_NBYTES = 64 };

static void note_driver(void *user, const char *key, const char *value)
{
    if (strcmp(key, "driver") == 0) snprintf(user, DRIVER_NBYTES, "%s", value);
}

/* "sim:0?profile=t4" gives "sim:1?profile=t4": a second device of its kind, or NULL. One that was
 * asked for by name must be there. */
static fy_status_t open_peer(const char *spec, const char *asked, fy_device_t **out_peer)
{
    char text[600];
    *out_peer = NULL;
    if (asked) return strcmp(asked, "none") == 0 ? FY_STATUS_OK : fy_device_open(asked, out_peer);
    const char *colon = strchr(spec, ':');
    if (!colon || strncmp(spec, "null", 4) == 0) return FY_STATUS_OK;
    char *behind;
    const long index = strtol(colon + 1, &behind, 10);
    snprintf(text, sizeof text, "%.*s:%ld%s", (int)(colon - spec), spec, index == 0 ? 1 : 0L,
             behind);
    if (fy_device_open(text, out_peer) != FY_STATUS_OK) *out_peer = NULL; /* the figure says so */
    return FY_STATUS_OK;
}

/* Figures of a machine that does something else are figures of something else. */
static void warn_if_busy(void)
{
    double load;
    const long ncpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (getloadavg(&load, 1) == 1 && ncpus > 0 && load > 0.25 * (double)ncpus)
        fprintf(stderr,
                "ferry: calibrate: this machine is busy (load %.2f on %ld cores): figures will be "
                "too low, see their spread\n",
                load, ncpus);
}

static fy_status_t print(session_t *session, const cal_t *cal, const cal_origin_t *origin,
                         const request_t *request)
{
    static const column_t columns[] = {
        { "figure", "figure", 0 }, { "value", "value", 0 }, { "unit", "unit", 0 },
        { "spread", "spread", 3 }, { "how", "how", 0 },
    };
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < cal->nfigures; i++) {
        sheet_text(sheet, cal->figures[i].key);
        sheet_int(sheet, (int64_t)cal->figures[i].value);
        sheet_text(sheet, cal->figures[i].unit);
        sheet_real(sheet, cal->figures[i].spread);
        sheet_text(sheet, cal->figures[i].how);
    }
    if (session->out) {
        fprintf(session->out,
                "%s, %s clock, median of %lld rounds; spread: worst round over best, less 1\n\n",
                origin->name, origin->clock, (long long)cal->rounds);
        sheet_print(sheet, session->out);
        if (request->out)
            fprintf(session->out, "\nwritten to %s: use it as 'sim:0?profile=%s%s'\n", request->out,
                    strpbrk(request->out, "/.") ? "" : "./", request->out);
    } else {
        json_text(&session->json, "name", origin->name);
        json_text(&session->json, "base", origin->base);
        json_text(&session->json, "clock", origin->clock);
        json_text(&session->json, "written", request->out);
        sheet_json(sheet, &session->json, "figures");
    }
    return session_finish(session, sheet, NULL);
}

static fy_status_t calibrate(session_t *session, const request_t *request, const char *spec)
{
    cal_t *cal = tool_alloc(sizeof *cal);
    char driver[DRIVER_NBYTES] = "";
    fy_device_info_t host = FY_DEVICE_INFO_INIT;
    *cal = (cal_t){ .device = session->device,
                    .is_model = session->info.is_simulated,
                    .rounds = request->rounds,
                    .most_nbytes = request->most_nbytes };
    fy_status_t status = fy_device_query(fy_device_host(), &host);
    cal_origin_t origin = { .base = request->host_only ? request->base : NULL,
                            .host = host.model,
                            .clock = session_clock(session) };
    if (status == FY_STATUS_OK) status = fy_device_describe(session->device, note_driver, driver);
    if (!request->host_only) origin.model = session->info.model;
    if (*driver) origin.driver = driver;
    if (request->name)
        snprintf(origin.name, sizeof origin.name, "%s", request->name);
    else
        name_from(request->host_only ? host.model : session->info.model, origin.name,
                  sizeof origin.name);
    if (status == FY_STATUS_OK && !request->host_only)
        status = open_peer(spec, request->peer, &cal->peer);
    if (status == FY_STATUS_OK && !cal->is_model) warn_if_busy();
    if (status == FY_STATUS_OK && !request->host_only) status = cal_device(cal);
    if (status == FY_STATUS_OK) status = cal_host(cal);
    if (status == FY_STATUS_OK && cal->failed)
        status = TOOL_FAIL(UNAVAILABLE,
                           "calibrate: %s could not be measured: one more request took no longer. "
                           "Is the machine busy? Try more --rounds",
                           cal->failed);
    if (status == FY_STATUS_OK && request->out) status = cal_write(cal, &origin, request->out);
    if (status == FY_STATUS_OK) status = print(session, cal, &origin, request);
    fy_device_close(cal->peer);
    free(cal);
    return status;
}

/* Why a request makes no sense, or NULL: what would be ignored, or written into a file that no
 * device reads. */
static const char *refuse(const request_t *request, const char *device)
{
    static char text[700];
    char spec[64];
    fy_device_t *found;
    if (request->host_only && device) return "--host measures no device: leave one of the two out";
    if (request->host_only && request->peer) return "--peer is of a device; --host measures none";
    if (!request->host_only && request->base)
        return "--base goes with --host: a device that is measured has all figures";
    if (request->name && (strlen(request->name) > 31 || strpbrk(request->name, "\"\\")))
        return "--name must have 1 to 31 characters, no quotes or backslashes";
    if (!request->base) return NULL;
    const bool named = strlen(request->base) < 32 && !strpbrk(request->base, "/.&=");
    snprintf(spec, sizeof spec, "sim:0?profile=%s", named ? request->base : "");
    if (!named || fy_device_open(spec, &found) != FY_STATUS_OK) {
        snprintf(text, sizeof text,
                 "--base '%.40s' is no built-in profile (docs/simulator.md lists them)",
                 request->base);
        return text;
    }
    fy_device_close(found);
    return NULL;
}

/* Is there a device to measure? `asked` is then its name. */
static int choose_device(const char **asked)
{
    fy_device_t *found = NULL;
    if (strcmp(*asked, "host") == 0)
        return TOOL_REFUSE(STATUS_USAGE,
                           "calibrate: the host is no device with a profile; --host measures "
                           "this machine's host part\n");
    if (strcmp(*asked, "auto") != 0) return STATUS_OK;
    *asked = "cuda:0";
    const fy_status_t status = fy_device_open(*asked, &found);
    fy_device_close(found);
    if (status == FY_STATUS_OK) return STATUS_OK;
    fprintf(stderr,
            "ferry: calibrate: there is no CUDA device; --host measures this machine's host part "
            "alone\nferry: %s: %s\n",
            fy_status_name(status), fy_error_get()->text);
    return status_to_exit(status);
}

int cmd_calibrate(int argc, char **argv)
{
    common_t common = { .device = NULL }; /* the first CUDA device */
    request_t request = { .rounds = 7, .most_nbytes = (int64_t)512 << 20 };
    const option_t options[] = {
        { "out", OPTION_TEXT, "FILE", &request.out,
          "write the profile there, for sim:0?profile=FILE" },
        { "host", OPTION_FLAG, NULL, &request.host_only,
          "only this machine's host part: needs no GPU" },
        { "base", OPTION_TEXT, "NAME", &request.base,
          "with --host: the profile that gives the device's figures; default h200" },
        { "name", OPTION_TEXT, "NAME", &request.name,
          "of the profile; default: the device's model" },
        { "peer", OPTION_TEXT, "SPEC", &request.peer,
          "the device for peer copies; none: no such copies; default: another of its kind" },
        { "rounds", OPTION_INT, "N", &request.rounds,
          "in which all probes take turns; figures are medians", 1, CAL_MAX_ROUNDS },
        { "max-bytes", OPTION_BYTES, "SIZE", &request.most_nbytes,
          "of one buffer; small ones measure caches", 1 << 20, (int64_t)1 << 34 },
        COMMON_OPTIONS(&common),
    };
    const usage_t usage = { "ferry calibrate [DEVICE]",
                            "Measures a device and this host into a profile that "
                            "sim:0?profile=FILE reads. DEVICE is as --device;\nwithout "
                            "one, the first CUDA device. "
                            "A simulated device is measured on its model clock.",
                            options, sizeof options / sizeof *options,
                            "ferry calibrate --host --rounds 1 --max-bytes 4MiB --out host.json\n"
                            "ferry info --device 'sim:0?profile=host.json'\n" };
    const char *named;
    OPTIONS_TRY(options_parse_named(&usage, argc, argv, &named));
    if (named) common.device = named;
    const char *wrong = refuse(&request, common.device);
    if (wrong) return TOOL_REFUSE(STATUS_USAGE, "calibrate: %s\n", wrong);
    if (!request.base) request.base = "h200";

    char spec[600];
    const char *asked = request.host_only ? "host" : common.device ? common.device : "auto";
    const int code = request.host_only ? STATUS_OK : choose_device(&asked);
    if (code != STATUS_OK) return code;
    /* The host's staging copies need a device as target, which takes no time itself. */
    common.device = request.host_only ? "null:0" : with_options(asked, spec, sizeof spec);
    session_t session;
    fy_status_t status = session_begin(&session, &common, "ferry calibrate", "calibrate", asked);
    if (status == FY_STATUS_OK && request.out) status = tool_check_replaceable(request.out);
    if (status == FY_STATUS_OK) status = calibrate(&session, &request, asked);
    return session_end(&session, status);
}
