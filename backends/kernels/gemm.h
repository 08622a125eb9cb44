/* Matrix products on one pair of matrices; matmul.c cuts its work down to these.
 * gemm_onednn.c knows oneDNN; without_onednn.c is built in its place if there is none, and
 * gemm_plain.c multiplies where oneDNN fails. */
#ifndef FERRY_BACKENDS_KERNELS_GEMM_H_
#define FERRY_BACKENDS_KERNELS_GEMM_H_

#include "backends/kernels/family.h"

/* A matrix where it lies: element (i, j) is data[i * row_stride + j * column_stride]. */
typedef struct fy__matrix {
    char *data;
    int64_t rows, columns, row_stride, column_stride;
    int32_t dtype;
} fy__matrix_t;

/* An f32 product adds at most so many terms one after the other (docs/ops.md). */
enum { FY__GEMM_TERMS = 4096 };

/* C[m x n] = A * B + beta * C, row-major with leading dimensions; transpose_a 'N' or 'T'. m, n, k >
 * 0. */
fy_status_t fy__gemm_f32(const fy_host_api_t *host, char transpose_a, char transpose_b, int64_t m,
                         int64_t n, int64_t k, const float *a,
                         /* gemm_onednn.c */
                         int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                         int64_t ldc);
/* The same by Ferry's loops for any size. */
void fy__gemm_plain_f32(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,
                        const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                        float *c, int64_t ldc); /* gemm_plain.c */
/* The same by Ferry's loops, if it is small and beta is 0 or 1; otherwise returns 0 and does
 * nothing. */
int fy__gemm_small_f32(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,
                       const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                       float *c, int64_t ldc); /* gemm_small.c */
/* C = A * B, or += with accumulate; any strides. */
void fy__gemm_f64(const fy__loops_t *loops, const fy__matrix_t *a, const fy__matrix_t *b,
                  const fy__matrix_t *c, int accumulate); /* gemm_f64.c */

#endif
