/* `ferry predict FILE`: the requests of a recorded run, executed again on other figures. Not here:
 * the execution (schedule.h), its sums (predict.h). */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"
#include "tools/program/change.h"
#include "tools/program/predict.h"

enum { RECORDED, ALL };

typedef struct settings {
    const char *file, *profile, *link, *from, *csv, *plot;
    double latency;
    int pinned, sweep;
    bool json;
} settings_t;

typedef struct work {
    program_t program;
    schedule_t schedule;
    figures_t *recorded, *other;
    prediction_t before, after;
    uint64_t peak, memory;
} work_t;

/* The figures that the options ask for, of each device that was recorded. */
static fy_status_t change_machines(const settings_t *settings, const program_t *program,
                                   const figures_t *recorded, figures_t *machines)
{
    for (size_t i = 0; i < program->ndevices; i++) {
        if (!recorded[i].device.memory_nbytes) continue;
        if (settings->profile) FY_TRY(figures_open(settings->profile, &machines[i]));
        if (settings->link) FY_TRY(figures_set_link(&machines[i], settings->link));
        if (!isnan(settings->latency)) figures_scale_latency(&machines[i], settings->latency);
    }
    return FY_STATUS_OK;
}

/* Are the options right? Asked before the file is read. */
static fy_status_t check_options(const settings_t *settings)
{
    figures_t machine;
    if (settings->csv) FY_TRY(tool_check_not_input(settings->csv, settings->file));
    if (settings->plot) FY_TRY(tool_check_not_input(settings->plot, settings->file));
    FY_TRY(figures_open(settings->profile ? settings->profile : "h200", &machine));
    if (settings->from) FY_TRY(figures_open(settings->from, &machine));
    return settings->link ? figures_set_link(&machine, settings->link) : FY_STATUS_OK;
}

static fy_status_t check_program(const settings_t *settings, const program_t *program)
{
    if (program->lost)
        return TOOL_FAIL(CORRUPT_DATA,
                         "%s lacks %" PRIu64 " events that the ring had no room for; a program "
                         "with gaps cannot be executed again: record a shorter run",
                         settings->file, program->lost);
    return FY_STATUS_OK;
}

/* As if the host's memory of every transfer were page-locked. */
static fy_status_t pin_all(work_t *work)
{
    const program_t *program = &work->program;
    facts_t facts;
    uint32_t *events = tool_alloc((program->nevents + 1) * sizeof *events);
    change_t change = { .kind = CHANGE_PIN, .events = events };
    for (uint32_t i = 0; i < program->nevents; i++)
        if (program->events[i].kind == PROGRAM_TRANSFER) events[change.nevents++] = i;
    facts_create(program, &facts);
    const fy_status_t status = change_apply(&work->schedule, &facts, &change);
    facts_free(&facts);
    free(events);
    return status;
}

static fy_status_t predict(const settings_t *settings, work_t *work)
{
    FY_TRY(program_read(settings->file, 0, &work->program));
    FY_TRY(check_program(settings, &work->program));
    FY_TRY(predict_machines(&work->program, settings->from, &work->recorded));
    FY_TRY(schedule_build(&work->program, work->recorded, &work->schedule));
    const size_t nbytes = (work->program.ndevices + 1) * sizeof *work->other;
    work->other = memcpy(tool_alloc(nbytes), work->recorded, nbytes);
    FY_TRY(change_machines(settings, &work->program, work->recorded, work->other));
    predict_run(&work->schedule, work->recorded, &work->before);
    if (settings->pinned == ALL) FY_TRY(pin_all(work));
    predict_run(&work->schedule, work->other, &work->after);
    work->peak = predict_peak(&work->program);
    for (size_t i = 0; i < work->program.ndevices; i++) {
        const uint64_t memory = work->other[i].device.memory_nbytes;
        if (memory && (!work->memory || memory < work->memory)) work->memory = memory;
    }
    return FY_STATUS_OK;
}

/* ---- output ---- */

/* The figures of one execution, in the order of the table. */
typedef struct row {
    const char *key, *heading;
    uint64_t ns[2];
} row_t;

enum { ROWS = 7 + PREDICT_CAUSE_COUNT };

