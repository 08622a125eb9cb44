/* `ferry report FILE...`: a recorded run as one page for a browser: where the time went, the
 * timeline, the ledger, memory. Two files: a comparison. Not here: the page (page.h, page/), the
 * run (recording.h), sentences (summary.c). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"
#include "tools/report/recording.h"

enum { FILES_MOST = 2, SLICES_MOST = 200000, SUMMARY = 600 };

typedef struct report {
    const char *files[FILES_MOST], *out;
    int nfiles;
    recording_t runs[FILES_MOST];
    char summary[SUMMARY];
} report_t;

static void put_document(page_t *page, report_t *report)
{
    char command[600] = "ferry report";
    for (int i = 0; i < report->nfiles; i++)
        snprintf(command + strlen(command), sizeof command - strlen(command), " %s",
                 report->files[i]);
    snprintf(command + strlen(command), sizeof command - strlen(command), " --out %s", report->out);
    page_begin(page, NULL, '{');
    page_text(page, "version", fy_version());
    page_text(page, "command", command);
    page_text(page, "summary", report->summary);
    page_begin(page, "runs", '[');
    for (int i = 0; i < report->nfiles; i++) recording_page_write(page, &report->runs[i]);
    page_end(page, ']');
    page_end(page, '}');
}

/* Everything is read before the file is begun, so a failure of reading leaves nothing. */
static fy_status_t make(report_t *report)
{
    page_t page;
    FY_TRY(tool_check_replaceable(report->out));
    for (int i = 0; i < report->nfiles; i++)
        FY_TRY(tool_check_not_input(report->out, report->files[i]));
    for (int i = 0; i < report->nfiles; i++)
        FY_TRY(recording_read(&report->runs[i], report->files[i],
                              (size_t)SLICES_MOST / (size_t)report->nfiles));
    if (report->nfiles == 1)
        summary_of(&report->runs[0], report->summary, sizeof report->summary);
    else
        summary_of_two(&report->runs[0], &report->runs[1], report->summary, sizeof report->summary);
    FY_TRY(page_open(&page, report->out));
    put_document(&page, report);
    FY_TRY(page_commit(&page));
    printf("%s\n%s: %" PRIu64 " bytes; open it in a browser\n", report->summary, report->out,
           page.output.nbytes);
    return FY_STATUS_OK;
}

/* A recording without its end is shown, and the command fails. */
static fy_status_t check_whole(const report_t *report)
{
    for (int i = 0; i < report->nfiles; i++) {
        const event_file_info_t *info = &report->runs[i].info;
        if (info->lost)
            printf("%" PRIu64 " events of %s were lost, because the ring was full: they are in no "
                   "figure\n",
                   info->lost, report->files[i]);
        if (!info->is_whole)
            return TOOL_FAIL(CORRUPT_DATA, "%s %s %" PRIu64 " events; those are shown",
                             report->files[i],
                             info->has_end ? "has another number of events than its last line says:"
                                           : "has no end (the process was killed, or still runs, "
                                             "or the disk was full) after its",
                             info->events);
    }
    return FY_STATUS_OK;
}

int cmd_report(int argc, char **argv)
{
    report_t report = { .nfiles = 0 };
    const option_t options[] = {
        { "out", OPTION_TEXT, "REPORT.html", &report.out, "the file to write; needed" },
    };
    const usage_t usage = { "ferry report FILE [FILE]",
                            "Shows a recorded run as one page for a browser: where the time goes, "
                            "a timeline, the ledger by scope, memory over time. Two files are "
                            "compared: the first is A, the second B. The page loads nothing.",
                            options, sizeof options / sizeof *options,
                            "ferry train lenet --device sim:0 --max-steps 20 --record run.jsonl\n"
                            "ferry report run.jsonl --out report.html\n" };
    while (report.nfiles < FILES_MOST && report.nfiles + 1 < argc &&
           argv[report.nfiles + 1][0] != '-') {
        report.files[report.nfiles] = argv[report.nfiles + 1];
        report.nfiles++;
    }
    OPTIONS_TRY(options_parse(&usage, argc - report.nfiles, argv + report.nfiles));
    if (!report.nfiles || !report.out)
        return TOOL_REFUSE(
            STATUS_USAGE,
            "%s 'ferry report FILE --out REPORT.html'; --record FILE of other commands "
            "makes FILE\n",
            report.nfiles ? "write to which file?" : "which file?");
    fy_status_t status = make(&report);
    if (status == FY_STATUS_OK) status = check_whole(&report);
    for (int i = 0; i < report.nfiles; i++) recording_free(&report.runs[i]);
    return tool_end(status);
}
