/* The CUDA driver's own copy from and to pageable memory, for comparison with the ring: the driver
 * that the plugin itself loaded, found by name at run time, so the command neither links nor
 * includes CUDA. Ferry does not see these copies: they are in no ledger. */
#ifndef FERRY_TOOLS_PEER_COPY_H_
#define FERRY_TOOLS_PEER_COPY_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct peer_copy peer_copy_t;

/* For the device "cuda:N", which must be open. NULL for any other, and if something is not
 * there. */
peer_copy_t *peer_copy_open(const char *device);
/* NULL is ignored. */
void peer_copy_close(peer_copy_t *peer);
/* From host memory to the device's `address`, or back, and waits for it. False if it failed. */
bool peer_copy(peer_copy_t *peer, bool up, uint64_t address, void *host, size_t nbytes);

#endif
