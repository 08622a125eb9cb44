/* Groups events into findings and computes savings. A saving is the time for which the device stood
 * idle because of the finding's events, less what another engine would still take: without them the
 * run lasts at least as long as its busiest engine. */
#include "tools/advise/advice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/advise/rules.h"
#include "tools/cli/tool.h"
#include "tools/program/predict.h"

/* Shortens `scope` to the part that is `path` or around it. */
static void widen(char *scope, const char *path)
{
    size_t same = 0, part = 0;
    while (scope[same] && scope[same] == path[same])
        if (scope[same++] == '/') part = same - 1;
    const bool ends = (!scope[same] || scope[same] == '/') && (!path[same] || path[same] == '/');
    scope[ends ? same : part] = 0;
}

/* Equal texts of a program are one pointer. */
finding_t *advice_at(advice_t *advice, uint32_t event)
{
    const program_t *p = advice->facts->program;
    const program_event_t *e = &p->events[event];
    const char *scope = p->scopes[e->scope == PROGRAM_NONE ? 0 : e->scope].path;
    const uint64_t place = (uint64_t)(uintptr_t)(*e->site ? e->site : scope) << 1;
    uint32_t *index = number_table_at(&advice->places, place | !*e->site);
    if (*index != NUMBER_TABLE_NONE) {
        finding_t *finding = &advice->findings[*index];
        widen(finding->scope, scope);
        return finding;
    }
    *index = (uint32_t)advice->nfindings;
    advice->findings = tool_grow(advice->findings, advice->nfindings, sizeof *advice->findings);
    finding_t *finding = &advice->findings[advice->nfindings++];
    *finding = (finding_t){ .rule = advice->rule, .site = e->site, .confidence = CONFIDENCE_HIGH };
    snprintf(finding->scope, sizeof finding->scope, "%s", scope);
    return finding;
}

void advice_charge(advice_t *advice, finding_t *finding, uint32_t event)
{
    if (advice->claimed[event]) return;
    advice->claimed[event] = true;
    finding->costs = tool_grow(finding->costs, finding->ncosts, sizeof *finding->costs);
    finding->costs[finding->ncosts++] = event;
}

void advice_add(advice_t *advice, finding_t *finding, uint32_t event)
{
    if (advice->claimed[event]) return;
    advice_charge(advice, finding, event);
    finding->events = tool_grow(finding->events, finding->nevents, sizeof *finding->events);
    finding->begins = tool_grow(finding->begins, finding->nevents, sizeof *finding->begins);
    finding->begins[finding->nevents] = finding->begins_next;
    finding->begins_next = false;
    finding->events[finding->nevents++] = event;
    finding->nbytes += facts_event(advice->facts, event)->nbytes;
}

uint64_t advice_calibrated_ns(const advice_t *advice, uint32_t event, uint64_t nbytes)
{
    const uint32_t device = facts_event(advice->facts, event)->device;
    if (!advice->machines || device == PROGRAM_NONE ||
        !advice->machines[device].device.memory_nbytes)
        return 0;
    return fy__sim_profile_link_ns(&advice->machines[device].device, 1, nbytes);
}

void advice_begin_series(finding_t *finding)
{
    finding->begins_next = true;
    finding->kept++;
}

/* ---- waits ---- */

uint32_t advice_prompt_wait(const facts_t *facts, uint32_t request)
{
    const program_t *p = facts->program;
    const uint32_t thread = p->events[request].thread;
    for (uint32_t i = request + 1; i < p->nevents; i++) {
        const program_event_t *e = &p->events[i];
        if (e->thread != thread) continue;
        if (e->kind == PROGRAM_OP || e->kind == PROGRAM_TRANSFER) break;
        if ((e->kind == PROGRAM_SYNC || e->kind == PROGRAM_ARRIVED) && facts->awaited[i] == request)
            return i;
    }
    return PROGRAM_NONE;
}

void advice_charge_wait(advice_t *advice, finding_t *finding, uint32_t wait)
{
    const facts_t *facts = advice->facts;
    advice_charge(advice, finding, wait);
    if (facts_event(facts, wait)->kind == PROGRAM_SYNC && wait + 1 < facts->program->nevents &&
        facts->awaited[wait + 1] == facts->awaited[wait] && facts->awaited[wait] != PROGRAM_NONE)
        advice_charge(advice, finding, wait + 1);
}

/* ---- savings ---- */