static void fill_rows(const work_t *work, row_t *rows)
{
    const prediction_t *both[] = { &work->before, &work->after };
    for (int i = 0; i < 2; i++) {
        const prediction_t *p = both[i];
        const row_t fixed[] = {
            { "model_ns", "whole program", { p->total_ns, 0 } },
            { "step_ns", "step (median)", { p->step_ns, 0 } },
            { "steps_ns", p->nsteps ? "all steps; of them:" : "of it:", { p->steps_ns, 0 } },
            { "busy_ns", "ops", { p->busy_ns, 0 } },
            { "upload_ns", "uploads", { p->upload_ns, 0 } },
            { "download_ns", "downloads", { p->download_ns, 0 } },
            { "exposed_ns", "transfers without ops beside them", { p->exposed_ns, 0 } },
        };
        for (int k = 0; k < ROWS; k++) {
            const bool is_cause = k >= ROWS - PREDICT_CAUSE_COUNT;
            const int cause = k - (ROWS - PREDICT_CAUSE_COUNT);
            if (!i)
                rows[k] = is_cause ? (row_t){ predict_cause_keys[cause],
                                              predict_cause_headings[cause],
                                              { 0, 0 } }
                                   : fixed[k];
            rows[k].ns[i] = is_cause ? p->idle_ns[cause] : fixed[k].ns[0];
        }
    }
}

static const column_t columns[] = { { "figure", "model time", 0 },
                                    { "recorded_ns", "recorded [ns]", 0 },
                                    { "predicted_ns", "predicted [ns]", 0 } };

static sheet_t *fill_sheet(const row_t *rows)
{
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (int i = 0; i < ROWS; i++) {
        char text[80];
        const bool is_idle = i >= ROWS - PREDICT_CAUSE_COUNT;
        snprintf(text, sizeof text, "%s%s", is_idle ? "no op: " : "", rows[i].heading);
        sheet_text(sheet, text);
        sheet_int(sheet, (int64_t)rows[i].ns[0]);
        sheet_int(sheet, (int64_t)rows[i].ns[1]);
    }
    return sheet;
}

static void print_json(const settings_t *settings, const work_t *work, const row_t *rows)
{
    static const char *const names[] = { "recorded", "predicted" };
    json_t json = { .file = stdout };
    json_begin_object(&json, NULL);
    json_text(&json, "kind", "predict");
    json_text(&json, "version", fy_version());
    json_text(&json, "clock", "model");
    json_text(&json, "file", settings->file);
    json_text(&json, "step_path", work->program.step_path);
    json_uint(&json, "steps", work->before.nsteps);
    json_uint(&json, "recorded_model_ns",
              work->program.end_model_ns - work->program.begin_model_ns);
    json_uint(&json, "unexplained_ns", work->schedule.unexplained_ns);
    json_uint(&json, "peak_bytes", work->peak);
    json_bool(&json, "fits", work->peak <= work->memory);
    for (int i = 0; i < 2; i++) {
        const figures_t *machines = i ? work->other : work->recorded;
        json_begin_object(&json, names[i]);
        for (size_t d = 0; d < work->program.ndevices; d++)
            if (machines[d].device.memory_nbytes) {
                json_text(&json, "profile", machines[d].name);
                break;
            }
        for (int k = 0; k < ROWS - PREDICT_CAUSE_COUNT; k++)
            json_uint(&json, rows[k].key, rows[k].ns[i]);
        json_begin_object(&json, "idle_ns");
        for (int k = ROWS - PREDICT_CAUSE_COUNT; k < ROWS; k++)
            json_uint(&json, rows[k].key, rows[k].ns[i]);
        json_end(&json);
        json_end(&json);
    }
    json_end(&json);
    putchar('\n');
}

static void print_text(const settings_t *settings, const work_t *work, const sheet_t *sheet)
{
    const program_t *program = &work->program;
    printf("%s: ", settings->file);
    if (program->nsteps)
        printf("%" PRIu64 " steps of %s\n\n", work->before.nsteps, program->step_path);
    else
        printf("no scope repeats: all of it\n\n");
    sheet_print(sheet, stdout);
    printf("\npeak of device memory: %" PRIu64 " of %" PRIu64 " bytes%s\n", work->peak,
           work->memory, work->peak > work->memory ? ": it does not fit" : "");
}

static fy_status_t print(const settings_t *settings, const work_t *work)
{
    row_t rows[ROWS];
    fill_rows(work, rows);
    sheet_t *sheet = fill_sheet(rows);
    if (settings->json)
        print_json(settings, work, rows);
    else
        print_text(settings, work, sheet);
    const fy_status_t status = settings->csv ? sheet_csv(sheet, settings->csv) : FY_STATUS_OK;
    sheet_destroy(sheet);
    return status;
}

