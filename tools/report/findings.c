/* The advisor has its own reader: it needs the whole program in memory. */
#include "tools/report/findings.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tools/advise/advice.h"
#include "tools/advise/show.h"
#include "tools/cli/tool.h"

static fy_status_t take(const facts_t *facts, findings_t *findings)
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

fy_status_t findings_read(const char *path, findings_t *out_findings)
{
    struct stat about;
    program_t program;
    facts_t facts;
    *out_findings = (findings_t){ .count = 0 };
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) return FY_STATUS_OK;
    fy_status_t status = program_read(path, &program);
    if (status == FY_STATUS_OK) {
        facts_create(&program, &facts);
        status = take(&facts, out_findings);
        facts_free(&facts);
    }
    program_free(&program);
    return status;
}

void findings_free(findings_t *findings)
{
    free(findings->json);
    *findings = (findings_t){ .count = 0 };
}
