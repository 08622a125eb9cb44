/* Ops that a graph would run together: FA16; or submit together: FA23. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/op.h>

#include "tools/advise/rules.h"
#include "tools/cli/tool.h"

enum { REPLAY_LEAST_STEPS = 4 };
enum { CHAIN_LEAST = 3, CHAIN_MOST = 64, CHAIN_LEAST_NBYTES = 64 << 10 };

/* Is it an elementwise op on the compute stream of a device? */
static bool is_elementwise(const facts_t *facts, uint32_t event)
{
    static const char *const names[] = { "add",  "sub",   "mul",     "div",    "relu", "sigmoid",
                                         "tanh", "gelu",  "silu",    "affine", "exp",  "log",
                                         "sqrt", "rsqrt", "abs",     "neg",    "pow",  "clamp",
                                         "min",  "max",   "maximum", "minimum" };
    const program_event_t *e = facts_event(facts, event);
    if (e->kind != PROGRAM_OP || facts_is_on_host(facts, event) || e->ndst != 1) return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(e->name, names[i]) == 0) return true;
    return false;
}

static bool reads(const program_t *p, const program_event_t *e, uint32_t writer)
{
    for (unsigned i = 0; i < e->nsrc; i++)
        if (program_operand(p, e, i)->writer == writer) return true;
    return false;
}

static void add_chain(advice_t *advice, const uint32_t *ops, size_t count)
{
    const facts_t *facts = advice->facts;
    uint64_t all, took = 0;
    if (count < CHAIN_LEAST) return;
    const uint64_t outer = change_outer_nbytes(facts, ops, count, &all);
    finding_t *finding = advice_at(advice, ops[0]);
    advice_begin_series(finding);
    for (size_t i = 0; i < count; i++) {
        took += facts->end[ops[i]] - facts->start[ops[i]];
        advice_add(advice, finding, ops[i]);
    }
    finding->formula = "device time of the ops x bytes between them / bytes of all operands";
    if (all) finding->saving_ns += (uint64_t)((double)took * (double)(all - outer) / (double)all);
}

void rule_chain(advice_t *advice)
{
    const facts_t *facts = advice->facts;
    const program_t *p = facts->program;
    uint32_t ops[CHAIN_MOST];
    size_t count = 0;
    for (uint32_t i = 0; i < p->nevents; i++) {
        const program_event_t *e = &p->events[i];
        if (e->kind != PROGRAM_OP || facts_is_on_host(facts, i)) continue;
        const bool fits = is_elementwise(facts, i) && advice_is_free(advice, i) &&
                          p->storages[program_operand(p, e, e->nsrc)->storage].nbytes >=
                              CHAIN_LEAST_NBYTES;
        if (fits && count && count < CHAIN_MOST && reads(p, e, ops[count - 1])) {
            ops[count++] = i;
            continue;
        }
        add_chain(advice, ops, count);
        count = 0;
        if (fits) ops[count++] = i;
    }
    add_chain(advice, ops, count);
}

/* ---- steps of the same ops ---- */

static bool is_step_op(const advice_t *advice, uint32_t event)
{
    const program_event_t *e = facts_event(advice->facts, event);
    return e->kind == PROGRAM_OP && !facts_is_on_host(advice->facts, event) &&
           facts_step(advice->facts, event) != PROGRAM_NONE;
}

/* By step: a hash of its ops, their order and shapes; 0: it has none, or replays a graph. */
static uint64_t *hash_steps(const advice_t *advice)
{
    const program_t *p = advice->facts->program;
    uint64_t *hashes = tool_alloc((p->nsteps + 1) * sizeof *hashes);
    for (uint32_t i = 0; i < p->nevents; i++) {
        if (!is_step_op(advice, i)) continue;
        uint64_t *hash = &hashes[facts_step(advice->facts, i)];
        /* texts that are equal are one pointer */
        *hash = (*hash ^ (uintptr_t)p->events[i].name) * 0x100000001b3u;
        *hash = (*hash ^ (uintptr_t)p->events[i].detail) * 0x100000001b3u;
    }
    for (uint32_t i = 0; i < p->nevents; i++)
        if (is_step_op(advice, i) && strcmp(p->events[i].name, "graph_replay") == 0)
            hashes[facts_step(advice->facts, i)] = 0;
    return hashes;
}

/* The hash that four fifths of the steps have; 0: none. A majority leads at the end (Boyer,
 * Moore). */
static uint64_t find_common(const uint64_t *hashes, size_t count)
{
    uint64_t common = 0;
    size_t lead = 0, same = 0;
    for (size_t i = 0; i < count; i++) {
        if (!lead) common = hashes[i];
        lead = hashes[i] == common ? lead + 1 : lead - 1;
    }
    for (size_t i = 0; i < count; i++) same += hashes[i] == common;
    return same * 5 >= count * 4 ? common : 0;
}

void rule_replay(advice_t *advice)
{
    const program_t *p = advice->facts->program;
    uint64_t *hashes = hash_steps(advice);
    const uint64_t common = p->nsteps >= REPLAY_LEAST_STEPS ? find_common(hashes, p->nsteps) : 0;
    finding_t *finding = NULL;
    uint32_t last = PROGRAM_NONE;
    const program_event_t *wait = NULL; /* the last one of a request for another stream */
    for (uint32_t i = 0; common && i < p->nevents; i++) {
        if (p->events[i].kind == PROGRAM_WAIT) wait = &p->events[i];
        if (!is_step_op(advice, i) || !advice_is_free(advice, i)) continue;
        const uint32_t step = facts_step(advice->facts, i);
        if (hashes[step] != common) continue;
        if (!finding) {
            finding = advice_at(advice, i);
            snprintf(finding->scope, sizeof finding->scope, "%s", p->step_path);
        }
        /* a graph waits for what any of its ops waits for, so such an op begins another one */
        const bool waits = wait && wait->stream == p->events[i].stream &&
                           wait->seq == p->events[i].seq;
        if (step != last || waits) advice_begin_series(finding);
        last = step;
        advice_add(advice, finding, i);
    }
    free(hashes);
}