enum { QUEUE_LINES_MOST = 4096 };

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* How long each engine is still busy without the costs of a finding. */
static uint64_t rest_of(const facts_t *facts, const finding_t *finding, facts_engine_t engine)
{
    uint64_t rest = facts->busy_ns[engine];
    for (size_t i = 0; i < finding->ncosts; i++) {
        const uint32_t event = finding->costs[i];
        uint64_t ns = 0;
        if (!facts_is_measured(facts, event)) continue;
        if (engine == FACTS_HOST)
            ns = facts->work_ns[event];
        else if (facts->end[event] && facts_engine(facts, event) == engine)
            ns = facts_device_ns(facts, event);
        rest -= ns < rest ? ns : rest;
    }
    return rest;
}

/* Requests that remain are still behind others in the queue. */
static bool is_queue_saved(change_kind_t change)
{
    return change != CHANGE_BATCH && change != CHANGE_PIN && change != CHANGE_SECOND_BUFFER;
}

/* The first copy without staging still has to cross before its op starts. */
static uint64_t lead_of(const facts_t *facts, const finding_t *finding)
{
    for (size_t i = 0; i < finding->nevents; i++)
        if (facts->idle_ns[finding->events[i]]) return facts_device_ns(facts, finding->events[i]);
    return 0;
}

/* Each series becomes one copy and a kernel that reads and writes all bytes. For a series that kept
 * the device waiting, the host still stages and submits, and the bytes still cross. The kernels
 * count if the device has no other idle time in which they fit. */
static uint64_t packed_ns(const advice_t *advice, const finding_t *finding)
{
    const facts_t *facts = advice->facts;
    uint64_t all = 0, kernels = 0, nbytes = 0, idle = 0;
    for (size_t i = 0; i < finding->nevents; i++) {
        const uint32_t event = finding->events[i];
        nbytes += facts_event(facts, event)->nbytes;
        idle += facts->idle_ns[event];
        if (i + 1 < finding->nevents && !finding->begins[i + 1]) continue;
        const uint64_t link_ns = advice_calibrated_ns(advice, event, nbytes);
        if (!link_ns) return 0;
        const figures_t *machine = &advice->machines[facts_event(facts, event)->device];
        kernels += fy__sim_profile_launch_ns(&machine->device, FY_DTYPE_U8, 0, 2 * nbytes);
        if (idle)
            all += figures_staging_ns(machine, 0, nbytes) + machine->device.copy_submit_ns +
                   machine->device.launch_submit_ns + link_ns;
        nbytes = idle = 0;
    }
    const uint64_t other = facts->idle_total_ns - smaller(facts->idle_total_ns, finding->idle_ns);
    return all + (other < kernels ? kernels : 0);
}

/* In a graph, the first op of a step is still submitted. */
static uint64_t idle_of(const facts_t *facts, const finding_t *finding, size_t cost)
{
    const change_kind_t change = finding->rule->change;
    const bool stays = change == CHANGE_GRAPH && cost < finding->nevents && finding->begins[cost];
    return stays ? 0
                 : facts->idle_ns[finding->costs[cost]] +
                       (is_queue_saved(change) ? facts->queue_ns[finding->costs[cost]] : 0);
}

/* Takes `left` from transfers of the engine of `event` that ended after `since`: from the last of
 * the `count` saves, which are not behind `event`. */
static void save_before(const advice_t *advice, uint32_t event, uint64_t since, uint64_t left,
                        advice_save_t *saves, size_t count)
{
    const facts_t *facts = advice->facts;
    for (size_t k = count; left && k-- > 0 && event - saves[k].event < QUEUE_LINES_MOST;) {
        advice_save_t *save = &saves[k];
        if (save->ns || facts->end[save->event] <= since ||
            facts_event(facts, save->event)->device != facts_event(facts, event)->device ||
            facts_engine(facts, save->event) != facts_engine(facts, event))
            continue;
        save->ns = smaller(left, save->most_ns);
        left -= save->ns;
    }
}

void advice_save_queue(const advice_t *advice, advice_save_t *saves, size_t count)
{
    const facts_t *facts = advice->facts;
    for (size_t k = 0; k < count; k++) {
        const uint64_t next = k + 1 < count ? saves[k + 1].event : facts->program->nevents,
                       end = smaller(next, (uint64_t)saves[k].event + QUEUE_LINES_MOST);
        for (uint32_t i = saves[k].event; i < end; i++) {
            const uint64_t left = facts->queue_ns[i];
            if (left && facts_is_request(facts, i))
                save_before(advice, i, facts->start[i] - smaller(facts->start[i], left), left,
                            saves, k + 1);
        }
    }
}

/* Copies behind the last op, up to the copy with which the run ends. */
static void save_tail(const advice_t *advice, advice_save_t *saves, size_t count)
{
    const uint32_t last = advice->last_copy;
    const uint64_t since = advice->last_op_ns;
    if (last == PROGRAM_NONE || !since) return;
    while (count > 0 && saves[count - 1].event > last) count--;
    save_before(advice, last, since, advice->facts->end[last] - since, saves, count);
}

