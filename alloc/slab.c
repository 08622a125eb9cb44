/* Slabs: growth and destruction. The hot path is inline in slab.h. A chunk is one allocation: a
 * word that links chunks, padding to a cache line, then the nodes. */
#include "alloc/slab.h"

#include <stdint.h>
#include <stdlib.h>

enum { LINE_NBYTES = 64, FIRST_COUNT = 16, MOST_COUNT = 1024 };

void *fy__meta_malloc_alloc(void *user, size_t nbytes)
{
    (void)user;
    return malloc(nbytes);
}

void fy__meta_malloc_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

void fy__slab_init(fy__slab_t *slab, size_t node_nbytes, const fy__meta_t *meta)
{
    *slab = (fy__slab_t){ .meta = *meta, .next_count = FIRST_COUNT };
    slab->node_nbytes = (node_nbytes + LINE_NBYTES - 1) & ~(size_t)(LINE_NBYTES - 1);
}

void fy__slab_fini(fy__slab_t *slab)
{
    while (slab->chunks) {
        void *next = *(void **)slab->chunks;
        slab->meta.free(slab->meta.user, slab->chunks);
        slab->chunks = next;
    }
    slab->nodes = NULL;
}

bool fy__slab_grow(fy__slab_t *slab)
{
    size_t count = slab->next_count;
    char *chunk = slab->meta.alloc(slab->meta.user, 2 * LINE_NBYTES + count * slab->node_nbytes);
    if (!chunk) return false;
    *(void **)chunk = slab->chunks;
    slab->chunks = chunk;
    char *first = chunk + LINE_NBYTES;
    first += -(uintptr_t)first & (LINE_NBYTES - 1);
    for (size_t i = count; i-- > 0;) fy__slab_put(slab, first + i * slab->node_nbytes);
    if (count < MOST_COUNT) slab->next_count = count * 2;
    return true;
}
