/* The f32 matrix product, by oneDNN unless it is tiny. dnnl_sgemm has the same C API in oneDNN 2
 * and 3; it is stateless, so any threads may call it.
 * oneDNN adds the terms of a narrow product one after the other: 2^20 equal ones were 1 % off. So
 * long narrow products are cut along k, and the sums of the pieces are added in f64.
 * Not here: batches, strides that BLAS cannot say, half precision (matmul.c). */
#include "backends/kernels/dnnl.h"
#include "backends/kernels/gemm.h"
#include "backends/kernels/last_product.h"
#include "backends/kernels/team.h"

/* NARROW: with so many rows and columns oneDNN adds in blocks. */
enum { NARROW = 48, MOST_RESULTS = 1024 };

static fy_status_t sgemm(const fy_host_api_t *host, char transpose_a, char transpose_b, int64_t m,
                         int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                         int64_t ldb, float beta, float *c, int64_t ldc)
{
    static int logged; /* atomic accesses only */
    const double dm = (double)m, dn = (double)n, dk = (double)k;
    const int is_open = fy__dnnl_open();
    dnnl_status_t status = dnnl_unimplemented;
    fy__product_by("oneDNN sgemm");
    if (__builtin_expect(is_open, 1)) {
        const fy__team_t team = fy__team_begin(
            fy__threads_for_cost(2 * dm * dn * dk, 4 * (dm * dk + dk * dn + dm * dn)));
        status =
            fy__dnnl.sgemm(transpose_a, transpose_b, m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
        fy__team_end(&team);
    }
    if (__builtin_expect(status == dnnl_success, 1)) return FY_STATUS_OK;
    if (status == dnnl_out_of_memory)
        return host->fail(FY_STATUS_OUT_OF_MEMORY, __FILE__, __LINE__,
                          "oneDNN has no memory for sgemm %lld x %lld x %lld", (long long)m,
                          (long long)n, (long long)k);
    if (!__atomic_exchange_n(&logged, 1, __ATOMIC_RELAXED))
        host->log(FY_LOG_WARNING,
                  "matmul %lld x %lld x %lld ran in Ferry's plain loops (logged once): %s",
                  (long long)m, (long long)n, (long long)k,
                  is_open ? "oneDNN refused sgemm" : fy__onednn_has_none());
    fy__gemm_plain_f32(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc);
    return FY_STATUS_OK;
}

/* At most MOST_RESULTS results. */
static fy_status_t narrow_product(const fy_host_api_t *host, char transpose_a, char transpose_b,
                                  int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                                  const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    double sums[MOST_RESULTS] = { 0 };
    float piece[MOST_RESULTS];
    for (int64_t p = 0; p < k; p += FY__GEMM_TERMS) {
        FY_TRY(sgemm(host, transpose_a, transpose_b, m, n,
                     k - p < FY__GEMM_TERMS ? k - p : FY__GEMM_TERMS,
                     a + (transpose_a == 'T' ? p * lda : p), lda,
                     b + (transpose_b == 'T' ? p : p * ldb), ldb, 0.0f, piece, n));
        for (int64_t i = 0; i < m * n; i++) sums[i] += (double)piece[i];
    }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float *at = c + i * ldc + j;
            *at = (float)(sums[i * n + j] + (beta != 0.0f ? (double)(beta * *at) : 0.0));
        }
    return FY_STATUS_OK;
}

fy_status_t fy__gemm_f32(const fy_host_api_t *host, char transpose_a, char transpose_b, int64_t m,
                         int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                         int64_t ldb, float beta, float *c, int64_t ldc)
{
    if (fy__gemm_small_f32(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc)) {
        fy__product_by("loops for small products");
        return FY_STATUS_OK;
    }
    const int64_t narrow = m < n ? m : n;
    const int adds_in_order = narrow == 1 ||
                              (narrow < NARROW && transpose_a == 'N' && transpose_b == 'T');
    if (__builtin_expect(k <= FY__GEMM_TERMS || !adds_in_order, 1))
        return sgemm(host, transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc);
    const int64_t most = MOST_RESULTS / narrow, rows = m < n || m < most ? m : most,
                  columns = m < n && n > most ? most : n;
    for (int64_t i = 0; i < m; i += rows)
        for (int64_t j = 0; j < n; j += columns)
            FY_TRY(narrow_product(
                host, transpose_a, transpose_b, m - i < rows ? m - i : rows,
                n - j < columns ? n - j : columns, k, a + (transpose_a == 'T' ? i : i * lda), lda,
                b + (transpose_b == 'T' ? j * ldb : j), ldb, beta, c + i * ldc + j, ldc));
    return FY_STATUS_OK;
}
