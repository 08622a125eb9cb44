/* The sweeps of most files of this folder. Next: tests/support/sweep.h. */
#ifndef FERRY_TESTS_FAULTS_SWEEPS_H_
#define FERRY_TESTS_FAULTS_SWEEPS_H_

#include "tests/support/harness.h"
#include "tests/support/sweep.h"

/* Each call of each of these kinds fails once, `kinds` with spaces between. */
static inline void sweep_calls(const char *options, const char *kinds, int most,
                               ts_program_fn program)
{
    char words[64], *rest;
    snprintf(words, sizeof words, "%s", kinds);
    for (char *kind = strtok_r(words, " ", &rest); kind; kind = strtok_r(NULL, " ", &rest)) {
        fy_status_t want = FY_STATUS_OUT_OF_MEMORY;
        if (strcmp(kind, "launch") == 0) want = FY_STATUS_INTERNAL;
        if (strcmp(kind, "copy") == 0) want = FY_STATUS_IO;
        ts_sweep_device(options, kind, want, most, program);
    }
}

/* Each allocation of host memory fails once, on the host and on a simulated device. */
static inline void sweep_host_memory(int most, ts_program_fn program)
{
    ts_sweep_host_memory("host", most, program);
    ts_sweep_host_memory("sim:7", most, program);
}

#endif