static fy_status_t print_sweep(const settings_t *settings, const work_t *work)
{
    fy_status_t status;
    sheet_t *sheet = sweep_run(&work->schedule, work->other, (sweep_axes_t)settings->sweep,
                               settings->plot, &status);
    if (status == FY_STATUS_OK && settings->json) {
        json_t json = { .file = stdout };
        json_begin_object(&json, NULL);
        json_text(&json, "kind", "predict_sweep");
        json_text(&json, "version", fy_version());
        json_text(&json, "clock", "model");
        json_text(&json, "file", settings->file);
        json_text(&json, "step_path", work->program.step_path);
        sheet_json(sheet, &json, "rows");
        json_end(&json);
        putchar('\n');
    } else if (status == FY_STATUS_OK)
        sheet_print(sheet, stdout);
    if (status == FY_STATUS_OK && settings->csv) status = sheet_csv(sheet, settings->csv);
    sheet_destroy(sheet);
    return status;
}

int cmd_predict(int argc, char **argv)
{
    settings_t settings = { .latency = NAN };
    const option_t options[] = {
        { "profile", OPTION_TEXT, "NAME|FILE", &settings.profile,
          "figures of this device, as profile= of a simulated device" },
        { "link", OPTION_TEXT, "LINK", &settings.link,
          "copies cross this link: pcie3x1 to pcie6x16, or a rate such as 24GB/s" },
        { "latency", OPTION_REAL, "X", &settings.latency,
          "times of a request that do not depend on its size, times X", 0, 1000 },
        { "pinned", OPTION_CHOICE, "recorded|all", &settings.pinned,
          "all: as if all host memory were page-locked: no copy is staged or holds the host" },
        { "from", OPTION_TEXT, "NAME|FILE", &settings.from,
          "profile of the recording, if the file does not name it" },
        { "sweep", OPTION_CHOICE, "none|link|latency|link,latency", &settings.sweep,
          "step time over link rates from 3 to 104 GB/s and latencies from 0.5 to 8 times" },
        { "plot", OPTION_SVG, "FILE.svg", &settings.plot, "with --sweep: draw it with gnuplot" },
        { "json", OPTION_FLAG, NULL, &settings.json,
          "print one JSON document on standard output, and nothing else there" },
        { "csv", OPTION_TEXT, "FILE", &settings.csv, "write the rows of the table to FILE" },
    };
    const usage_t usage = {
        "ferry predict FILE",
        "Executes the requests of a recorded run again on the model clock, on another device, link "
        "or latency: step time, exposed transfers, idle time by cause, peak of memory.",
        options, sizeof options / sizeof *options,
        "ferry train lenet --device sim:0 --max-steps 20 --record run.jsonl\n"
        "ferry predict run.jsonl --profile t4\n"
        "ferry predict run.jsonl --link pcie4x8 --latency 2\n"
        "ferry predict run.jsonl --sweep link,latency --plot sweep.svg\n"
    };
    OPTIONS_TRY(options_parse_named(&usage, argc, argv, &settings.file));
    if (!settings.file)
        return TOOL_REFUSE(STATUS_USAGE,
                           "which file? 'ferry predict FILE'; --record FILE of other commands "
                           "makes FILE\n");
    if (settings.plot && !settings.sweep)
        return TOOL_REFUSE(STATUS_USAGE,
                           "--plot draws a sweep: add --sweep link, latency or link,latency\n");
    work_t work = { .memory = 0 };
    fy_status_t status = check_options(&settings);
    const bool is_usage = status == FY_STATUS_INVALID_ARGUMENT;
    if (status == FY_STATUS_OK) status = predict(&settings, &work);
    if (status == FY_STATUS_OK)
        status = settings.sweep ? print_sweep(&settings, &work) : print(&settings, &work);
    if (status == FY_STATUS_OK && !work.program.is_whole)
        status = TOOL_FAIL(CORRUPT_DATA,
                           "%s has no end (the process was killed, or still runs); "
                           "what it has was predicted",
                           settings.file);
    const int exit_status = tool_end(status);
    schedule_free(&work.schedule);
    program_free(&work.program);
    free(work.recorded);
    free(work.other);
    return is_usage ? STATUS_USAGE : exit_status;
}
