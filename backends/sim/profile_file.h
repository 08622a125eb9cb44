/* Profiles from files: what `ferry calibrate` measured, instead of a row of profile.c. Also the one
 * table of figures by name, with unit and bounds. Not here: the built-in profiles and what figures
 * are for (profile.h). The file's form: docs/simulator.md. */
#ifndef FERRY_BACKENDS_SIM_PROFILE_FILE_H_
#define FERRY_BACKENDS_SIM_PROFILE_FILE_H_

#include "backends/sim/profile.h"

enum { FY__SIM_PROFILE_NAME = 32, FY__SIM_PROFILE_FILE_NBYTES = 64 << 10 };

/* All figures that a device's times come from. `device.name` may point into this very struct:
 * fy__sim_figures_copy. */
typedef struct fy__sim_figures {
    fy__sim_profile_t device;
    fy__sim_host_profile_t host;
    char name[FY__SIM_PROFILE_NAME];
} fy__sim_figures_t;

/* Those of a built-in profile, and the built-in host's. */
void fy__sim_figures_builtin(const fy__sim_profile_t *profile, fy__sim_figures_t *out_figures);
void fy__sim_figures_copy(const fy__sim_figures_t *from, fy__sim_figures_t *out_figures);
/* Each figure as key (with its unit) and whole number, in the order of the table. */
void fy__sim_figures_say(const fy__sim_figures_t *from, fy_fact_fn say, void *user);

/* Does this value of profile= name a file? Built-in names have neither '/' nor '.'. */
int fy__sim_profile_is_path(const char *value);
/* Reads the file at `path` for the device called `name`. Fails: INVALID_ARGUMENT with the line and
 * the error (a figure that is missing, unknown, given twice, negative, not a whole number or out of
 * its bounds; another version; not JSON; an unreadable file), OUT_OF_MEMORY. */
fy_status_t fy__sim_profile_read(const char *name, const char *path,
                                 fy__sim_figures_t *out_figures);

#endif
