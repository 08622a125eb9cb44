/* What an execution of a program's requests took: step time, idle time of the compute engines by
 * cause, exposed transfers. Not here: the execution (schedule.h). Next: predict.c. */
#ifndef FERRY_TOOLS_PREDICT_H_
#define FERRY_TOOLS_PREDICT_H_

#include "tools/cli/plot.h"
#include "tools/program/schedule.h"

/* What a compute engine without work waited for; X(name, key, heading). */
#define PREDICT_CAUSES(X)                                       \
    X(TRANSFER, "transfer", "waits for a transfer")             \
    X(WAKE_UP, "wake_up", "the host wakes up from a wait")      \
    X(STAGING, "staging", "the host copies to staging buffers") \
    X(HOST, "host", "the host submits requests and does other work")
typedef enum predict_cause {
#define X(name, key, heading) PREDICT_##name,
    PREDICT_CAUSES(X)
#undef X
        PREDICT_CAUSE_COUNT
} predict_cause_t;
extern const char *const predict_cause_keys[PREDICT_CAUSE_COUNT],
    *const predict_cause_headings[PREDICT_CAUSE_COUNT];

/* Model times in nanoseconds. Those below total_ns are of all steps, from the begin of the first to
 * the end of the last; without steps of the whole program. Sums over all devices. */
typedef struct prediction {
    uint64_t total_ns; /* of the whole program, on the host */
    uint64_t nsteps;   /* whole ones; 0: the program has none */
    uint64_t step_ns;  /* median */
    uint64_t steps_ns;
    uint64_t busy_ns;                /* compute engines */
    uint64_t upload_ns, download_ns; /* copy engines */
    uint64_t exposed_ns; /* a copy engine works and the device's compute engine does not */
    uint64_t idle_ns[PREDICT_CAUSE_COUNT];
} prediction_t;

/* Executes the schedule and adds up. */
void predict_run(const schedule_t *schedule, const figures_t *machines,
                 prediction_t *out_prediction);
/* The figures with which each device of the program was recorded. `profile`: for devices of which
 * the file does not name it; NULL: those are refused. Free the list. Fails: INVALID_ARGUMENT. */
fy_status_t predict_machines(const program_t *program, const char *profile,
                             figures_t **out_machines);
/* The most bytes of device memory (pools "sim:0") that were allocated at once, of one device. */
uint64_t predict_peak(const program_t *program);

/* ---- sweep.c: step time over link rate and latency; the same schedule,
 * executed on many figures ---- */

typedef enum sweep_axes { SWEEP_NONE, SWEEP_LINK, SWEEP_LATENCY, SWEEP_BOTH } sweep_axes_t;

/* One row for each pair of values: page-locked rates from 3 to 104 GB/s, latencies from half to
 * eight times that of `machines`. An axis that is not swept keeps its figure. Destroy the sheet. */
sheet_t *sweep_run(const schedule_t *schedule, const figures_t *machines, sweep_axes_t axes,
                   const char *plot_path, fy_status_t *out_status);

#endif
