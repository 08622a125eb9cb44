/* A table of plans: what a library or a timing chose for a problem. A launch finds its plan by
 * hash. At most 512 plans are kept; a new one then replaces the least recently used. Not here:
 * locking, and the choice (their owners: lt.c, dnn.c, tune.c). */
#ifndef FERRY_BACKENDS_CUDA_PLANS_H_
#define FERRY_BACKENDS_CUDA_PLANS_H_

#include "backends/cuda/device.h"

enum { FY__CUDA_PLANS = 512, FY__CUDA_PLAN_BUCKETS = 1024 };

/* The begin of an owner's plan. Its key follows: whole words of 32 bits, without padding. */
typedef struct fy__cuda_plan {
    uint64_t used;          /* tick of the last use */
    uint32_t next, hash;    /* the next plan of its bucket, a place + 1; of the key */
    uint64_t limit, nbytes; /* scratch that it was allowed, UINT64_MAX: any; that it needs */
    uint64_t refused;       /* there is no algorithm */
} fy__cuda_plan_t;

typedef struct fy__cuda_plans {
    char *plans; /* the owner's: FY__CUDA_PLANS, and one that is being made */
    size_t plan_nbytes, key_nbytes;
    /* The owner's, for get. `make` has the key and the limit; UNSUPPORTED: there is no algorithm.
     * `drop` releases what a plan holds. `text`: "choosing how to multiply". */
    fy_status_t (*make)(void *owner, void *plan);
    void (*drop)(void *plan);
    void *owner;
    const char *text;
    uint64_t tick, hits, misses, evictions;
    uint32_t count, buckets[FY__CUDA_PLAN_BUCKETS]; /* a place + 1; 0: none */
} fy__cuda_plans_t;

/* Returns the plan of `key` that was made under this limit, or, with limit UINT64_MAX, the one with
 * the largest limit among those that need at most `granted`. NULL: there is none. */
void *fy__cuda_plans_find(fy__cuda_plans_t *table, const void *key, uint64_t limit,
                          uint64_t granted);
/* The same; makes the plan if there is none, with the device's context current, and not in a
 * capture. *out_status: UNSUPPORTED, without a text: the plan is refused. NULL: it was not made. */
void *fy__cuda_plans_get(fy__cuda_plans_t *table, fy__cuda_device_t *dev, const void *key,
                         uint64_t limit, uint64_t granted, fy_status_t *out_status);
/* Moves a plan with its key and limit into the table. */
void *fy__cuda_plans_add(fy__cuda_plans_t *table, const void *made);
/* The library refused to run it: drops what it holds; it is the plan of each limit from now on. */
void fy__cuda_plans_refuse(fy__cuda_plans_t *table, fy__cuda_plan_t *plan);
void fy__cuda_plans_clear(fy__cuda_plans_t *table);

#endif
