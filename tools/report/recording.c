/* One pass over the file fills the sums, the timeline and the blocks; the rest is made of them. */
#include "tools/report/recording.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/advise/advice.h"
#include "tools/advise/advise.h"
#include "tools/cli/tool.h"

/* ---- the advisor's findings ---- */

static fy_status_t take_findings(const facts_t *facts, findings_t *findings)
{
    advice_t advice;
    size_t nbytes = 0;
    json_t json = { .file = open_memstream(&findings->json, &nbytes) };
    if (!json.file) return TOOL_FAIL(OUT_OF_MEMORY, "no memory for the findings");
    advice_create(facts, NULL, &advice);
    findings->count = advice.nfindings;
    snprintf(findings->step_path, sizeof findings->step_path, "%s", facts->program->step_path);
    findings->total_ns = facts->end_ns - facts->begin_ns;
    for (size_t i = 0; i < advice.nfindings; i++)
        if (findings->saving_ns < advice.findings[i].saving_ns)
            findings->saving_ns = advice.findings[i].saving_ns;
    json_begin_object(&json, NULL);
    show_findings(&json, &advice);
    json_end(&json);
    advice_free(&advice);
    return tool_close_text(json.file, &findings->json)
               ? FY_STATUS_OK
               : TOOL_FAIL(OUT_OF_MEMORY, "no memory for the findings");
}

/* The advisor needs its program in memory, about 330 bytes an event: it gets the first events, and
 * its memory is free before the rest is read. */
static fy_status_t read_findings(const char *path, findings_t *out_findings)
{
    struct stat about;
    program_t program;
    facts_t facts;
    *out_findings = (findings_t){ .count = 0 };
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) return FY_STATUS_OK;
    fy_status_t status = program_read(path, FINDINGS_EVENTS, &program);
    if (status == FY_STATUS_OK) {
        facts_create(&program, &facts);
        status = take_findings(&facts, out_findings);
        facts_free(&facts);
    }
    out_findings->has_model_clock = program.end_model_ns != 0;
    if (program.is_cut) out_findings->nfirst = FINDINGS_EVENTS;
    program_free(&program);
    return status;
}

/* ---- one pass over the file ---- */

typedef struct reading {
    recording_t *run;
    tracks_t *tracks;
} reading_t;

/* ---- facts ---- */

static void keep_field(char **header, size_t *nbytes, const char *text)
{
    const size_t n = strlen(text) + 1;
    for (size_t i = 0; i < n; i++) {
        *header = tool_grow(*header, *nbytes, 1);
        (*header)[(*nbytes)++] = text[i];
    }
    *header = tool_grow(*header, *nbytes, 1);
    (*header)[*nbytes] = 0;
}

/* Keys without a value, and texts that are empty, are left out. */
static void keep_header(recording_t *run, char *line)
{
    event_t event;
    if (event_parse(line, &event)) return; /* the reader of the file reports it */
    for (size_t i = 0; i < event.count; i++) {
        const event_field_t *field = &event.field[i];
        char number[24];
        snprintf(number, sizeof number, "%" PRIu64, field->whole);
        if (strcmp(field->key, "ev") == 0 || !*field->key || (field->text && !*field->text))
            continue;
        keep_field(&run->header, &run->header_nbytes, field->key);
        keep_field(&run->header, &run->header_nbytes, field->text ? field->text : number);
    }
}

/* A `device` event. */
static void keep_device(recording_t *run, const event_t *event)
{
    char facts[500];
    const char *profile = event_text(event, "profile"), *options = event_text(event, "options");
    snprintf(facts, sizeof facts, "%s, backend %s, %.1f GiB%s%s%s%s", event_text(event, "model"),
             event_text(event, "backend"), (double)event_whole(event, "bytes") / (1 << 30),
             *profile ? ", profile " : "", profile, *options ? ", options " : "", options);
    keep_field(&run->devices, &run->devices_nbytes, event_text(event, "device"));
    keep_field(&run->devices, &run->devices_nbytes, facts);
}

static void take(void *user, const event_t *event)
{
    const reading_t *reading = user;
    if (event_is(event, "device") && *event_text(event, "device")) keep_device(reading->run, event);
    event_totals_add(&reading->run->totals, event);
    tracks_add(reading->tracks, event);
    blocks_add(&reading->run->blocks, &reading->run->slices, event);
}

static fy_status_t read_all(recording_t *run, reading_t *reading)
{
    text_lines_t lines;
    char *line;
    FY_TRY(text_lines_open(&lines, run->file, "event file"));
    fy_status_t status = text_lines_next(&lines, &line);
    if (status == FY_STATUS_OK && line) {
        char *copied = tool_copy_text(line);
        keep_header(run, copied);
        free(copied);
        text_lines_back(&lines);
    }
    if (status == FY_STATUS_OK) status = event_lines_read(&lines, take, reading, &run->info);
    if (status == FY_STATUS_OK) status = event_totals_check(&run->totals, run->file);
    text_lines_close(&lines);
    return status;
}

/* ---- all of it ---- */

/* Removes the tracks of the other clock. */
static void keep_clock(recording_t *run)
{
    for (size_t i = 0; i < run->slices.nlanes; i++) {
        lane_t *lane = &run->slices.lanes[i];
        const bool is_wall = lane->track.process == TRACKS_HOST_PROCESS + TRACKS_WALL;
        if (is_wall != (run->clock == TRACKS_WALL)) lane->count = 0;
        for (size_t j = 0; j < lane->count; j++)
            if (lane->slices[j].end_ns > run->end_ns) run->end_ns = lane->slices[j].end_ns;
    }
}

fy_status_t recording_read(recording_t *run, const char *path, size_t most)
{
    *run = (recording_t){ .file = path };
    trace_file_t trace = { .sink = &slices_sink, .user = &run->slices };
    fy_status_t status = read_findings(path, &run->findings);
    tracks_t tracks = { .trace = &trace,
                        .under = "",
                        .shows = { true, !run->findings.has_model_clock } };
    reading_t reading = { run, &tracks };
    (void)slices_text(&run->slices, "");
    if (status == FY_STATUS_OK) status = read_all(run, &reading);
    tracks_finish(&tracks);
    run->clock = tracks.taken[TRACKS_MODEL] ? TRACKS_MODEL : TRACKS_WALL;
    run->end_ns = tracks.last_ns[run->clock];
    run->wall_ns = tracks.last_ns[TRACKS_WALL];
    tracks_free(&tracks);
    keep_clock(run);
    slices_finish(&run->slices);
    event_totals_sort(&run->totals);
    shares_find(&run->slices, run->clock == TRACKS_MODEL, &run->shares);
    scope_times_find(&run->slices, &run->shares, run->findings.step_path, &run->times);
    run->thin = thin_slices(&run->slices, &run->times, most);
    return status;
}

uint64_t recording_shares(const recording_t *run, bool of_all, uint64_t sums[SHARES])
{
    uint64_t begin_ns = 0, end_ns = run->end_ns;
    memset(sums, 0, SHARES * sizeof *sums);
    if (run->times.has_step && !of_all) {
        begin_ns = run->times.by_text[run->times.step].first_ns;
        end_ns = run->times.step_end_ns;
    }
    shares_add(&run->shares, begin_ns, end_ns, sums);
    return end_ns - begin_ns;
}

void recording_free(recording_t *run)
{
    event_totals_free(&run->totals);
    slices_free(&run->slices);
    blocks_free(&run->blocks);
    shares_free(&run->shares);
    scope_times_free(&run->times);
    free(run->findings.json);
    free(run->header);
    free(run->devices);
    *run = (recording_t){ .file = NULL };
}
