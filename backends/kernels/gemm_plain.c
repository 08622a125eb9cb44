/* The f32 matrix product without oneDNN: in a build that has none, or where it fails.
 * Blocks of B are packed on the stack, row by row, and multiplied by the loop for small products
 * (loops_gemm.h). Tiles of C are independent: one thread each, the same bits whatever their
 * number. */
#include "backends/kernels/gemm.h"
#include "backends/kernels/last_product.h"

enum { MB = 64, NB = 64, KB = 128, SERIAL_PRODUCTS = 1 << 18 }; /* packed: 32 KiB */

static void pack(float *out, const fy__small_gemm_t *g, int64_t p0, int64_t k, int64_t j0,
                 int64_t n)
{
    for (int64_t p = 0; p < k; p++) {
        const float *at = g->b + (p0 + p) * g->b_row + j0 * g->b_column;
        for (int64_t j = 0; j < n; j++) out[p * NB + j] = at[j * g->b_column];
    }
}

static void tile(const void *context, int64_t number)
{
    const fy__small_gemm_t *g = (const fy__small_gemm_t *)context;
    const int64_t across = (g->n + NB - 1) / NB, i0 = number / across * MB,
                  j0 = number % across * NB;
    _Alignas(64) float packed[KB * NB];
    fy__small_gemm_t block = *g;
    block.m = g->m - i0 < MB ? g->m - i0 : MB;
    block.n = g->n - j0 < NB ? g->n - j0 : NB;
    block.b = packed, block.b_row = NB, block.b_column = 1;
    block.c = g->c + i0 * g->c_row + j0;
    int64_t p0 = 0;
    do { /* once at least: a product of no terms is 0 */
        block.k = g->k - p0 < KB ? g->k - p0 : KB;
        block.a = g->a + i0 * g->a_row + p0 * g->a_column;
        pack(packed, g, p0, block.k, j0, block.n);
        fy__loops_get()->gemm_small_f32(&block);
        block.adds = 1;
        p0 += KB;
    } while (p0 < g->k);
}

void fy__gemm_plain_f32(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,
                        const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                        float *c, int64_t ldc)
{
    const int ta = transpose_a == 'T', tb = transpose_b == 'T';
    const fy__small_gemm_t g = {
        m, n, k, a, ta ? 1 : lda, ta ? lda : 1, b, tb ? 1 : ldb, tb ? ldb : 1, c, ldc, beta != 0.0f
    };
    fy__product_by("plain loops");
    fy__for_each(((m + MB - 1) / MB) * ((n + NB - 1) / NB),
                 fy__threads_for(m * n * k, SERIAL_PRODUCTS), tile, &g);
}
