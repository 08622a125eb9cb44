/* Host segments besides what runtime/memory.h declares. */
#ifndef FERRY_ALLOC_HOST_SEGMENTS_H_
#define FERRY_ALLOC_HOST_SEGMENTS_H_

/* "jemalloc" if the program carries it and gave us an arena, else "mmap". Static. */
const char *fy__host_allocator_name(void);

#endif
