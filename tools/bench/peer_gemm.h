/* Bare oneDNN, for comparison with the dispatcher: the sgemm that libferry itself loads, found by
 * name at run time, so the command neither links nor includes oneDNN. Next: peer_gemm.c. */
#ifndef FERRY_TOOLS_PEER_GEMM_H_
#define FERRY_TOOLS_PEER_GEMM_H_

#include <stdbool.h>
#include <stdint.h>

/* Is there a bare sgemm in this process? */
bool peer_gemm_found(void);
/* c[m, n] = a[m, k] b[k, n], row-major f32 with leading dimensions; call only if it was found.
 * False if it failed. */
bool peer_gemm(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
               int64_t ldb, float *c, int64_t ldc);

#endif
