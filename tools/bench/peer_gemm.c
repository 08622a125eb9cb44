/* dnnl_sgemm of the oneDNN that libferry opens. Its signature is the same in oneDNN 2 and 3
 * (row-major, status 0 is success). */
#include "tools/bench/peers.h"

#include <dlfcn.h>
#include <string.h>

typedef int (*sgemm_fn)(char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha,
                        const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                        float *c, int64_t ldc);

static sgemm_fn find_sgemm(void)
{
    static sgemm_fn found;
    static bool looked;
    if (looked) return found;
    looked = true;
    void *library = dlopen(FERRY_DNNL_FILE, RTLD_NOW),
         *symbol = library ? dlsym(library, "dnnl_sgemm") : NULL;
    memcpy(&found, &symbol, sizeof found); /* ISO C has no cast from object to function pointers */
    return found;
}

bool peer_gemm_found(void) { return find_sgemm() != NULL; }

bool peer_gemm(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
               int64_t ldb, float *c, int64_t ldc)
{
    return find_sgemm()('N', 'N', m, n, k, 1, a, lda, b, ldb, 0, c, ldc) == 0;
}
