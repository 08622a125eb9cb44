/* The allocators that `ferry bench alloc` compares: Ferry through its public calls, and the peers
 * by name at run time, so that the command links none of them and its own malloc does not change.
 * Not here: the measurements (bench_alloc.c). */
#ifndef FERRY_TOOLS_PEER_ALLOC_H_
#define FERRY_TOOLS_PEER_ALLOC_H_

#include <ferry/ferry.h>

/* One allocator. `context` is handed to both. */
typedef struct allocator {
    const char *name;
    void *(*take)(void *context, size_t nbytes); /* NULL: no memory */
    void (*give)(void *context, void *block);
    void *context;
} allocator_t;

enum { PEER_ALLOC_MAX = 3 };

/* Finds those of glibc ("malloc"), jemalloc and mimalloc that are installed. *out_missing names the
 * others with the reason, "" if none. Returns their number. */
size_t peer_alloc_find(allocator_t allocators[PEER_ALLOC_MAX], const char **out_missing);
/* fy_tensor_create and fy_tensor_destroy on a device that is open. */
allocator_t peer_alloc_ferry(const char *name, fy_device_t *device);
/* The same with fy_tensor_create_pinned. */
allocator_t peer_alloc_pinned(const char *name, fy_device_t *device);

#endif
