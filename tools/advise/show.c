#include "tools/advise/advise.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/advise/rules.h"
#include "tools/cli/tool.h"

static const char *const confidences[] = { "low", "medium", "high" };
static const char *const engines[] = { "the compute engine", "the upload engine",
                                       "the download engine", "the host" };

/* "12.3 us" in a buffer of the caller. */
static const char *time_text(uint64_t ns, char out[32])
{
    const double v = (double)ns;
    if (ns < 1000)
        snprintf(out, 32, "%" PRIu64 " ns", ns);
    else if (ns < 1000000)
        snprintf(out, 32, "%.1f us", v / 1e3);
    else
        snprintf(out, 32, "%.2f ms", v / 1e6);
    return out;
}

static double percent(uint64_t part, uint64_t all)
{
    return all ? 100.0 * (double)part / (double)all : 0;
}

static uint64_t total_ns(const advice_t *advice)
{
    return advice->facts->end_ns - advice->facts->begin_ns;
}

/* ---- evidence ---- */

static const char *noun_of(const facts_t *facts, const finding_t *finding)
{
    bool up = false, down = false, other = false;
    for (size_t i = 0; i < finding->nevents; i++) {
        const program_event_t *e = facts_event(facts, finding->events[i]);
        up |= e->kind == PROGRAM_TRANSFER && e->direction == PROGRAM_UPLOAD;
        down |= e->kind == PROGRAM_TRANSFER && e->direction == PROGRAM_DOWNLOAD;
        other |= e->kind != PROGRAM_TRANSFER;
    }
    if (!other) return up && down ? "transfers" : up ? "uploads" : "downloads";
    if (finding->rule->find == rule_idle) return "requests and calls";
    switch (facts_event(facts, finding->events[0])->kind) {
    case PROGRAM_OP: return "ops";
    case PROGRAM_SYNC: return "waits";
    case PROGRAM_BLOCK_ALLOC: return "blocks";
    case PROGRAM_REFUSAL: return "refused writes";
    default: return "allocations";
    }
}

static const char *formula_of(const finding_t *finding, char out[200])
{
    char idle[32];
    int n;
    if (!finding->saving_ns && (!finding->idle_ns || finding->formula)) {
        snprintf(out, 200, "%s",
                 finding->nbytes ? "no time of this run: the bytes and the host's work"
                                 : "no time of this run");
        return out;
    }
    if (finding->formula) {
        snprintf(out, 200, "%s", finding->formula);
        return out;
    }
    n = snprintf(out, 200, "idle time of the device because of them, %s",
                 time_text(finding->idle_ns, idle));
    if (finding->rest_ns)
        n += snprintf(out + n, 200 - (size_t)n, ", - %s that copies still take",
                      time_text(finding->rest_ns, idle));
    else if (finding->kept && finding->rule->change == CHANGE_BATCH)
        n += snprintf(out + n, 200 - (size_t)n, ", x (%zu - %" PRIu64 ") / %zu", finding->nevents,
                      finding->kept, finding->nevents);
    if (finding->has_limit)
        snprintf(out + n, 200 - (size_t)n, "; less, because %s then is the limit",
                 engines[finding->limit]);
    return out;
}

/* ---- text ---- */

/* Of the device's idle time in the measured part. */
static void sum_causes(const facts_t *facts, uint64_t out_causes[FACTS_CAUSES])
{
    memset(out_causes, 0, FACTS_CAUSES * sizeof *out_causes);
    for (uint32_t i = 0; i < facts->program->nevents; i++)
        out_causes[facts_cause(facts, i)] += facts->idle_ns[i] + facts->queue_ns[i];
}

static void print_causes(const facts_t *facts)
{
    uint64_t causes[FACTS_CAUSES];
    char text[32];
    const char *between = "  because of: ";
    sum_causes(facts, causes);
    for (int i = 0; i < FACTS_CAUSES; i++) {
        if (!causes[i]) continue;
        printf("%s%s %s", between, facts_cause_name((facts_cause_t)i), time_text(causes[i], text));
        between = ", ";
    }
    if (facts->idle_total_ns) printf("\n");
}

static void print_head(const advice_t *advice, const char *file)
{
    const program_t *p = advice->facts->program;
    char all[32], idle[32];
    printf("%s: ", file);
    if (p->nsteps) printf("%zu steps '%s', ", p->nsteps, p->step_path);
    if (total_ns(advice))
        printf("%s by the model clock, of which the device is idle for %s (%.0f %%)\n",
               time_text(total_ns(advice), all), time_text(advice->facts->idle_total_ns, idle),
               percent(advice->facts->idle_total_ns, total_ns(advice)));
    else
        printf("no model clock in this recording, so savings in time are unknown\n"
               "  Record the run on a simulated device to have them: --device sim:0\n");
    print_causes(advice->facts);
    if (!advice->nfindings) printf("no findings\n");
}

