/* Copies device bytes to the host in calls that wait for them: into existing memory
 * (download_into.c), into a file (file.c). Not here: downloads as objects (download.c). */
#ifndef FERRY_TRANSFER_FETCH_H_
#define FERRY_TRANSFER_FETCH_H_

#include "transfer/convert.h"
#include "transfer/ring.h"

/* One call. */
typedef struct fy__fetch {
    fy_device_t *device;
    fy_stream_t *stream; /* the download engine's; NULL if synchronous */
    fy__end_t src;       /* dense; fy__fetch_begin sets it */
    /* the dense copy's storage, if the tensor is not dense; fy__fetch_end releases it */
    fy__storage_t *dense;
    uint64_t nbytes, blocked_ns;
    fy__point_t point; /* after the last copy */
    fy__taint_t taint; /* faults on which the source's bytes may depend; fy__fetch_begin sets it */
    fy__wait_site_t site;
} fy__fetch_t;

/* Makes the source dense, as `dtype`, on the device, and orders the download engine after the
 * requests that write it. */
fy_status_t fy__fetch_begin(fy__thread_t *thread, fy__fetch_t *fetch, const fy_tensor_t *src,
                            fy_dtype_t dtype, fy__wait_site_t read_site);
void fy__fetch_end(fy__thread_t *thread, fy__fetch_t *fetch);

/* One copy of the bytes [at, at + nbytes) to page-locked memory. */
fy_status_t fy__fetch_submit(fy__fetch_t *fetch, void *dst, uint64_t at, uint64_t nbytes);
/* Blocks until `point`; adds the time to blocked_ns. */
fy_status_t fy__fetch_wait(fy__fetch_t *fetch, fy__point_t point);

/* Receives the bytes [at, at + nbytes); called in order. */
typedef fy_status_t (*fy__sink_fn)(void *user, const void *bytes, uint64_t at, uint64_t nbytes);
/* Copies all bytes, chunk by chunk: while `sink` reads one slot the device fills the next slots.
 * Stops at the first failure. */
fy_status_t fy__fetch_through_ring(fy__fetch_t *fetch, fy__sink_fn sink, void *user);

#endif
