/* Who has used which byte. Shared memory: of each byte the last thread that wrote it and the one
 * that read it, and since which barrier. Global memory: of each byte the block of this launch that
 * wrote it and the one that read it. Two threads of a block that meet in global memory are not
 * checked, nor are volatile accesses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/fake_cuda/ptx/machine.h"

enum { MANY = UINT16_MAX, BUCKETS = 1 << 16, MOST_PAGES = 1 << 16 };

typedef struct shared_byte {
    uint32_t written, read; /* since which barrier; 0: never */
    uint16_t writer, reader;
} shared_byte_t;

struct ptx_page {
    uint64_t number;
    ptx_page_t *next;
    uint32_t writer[PTX_PAGE], reader[PTX_PAGE]; /* `first_block` + block; `many_blocks` */
};

static shared_byte_t *shared_bytes;
static uint64_t shared_room;
static uint32_t barrier, block_begin;

static ptx_page_t *buckets[BUCKETS];
static uint32_t npages;
/* Records of earlier launches are lower. */
static uint32_t many_blocks, first_block, next_block = 1;

static void forget_pages(void)
{
    for (uint32_t k = 0; k < BUCKETS; k++)
        while (buckets[k] != NULL) {
            ptx_page_t *page = buckets[k];
            buckets[k] = page->next;
            free(page);
        }
    npages = 0;
    next_block = 1;
}

int ptx_checks_begin(ptx_machine_t *m)
{
    const uint64_t nbytes = m->kernel->shared_nbytes;
    if (nbytes > shared_room) {
        free(shared_bytes);
        shared_bytes = calloc(nbytes, sizeof *shared_bytes);
        shared_room = nbytes;
        barrier = 0;
    }
    if (barrier > UINT32_MAX / 2) {
        memset(shared_bytes, 0, shared_room * sizeof *shared_bytes);
        barrier = 0;
    }
    if (npages > MOST_PAGES || next_block > UINT32_MAX - m->launch->grid - 2) forget_pages();
    many_blocks = next_block;
    first_block = many_blocks + 1;
    next_block = first_block + m->launch->grid;
    return nbytes == 0 || shared_bytes != NULL;
}
void ptx_checks_begin_block(void) { block_begin = ++barrier; }
void ptx_checks_barrier(void) { barrier++; }

int ptx_checks_shared(ptx_machine_t *m, uint64_t at, uint32_t nbytes, uint32_t thread, int is_write)
{
    for (shared_byte_t *byte = &shared_bytes[at], *end = byte + nbytes; byte < end; byte++) {
        const int wrote = byte->written == barrier && byte->writer != thread,
                  read = byte->read == barrier && byte->reader != thread;
        if (wrote || (is_write && read)) {
            const unsigned other = wrote ? byte->writer : byte->reader;
            char who[24] = "several threads";
            if (other != MANY) snprintf(who, sizeof who, "thread %u", other);
            ptx_fail(m, PTX_SHARED_RACE, thread,
                     "%s byte %llu of shared memory, which %s %s since the last barrier",
                     is_write ? "writes" : "reads",
                     (unsigned long long)(at + nbytes - (uint64_t)(end - byte)), who,
                     wrote ? "wrote" : "read");
            return 0;
        }
        if (is_write) {
            byte->written = barrier;
            byte->writer = (uint16_t)thread;
        } else if (byte->written < block_begin) {
            ptx_fail(m, PTX_UNWRITTEN, thread, "reads byte %llu of shared memory",
                     (unsigned long long)(at + nbytes - (uint64_t)(end - byte)));
            return 0;
        } else {
            byte->reader = byte->read == barrier && byte->reader != thread ? MANY
                                                                           : (uint16_t)thread;
            byte->read = barrier;
        }
    }
    return 1;
}

ptx_page_t *ptx_checks_page(uint64_t address)
{
    const uint64_t number = address / PTX_PAGE;
    ptx_page_t **link = &buckets[number % BUCKETS];
    while (*link != NULL && (*link)->number != number) link = &(*link)->next;
    if (*link == NULL) {
        *link = calloc(1, sizeof **link);
        (*link)->number = number;
        npages++;
    }
    return *link;
}

/* In one page: accesses are aligned. */
int ptx_checks_global(ptx_machine_t *m, ptx_page_t *page, uint64_t address, uint32_t nbytes,
                      uint32_t thread, int is_write)
{
    const uint32_t begin = (uint32_t)(address % PTX_PAGE), own = first_block + m->block;
    for (uint32_t k = begin; k < begin + nbytes; k++) {
        const uint32_t writer = page->writer[k], reader = page->reader[k];
        if ((writer >= many_blocks && writer != own) ||
            (is_write && reader >= many_blocks && reader != own)) {
            const int wrote = writer >= many_blocks && writer != own;
            const uint32_t other = wrote ? writer : reader;
            char who[24] = "several blocks";
            if (other != many_blocks) snprintf(who, sizeof who, "block %u", other - first_block);
            ptx_fail(m, PTX_GLOBAL_RACE, thread, "%s address 0x%llx, which %s %s",
                     is_write ? "writes" : "reads", (unsigned long long)(address + k - begin), who,
                     wrote ? "wrote" : "read");
            return 0;
        }
        if (is_write)
            page->writer[k] = own;
        else
            page->reader[k] = reader < many_blocks || reader == own ? own : many_blocks;
    }
    return 1;
}
