/* Fused multiply-adds on registers alone, by all threads at once. */
#include "tools/bench/roofline.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* more chains than an FMA's latency times the units of a core */
enum { CHAINS = 10, STEPS = 20000000, RUNS = 15, MOST_THREADS = 64 };

#define UNROLLED _Pragma("GCC unroll 10") /* so that the sums are registers */

__attribute__((target("avx512f"))) static float run_512(void)
{
    __m512 sums[CHAINS], a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(1.0f);
    UNROLLED for (int k = 0; k < CHAINS; k++) sums[k] = _mm512_set1_ps((float)k);
    for (int i = 0; i < STEPS / CHAINS; i++)
        UNROLLED for (int k = 0; k < CHAINS; k++) sums[k] = _mm512_fmadd_ps(sums[k], a, b);
    UNROLLED for (int k = 1; k < CHAINS; k++) sums[0] = _mm512_add_ps(sums[0], sums[k]);
    return _mm512_reduce_add_ps(sums[0]);
}

__attribute__((target("avx2,fma"))) static float run_256(void)
{
    __m256 sums[CHAINS], a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(1.0f);
    UNROLLED for (int k = 0; k < CHAINS; k++) sums[k] = _mm256_set1_ps((float)k);
    for (int i = 0; i < STEPS / CHAINS; i++)
        UNROLLED for (int k = 0; k < CHAINS; k++) sums[k] = _mm256_fmadd_ps(sums[k], a, b);
    UNROLLED for (int k = 1; k < CHAINS; k++) sums[0] = _mm256_add_ps(sums[0], sums[k]);
    return _mm256_cvtss_f32(sums[0]);
}

static void *work(void *wide)
{
    /* kept, or there would be nothing to time */
    volatile float sink = wide ? run_512() : run_256();
    (void)sink;
    return NULL;
}

static double now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

double roofline_gflops(int threads)
{
    static int yes;
    pthread_t others[MOST_THREADS];
    void *wide = __builtin_cpu_supports("avx512f") ? &yes : NULL;
    const double flops = 2.0 * STEPS * (wide ? 16 : 8);
    double best = 0;
    if (!__builtin_cpu_supports("fma")) return NAN;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    for (int run = 0; run < RUNS; run++) {
        int started = 1;
        const double begin = now_ns();
        while (started < threads && pthread_create(&others[started], NULL, work, wide) == 0)
            started++;
        work(wide);
        for (int i = 1; i < started; i++) pthread_join(others[i], NULL);
        best = fmax(best, flops * started / (now_ns() - begin));
    }
    return best;
}
#else
double roofline_gflops(int threads)
{
    (void)threads;
    return NAN;
}
#endif
