/* What this machine's cores can do at most, measured: the share of it says more of a training step
 * than images a second.
 * Next: bench_train.c. */
#ifndef FERRY_TOOLS_ROOFLINE_H_
#define FERRY_TOOLS_ROOFLINE_H_

#ifdef __cplusplus
extern "C" {
#endif

/* GFLOP/s in f32 of `threads` threads that do nothing but multiply and add in registers, the best
 * of a few short runs; NaN where there is no such loop (not x86-64 with FMA). Blocks for about 0.1
 * s. */
double roofline_gflops(int threads);

#ifdef __cplusplus
}
#endif
#endif
