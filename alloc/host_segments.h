/* Host segments: functions beyond those in runtime/device/memory.h. */
#ifndef FERRY_ALLOC_HOST_SEGMENTS_H_
#define FERRY_ALLOC_HOST_SEGMENTS_H_

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* "jemalloc" if it is linked into the program and returned an arena, else "mmap"; with
 * $FERRY_HOST_ALLOCATOR=mmap always "mmap". Static. */
const char *fy__host_allocator_name(void);
/* Whether it is one of the values of FERRY_HOST_ALLOCATOR. */
bool fy__host_allocator_is_good(const char *wanted);
/* Of the list of kept segments; held over a fork, so that the child finds it consistent. */
extern pthread_mutex_t fy__host_segments_lock;
void fy__host_segments_fork_child(void);

#endif
