/* Shadow memory. alloc returns an address range that host code cannot access; the bytes are right
 * below it, at a constant distance per segment that only this backend knows. So host code that
 * reads a device pointer crashes at once.
 * Not here: caching and blocks (alloc/). See memory.c. */
#ifndef FERRY_BACKENDS_SIM_MEMORY_H_
#define FERRY_BACKENDS_SIM_MEMORY_H_

#include <ferry/backend.h>

#include "backends/sim/ranges.h"

struct fy__sim_device;

/* One device's account. Guarded by the memory lock of memory.c, except the constant capacity. */
typedef struct fy__sim_memory {
    uint64_t capacity_nbytes, used_nbytes;
    bool overcommits; /* it gives more than it says it has; fixed */
    /* segments=virtual: blocks grow in steps of this; 0: they do not; fixed */
    uint64_t resize_nbytes;
    fy__sim_ranges_t pinned; /* page-locked host memory registered with this device */
    uint64_t pinned_nbytes;
} fy__sim_memory_t;

/* Gives everything back that is still there. */
void fy__sim_memory_close(struct fy__sim_device *dev);
uint64_t fy__sim_memory_used(struct fy__sim_device *dev);
uint64_t fy__sim_memory_pinned(struct fy__sim_device *dev);

/* Who uses an address, for saying so in a failure: "matmul: src[1]", "upload: dst". */
typedef struct fy__sim_use {
    const char *op, *operand;
    int index; /* -1: there is only one */
} fy__sim_use_t;

/* Finds the bytes behind [address, address + nbytes) of `dev`; *out_bytes is NULL if the device has
 * none (numerics=off).
 * INVALID_ARGUMENT unless all of it lies in one live segment of that device. */
fy_status_t fy__sim_memory_find(struct fy__sim_device *dev, fy__sim_use_t use, const void *address,
                                uint64_t nbytes, void **out_bytes);
/* The same in whichever simulated device of this process has it. */
fy_status_t fy__sim_memory_find_any(fy__sim_use_t use, const void *address, uint64_t nbytes,
                                    void **out_bytes, struct fy__sim_device **out_owner);
/* The same for what a kernel touches: page-locked host memory of `dev` will do too, and is its own
 * bytes. */
fy_status_t fy__sim_memory_find_operand(struct fy__sim_device *dev, fy__sim_use_t use,
                                        const void *address, uint64_t nbytes, void **out_bytes);
/* INVALID_ARGUMENT if host memory is meant and a device's is given, or if it is said to be
 * page-locked and is not registered here. */
fy_status_t fy__sim_memory_check_host(struct fy__sim_device *dev, const char *op,
                                      const void *address, uint64_t nbytes, int is_pinned);

#endif
