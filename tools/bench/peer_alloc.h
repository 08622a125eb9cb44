/* The allocators that `ferry bench alloc` compares: Ferry through its public calls, and the peers
 * by name at run time, so that the command links none of them and its own malloc stays what it is.
 * Not here: what is measured (bench_alloc.c). */
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

/* Those of glibc ("malloc"), jemalloc and mimalloc that are there. *out_missing says what is not
 * and why, "" if nothing. Returns how many. */
size_t peer_alloc_find(allocator_t allocators[PEER_ALLOC_MAX], const char **out_missing);
/* fy_tensor_create and fy_tensor_destroy on a device that is open. */
allocator_t peer_alloc_ferry(const char *name, fy_device_t *device);
/* The same with fy_tensor_create_pinned. */
allocator_t peer_alloc_pinned(const char *name, fy_device_t *device);

#endif
