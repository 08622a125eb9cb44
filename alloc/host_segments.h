/* Host segments besides what runtime/device/memory.h declares. */
#ifndef FERRY_ALLOC_HOST_SEGMENTS_H_
#define FERRY_ALLOC_HOST_SEGMENTS_H_

#include <stdbool.h>
#include <stdint.h>

/* "jemalloc" if the program carries it and gave us an arena, else "mmap";
 * $FERRY_HOST_ALLOCATOR=mmap: that in any case. Static. */
const char *fy__host_allocator_name(void);
/* Is it one of the values of FERRY_HOST_ALLOCATOR? */
bool fy__host_allocator_is_good(const char *wanted);
/* Held over a fork, so that the child finds the list of warm segments whole. */
void fy__host_segments_fork_lock(void);
void fy__host_segments_fork_unlock(void);
void fy__host_segments_fork_child(void);

#endif
