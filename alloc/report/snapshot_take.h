/* Takes a snapshot of pools in three steps: count, allocate, copy. The pools are locked during the
 * first and the last, so that the snapshot is of one moment; nothing is allocated, written or
 * polled meanwhile. Not here: a device's pools, and names of scopes (snapshot_device.c). */
#ifndef FERRY_ALLOC_SNAPSHOT_TAKE_H_
#define FERRY_ALLOC_SNAPSHOT_TAKE_H_

#include "alloc/report/snapshot.h"

struct fy__pool;

typedef struct fy__taking {
    fy__snapshot_t *to;
    size_t room_pools, room_segments, room_blocks; /* allocated */
    size_t npools, nsegments, nblocks;             /* needed */
    /* of to->blocks: scope nodes of the pool's blocks */
    const void **scopes;
} fy__taking_t;

/* Locks and unlocks a pool; several are locked in the order of the fork handlers (runtime/wire.c).
 * NULL is ignored. */
void fy__pool_hold(struct fy__pool *pool);
void fy__pool_let_go(struct fy__pool *pool);

/* The pool is locked. NULL is ignored. */
void fy__taking_count(fy__taking_t *taking, const struct fy__pool *pool);
/* Whether the allocated memory suffices for the counted blocks. */
bool fy__taking_fits(const fy__taking_t *taking);
/* The pool is locked, and the blocks fit. */
void fy__taking_copy(fy__taking_t *taking, const struct fy__pool *pool, fy__snapshot_kind_t kind);

/* The pools are not locked. Allocates memory for the counted blocks and some more, drops the copy;
 * false: no memory. */
bool fy__taking_make_room(fy__taking_t *taking);
/* Sorts segments by address. */
void fy__taking_sort(fy__taking_t *taking);

#endif