static int compare_saves(const void *a, const void *b)
{
    const advice_save_t *x = a, *y = b;
    return (x->event > y->event) - (x->event < y->event);
}

/* Transfers that are removed no longer hold up those behind them in their engine's queue, nor the
 * end of the run. */
static uint64_t queue_saving(const advice_t *advice, const finding_t *finding)
{
    const facts_t *facts = advice->facts;
    advice_save_t *saves = tool_alloc((finding->nevents + 1) * sizeof *saves);
    size_t count = 0;
    uint64_t sum = 0;
    for (size_t i = 0; i < finding->nevents; i++) {
        const uint32_t event = finding->events[i];
        const uint64_t counted = facts->idle_ns[event] + facts->queue_ns[event],
                       took = facts_device_ns(facts, event);
        if (facts_event(facts, event)->kind == PROGRAM_TRANSFER && took > counted)
            saves[count++] = (advice_save_t){ event, took - counted, 0 };
    }
    qsort(saves, count, sizeof *saves, compare_saves);
    advice_save_queue(advice, saves, count);
    save_tail(advice, saves, count);
    for (size_t k = 0; k < count; k++) sum += saves[k].ns;
    free(saves);
    return sum;
}

/* Sets last_copy and last_op_ns, and held_ns. */
static void find_ends(advice_t *advice)
{
    const facts_t *facts = advice->facts;
    const size_t n = facts->program->nevents;
    size_t at = facts->nby_end;
    const uint32_t last = at ? facts->by_end[at - 1] : PROGRAM_NONE;
    const bool is_copy = last != PROGRAM_NONE && facts_event(facts, last)->kind == PROGRAM_TRANSFER;
    advice->last_copy = is_copy ? last : PROGRAM_NONE;
    while (at > 0 && facts_event(facts, facts->by_end[at - 1])->kind != PROGRAM_OP) at--;
    advice->last_op_ns = at ? facts->end[facts->by_end[at - 1]] : 0;
    for (unsigned k = 0; k < 2; k++) {
        uint64_t *held = advice->held_ns[k] = tool_alloc((n + 1) * sizeof *held);
        for (uint32_t i = (uint32_t)n; i-- > 0;) {
            const bool holds = facts_event(facts, i)->kind == PROGRAM_TRANSFER &&
                               facts_engine(facts, i) == FACTS_UPLOAD + k;
            const uint64_t ns = holds ? facts->idle_ns[i] + facts->queue_ns[i] : 0;
            held[i] = held[i + 1] + smaller(ns, UINT64_MAX - held[i + 1]);
        }
    }
}

/* A link that is busy for four fifths of the time sets the pace: without some of its copies, all
 * others come earlier. What remains is the time of the ops, and idle time with other causes or from
 * before the first of those copies. */
static uint64_t pace_saving(const advice_t *advice, const finding_t *finding, facts_engine_t engine)
{
    const facts_t *facts = advice->facts;
    const uint64_t all = facts->end_ns - facts->begin_ns,
                   gone = facts->busy_ns[engine] - rest_of(facts, finding, engine);
    uint64_t rest = facts->busy_ns[FACTS_COMPUTE] + facts->idle_total_ns;
    if (!gone || facts->busy_ns[engine] < all / 5 * 4) return 0;
    rest -= smaller(rest, advice->held_ns[engine - FACTS_UPLOAD][finding->events[0]]);
    return rest < all ? smaller(gone, all - rest) : 0;
}

static void compute_saving(const advice_t *advice, finding_t *finding)
{
    const facts_t *facts = advice->facts;
    const uint64_t all = facts->end_ns - facts->begin_ns;
    const change_kind_t change = finding->rule->change;
    for (size_t i = 0; i < finding->ncosts; i++) finding->idle_ns += idle_of(facts, finding, i);
    if (change == CHANGE_DROP) finding->idle_ns += queue_saving(advice, finding);
    uint64_t saving = finding->idle_ns;
    for (int engine = FACTS_UPLOAD; change == CHANGE_DROP && engine <= FACTS_DOWNLOAD; engine++)
        saving = larger(saving, pace_saving(advice, finding, (facts_engine_t)engine));
    if (change == CHANGE_PIN && !finding->rest_ns) finding->rest_ns = lead_of(facts, finding);
    if (change == CHANGE_BATCH) finding->rest_ns = packed_ns(advice, finding);
    if (change == CHANGE_UPLOAD_EARLIER && finding->nevents) /* the first one has no step before */
        finding->rest_ns = idle_of(facts, finding, 0);
    saving -= smaller(saving, finding->rest_ns);
    if (change == CHANGE_BATCH && !finding->rest_ns && finding->nevents)
        saving -= saving / finding->nevents * finding->kept;
    for (int engine = 0; engine < FACTS_ENGINES; engine++) {
        const uint64_t rest = rest_of(facts, finding, (facts_engine_t)engine),
                       gone = facts->busy_ns[engine] - rest;
        const bool is_link = engine == FACTS_UPLOAD || engine == FACTS_DOWNLOAD;
        const uint64_t most = rest < all ? all - rest : 0;
        if (saving <= most) continue;
        /* a link that is the limit keeps the gaps that it has between its copies */
        saving = is_link && gone && change == CHANGE_DROP ? smaller(gone, most) : most;
        finding->has_limit = true;
        finding->limit = (facts_engine_t)engine;
    }
    if (!finding->saving_ns) finding->saving_ns = saving;
}

