/* Bytes that were on the device already: FA01 to FA04. */
#include <stdio.h>
#include <string.h>

#include "tools/advise/rules.h"

static bool is_upload(const facts_t *facts, uint32_t event)
{
    const program_event_t *e = facts_event(facts, event);
    return e->kind == PROGRAM_TRANSFER && e->direction == PROGRAM_UPLOAD &&
           !facts_is_on_host(facts, event);
}

static bool is_download(const facts_t *facts, uint32_t event)
{
    const program_event_t *e = facts_event(facts, event);
    return e->kind == PROGRAM_TRANSFER && e->direction == PROGRAM_DOWNLOAD &&
           !facts_is_on_host(facts, event);
}

/* ---- the same version of a source, more than once ---- */

/* Uploads of one version of a host storage to one device: uses `first` to `last` of its list. */
typedef struct repeats {
    const facts_use_t *uses;
    size_t first, last;
    size_t count, steps; /* uploads; steps that have one */
} repeats_t;

static bool is_repeat(const advice_t *advice, const facts_use_t *use, uint32_t device)
{
    return !use->is_write && is_upload(advice->facts, use->event) &&
           facts_event(advice->facts, use->event)->device == device &&
           advice_is_free(advice, use->event);
}

static repeats_t count_repeats(const advice_t *advice, const facts_use_t *uses, size_t n,
                               size_t first)
{
    repeats_t r = { .uses = uses, .first = first, .last = first };
    uint32_t step = PROGRAM_NONE;
    const uint32_t device = facts_event(advice->facts, uses[first].event)->device;
    for (size_t i = first; i < n && uses[i].version == uses[first].version; i++) {
        if (!is_repeat(advice, &uses[i], device)) continue;
        r.last = i;
        r.count++;
        const uint32_t here = facts_step(advice->facts, uses[i].event);
        r.steps += here != PROGRAM_NONE && here != step;
        step = here;
    }
    return r;
}

/* The first upload stays. */
static void add_repeats(advice_t *advice, const repeats_t *r)
{
    const uint32_t device = facts_event(advice->facts, r->uses[r->first].event)->device;
    for (size_t i = r->first + 1; i <= r->last; i++)
        if (is_repeat(advice, &r->uses[i], device))
            advice_add(advice, advice_at(advice, r->uses[i].event), r->uses[i].event);
}

static void find_repeats(advice_t *advice, bool in_each_step)
{
    const program_t *p = advice->facts->program;
    for (uint32_t storage = 0; storage < p->nstorages; storage++) {
        size_t n;
        const facts_use_t *uses = facts_uses(advice->facts, storage, &n);
        for (size_t i = 0; i < n; i++) {
            if (uses[i].is_write || !is_upload(advice->facts, uses[i].event) ||
                !advice_is_free(advice, uses[i].event))
                continue;
            const repeats_t r = count_repeats(advice, uses, n, i);
            const bool each = p->nsteps >= 3 && r.steps >= 3 && r.steps * 5 >= p->nsteps * 4;
            if (r.count >= 2 && each == in_each_step) add_repeats(advice, &r);
            i = r.last;
        }
    }
}

void rule_reload(advice_t *advice) { find_repeats(advice, true); }
void rule_again(advice_t *advice) { find_repeats(advice, false); }

/* ---- downloaded before ---- */

static void charge_waits_of(advice_t *advice, finding_t *finding, uint32_t download, uint32_t until)
{
    for (uint32_t i = download + 1; i < until; i++)
        if (advice->facts->awaited[i] == download) advice_charge(advice, finding, i);
}

void rule_round_trip(advice_t *advice)
{
    const facts_t *facts = advice->facts;
    for (uint32_t i = 0; i < facts->program->nevents; i++) {
        const program_event_t *e = facts_event(facts, i);
        if (!is_upload(facts, i) || !advice_is_free(advice, i) || !e->nsrc) continue;
        const uint32_t writer = program_operand(facts->program, e, 0)->writer;
        if (writer == PROGRAM_NONE || !is_download(facts, writer) ||
            facts_event(facts, writer)->device != e->device)
            continue;
        finding_t *finding = advice_at(advice, i);
        advice_add(advice, finding, i);
        advice_add(advice, finding, writer);
        charge_waits_of(advice, finding, writer, i);
    }
}

/* The download from which ops on the host made the sources of `op`; each of them is added to
 * `ops`. */
static uint32_t origin_of(const facts_t *facts, uint32_t op, uint32_t ops[8], int *nops)
{
    const program_event_t *e = facts_event(facts, op);
    if (*nops == 8) return PROGRAM_NONE;
    ops[(*nops)++] = op;
    for (unsigned i = 0; i < e->nsrc; i++) {
        const uint32_t writer = program_operand(facts->program, e, i)->writer;
        if (writer == PROGRAM_NONE) continue;
        if (is_download(facts, writer)) return writer;
        if (facts_event(facts, writer)->kind != PROGRAM_OP || !facts_is_on_host(facts, writer))
            continue;
        const uint32_t origin = origin_of(facts, writer, ops, nops);
        if (origin != PROGRAM_NONE) return origin;
    }
    return PROGRAM_NONE;
}

void rule_host_op(advice_t *advice)
{
    const facts_t *facts = advice->facts;
    for (uint32_t i = 0; i < facts->program->nevents; i++) {
        const program_event_t *e = facts_event(facts, i);
        uint32_t ops[8];
        int nops = 0;
        if (!is_upload(facts, i) || !advice_is_free(advice, i) || !e->nsrc) continue;
        const uint32_t writer = program_operand(facts->program, e, 0)->writer;
        if (writer == PROGRAM_NONE || facts_event(facts, writer)->kind != PROGRAM_OP ||
            !facts_is_on_host(facts, writer))
            continue;
        const uint32_t origin = origin_of(facts, writer, ops, &nops);
        if (origin == PROGRAM_NONE || facts_event(facts, origin)->device != e->device) continue;
        finding_t *finding = advice_at(advice, i);
        if (!*finding->detail)
            snprintf(finding->detail, sizeof finding->detail, "op on the host: %s %s",
                     facts_event(facts, writer)->name, facts_event(facts, writer)->detail);
        advice_add(advice, finding, i);
        advice_add(advice, finding, origin);
        charge_waits_of(advice, finding, origin, i);
        for (int k = 0; k < nops; k++) advice_charge(advice, finding, ops[k]);
    }
}
