/* Debugging of memory that the host reaches: bytes that say what they are (poison), guard bytes
 * around each block, and AddressSanitizer's own marks. Of other memory: a tool is told which blocks
 * there are (regions). A pool without any of it pays one comparison per block with a constant of
 * its own. The bits: runtime/device/memory.h. */
#ifndef FERRY_ALLOC_DEBUG_H_
#define FERRY_ALLOC_DEBUG_H_

#include "alloc/pool.h"

/* What fresh bytes, given-back bytes and guards hold. */
enum { FY__BYTE_FRESH = 0xCD, FY__BYTE_GONE = 0xDD, FY__BYTE_GUARD = 0xFD };

/* What of the options applies to this pool, ASan if this is such a build, and regions if somebody
 * listens. */
uint32_t fy__debug_of(const fy__pool_options_t *options, const fy__segment_source_t *source);
/* How a block is asked for: with guards, one granule more before it, and with them or regions at
 * least 16 bytes behind; with regions, only what is done is handed out again, as no kernel that is
 * on its way may find its bytes to be somebody else's. */
void fy__debug_ask(const fy__pool_t *pool, fy__request_t *request);
/* With regions, what is pending stays as it was handed out, by itself, until its last use is
 * over. */
static inline void fy__debug_reuse(const fy__pool_t *pool, fy__reuse_t *reuse)
{
    if (pool->debug & FY__DEBUG_REGIONS) reuse->is_mixed = !reuse->is_done;
}

/* ---- with pool->lock held ---- */

/* A node becomes a block: says where its bytes begin. */
void fy__debug_hand_out(const fy__pool_t *pool, fy__node_t *node);
/* Nobody uses its bytes any more. */
void fy__debug_gone(const fy__pool_t *pool, const fy__node_t *node);
/* A segment has come, or goes back now. */
void fy__debug_segment(const fy__pool_t *pool, const fy__range_t *range, bool is_new);

/* ---- no lock held ---- */

/* A block is given back: were its guards written over? Says so if it was not said yet. */
void fy__debug_check(fy__pool_t *pool, fy__node_t *node);

#endif
