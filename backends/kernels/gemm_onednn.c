/* The f32 matrix product, by oneDNN unless it is tiny. dnnl_sgemm has the same C API in oneDNN 2
 * and 3; it is stateless, so any threads may call it.
 * Not here: batches, strides that BLAS cannot say, half precision (matmul.c). */
#include <oneapi/dnnl/dnnl.h>

#include "backends/kernels/gemm.h"
#include "backends/kernels/last_product.h"
#include "backends/kernels/team.h"

fy_status_t fy__gemm_f32(const fy_host_api_t *host, char transpose_a, char transpose_b, int64_t m,
                         int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                         int64_t ldb, float beta, float *c, int64_t ldc)
{
    if (fy__gemm_small_f32(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc)) {
        fy__product_by("loops for small products");
        return FY_STATUS_OK;
    }
    fy__product_by("oneDNN sgemm");
    const double dm = (double)m, dn = (double)n, dk = (double)k;
    const fy__team_t team =
        fy__team_begin(fy__threads_for_cost(2 * dm * dn * dk, 4 * (dm * dk + dk * dn + dm * dn)));
    const dnnl_status_t status =
        dnnl_sgemm(transpose_a, transpose_b, m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
    fy__team_end(&team);
    if (__builtin_expect(status == dnnl_success, 1)) return FY_STATUS_OK;
    return host->fail(status == dnnl_out_of_memory ? FY_STATUS_OUT_OF_MEMORY : FY_STATUS_INTERNAL,
                      __FILE__, __LINE__, "oneDNN refused sgemm %lld x %lld x %lld (status %d)",
                      (long long)m, (long long)n, (long long)k, (int)status);
}
