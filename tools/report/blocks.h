/* The blocks of each pool over time: live bytes by category, and which scopes owned those that were
 * live at the peak. Not here: totals of pools (tools/cli/event_totals.h). Next: blocks.c. */
#ifndef FERRY_TOOLS_BLOCKS_H_
#define FERRY_TOOLS_BLOCKS_H_

#include "tools/cli/event_file.h"
#include "tools/report/slices.h"
#include "tools/timeline/tracks.h"

enum { BLOCK_CATEGORIES = 16 };

typedef struct block_step { /* an allocation or a free */
    uint64_t
        at_ns[TRACKS_CLOCKS]; /* of the clocks, in order; a clock without a time keeps its last */
    int64_t nbytes;
    uint32_t scope; /* of the allocation, a text */
    uint32_t category;
    uint32_t name;         /* of the largest tensor in it that has one, a text */
    uint64_t named_nbytes; /* of that tensor */
    uint64_t ends;         /* of an allocation: the number of the free; UINT64_MAX: none */
} block_step_t;

typedef struct block_pool {
    char *name;
    block_step_t *steps;
    size_t count;
    uint64_t before;              /* bytes that were live when the recording began */
    uint64_t live, peak, peak_at; /* peak_at: the number of steps until then */
} block_pool_t;

/* Live bytes at one moment. */
typedef struct block_point {
    uint64_t at_ns, total, by_category[BLOCK_CATEGORIES];
} block_point_t;

typedef struct block_owner {
    uint32_t scope, category, name; /* name: of the tensor, a text */
    uint64_t nbytes, count;
} block_owner_t;

typedef struct blocks {
    block_pool_t *pools;
    size_t npools;
    text_index_t pool_index;
    text_index_t numbers; /* of blocks, by pool and number in the file */
    char *categories[BLOCK_CATEGORIES];
    size_t ncategories;
    place_table_t open;     /* step and pool of live blocks, by number here */
    place_table_t storages; /* their blocks' numbers here, by storage */
    uint64_t last_ns[TRACKS_CLOCKS];
} blocks_t;

/* Takes blocks, pools, storages and names of tensors; other events change nothing. Scopes and names
 * become texts of `slices`. */
void blocks_add(blocks_t *blocks, slices_t *slices, const event_t *event);
/* At most about `most` points; each minimum and maximum of an interval is one of them. The list is
 * the caller's to free. */
block_point_t *blocks_points(const block_pool_t *pool, tracks_clock_t clock, size_t most,
                             size_t *out_count);
/* Owners of the peak's bytes, the largest first. The list is the caller's to free. */
block_owner_t *blocks_owners(const block_pool_t *pool, size_t *out_count);
void blocks_free(blocks_t *blocks);

#endif
