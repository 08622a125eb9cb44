/* Taking a snapshot of pools, in three steps: how much there is, room for it, the copy. The first
 * and the last are done while the pools are held, so that all of it is of one moment; nothing is
 * allocated, written or polled meanwhile.
 * Not here: which pools a device has, and names of scopes (snapshot_device.c). */
#ifndef FERRY_ALLOC_SNAPSHOT_TAKE_H_
#define FERRY_ALLOC_SNAPSHOT_TAKE_H_

#include "alloc/report/snapshot.h"

struct fy__pool;

typedef struct fy__taking {
    fy__snapshot_t *to;
    size_t room_pools, room_segments, room_blocks; /* had */
    size_t npools, nsegments, nblocks;             /* needed */
    /* of to->blocks: whatever the pool's blocks have */
    const void **scopes;
} fy__taking_t;

/* A pool's lock and nothing else; several are taken in the order in which they are held over a fork
 * (runtime/wire.c). NULL is ignored. */
void fy__pool_hold(struct fy__pool *pool);
void fy__pool_let_go(struct fy__pool *pool);

/* Held. NULL is ignored. */
void fy__taking_count(fy__taking_t *taking, const struct fy__pool *pool);
/* Is there room for all that was counted? */
bool fy__taking_fits(const fy__taking_t *taking);
/* Held, and it fits. */
void fy__taking_copy(fy__taking_t *taking, const struct fy__pool *pool, fy__snapshot_kind_t kind);

/* Not held. Makes room for what was counted and some more, forgets what was copied; false: no
 * memory. */
bool fy__taking_make_room(fy__taking_t *taking);
/* Segments by address. */
void fy__taking_sort(fy__taking_t *taking);

#endif