static void print_code(const char *code)
{
    for (const char *line = code; *line;) {
        const size_t n = strcspn(line, "\n");
        printf("             %.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

static void print_finding(const advice_t *advice, const finding_t *finding, size_t number)
{
    char saving[32], formula[200];
    const rule_t *rule = finding->rule;
    printf("\n%2zu. %s  %s\n", number, rule->id, rule->title);
    if (total_ns(advice))
        printf("    saves    %s (%.1f %%), confidence %s: %s\n",
               time_text(finding->saving_ns, saving), percent(finding->saving_ns, total_ns(advice)),
               confidences[finding->confidence], formula_of(finding, formula));
    else
        printf("    saves    unknown time, confidence %s\n", confidences[finding->confidence]);
    if (finding->has_measured)
        printf("    proved   %s%s, by an execution on the model clock with the fix\n",
               finding->measured_ns < 0 ? "-" : "",
               time_text((uint64_t)(finding->measured_ns < 0 ? -finding->measured_ns
                                                             : finding->measured_ns),
                         saving));
    printf("    where    %s%sscope %s: %zu %s, %" PRIu64 " bytes", finding->site,
           *finding->site ? ", " : "", *finding->scope ? finding->scope : "(none)",
           finding->nevents, noun_of(advice->facts, finding), finding->nbytes);
    printf("%s%s\n", *finding->detail ? "; " : "", finding->detail);
    printf("    why      %s\n", rule->why);
    printf("    fix      %s\n", rule->fix);
    print_code(rule->code);
}

static void print_together(const advice_t *advice)
{
    char saving[32];
    const int64_t ns = advice->together_ns;
    if (advice->nfindings < 2 || !total_ns(advice)) return;
    if (!advice->has_together) {
        printf(
            "\nsavings overlap, so their sum is no saving: --prove executes all fixes together\n");
        return;
    }
    printf("\ntogether, the fixes of all findings save %s%s (%.1f %%), by one execution with all\n",
           ns < 0 ? "-" : "", time_text((uint64_t)(ns < 0 ? -ns : ns), saving),
           ns < 0 ? 0 : percent((uint64_t)ns, total_ns(advice)));
}

void show_text(const advice_t *advice, const char *file, size_t most)
{
    char saving[32];
    print_head(advice, file);
    for (size_t i = 0; i < advice->nfindings && i < most; i++)
        print_finding(advice, &advice->findings[i], i + 1);
    if (advice->nfindings > most) printf("\nfurther findings (--all shows them in full):\n");
    for (size_t i = most; i < advice->nfindings; i++) {
        const finding_t *f = &advice->findings[i];
        printf("%2zu. %s  %-10s %s, %s\n", i + 1, f->rule->id,
               total_ns(advice) ? time_text(f->saving_ns, saving) : "", f->rule->title,
               *f->site ? f->site : f->scope);
    }
    print_together(advice);
}

void show_rules(void)
{
    printf("\nrules:\n");
    for (size_t i = 0; i < rules_count; i++) printf("  %s  %s\n", rules[i].id, rules[i].title);
}

/* ---- JSON ---- */

static void json_finding(json_t *json, const advice_t *advice, const finding_t *finding)
{
    char formula[200];
    json_begin_object(json, NULL);
    json_text(json, "id", finding->rule->id);
    json_text(json, "title", finding->rule->title);
    json_text(json, "site", *finding->site ? finding->site : NULL);
    json_text(json, "scope", finding->scope);
    json_text(json, "what", noun_of(advice->facts, finding));
    json_uint(json, "count", finding->nevents);
    json_uint(json, "bytes", finding->nbytes);
    json_uint(json, "idle_ns", finding->idle_ns);
    json_uint(json, "saving_ns", finding->saving_ns);
    json_text(json, "saving", formula_of(finding, formula));
    json_real(json, "measured_ns", finding->has_measured ? (double)finding->measured_ns : NAN);
    json_text(json, "confidence", confidences[finding->confidence]);
    json_text(json, "detail", *finding->detail ? finding->detail : NULL);
    json_text(json, "why", finding->rule->why);
    json_text(json, "fix", finding->rule->fix);
    json_text(json, "code", finding->rule->code);
    json_end(json);
}

void show_findings(json_t *json, const advice_t *advice)
{
    json_begin_array(json, "findings");
    for (size_t i = 0; i < advice->nfindings; i++) json_finding(json, advice, &advice->findings[i]);
    json_end(json);
}

void show_json(const advice_t *advice, const char *file)
{
    json_t json = { .file = stdout };
    json_begin_object(&json, NULL);
    json_text(&json, "advise", file);
    json_text(&json, "version", fy_version());
    json_text(&json, "clock", total_ns(advice) ? "model" : "wall");
    json_uint(&json, "steps", advice->facts->program->nsteps);
    json_text(&json, "step_scope", advice->facts->program->step_path);
    json_uint(&json, "ns", total_ns(advice));
    json_uint(&json, "idle_ns", advice->facts->idle_total_ns);
    uint64_t causes[FACTS_CAUSES];
    sum_causes(advice->facts, causes);
    json_begin_object(&json, "idle_causes");
    for (int i = 0; i < FACTS_CAUSES; i++)
        json_uint(&json, facts_cause_name((facts_cause_t)i), causes[i]);
    json_end(&json);
    json_real(&json, "together_ns", advice->has_together ? (double)advice->together_ns : NAN);
    show_findings(&json, advice);
    json_end(&json);
}
