/* A packed run while it is built in a slot of the ring: pieces grow from the front, the table from
 * the back, until they meet. Then the table is moved directly after the pieces. Not here: the users
 * (coalesce.c, collect.c). */
#ifndef FERRY_TRANSFER_PACKED_H_
#define FERRY_TRANSFER_PACKED_H_

#include "runtime/tensor/tensor.h"
#include "transfer/ring.h"

typedef struct fy__run {
    char *bytes;
    uint64_t room; /* a multiple of 8 */
    /* of the pieces so far, gaps included; with the table after the close */
    uint64_t nbytes;
    uint64_t payload_nbytes;
    fy_packed_t packed;
} fy__run_t;

enum { FY__RUN_ALIGNMENT = 16 };

static inline uint64_t fy__run_rounded(uint64_t nbytes)
{
    return (nbytes + FY__RUN_ALIGNMENT - 1) / FY__RUN_ALIGNMENT * FY__RUN_ALIGNMENT;
}
/* Whether one more piece fits. */
bool fy__run_fits(const fy__run_t *run, uint64_t nbytes);
/* Adds a piece whose bytes are, or will be, at `address`. It must fit. */
void fy__run_add(fy__run_t *run, const void *address, uint64_t nbytes);
/* Ends the run: moves the table after the pieces, in the order of the additions, and returns it. */
fy_packed_entry_t *fy__run_close(fy__run_t *run);

/* FY_LAUNCH_SCATTER or _GATHER on `device` (stream NULL: it is synchronous). dst, src: the run or
 * the table, as bytes on that device. */
fy_status_t fy__run_launch(fy_device_t *device, fy_stream_t *stream, fy_op_t op, void *dst,
                           uint64_t dst_nbytes, const void *src, uint64_t src_nbytes,
                           const fy__run_t *run);
/* The largest tensor that is packed on `device`; 0: the device cannot unpack. */
uint64_t fy__run_largest(fy_device_t *device);
/* The same for a known number of tensors: 0 for fewer than two, because packing saves nothing; else
 * at most the size of which a slot of the ring holds several. Makes the ring. */
fy_status_t fy__run_limit(fy_device_t *device, size_t npacked, uint64_t *largest_nbytes);

#endif
