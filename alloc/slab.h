/* Slabs: nodes of one size on a free list, for a pool's bookkeeping. A slab grows by malloc and
 * frees all its chunks together. It reports when memory runs out. Not thread-safe: the pool's lock
 * guards it. Not here: device memory. */
#ifndef FERRY_ALLOC_SLAB_H_
#define FERRY_ALLOC_SLAB_H_

#include <stdbool.h>
#include <stddef.h>

/* The source of bookkeeping memory. Tests use their own to fail the N-th request. */
typedef struct fy__meta {
    void *user;
    void *(*alloc)(void *user, size_t nbytes); /* NULL: none left */
    void (*free)(void *user, void *memory);
} fy__meta_t;

/* malloc and free, for a fy__meta_t; `user` is ignored. */
void *fy__meta_malloc_alloc(void *user, size_t nbytes);
void fy__meta_malloc_free(void *user, void *memory);

typedef struct fy__slab {
    fy__meta_t meta;
    size_t node_nbytes;
    size_t next_count; /* nodes in the next chunk */
    void *chunks;      /* list of chunks, for fini */
    void *nodes;       /* free nodes; the first word of each is the next one */
} fy__slab_t;

void fy__slab_init(fy__slab_t *slab, size_t node_nbytes, const fy__meta_t *meta);
/* Frees every chunk, and with them every node. */
void fy__slab_fini(fy__slab_t *slab);
/* Adds a chunk; false: no memory, and nothing has changed. */
bool fy__slab_grow(fy__slab_t *slab);

/* An uninitialized node, or NULL. */
static inline void *fy__slab_get(fy__slab_t *slab)
{
    if (!slab->nodes && !fy__slab_grow(slab)) return NULL;
    void *node = slab->nodes;
    slab->nodes = *(void **)node;
    return node;
}

static inline void fy__slab_put(fy__slab_t *slab, void *node)
{
    *(void **)node = slab->nodes;
    slab->nodes = node;
}

#endif
