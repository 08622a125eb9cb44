/* Bytes that cross, or memory that is locked, for nothing: FA05, FA06, FA15. They need a file with
 * its end and without lost events: a read that is not in the file may have happened. */
#include <stdlib.h>
#include <string.h>

#include "tools/advise/rules.h"
#include "tools/cli/tool.h"

enum { PINNED_LEAST_NBYTES = 1 << 20 };

static bool is_complete(const program_t *program) { return program->is_whole && !program->lost; }

void rule_never_read(advice_t *advice)
{
    const facts_t *facts = advice->facts;
    const program_t *p = facts->program;
    bool *is_read = tool_alloc(p->nevents + 1);
    for (uint32_t i = 0; i < p->nevents; i++)
        if (facts->awaited[i] != PROGRAM_NONE && p->events[i].kind == PROGRAM_ARRIVED &&
            strcmp(p->events[i].detail, "OK") == 0)
            is_read[facts->awaited[i]] = true;
    for (uint32_t i = 0; is_complete(p) && i < p->nevents; i++) {
        const program_event_t *e = &p->events[i];
        if (e->kind == PROGRAM_TRANSFER && e->direction == PROGRAM_DOWNLOAD &&
            e->stream != PROGRAM_NONE && !is_read[i] && advice_is_free(advice, i) &&
            e->blocking != 1 && strcmp(e->path, "file") != 0 && strcmp(e->path, "staged") != 0)
            advice_add(advice, advice_at(advice, i), i);
    }
    free(is_read);
}

/* Does a request read what the upload wrote? A write of a part leaves the rest as it was. */
static bool is_used(const facts_t *facts, uint32_t upload, const program_operand_t *dst)
{
    size_t n, i = 0;
    const facts_use_t *uses = facts_uses(facts, dst->storage, &n);
    const uint64_t whole = facts->program->storages[dst->storage].nbytes;
    while (i < n && uses[i].event <= upload) i++;
    for (; i < n; i++) {
        const program_event_t *e = facts_event(facts, uses[i].event);
        if (!uses[i].is_write) return true;
        if (e->kind == PROGRAM_TRANSFER && e->nbytes >= whole) return false;
    }
    return false;
}

void rule_never_used(advice_t *advice)
{
    const facts_t *facts = advice->facts;
    const program_t *p = facts->program;
    for (uint32_t i = 0; is_complete(p) && i < p->nevents; i++) {
        const program_event_t *e = &p->events[i];
        if (e->kind != PROGRAM_TRANSFER || e->direction != PROGRAM_UPLOAD || !e->ndst ||
            facts_is_on_host(facts, i) || !advice_is_free(advice, i))
            continue;
        const program_operand_t *dst = program_operand(p, e, e->nsrc);
        if (dst->storage == PROGRAM_NONE || is_used(facts, i, dst)) continue;
        advice_add(advice, advice_at(advice, i), i);
    }
}

static int compare_ids(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Their numbers, sorted. A storage on the host does not say for which device it is page-locked, so
 * blocks of all pools with its block's number count as used. */
static uint64_t *blocks_with_transfers(const facts_t *facts, size_t *out_count)
{
    const program_t *p = facts->program;
    uint64_t *ids = tool_alloc((p->nstorages + 1) * sizeof *ids);
    *out_count = 0;
    for (uint32_t s = 0; s < p->nstorages; s++) {
        size_t n;
        bool is_used = false;
        const facts_use_t *uses = facts_uses(facts, s, &n);
        if (!p->storages[s].pinned || p->storages[s].block == PROGRAM_NONE) continue;
        for (size_t i = 0; i < n; i++)
            is_used |= facts_event(facts, uses[i].event)->kind == PROGRAM_TRANSFER;
        if (is_used) ids[(*out_count)++] = p->blocks[p->storages[s].block].id;
    }
    qsort(ids, *out_count, sizeof *ids, compare_ids);
    return ids;
}

void rule_pinned_idle(advice_t *advice)
{
    const program_t *p = advice->facts->program;
    size_t nused;
    uint64_t *used = blocks_with_transfers(advice->facts, &nused);
    for (uint32_t b = 0; is_complete(p) && b < p->nblocks; b++) {
        const program_block_t *block = &p->blocks[b];
        if (bsearch(&block->id, used, nused, sizeof *used, compare_ids) ||
            block->nbytes < PINNED_LEAST_NBYTES || block->allocated == PROGRAM_NONE ||
            strncmp(block->pool, "pinned memory", 13) != 0 ||
            strcmp(block->category, "staging") == 0)
            continue;
        advice_add(advice, advice_at(advice, block->allocated), block->allocated);
    }
    free(used);
}
