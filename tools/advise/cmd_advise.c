/* `ferry advise FILE`: transfers, waits and allocations that a run does not need.
 * Not here: finding it (advice.h), printing it (show.c). */
#include <inttypes.h>
#include <stdio.h>

#include "tools/advise/advise.h"
#include "tools/advise/advice.h"
#include "tools/advise/rules.h"
#include "tools/cli/tool.h"

enum { SHOWN = 4 };

int advise_run(const advise_options_t *options)
{
    program_t program;
    facts_t facts;
    advice_t advice;
    fy_status_t status = program_read(options->file, 0, &program);
    size_t found = 0;
    if (status == FY_STATUS_OK) {
        facts_create(&program, &facts);
        advice_create(&facts, options->rule, &advice);
        found = advice.nfindings;
        if (options->prove) status = prove(&advice);
        if (status != FY_STATUS_OK)
            ; /* nothing is printed but the reason */
        else if (options->json)
            show_json(&advice, options->name);
        else
            show_text(&advice, options->name, options->all ? SIZE_MAX : SHOWN);
        advice_free(&advice);
        facts_free(&facts);
        if (status == FY_STATUS_OK && !program.is_whole)
            status = TOOL_FAIL(CORRUPT_DATA,
                               "%s has no end, or not as many events as its last line says; the "
                               "advice is about those that it has",
                               options->name);
    }
    program_free(&program);
    if (status != FY_STATUS_OK) return tool_end(status);
    return options->strict && found ? STATUS_FAILED : STATUS_OK;
}

int cmd_advise(int argc, char **argv)
{
    advise_options_t settings = { .file = NULL };
    const option_t options[] = {
        { "json", OPTION_FLAG, NULL, &settings.json, "print one JSON document" },
        { "rule", OPTION_TEXT, "ID", &settings.rule, "only findings of this rule" },
        { "all", OPTION_FLAG, NULL, &settings.all, "show all findings in full" },
        { "prove", OPTION_FLAG, NULL, &settings.prove,
          "execute the recorded requests again without the waste of each finding, and print what "
          "that saves on the model clock" },
        { "strict", OPTION_FLAG, NULL, &settings.strict,
          "exit with status 1 if there is a finding" },
    };
    const usage_t usage = { "ferry advise FILE",
                            "Finds needless transfers and waits in a recorded run: where they are, "
                            "what they cost, and how to remove them. docs/advisor.md explains the "
                            "rules.",
                            options,
                            sizeof options / sizeof *options,
                            "ferry experiment roundtrip --device sim:0 --record run.jsonl\n"
                            "ferry advise run.jsonl\n"
                            "ferry advise run.jsonl --json --rule FA01\n",
                            .print_more = show_rules };
    OPTIONS_TRY(options_parse_named(&usage, argc, argv, &settings.file));
    if (!settings.file)
        return TOOL_REFUSE(STATUS_USAGE,
                           "which file? 'ferry advise FILE'; --record FILE of other commands "
                           "makes FILE\n");
    if (settings.rule && !rule_named(settings.rule))
        return TOOL_REFUSE(STATUS_USAGE,
                           "--rule: there is no rule '%s'; 'ferry advise --help' lists them\n",
                           settings.rule);
    settings.name = settings.file;
    return advise_run(&settings);
}
