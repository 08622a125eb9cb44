/* The simulator's figures and clock for programs that are executed again: the same formulas
 * (backends/sim/profile.c) and the same engines (backends/sim/clock.c) as a simulated device has.
 * Not here: which requests there are (schedule.h). Next: figures.c. */
#ifndef FERRY_TOOLS_FIGURES_H_
#define FERRY_TOOLS_FIGURES_H_

#include <ferry/status.h>
#include <ferry/types.h>

#include "backends/sim/clock.h"
#include "backends/sim/profile.h"

/* All figures that times on a device are computed from. */
typedef struct figures {
    fy__sim_profile_t device;
    fy__sim_host_profile_t host;
    char name[256];
} figures_t;

/* Of a profile's name or file, as profile= of a device takes it. Opens such a device for it. Fails:
 * INVALID_ARGUMENT (there is no such profile). */
fy_status_t figures_open(const char *profile, figures_t *out_figures);

/* "pcie4x8" (generations 3 to 6, 1 to 16 lanes) or a rate, "24GB/s": replaces the rate of copies
 * from and to page-locked memory, and limits that of pageable memory. Fails: INVALID_ARGUMENT. */
fy_status_t figures_set_link(figures_t *machine, const char *link);
/* All times of a request that do not depend on its size, times `factor`: submission, kernel start,
 * set-up of a copy, wake-up. */
void figures_scale_latency(figures_t *machine, double factor);

/* What the host needs to copy a piece into a staging buffer; `before`: bytes of the transfer that
 * were copied already (docs/simulator.md). */
uint64_t figures_staging_ns(const figures_t *machine, uint64_t before, uint64_t nbytes);

#endif
