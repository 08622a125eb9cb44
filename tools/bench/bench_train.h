/* Rows of `ferry bench train`: each a training step that is called, or replayed as a graph. Each
 * family of cases has a separate table.
 * See bench_train.c. */
#ifndef FERRY_TOOLS_BENCH_TRAIN_H_
#define FERRY_TOOLS_BENCH_TRAIN_H_

#include "tools/bench/bench.h"

typedef struct train_case {
    const char *name, *mode; /* mode: "eager" or "graph" */
    /* Makes the context, in the current scope; a NULL context is a failure. It goes by free(). */
    fy_status_t (*make)(fy_device_t *device, void **out_context);
    bench_fn run; /* so many steps */
    /* calls of one step that have a gradient, for the time of one; 0: left out */
    int64_t ops;
    int64_t images; /* of one step; 0: left out */
    /* of one step, for its share of what the cores can do; NULL: left out */
    double (*flops)(const void *context);
    void (*end)(void *context); /* frees resources that no scope owns; NULL: none */
} train_case_t;

/* Of all families together, and of each: bench_train_small.c, bench_train_image.c. */
enum { TRAIN_MOST_CASES = 32, TRAIN_SMALL_COUNT = 6, TRAIN_IMAGE_COUNT = 2 };
extern const train_case_t train_small[TRAIN_SMALL_COUNT], train_image[TRAIN_IMAGE_COUNT];

/* --layers: bench_layers.c. Whether a model with layers to time begins with `prefix`; then the
 * session's table of them. */
int bench_layers_has(const char *prefix);
fy_status_t bench_layers_run(session_t *session, const char *prefix, const bench_effort_t *effort);

#endif
