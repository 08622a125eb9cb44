/* Timed choice among several ways to do the same launch (device option autotune=on). No extra
 * launch, no scratch, no wait: the first launches of a shape, which have to run anyway, take the
 * ways in turn between two events of the driver, and a later launch asks whether those events have
 * happened. When each way has its samples the shortest one is kept for the shape. Next: tune.c;
 * conv.c, which offers ways. */
#ifndef FERRY_BACKENDS_CUDA_TUNE_H_
#define FERRY_BACKENDS_CUDA_TUNE_H_

#include "backends/cuda/device.h"

enum { FY__CUDA_TUNE_WAYS = 8, FY__CUDA_TUNE_KEY = 24 };

/* The problem. Compared as bytes; unused numbers are 0. */
typedef struct fy__cuda_tune_key {
    int32_t numbers[FY__CUDA_TUNE_KEY];
} fy__cuda_tune_key_t;

/* One choice, from begin to end. */
typedef struct fy__cuda_tune_ticket {
    int way;      /* what to run: one of `ways`; after a failure the caller may run another */
    int measured; /* end belongs to a begin that recorded an event */
} fy__cuda_tune_ticket_t;

fy_status_t fy__cuda_tune_create(fy__cuda_device_t *dev, fy__cuda_tune_t **out_tune);
/* NULL is fine. The context is current if anything was ever measured. */
void fy__cuda_tune_destroy(fy__cuda_tune_t *tune);

/* `ways`: bits of the possible kernels; `fallback`: the one that is used while no time is known and
 * no event is free. The context is current. Never fails: a launch that cannot be measured is not.
 * Must not be called in a capture. */
fy__cuda_tune_ticket_t fy__cuda_tune_begin(fy__cuda_device_t *dev, CUstream stream,
                                           const fy__cuda_tune_key_t *key, const char *const *names,
                                           uint32_t ways, int fallback);
/* The way was submitted to the same stream (ok), or could not be: then it is not tried again. */
void fy__cuda_tune_end(fy__cuda_device_t *dev, CUstream stream, const fy__cuda_tune_key_t *key,
                       const fy__cuda_tune_ticket_t *ticket, int ok);

#endif
