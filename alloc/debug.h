/* Debugging of pool memory. For memory that the host can access: fill patterns (poison), guard
 * bytes around each block, and AddressSanitizer. For other memory: a profiler receives the names of
 * blocks (regions). A pool without debugging pays one comparison per block with a constant member.
 * The bits: runtime/device/memory.h. */
#ifndef FERRY_ALLOC_DEBUG_H_
#define FERRY_ALLOC_DEBUG_H_

#include "alloc/pool.h"

/* The contents of fresh bytes, freed bytes and guards. */
enum { FY__BYTE_FRESH = 0xCD, FY__BYTE_GONE = 0xDD, FY__BYTE_GUARD = 0xFD };

/* The options that apply to this pool, ASan in such a build, and regions if a profiler listens. */
uint32_t fy__debug_of(const fy__pool_options_t *options, const fy__segment_source_t *source);
/* Adapts a request. With guards: one granule more before the block, and at least 16 bytes after it.
 * With regions: at least 16 bytes after it, and only blocks whose uses are done are reused, because
 * a running kernel must not see its bytes renamed. */
void fy__debug_ask(const fy__pool_t *pool, fy__request_t *request);
/* With regions, a pending block stays separate until its last use is over. */
static inline void fy__debug_reuse(const fy__pool_t *pool, fy__reuse_t *reuse)
{
    if (pool->debug & FY__DEBUG_REGIONS) reuse->is_mixed = !reuse->is_done;
}

/* ---- with pool->lock held ---- */

/* A node becomes a block: stores the address of its bytes. */
void fy__debug_hand_out(const fy__pool_t *pool, fy__pool_node_t *node);
/* The bytes of the node are no longer in use. */
void fy__debug_gone(const fy__pool_t *pool, const fy__pool_node_t *node);
/* A segment was added, or is about to be released. */
void fy__debug_segment(const fy__pool_t *pool, const fy__range_t *range, bool is_new);

/* ---- no lock held ---- */

/* A block is freed: checks its guards, and logs a broken one once. */
void fy__debug_check(fy__pool_t *pool, fy__pool_node_t *node);

#endif
