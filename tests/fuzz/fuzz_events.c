/* Passes bytes to the reader of event files, plain or compressed, to the program in memory that
 * tools make of one, and to the sums of `ferry ledger`. Whatever is accepted must refer only to
 * what there is, and no sum exceeds 2^63 - 1.
 * Not here: what tools compute from a program. How to run: README.md. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tools/cli/event_totals.h"
#include "tools/program/program.h"

static void need(bool holds)
{
    if (!holds) abort();
}

static bool is_of(uint32_t index, size_t count) { return index == PROGRAM_NONE || index < count; }

static void check_event(const program_t *p, const program_event_t *event)
{
    need(event->scope < p->nscopes && is_of(event->device, p->ndevices));
    need(is_of(event->stream, p->nstreams) && is_of(event->on.stream, p->nstreams));
    need(is_of(event->other, p->ndevices) && is_of(event->block, p->nblocks));
    need(is_of(event->parent, p->nevents));
    need(event->name && event->path && event->detail && event->site && event->dtype);
    const size_t count = (size_t)event->nsrc + event->ndst;
    need(!count || (event->operands <= p->noperands && count <= p->noperands - event->operands));
    for (size_t i = 0; i < count; i++) {
        const program_operand_t *operand = program_operand(p, event, i);
        need(is_of(operand->storage, p->nstorages) && is_of(operand->writer, p->nevents));
    }
}

static void check(const program_t *p)
{
    for (size_t i = 0; i < p->nevents; i++) check_event(p, &p->events[i]);
    for (size_t i = 0; i < p->nstreams; i++) need(is_of(p->streams[i].device, p->ndevices));
    for (size_t i = 0; i < p->nstorages; i++)
        need(is_of(p->storages[i].device, p->ndevices) && is_of(p->storages[i].block, p->nblocks));
    for (size_t i = 0; i < p->nblocks; i++)
        need(is_of(p->blocks[i].allocated, p->nevents) && is_of(p->blocks[i].freed, p->nevents));
    for (size_t i = 0; i < p->nscopes; i++) {
        need(is_of(p->scopes[i].begin, p->nevents) && is_of(p->scopes[i].end, p->nevents));
        need(p->scopes[i].parent <= i && is_of(p->scopes[i].step, p->nsteps));
    }
    for (size_t i = 0; i < p->nsteps; i++) need(p->steps[i] < p->nscopes);
}

/* ---- sums ---- */

static void need_figure(uint64_t value) { need(value <= INT64_MAX); }

static void check_traffic(const fy_traffic_t *traffic)
{
    need_figure(traffic->count);
    need_figure(traffic->nbytes);
    need_figure(traffic->wire_nbytes);
    need_figure(traffic->copies);
    need_figure(traffic->host_blocked_ns);
}

static void check_sums(event_totals_t *totals)
{
    const fy_ledger_totals_t all = event_totals_of(totals, "");
    check_traffic(&all.upload);
    check_traffic(&all.download);
    check_traffic(&all.peer);
    check_traffic(&all.collective);
    need_figure(all.sync_ns);
    need_figure(all.throttle_ns);
    need(!totals->has_rank || totals->rank <= INT32_MAX);
    for (size_t i = 0; i < totals->nsites; i++) {
        need_figure(totals->sites[i].nbytes);
        need_figure(totals->sites[i].blocked_ns);
    }
    for (size_t i = 0; i < totals->npools; i++) {
        const event_pool_t *pool = &totals->pools[i];
        need(pool->live <= pool->peak_live && pool->reserved <= pool->peak_reserved);
        need_figure(pool->peak_live);
        need_figure(pool->peak_reserved);
    }
    size_t count;
    char **paths = event_totals_paths(totals, &count);
    for (size_t i = 0; i < count; i++) {
        const fy_ledger_totals_t part = event_totals_of(totals, paths[i]);
        need(part.collective.nbytes <= all.collective.nbytes && part.requests <= all.requests);
        free(paths[i]);
    }
    free(paths);
    event_totals_sort(totals);
}

static void take(void *user, const event_t *event)
{
    event_totals_rank(user, event);
    event_totals_add(user, event);
}

/* The file as that of two ranks. */
static void add_up(const char *path)
{
    event_totals_t totals = { 0 }, both = { 0 };
    event_file_info_t info;
    if (event_file_read(path, take, &totals, &info) == FY_STATUS_OK &&
        event_totals_check(&totals, path) == FY_STATUS_OK) {
        event_totals_merge(&both, &totals, totals.rank);
        event_totals_merge(&both, &totals, totals.rank);
        if (event_totals_check(&both, NULL) == FY_STATUS_OK) check_sums(&both);
        check_sums(&totals);
    }
    event_totals_free(&both);
    event_totals_free(&totals);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    char path[64];
    program_t program;
    const int fd = memfd_create("events", MFD_CLOEXEC);
    need(fd >= 0 && write(fd, data, nbytes) == (ssize_t)nbytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (program_read(path, 0, &program) == FY_STATUS_OK) check(&program);
    program_free(&program);
    add_up(path);
    close(fd);
    return 0;
}
