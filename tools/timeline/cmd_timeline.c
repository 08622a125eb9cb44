/* `ferry timeline FILE`: a recorded run as a picture that can be zoomed, for Perfetto's UI and
 * chrome://tracing. Not here: what becomes a slice (tracks.h). */
#include <inttypes.h>
#include <string.h>

#include "tools/cli/event_totals.h"
#include "tools/cli/tool.h"
#include "tools/timeline/tracks.h"

enum { MODEL, WALL, BOTH };

typedef struct settings {
    const char *file, *out, *under;
    int clock;
} settings_t;

static fy_status_t check_clock(const settings_t *settings, const tracks_t *tracks)
{
    if (settings->clock == WALL || tracks->taken[TRACKS_MODEL]) return FY_STATUS_OK;
    return TOOL_FAIL(INVALID_ARGUMENT,
                     "%s has no times of the model clock: no simulated device was open, or an "
                     "older Ferry wrote it. --clock wall draws the host's threads and memory",
                     settings->file);
}

/* Writes the events to `out`; after a failure `out` is unchanged. */
static fy_status_t draw(const settings_t *settings, tracks_t *tracks, event_file_info_t *info)
{
    trace_file_t trace;
    char about[600];
    FY_TRY(tool_check_replaceable(settings->out));
    FY_TRY(tool_check_not_input(settings->out, settings->file));
    FY_TRY(trace_file_open(&trace, settings->out));
    tracks->trace = &trace;
    fy_status_t status = event_file_read(settings->file, tracks_add, tracks, info);
    if (status == FY_STATUS_OK) status = check_clock(settings, tracks);
    if (status == FY_STATUS_OK && !trace.slices && *settings->under)
        status = TOOL_FAIL(INVALID_ARGUMENT,
                           "--scope: nothing in %s is inside a scope '%s'; without --scope all is "
                           "drawn",
                           settings->file, settings->under);
    if (status != FY_STATUS_OK) {
        output_abort(&trace.output);
        return status;
    }
    tracks_finish(tracks);
    snprintf(about, sizeof about, "ferry %s, events of %.400s", fy_version(), settings->file);
    FY_TRY(trace_file_commit(&trace, about));
    printf("%s: %" PRIu64 " slices, %" PRIu64 " arrows, %" PRIu64 " counter values of %" PRIu64
           " events\nopen it at https://ui.perfetto.dev or in chrome://tracing\n",
           settings->out, trace.slices, trace.flows, trace.counts, info->events);
    if (info->lost)
        printf("%" PRIu64 " events were lost, because the ring was full: they are not drawn\n",
               info->lost);
    return FY_STATUS_OK;
}

int cmd_timeline(int argc, char **argv)
{
    settings_t settings = { .under = "" };
    const option_t options[] = {
        { "out", OPTION_TEXT, "TRACE.json", &settings.out, "the file to write; needed" },
        { "clock", OPTION_CHOICE, "model|wall|both", &settings.clock,
          "model: host and devices by the simulated clock; wall: the host in real time; both: as "
          "separate processes" },
        { "scope", OPTION_TEXT, "PATH", &settings.under,
          "only this scope path, such as train/step, and what is inside it" },
    };
    const usage_t usage = { "ferry timeline FILE",
                            "Draws a recorded run: threads and their scopes, each device's "
                            "streams, arrows for dependencies and waits, memory over time. "
                            "Perfetto and chrome://tracing show the result.",
                            options, sizeof options / sizeof *options,
                            "ferry train lenet --device sim:0 --max-steps 20 --record run.jsonl\n"
                            "ferry timeline run.jsonl --out trace.json\n" };
    OPTIONS_TRY(options_parse_named(&usage, argc, argv, &settings.file));
    if (!settings.file || !settings.out)
        return TOOL_REFUSE(STATUS_USAGE,
                           "%s 'ferry timeline FILE --out TRACE.json'; --record FILE of other "
                           "commands makes FILE\n",
                           settings.file ? "write to which file?" : "which file?");
    event_file_info_t info = { .lost = 0 };
    tracks_t tracks = { .under = settings.under,
                        .shows = { settings.clock != WALL, settings.clock != MODEL } };
    fy_status_t status = draw(&settings, &tracks, &info);
    tracks_free(&tracks);
    if (status == FY_STATUS_OK && !info.is_whole)
        status = TOOL_FAIL(CORRUPT_DATA, "%s %s %" PRIu64 " events; those are drawn", settings.file,
                           info.has_end ? "has another number of events than its last line says:"
                                        : "has no end (the process was killed, or still runs, or "
                                          "the disk was full) after its",
                           info.events);
    return tool_end(status);
}
