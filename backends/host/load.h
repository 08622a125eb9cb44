/* Whether this machine has processors to spare for idle kernel threads that spin. Pure functions
 * over what /proc/loadavg says.
 * Not here: how idle threads wait (backends/kernels/threads.h). */
#ifndef FERRY_BACKENDS_HOST_LOAD_H_
#define FERRY_BACKENDS_HOST_LOAD_H_

typedef struct fy__load {
    int others;     /* threads that want a processor now, without the one that asks */
    double average; /* threads that wanted one, over the last minute */
} fy__load_t;

/* Reads a line such as "0.42 0.36 0.30 3/213 4711": 1, or 0 if it is none. */
int fy__load_parse(const char *line, fy__load_t *out_load);
/* Do the others and a team of `threads` want more than there are? A team of one never spins. */
int fy__load_is_high(const fy__load_t *load, int threads, int processors);

#endif
