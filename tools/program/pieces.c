/* Which pieces belong to which transfer. The executor records a COPY line for each piece, the
 * caller a TRANSFER line after all pieces of its call; a call can make many transfers. So pieces
 * are divided by their bytes:
 * - Copies of packed tensors (path "coalesced") come first, one for each run of tensors, with its
 *   table before it if they are downloads. Tensors of one run have one request.
 * - The other copies follow in the order of the other transfers, as many as have their bytes.
 * If the bytes do not agree (such as those of another dtype), the first transfer gets all. */
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"
#include "tools/program/program.h"

/* What a thread has recorded since the last piece that was claimed. */
typedef struct pending {
    uint32_t *copies, *transfers;
    size_t ncopies, ntransfers;
} pending_t;

static void add(uint32_t **list, size_t *count, uint32_t event)
{
    *list = tool_grow(*list, *count, sizeof **list);
    (*list)[(*count)++] = event;
}

static bool is_packed(const program_event_t *transfer)
{
    return strcmp(transfer->path, "coalesced") == 0;
}

static void claim(program_t *program, uint32_t copy, uint32_t owner)
{
    program->events[copy].parent = owner;
    program->events[owner].number++;
}

/* The first copy of those that transfers on their own made; ncopies: they made none; SIZE_MAX: the
 * bytes do not agree. */
static size_t first_of_others(const program_t *program, const pending_t *pending)
{
    uint64_t expected = 0, found = 0;
    size_t first = pending->ncopies;
    for (size_t i = 0; i < pending->ntransfers; i++) {
        const program_event_t *transfer = &program->events[pending->transfers[i]];
        if (!is_packed(transfer)) expected += transfer->nbytes;
    }
    while (found < expected && first) found += program->events[pending->copies[--first]].nbytes;
    return found == expected ? first : SIZE_MAX;
}

/* false: a copy has bytes of two transfers. */
static bool claim_others(program_t *program, const pending_t *pending, size_t first)
{
    size_t at = first;
    for (size_t i = 0; i < pending->ntransfers; i++) {
        const uint32_t owner = pending->transfers[i];
        uint64_t left = is_packed(&program->events[owner]) ? 0 : program->events[owner].nbytes;
        while (left && at < pending->ncopies) {
            const uint64_t nbytes = program->events[pending->copies[at]].nbytes;
            if (nbytes > left) return false;
            left -= nbytes;
            claim(program, pending->copies[at++], owner);
        }
    }
    return true;
}

/* The first transfer of each run gets the run's copies. */
static void claim_packed(program_t *program, const pending_t *pending, size_t count)
{
    const program_event_t *run = NULL;
    size_t at = 0;
    uint32_t owner = PROGRAM_NONE;
    for (size_t i = 0; i < pending->ntransfers; i++) {
        const program_event_t *transfer = &program->events[pending->transfers[i]];
        if (!is_packed(transfer)) continue;
        if (run && run->stream == transfer->stream && run->seq == transfer->seq) continue;
        run = transfer;
        owner = pending->transfers[i];
        while (at < count) {
            const uint32_t copy = pending->copies[at++];
            claim(program, copy, owner);
            if (program->events[copy].direction == transfer->direction) break;
        }
    }
    while (owner != PROGRAM_NONE && at < count) claim(program, pending->copies[at++], owner);
}

/* Are the first copies those of packed downloads, whose transfers follow others of the call? */
static bool is_early(const program_t *program, const pending_t *pending, size_t count)
{
    return count && program->events[pending->copies[0]].direction == PROGRAM_UPLOAD &&
           program->events[pending->transfers[0]].direction == PROGRAM_DOWNLOAD;
}

/* Ends a group of transfers: what follows is another one. */
static void end_group(program_t *program, pending_t *pending)
{
    if (!pending->ntransfers) return;
    const uint32_t first = pending->transfers[0];
    size_t npacked = 0, count = first_of_others(program, pending), kept = 0;
    for (size_t i = 0; i < pending->ntransfers; i++)
        npacked += is_packed(&program->events[pending->transfers[i]]);
    if (count == SIZE_MAX || !claim_others(program, pending, count)) {
        for (size_t i = 0; i < pending->ncopies; i++) {
            const uint32_t owner = program->events[pending->copies[i]].parent;
            if (owner != PROGRAM_NONE) program->events[owner].number--;
            claim(program, pending->copies[i], first);
        }
    } else if (npacked)
        claim_packed(program, pending, count);
    else if (is_early(program, pending, count))
        kept = count;
    else
        for (size_t i = 0; i < count; i++) claim(program, pending->copies[i], first);
    pending->ncopies = kept;
    pending->ntransfers = 0;
}

static void claim_all(program_t *program, pending_t *pending, uint32_t owner)
{
    end_group(program, pending);
    for (size_t i = 0; i < pending->ncopies; i++) claim(program, pending->copies[i], owner);
    pending->ncopies = 0;
}

void program_claim_pieces(program_t *program)
{
    pending_t *all = NULL;
    size_t nthreads = 0;
    for (uint32_t i = 0; i < program->nevents; i++) {
        const program_event_t *event = &program->events[i];
        if (event->kind != PROGRAM_COPY && event->kind != PROGRAM_TRANSFER &&
            event->kind != PROGRAM_STARTED)
            continue;
        while (event->thread >= nthreads) {
            all = tool_grow(all, nthreads, sizeof *all);
            all[nthreads++] = (pending_t){ .ncopies = 0 };
        }
        pending_t *pending = &all[event->thread];
        if (event->kind == PROGRAM_COPY) {
            end_group(program, pending);
            add(&pending->copies, &pending->ncopies, i);
        } else if (event->kind == PROGRAM_TRANSFER)
            add(&pending->transfers, &pending->ntransfers, i);
        else
            claim_all(program, pending, i);
    }
    for (size_t i = 0; i < nthreads; i++) {
        end_group(program, &all[i]);
        free(all[i].copies);
        free(all[i].transfers);
    }
    free(all);
}
