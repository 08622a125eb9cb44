/* Selects the f32 products that are small enough for Ferry's loops (loops_gemm.h). oneDNN runs
 * those where it is as fast. */
#include "backends/kernels/gemm.h"

/* Multiplications: beyond, oneDNN's packing and threads pay. Products of rows (B^T) end in
 * additions across lanes, which only few rows are worth. */
enum { MOST_WORK = 32 * 32 * 32, MOST_WORK_OF_ROWS = 8192, FEW_ROWS = 2, MOST_COLUMNS = 256 };

int fy__gemm_small_f32(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,
                       const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                       float *c, int64_t ldc)
{
    const int ta = transpose_a == 'T', tb = transpose_b == 'T';
    if (k > FY__GEMM_TERMS || m > MOST_WORK || n > MOST_WORK / m || k > MOST_WORK / (m * n) ||
        (ta && tb && k > 1))
        return 0;
    if (tb ? m > FEW_ROWS && m * n * k > MOST_WORK_OF_ROWS : n > MOST_COLUMNS) return 0;
    const fy__small_gemm_t g = {
        m, n, k, a, ta ? 1 : lda, ta ? lda : 1, b, tb ? 1 : ldb, tb ? ldb : 1, c, ldc, beta != 0.0f
    };
    fy__loops_get()->gemm_small_f32(&g);
    return 1;
}
