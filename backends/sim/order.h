/* Orders: when bytes change. Every copy, fill and launch becomes a request record whose times the clock has already computed; the device's
 * order decides when it runs. Not here: checking and translating (work.c), times (clock.h).
 * To add one: a row in order.c, and whatever must run before an event counts as happened in stream.c. */
#ifndef FERRY_BACKENDS_SIM_ORDER_H_
#define FERRY_BACKENDS_SIM_ORDER_H_

#include <ferry/backend.h>

#include "backends/sim/clock.h"

struct fy__sim_device;

typedef enum fy__sim_request_kind { FY__SIM_COPY, FY__SIM_FILL, FY__SIM_LAUNCH } fy__sim_request_kind_t;

/* Every address is host memory or the bytes behind a device address; NULL where the device has no bytes (numerics=off). */
typedef struct fy__sim_request {
    fy__sim_request_kind_t kind;
    fy__sim_span_t span;
    union {
        struct {
            void *dst;
            const void *src;
            uint64_t nbytes;
        } copy;
        struct {
            void *dst;
            int value;
            uint64_t nbytes;
        } fill;
        fy_launch_t launch; /* its descriptors are the request's own */
    };
} fy__sim_request_t;

typedef struct fy__sim_order {
    const char *name;
    /* Called with the stream's lock held, in the stream's order. `request` and what it points to is the caller's again on return.
     * Fails as the kernel did. */
    fy_status_t (*submit)(struct fy__sim_device *dev, const fy__sim_request_t *request);
} fy__sim_order_t;

/* NULL if there is none of that name. */
const fy__sim_order_t *fy__sim_order_find(const char *name);
/* NULL past the last one. The first is the default. */
const fy__sim_order_t *fy__sim_order_at(size_t index);

#endif
