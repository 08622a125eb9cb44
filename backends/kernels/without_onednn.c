/* In place of oneDNN, in a build with -DFERRY_DNNL=OFF: f32 products by Ferry's loops
 * (gemm_plain.c), no primitives, and facts that say so. Convolutions then run in the loops of
 * conv_few.c, conv_depthwise.c and conv_plain.c; slow_path.c logs each shape that oneDNN would
 * run. */
#include "backends/kernels/conv_prim.h"
#include "backends/kernels/gemm.h"
#include "backends/kernels/last_product.h"
#include "backends/kernels/onednn.h"

fy_status_t fy__gemm_f32(const fy_host_api_t *host, char transpose_a, char transpose_b, int64_t m,
                         int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                         int64_t ldb, float beta, float *c, int64_t ldc)
{
    (void)host;
    if (fy__gemm_small_f32(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc))
        fy__product_by("loops for small products");
    else
        fy__gemm_plain_f32(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc);
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

const char *fy__onednn_has_none(void)
{
    return "this Ferry is built without oneDNN (FERRY_DNNL=OFF)";
}

void fy__onednn_describe(fy_fact_fn say, void *user)
{
    say(user, "onednn",
        "none: built with FERRY_DNNL=OFF; large products and convolutions run in plain loops: "
        "products at 0.7 to 1.0 of oneDNN's speed, trainings with convolutions 6 to 12 times "
        "slower");
}
