/* `ferry calibrate`: its measurements and figures. A figure is the median of rounds in which all
 * probes alternate; its spread is the worst round over the best, less 1. Everything uses the public
 * API and the device's clock: the wall's, or the model's.
 * cal_device.c and cal_host.c measure, cal.c writes, cmd_calibrate.c is the command. */
#ifndef FERRY_TOOLS_CAL_H_
#define FERRY_TOOLS_CAL_H_

#include "tools/cli/tool.h"

enum { CAL_MAX_ROUNDS = 64, CAL_MAX_FIGURES = 24 };

typedef struct cal_figure {
    const char *key, *unit; /* as backends/sim/profile_file.c has them */
    double value, spread;
    char how[200];
} cal_figure_t;

typedef struct cal_probe cal_probe_t;

typedef struct cal {
    fy_device_t *device, *peer; /* peer NULL: none */
    bool is_model;
    int64_t rounds, most_nbytes; /* of one buffer */
    const char *what;            /* for the progress line */
    const char *failed;          /* the first rate that came out as none; NULL */
    size_t nfigures;
    cal_figure_t figures[CAL_MAX_FIGURES];
} cal_t;

/* One thing that is timed in each round. `run` gives what it found, in ns, or per second. */
struct cal_probe {
    fy_status_t (*run)(cal_t *cal, void *context, double *out_value);
    void *context;
    double rounds[CAL_MAX_ROUNDS];
    double value, spread; /* of all rounds */
};

/* The clock that figures go by. */
double cal_now_ns(const cal_t *cal);
/* Runs all probes in turn, a warm-up round first, and fills value and spread. */
fy_status_t cal_measure(cal_t *cal, cal_probe_t *probes, size_t count);
/* `value` less an overhead that is small beside it; noise that claims otherwise takes half of it at
 * most. */
double cal_less(double value, double overhead);
/* Notes a figure. One below `least` becomes `least`: a latency that the noise hides is none. A rate
 * (`least` 1) that is not positive was not measured at all: cal->failed says so. `how` is
 * printf-like. */
void cal_note(cal_t *cal, const char *key, const char *unit, double value, double least,
              double spread, const char *how, ...) FY_PRINTF(7, 8);
const cal_figure_t *cal_figure(const cal_t *cal, const char *key);

/* Appends the device's figures. Everything on the device is waited for. */
fy_status_t cal_device(cal_t *cal);
/* Appends the rates of products; part of cal_device. kernel_ns: what a kernel takes whatever its
 * size. */
fy_status_t cal_products(cal_t *cal, double kernel_ns);
/* Appends the host's figures. cal->device: where staging copies go. */
fy_status_t cal_host(cal_t *cal);

typedef struct cal_origin {
    char name[32];                            /* of the profile */
    const char *base, *model, *driver, *host; /* NULL: not said */
    const char *clock;
} cal_origin_t;

/* Writes the profile to `path`, or leaves no file. Fails: IO. */
fy_status_t cal_write(const cal_t *cal, const cal_origin_t *origin, const char *path);

#endif
