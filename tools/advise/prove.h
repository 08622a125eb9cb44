/* Measures savings: executes the recorded requests on the simulator's clock without the waste of a
 * finding. Not here: the execution (tools/program/schedule.h). Next: prove.c. */
#ifndef FERRY_TOOLS_ADVISE_PROVE_H_
#define FERRY_TOOLS_ADVISE_PROVE_H_

#include "tools/advise/advice.h"

/* Sets has_measured and measured_ns of each finding whose rule has a change, and together_ns: what
 * all changes save at once, so savings that overlap are counted once. Fails:
 * INVALID_ARGUMENT (the run has no model clock). */
fy_status_t prove(advice_t *advice);

#endif
