/* Looks up dnnl_sgemm, whose signature oneDNN 2 and 3 share (row-major, status 0 is success). */
#include "tools/bench/peers.h"

#include <dlfcn.h>
#include <stddef.h>
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
    /* RTLD_NOLOAD: only the copy that libferry brought, never a second one. */
    static const char *const names[] = { "libdnnl.so.2", "libdnnl.so.3" };
    void *symbol = dlsym(RTLD_DEFAULT, "dnnl_sgemm");
    for (size_t i = 0; !symbol && i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
        if (library) symbol = dlsym(library, "dnnl_sgemm");
    }
    memcpy(&found, &symbol, sizeof found); /* ISO C has no cast from object to function pointers */
    return found;
}

bool peer_gemm_found(void) { return find_sgemm() != NULL; }

bool peer_gemm(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
               int64_t ldb, float *c, int64_t ldc)
{
    return find_sgemm()('N', 'N', m, n, k, 1, a, lda, b, ldb, 0, c, ldc) == 0;
}
