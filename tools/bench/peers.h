/* What benches compare Ferry with. Peers are found by name at run time, so that the command links
 * and includes none of them, and its own malloc does not change. Not here: the measurements. */
#ifndef FERRY_TOOLS_PEERS_H_
#define FERRY_TOOLS_PEERS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/ferry.h>

/* ---- peer_alloc.c: the allocators that `ferry bench alloc` compares ---- */

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

/* ---- peer_copy.c: the CUDA driver's own copy from and to pageable memory. Ferry does not see
 * these copies: they are in no ledger ---- */

typedef struct peer_copy peer_copy_t;

/* For the device "cuda:N", which must be open. NULL for any other, and if something is not
 * there. */
peer_copy_t *peer_copy_open(const char *device);
/* NULL is ignored. */
void peer_copy_close(peer_copy_t *peer);
/* From host memory to the device's `address`, or back, and waits for it. False if it failed. */
bool peer_copy(peer_copy_t *peer, bool up, uint64_t address, void *host, size_t nbytes);

/* ---- peer_gemm.c: bare oneDNN, the sgemm that libferry itself loads ---- */

/* Is there a bare sgemm in this process? */
bool peer_gemm_found(void);
/* c[m, n] = a[m, k] b[k, n], row-major f32 with leading dimensions; call only if it was found.
 * False if it failed. */
bool peer_gemm(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
               int64_t ldb, float *c, int64_t ldc);

#endif
