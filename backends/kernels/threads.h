/* The number of OpenMP threads for one piece of work: one, or all that are configured, whichever
 * the cost model estimates to be faster.
 * The choice depends on the work, the configured threads and the waiting policy. It never depends
 * on a measured time, so equal runs give equal bits. `threads=N` of a device and FERRY_THREADS=N
 * replace it by exactly N (docs/environment.md).
 * No other number is chosen: libgomp ends the threads that a smaller team does not need and starts
 * them again for a larger one (measured with 4 and 2 threads alternately: 578 us a pair of regions;
 * with 4 and 1: 37 us).
 * Not here: the cost of a kernel (the kernels), the number of threads that oneDNN uses (team.h). */
#ifndef FERRY_BACKENDS_KERNELS_THREADS_H_
#define FERRY_BACKENDS_KERNELS_THREADS_H_

#include <stdint.h>

enum { FY__THREADS_AUTO = -1, FY__THREADS_INHERIT = 0, FY__THREADS_MOST = 1024 };

/* ---- what a kernel asks ---- */

/* Threads for `n` equal elements, of which one thread does `serial` in 20 us. Costs a division and
 * a load where the work is small. */
int fy__threads_for(int64_t n, int64_t serial);
/* The same from floating point operations, at 120 GFLOP/s, and bytes read and written, at 50 GB/s:
 * the slower of the two is the time. */
int fy__threads_for_cost(double flops, double nbytes);

/* ---- the model: pure functions ---- */

typedef enum fy__waiting {
    FY__WAITING_PASSIVE, /* idle threads sleep: a region costs 45 to 72 us */
    FY__WAITING_ACTIVE   /* idle threads spin: 1 us */
} fy__waiting_t;

/* 1 or `most`, for work that takes one thread `work_ns`. */
int fy__threads_choose(double work_ns, int most, fy__waiting_t waiting);
/* How often an idle thread of libgomp polls before it sleeps, from the values of OMP_WAIT_POLICY
 * and GOMP_SPINCOUNT (NULL: not set).
 * The values are read as libgomp reads them; a value that libgomp would refuse counts as not
 * set. */
uint64_t fy__threads_spins(const char *wait_policy, const char *spin_count);
/* From that count. With more threads than processors libgomp spins 1000 times at most, whatever is
 * set. */
fy__waiting_t fy__threads_waiting(uint64_t count, int threads, int nprocessors);
/* "auto", or a number from 1 to FY__THREADS_MOST: 1 and *out_threads is that, or FY__THREADS_AUTO.
 * Anything else: 0. */
int fy__threads_parse(const char *text, int *out_threads);

/* ---- settings ---- */

/* Sets the choice for every device whose spec has no threads=: FY__THREADS_AUTO or a number, from
 * the next kernel on. At first it is that of FERRY_THREADS. */
void fy__threads_set(int threads);
/* Sets the choice for the calling thread's kernels: AUTO, a number, or INHERIT. Returns the choice
 * before; restore it afterwards. */
int fy__threads_override(int threads);
/* The value of FERRY_THREADS if it is malformed, else NULL. */
const char *fy__threads_bad_environment(void);
/* After fork, in the child: every kernel runs on one thread. libgomp's threads do not survive a
 * fork, and a region would wait for them without end. */
void fy__threads_stay_serial(void);

/* The inputs of the model, on the calling thread. */
typedef struct fy__threads_facts {
    int most, processors, forced; /* forced: 0, or the number that replaces the choice */
    uint64_t spins;
    fy__waiting_t waiting;
} fy__threads_facts_t;
fy__threads_facts_t fy__threads_facts(void);

#endif
