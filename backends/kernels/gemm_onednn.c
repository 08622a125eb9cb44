/* The f32 matrix product, by oneDNN. dnnl_sgemm has the same C API in oneDNN 2 and 3; it is stateless, so any threads may call it.
 * Not here: batches, strides that BLAS cannot say, half precision (matmul.c). */
#include <omp.h>
#include <stdatomic.h>
#include <oneapi/dnnl/dnnl.h>

#include "backends/kernels/gemm.h"

/* oneDNN 2.6 splits a product among as many threads as OpenMP announces, and a part whose thread does not come is silently missing
 * (OMP_THREAD_LIMIT, OMP_DYNAMIC). So what is announced must be what comes. These settings are the calling thread's own. */
static void __attribute__((cold, noinline)) curb_threads(int threads)
{
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
}

fy_status_t fy__gemm_f32(const fy_host_api_t *host, char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, const float *a,
                         int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    static _Atomic int process_limit; /* OMP_THREAD_LIMIT: fixed for the process; 0 until asked for */
    int limit = atomic_load_explicit(&process_limit, memory_order_relaxed);
    if (__builtin_expect(limit == 0, 0)) atomic_store_explicit(&process_limit, limit = omp_get_thread_limit(), memory_order_relaxed);
    const int most = omp_get_max_threads(), dynamic = omp_get_dynamic(), curbed = most > limit || dynamic;
    if (__builtin_expect(curbed, 0)) curb_threads(most < limit ? most : limit);
    const dnnl_status_t status = dnnl_sgemm(transpose_a, transpose_b, m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
    if (__builtin_expect(curbed, 0)) {
        omp_set_num_threads(most);
        omp_set_dynamic(dynamic);
    }
    if (__builtin_expect(status == dnnl_success, 1)) return FY_STATUS_OK;
    return host->fail(status == dnnl_out_of_memory ? FY_STATUS_OUT_OF_MEMORY : FY_STATUS_INTERNAL, __FILE__, __LINE__,
                      "oneDNN refused sgemm %lld x %lld x %lld (status %d)", (long long)m, (long long)n, (long long)k, (int)status);
}
