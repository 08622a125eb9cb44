/* Allocation traces by rule: the requests of training steps, inference, churn and loaders, with
 * true shapes and fixed seeds. The same in every run.
 * See synthetic.c (the table), synthetic_nets.c, synthetic_churn.c; README.md describes each. */
#ifndef FERRY_TESTS_TRACES_SYNTHETIC_H_
#define FERRY_TESTS_TRACES_SYNTHETIC_H_

#include "tools/replay/trace.h"

typedef struct synthetic {
    const char *name; /* of the file, without .trace */
    const char *pool;
    const char *comment;
    void (*fill)(trace_t *trace);
} synthetic_t;

/* NULL ends the list. */
extern const synthetic_t synthetic_traces[];

/* Fills *out_traces with one trace. */
void synthetic_make(const synthetic_t *synthetic, traces_t *out_traces);

/* The same numbers on every machine: a generator of 64 bits; from low to high, both included. */
typedef struct dice {
    uint64_t state;
} dice_t;
uint64_t dice_roll(dice_t *dice, uint64_t low, uint64_t high);

/* synthetic_nets.c */
void fill_lenet(trace_t *trace);
void fill_mnist(trace_t *trace);
void fill_resnet18(trace_t *trace);
void fill_resnet18_inference(trace_t *trace);
void fill_mobilenet(trace_t *trace);
void fill_transformer(trace_t *trace);

/* synthetic_churn.c */
void fill_churn_uniform(trace_t *trace);
void fill_churn_power(trace_t *trace);
void fill_loaders(trace_t *trace);
void fill_tokens(trace_t *trace);
void fill_checkpoint(trace_t *trace);
void fill_metrics(trace_t *trace);

#endif