/* Low: the recording lacks what the rules look at. Medium: the saving is an estimate, not time for
 * which the device stood idle. */
static void set_confidence(const facts_t *facts, finding_t *finding)
{
    if (facts->program->lost || facts->end_ns == facts->begin_ns)
        finding->confidence = CONFIDENCE_LOW;
    else if (finding->confidence == CONFIDENCE_HIGH &&
             (finding->has_limit || finding->rule->change == CHANGE_FUSE))
        finding->confidence = CONFIDENCE_MEDIUM;
}

/* Ops, by the first of them and its shapes; ops and transfers by the names of its tensors. */
static void name_first(const facts_t *facts, finding_t *finding)
{
    const program_event_t *e = finding->nevents ? facts_event(facts, finding->events[0]) : NULL;
    if (*finding->detail || !e) return;
    if (e->kind == PROGRAM_OP)
        snprintf(finding->detail, sizeof finding->detail, "first %s %s%s%s", e->name, e->detail,
                 *e->tensors ? " of " : "", e->tensors);
    else if (*e->tensors)
        snprintf(finding->detail, sizeof finding->detail, "tensors of the first: %s", e->tensors);
}

static bool is_worth_it(const facts_t *facts, const finding_t *finding)
{
    const uint64_t all = facts->end_ns - facts->begin_ns;
    return finding->nevents >= finding->rule->least &&
           (!finding->rule->needs_saving || !all || finding->saving_ns >= all / 1000);
}

static void drop(finding_t *finding)
{
    free(finding->events);
    free(finding->begins);
    free(finding->costs);
}

/* Ends a rule: small findings are dropped, and their events are free for the rules behind it. */
static void close_rule(advice_t *advice)
{
    size_t kept = advice->first;
    for (size_t i = advice->first; i < advice->nfindings; i++) {
        finding_t *finding = &advice->findings[i];
        compute_saving(advice, finding);
        set_confidence(advice->facts, finding);
        name_first(advice->facts, finding);
        if (is_worth_it(advice->facts, finding)) {
            advice->findings[kept++] = *finding;
            continue;
        }
        for (size_t k = 0; k < finding->ncosts; k++) advice->claimed[finding->costs[k]] = false;
        drop(finding);
    }
    advice->nfindings = kept;
    number_table_free(&advice->places);
}

static int compare(const void *a, const void *b)
{
    const finding_t *x = a, *y = b;
    if (x->saving_ns != y->saving_ns) return x->saving_ns < y->saving_ns ? 1 : -1;
    if (x->nbytes != y->nbytes) return x->nbytes < y->nbytes ? 1 : -1;
    return strcmp(x->rule->id, y->rule->id);
}

void advice_create(const facts_t *facts, const char *only, advice_t *out_advice)
{
    const size_t n = facts->program->nevents;
    *out_advice = (advice_t){ .facts = facts, .claimed = tool_alloc(n + 1) };
    find_ends(out_advice);
    if (predict_machines(facts->program, NULL, &out_advice->machines) != FY_STATUS_OK) {
        free(out_advice->machines);
        out_advice->machines = NULL;
    }
    for (size_t i = 0; i < rules_count; i++) {
        out_advice->rule = &rules[i];
        out_advice->first = out_advice->nfindings;
        rules[i].find(out_advice);
        close_rule(out_advice);
    }
    size_t kept = 0;
    for (size_t i = 0; i < out_advice->nfindings; i++)
        if (only && strcmp(out_advice->findings[i].rule->id, only) != 0)
            drop(&out_advice->findings[i]);
        else
            out_advice->findings[kept++] = out_advice->findings[i];
    out_advice->nfindings = kept;
    if (kept) qsort(out_advice->findings, kept, sizeof *out_advice->findings, compare);
}

void advice_free(advice_t *advice)
{
    for (size_t i = 0; i < advice->nfindings; i++) drop(&advice->findings[i]);
    free(advice->findings);
    free(advice->claimed);
    for (int k = 0; k < 2; k++) free(advice->held_ns[k]);
    free(advice->machines);
}
