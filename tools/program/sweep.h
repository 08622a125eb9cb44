/* Step time over link rate and latency: the same schedule executed on many figures. Not here: one
 * prediction (predict.h). Next: sweep.c. */
#ifndef FERRY_TOOLS_SWEEP_H_
#define FERRY_TOOLS_SWEEP_H_

#include "tools/cli/plot.h"
#include "tools/program/predict.h"

typedef enum sweep_axes { SWEEP_NONE, SWEEP_LINK, SWEEP_LATENCY, SWEEP_BOTH } sweep_axes_t;

/* One row for each pair of values: page-locked rates from 3 to 104 GB/s, latencies from half to
 * eight times that of `machines`. An axis that is not swept keeps its figure. Destroy the sheet. */
sheet_t *sweep_run(const schedule_t *schedule, const figures_t *machines, sweep_axes_t axes,
                   const char *plot_path, fy_status_t *out_status);

#endif
