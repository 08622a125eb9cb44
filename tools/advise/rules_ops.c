/* Ops that a graph would run together: FA16. */
#include <string.h>

#include <ferry/op.h>

#include "tools/advise/rules.h"

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

uint64_t chain_outer_nbytes(const facts_t *facts, const uint32_t *ops, size_t count,
                            uint64_t *out_all)
{
    const program_t *p = facts->program;
    uint64_t inner = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        const program_event_t *e = facts_event(facts, ops[i]);
        for (unsigned k = 0; k < e->nsrc + e->ndst; k++) {
            const program_operand_t *o = program_operand(p, e, k);
            if (o->storage == PROGRAM_NONE) continue;
            const uint64_t nbytes = p->storages[o->storage].nbytes;
            all += nbytes;
            const bool is_last = k >= e->nsrc && i + 1 == count;
            if (!is_last && (k >= e->nsrc || (i && o->writer == ops[i - 1]))) inner += nbytes;
        }
    }
    if (out_all) *out_all = all;
    return all - inner;
}

static void add_chain(advice_t *advice, const uint32_t *ops, size_t count)
{
    const facts_t *facts = advice->facts;
    uint64_t all, took = 0;
    if (count < CHAIN_LEAST) return;
    const uint64_t outer = chain_outer_nbytes(facts, ops, count, &all);
    finding_t *finding = advice_at(advice, ops[0]);
    advice_begin_series(finding);
    for (size_t i = 0; i < count; i++) {
        took += facts->end[ops[i]] - facts->start[ops[i]];
        advice_add(advice, finding, ops[i]);
    }
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
