/* Passes bytes to the reader of event files, plain or compressed, and to the program in memory that
 * tools make of one. Whatever is accepted must refer only to what there is.
 * Not here: what tools compute from a program. How to run: README.md. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/program/program.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    char path[64];
    program_t program;
    const int fd = memfd_create("events", MFD_CLOEXEC);
    need(fd >= 0 && write(fd, data, nbytes) == (ssize_t)nbytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (program_read(path, &program) == FY_STATUS_OK) check(&program);
    program_free(&program);
    close(fd);
    return 0;
}
