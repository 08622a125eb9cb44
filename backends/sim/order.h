/* Orders: when bytes change. Every copy, fill and launch is a request whose times the clock has
 * already computed. `eager` runs it inside the slot; the others keep it in its stream's queue
 * (queue.h) and run it later. Not here: checking and translating (work.c), times (clock.h), whose
 * turn it is (queue.h). */
#ifndef FERRY_BACKENDS_SIM_ORDER_H_
#define FERRY_BACKENDS_SIM_ORDER_H_

#include <stdbool.h>

#include <ferry/backend.h>

#include "backends/sim/clock.h"

struct fy__sim_device;

typedef struct fy__sim_order {
    const char *name;
    bool is_deferred; /* a request waits in its stream's queue */
    bool is_random;   /* and may run at any time before it must */
} fy__sim_order_t;

/* NULL if there is none of that name. */
const fy__sim_order_t *fy__sim_order_find(const char *name);
/* NULL past the last one. The first is the default. */
const fy__sim_order_t *fy__sim_order_at(size_t index);

typedef enum fy__sim_request_kind {
    FY__SIM_COPY,
    FY__SIM_FILL,
    FY__SIM_LAUNCH
} fy__sim_request_kind_t;

/* Bytes are host memory or what lies behind a device address, NULL where the device has none
 * (numerics=off); an address is what the slot was given. */
typedef struct fy__sim_request {
    fy__sim_request_kind_t kind;
    struct fy__sim_device *dev;
    fy__sim_span_t span;
    uint64_t number; /* among the requests of its device, from 1 */
    union {
        struct {
            fy_copy_kind_t kind;
            const void *dst_address, *src_address;
            void *dst;
            const void *src;
            uint64_t nbytes;
            uint32_t *fault;
            /* set by a fault script: when the request runs it moves nothing, overwrites dst with
             * garbage and raises *fault */
            bool fails;
            bool is_pinned; /* the host end */
        } copy;
        struct {
            const void *dst_address;
            void *dst;
            int value;
            uint64_t nbytes;
        } fill;
        fy_launch_t launch; /* its descriptors are the request's own and point to bytes */
    };
} fy__sim_request_t;

/* Moves the bytes. Fails as the kernel did; or if a copy failed and there is no flag to raise. */
fy_status_t fy__sim_request_run(const fy__sim_request_t *request);
/* It will never run: its device is lost. */
void fy__sim_request_drop(const fy__sim_request_t *request);
/* The filler of bytes that must not be read: a download's destination until the download has run,
 * and the destination of a failed copy. */
enum { FY__SIM_GARBAGE = 0xDC };
/* Does it read or write host memory or device addresses in [begin, begin + nbytes), or what lies
 * behind them at `bytes` (may be NULL)? */
bool fy__sim_request_touches(const fy__sim_request_t *request, const void *begin, uint64_t nbytes,
                             const void *bytes);
/* "upload", "matmul": for saying which. */
const char *fy__sim_request_name(const fy__sim_request_t *request);
const char *fy__sim_launch_name(const fy_launch_t *launch);
/* How many bytes a copy of `request` with all it points to takes behind the struct itself, and
 * making that copy in `room`. */
uint64_t fy__sim_request_extra_nbytes(const fy__sim_request_t *request);
void fy__sim_request_copy(fy__sim_request_t *dst, void *room, const fy__sim_request_t *request);

/* Which bytes around desc->data its elements take: from `*out_before` before it on. 0 if there are
 * no elements. */
uint64_t fy__sim_desc_extent(const fy_desc_t *desc, uint64_t *out_before);

/* Whether it is one of the two launches that are no ops: a packed run is spread or collected. */
static inline bool fy__sim_is_scatter(const fy_launch_t *launch)
{
    return !launch->kernel && (launch->op == FY_LAUNCH_SCATTER || launch->op == FY_LAUNCH_GATHER);
}

#endif
