/* Timed choice among the ways to run a convolution of oneDNN's size (option autotune=on of the
 * host). No additional call: the first calls of a shape, which have to run anyway, take the ways in
 * turn between two readings of the clock. When each way has its samples, the shortest is kept for
 * the shape and the number of threads.
 * The process has one table, as it has one host. Next: conv_tune.c; conv.c, which runs the ways. */
#ifndef FERRY_BACKENDS_KERNELS_CONV_TUNE_H_
#define FERRY_BACKENDS_KERNELS_CONV_TUNE_H_

#include "backends/kernels/conv.h"

enum {
    FY__TUNE_FIXED,   /* what runs without autotune=: a rule of the shape */
    FY__TUNE_PLAIN,   /* the plain loops */
    FY__TUNE_PRODUCT, /* a product of windows (conv_product.c) */
    FY__TUNE_DNNL,    /* the first implementation that oneDNN lists, then the next ones */
    FY__TUNE_WAYS = FY__TUNE_DNNL + 4,
    FY__TUNE_CAPACITY = 1024 /* shapes */
};

typedef struct fy__tune_ticket {
    fy__conv_shape_t shape;
    int threads, way, measured;
    uint64_t begin_ns;
} fy__tune_ticket_t;

/* The calling thread's convolutions use the table between enter(1) and enter(0): the host's do, a
 * simulated device's do not. */
void fy__conv_tune_enter(int enters);
int fy__conv_tune_is_entered(void);

/* The way to run; `ways`: bits of those that exist. Never fails. */
fy__tune_ticket_t fy__conv_tune_begin(const fy__conv_shape_t *shape, uint32_t ways);
/* It has run (ok), or could not: then it is not tried again. */
void fy__conv_tune_end(const fy__tune_ticket_t *ticket, int ok);
/* The way that is kept for the shape; -1: none yet. */
int fy__conv_tune_way(const fy__conv_shape_t *shape);

/* `measures`: autotune=on. Without it, shapes without a choice are FIXED. */
void fy__conv_tune_measure(int measures);
/* Forgets all choices, and measures no more. */
void fy__conv_tune_clear(void);

typedef struct fy__tune_facts {
    int measures;           /* shapes without a choice are timed */
    uint64_t shapes, timed; /* with a choice; calls that were timed since the process began */
} fy__tune_facts_t;
fy__tune_facts_t fy__conv_tune_facts(void);

/* Over a fork, so that the child's table is consistent (runtime/wire.c). */
void fy__conv_tune_fork_lock(void);
void fy__conv_tune_fork_unlock(void);

#endif
