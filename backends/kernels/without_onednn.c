/* In place of oneDNN, in a build with -DFERRY_DNNL=OFF: f32 products by Ferry's loops, no
 * primitives, and facts that say so. Convolutions then run in the loops of conv_few.c,
 * conv_depthwise.c and conv_plain.c; slow_path.c logs each shape that oneDNN would run.
 * Products: blocks of B are packed on the stack, row by row, and multiplied by the loop for small
 * products (loops_gemm.h). Tiles of C are independent: one thread each, the same bits whatever
 * their number. */
#include "backends/kernels/conv_prim.h"
#include "backends/kernels/gemm.h"
#include "backends/kernels/last_product.h"
#include "backends/kernels/onednn.h"

enum { MB = 64, NB = 64, KB = 128, SERIAL_PRODUCTS = 1 << 18 }; /* packed: 32 KiB */

typedef struct product {
    const fy__loops_t *loops;
    int64_t m, n, k, a_row, a_column, b_row, b_column, ldc;
    const float *a, *b;
    float *c;
    int adds;
} product_t;

static void pack(float *out, const product_t *g, int64_t p0, int64_t k, int64_t j0, int64_t n)
{
    for (int64_t p = 0; p < k; p++) {
        const float *at = g->b + (p0 + p) * g->b_row + j0 * g->b_column;
        for (int64_t j = 0; j < n; j++) out[p * NB + j] = at[j * g->b_column];
    }
}

static void tile(const void *context, int64_t number)
{
    const product_t *g = (const product_t *)context;
    const int64_t across = (g->n + NB - 1) / NB, i0 = number / across * MB,
                  j0 = number % across * NB;
    const int64_t m = g->m - i0 < MB ? g->m - i0 : MB, n = g->n - j0 < NB ? g->n - j0 : NB;
    _Alignas(64) float packed[KB * NB];
    int64_t p0 = 0;
    do { /* once at least: a product of no terms is 0 */
        const int64_t k = g->k - p0 < KB ? g->k - p0 : KB;
        const float *a = g->a + i0 * g->a_row + p0 * g->a_column;
        const fy__small_gemm_t block = { m,        n,
                                         k,        a,
                                         g->a_row, g->a_column,
                                         packed,   NB,
                                         1,        g->c + i0 * g->ldc + j0,
                                         g->ldc,   g->adds || p0 > 0 };
        pack(packed, g, p0, k, j0, n);
        g->loops->gemm_small_f32(&block);
        p0 += KB;
    } while (p0 < g->k);
}

fy_status_t fy__gemm_f32(const fy_host_api_t *host, char transpose_a, char transpose_b, int64_t m,
                         int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                         int64_t ldb, float beta, float *c, int64_t ldc)
{
    (void)host;
    if (fy__gemm_small_f32(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc)) {
        fy__product_by("loops for small products");
        return FY_STATUS_OK;
    }
    const int ta = transpose_a == 'T', tb = transpose_b == 'T';
    const product_t product = { .loops = fy__loops_get(),
                                .m = m,
                                .n = n,
                                .k = k,
                                .a_row = ta ? 1 : lda,
                                .a_column = ta ? lda : 1,
                                .b_row = tb ? 1 : ldb,
                                .b_column = tb ? ldb : 1,
                                .ldc = ldc,
                                .a = a,
                                .b = b,
                                .c = c,
                                .adds = beta != 0.0f };
    fy__product_by("plain loops");
    fy__for_each(((m + MB - 1) / MB) * ((n + NB - 1) / NB),
                 fy__threads_for(m * n * k, SERIAL_PRODUCTS), tile, &product);
    return FY_STATUS_OK;
}

/* ---- no primitives: fy__conv_prim_make returns none, so the others are not called ---- */

fy__conv_prim_t *fy__conv_prim_make(const fy__conv_shape_t *shape)
{
    (void)shape;
    return NULL;
}

void fy__conv_prim_free(fy__conv_prim_t *prim) { (void)prim; }

uint64_t fy__conv_prim_nbytes(const fy__conv_prim_t *prim)
{
    (void)prim;
    return 0;
}

fy_status_t fy__conv_prim_run(const fy_host_api_t *host, const fy__conv_prim_t *prim, void *x,
                              void *w, void *y, void *bias, void *scratch)
{
    (void)prim, (void)x, (void)w, (void)y, (void)bias, (void)scratch;
    return host->fail(FY_STATUS_INTERNAL, __FILE__, __LINE__,
                      "a build without oneDNN has no primitive to run");
}

int fy__conv_prim_leaves_bias(const fy__conv_prim_t *prim)
{
    (void)prim;
    return 0;
}

const char *fy__conv_prim_impl_name(const fy__conv_prim_t *prim)
{
    (void)prim;
    return "none";
}

/* ---- facts ---- */

const char fy__onednn_has_none[] = "this Ferry is built without oneDNN (FERRY_DNNL=OFF)";

void fy__onednn_describe(fy_fact_fn say, void *user)
{
    say(user, "onednn",
        "none: built with FERRY_DNNL=OFF; large products and convolutions run in plain loops: "
        "products at 0.7 to 1.0 of oneDNN's speed, trainings with convolutions 6 to 12 times "
        "slower");
}
