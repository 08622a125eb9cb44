/* A program that runs again and again while each of its calls fails once: nothing leaks, and the
 * next run works. Only for programs of tests/faults, which are linked with the allocator's calls
 * wrapped (host_memory.h). */
#ifndef FERRY_TESTS_SUPPORT_SWEEP_H_
#define FERRY_TESTS_SUPPORT_SWEEP_H_

#include <ferry/device.h>

typedef fy_status_t (*ts_program_fn)(fy_device_t *device);

/* On sim:7 with `options` ("", or "order=lazy"), the n-th call of `kind` ("alloc", "launch", ...)
 * fails, for each n until no call fails, which is before `most`. A run fails with `want` or not at
 * all; after it the program runs, and no device memory is live. */
void ts_sweep_device(const char *options, const char *kind, fy_status_t want, int most,
                     ts_program_fn program);
/* On the device of `spec`, the n-th allocation of host memory fails, as above; with OUT_OF_MEMORY
 * or not at all. */
void ts_sweep_host_memory(const char *spec, int most, ts_program_fn program);
/* The same with every n up to 20, then every `stride`-th; with $FERRY_SWEEP (nightly) every n. */
void ts_sweep_device_by(const char *options, const char *kind, fy_status_t want, int most,
                        int stride, ts_program_fn program);
void ts_sweep_host_memory_by(const char *spec, int most, int stride, ts_program_fn program);
/* The n after this one. */
int ts_sweep_next(int n, int stride);

#endif
