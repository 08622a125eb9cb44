/* The model clock: when each request starts and ends, and how far the host's own time has come.
 * Times are computed when a request is submitted and never change afterwards, whatever order the
 * bytes change in.
 * Not here: how long something takes (profile.h). Next: stream.c and work.c, which call this. */
#ifndef FERRY_BACKENDS_SIM_CLOCK_H_
#define FERRY_BACKENDS_SIM_CLOCK_H_

#include <stdbool.h>
#include <stdint.h>

typedef enum fy__sim_engine {
    FY__SIM_COMPUTE,
    FY__SIM_UPLOAD,
    FY__SIM_DOWNLOAD,
    FY__SIM_ENGINE_COUNT
} fy__sim_engine_t;

/* One device's engines. Each does one thing at a time, in the order of submission. Guarded by the
 * clock's lock. */
typedef struct fy__sim_engines {
    uint64_t free_ns[FY__SIM_ENGINE_COUNT]; /* from when on it is idle */
    uint64_t busy_ns[FY__SIM_ENGINE_COUNT]; /* how long it worked so far */
} fy__sim_engines_t;

/* An engine of a device. */
typedef struct fy__sim_place {
    fy__sim_engines_t *engines;
    fy__sim_engine_t engine;
} fy__sim_place_t;

typedef struct fy__sim_span {
    uint64_t start_ns, end_ns;
} fy__sim_span_t;

/* The host's model time. One for the process, from 0; all threads share it; it never goes back. */
uint64_t fy__sim_clock_now(void);
/* The host is busy for that long. Lock-free. */
void fy__sim_clock_advance(uint64_t ns);
/* The host waits until `until_ns`, and then needs wake_ns to go on. False: that is more than
 * timeout_ns away; it waited so long.
 * Already past: costs nothing. */
bool fy__sim_clock_wait(uint64_t until_ns, uint64_t timeout_ns, uint64_t wake_ns);
/* The host spends submit_ns; then the request takes duration_ns as soon as all `nplaces` (1 or 2)
 * engines are free, the host is there, and `ready_ns` has come. */
fy__sim_span_t fy__sim_clock_submit(uint64_t submit_ns, uint64_t ready_ns, int nplaces,
                                    const fy__sim_place_t *places, uint64_t duration_ns);
/* How long each engine was busy so far, and from when on all are idle. */
void fy__sim_clock_busy(const fy__sim_engines_t *engines,
                        uint64_t out_busy_ns[FY__SIM_ENGINE_COUNT], uint64_t *out_idle_ns);

#endif
