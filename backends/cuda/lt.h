/* cuBLASLt as this plugin uses it: found by dlopen at the first matmul, one handle a device, and a
 * table of plans (descriptors and the algorithm that the heuristic chose) keyed by shape, layout
 * and alignment. Not here: which matmul becomes which plan (matmul.c). */
#ifndef FERRY_BACKENDS_CUDA_LT_H_
#define FERRY_BACKENDS_CUDA_LT_H_

#include "backends/cuda/plans.h"

/* One product in cuBLASLt's own terms: column-major, d (rows x cols) = op(a) op(b), or += . All
 * fields are part of the key, and there is no padding between them. */
typedef struct fy__cuda_lt_problem {
    int64_t rows, cols, inner; /* of d, and the length of the dot products */
    int64_t lda, ldb, ldd;
    /* how many, and the steps from one to the next, in elements */
    int64_t batch, batch_a, batch_b, batch_d;
    int32_t dtype; /* of a and b */
    int32_t transpose_a, transpose_b, accumulate;
    uint32_t align_a, align_b, align_d; /* bytes, at most 256 */
    uint32_t epilogue;                  /* a cublasLtEpilogue_t, or 0 */
    uint32_t align_bias;                /* of what the epilogue adds or makes, bytes; 0: nothing */
    int32_t dtype_d;                    /* of d: dtype, or wider */
} fy__cuda_lt_problem_t;

/* Only host memory; the library and the handle come with the first use. */
fy_status_t fy__cuda_lt_create(fy__cuda_device_t *dev, fy__cuda_lt_t **out_lt);
/* The device's context is current if anything was ever run. NULL is fine. */
void fy__cuda_lt_destroy(fy__cuda_lt_t *lt);

/* Loads the library. UNSUPPORTED with the reason if there is none. Tries again after a failure. */
fy_status_t fy__cuda_lt_load(void);

/* A copy, for its counts. */
void fy__cuda_lt_query(fy__cuda_lt_t *lt, fy__cuda_plans_t *out_table);
/* The power of two, at most 256, that an address is a multiple of. */
uint32_t fy__cuda_lt_alignment(const void *address);

/* Bytes of scratch, at most `limit`, with which this product runs fastest. 0: it is refused within
 * this limit, and then needs none. For a new problem it enters the device and makes the plan; later
 * it is a look-up. */
int fy__cuda_lt_workspace(fy__cuda_device_t *dev, const fy__cuda_lt_problem_t *problem,
                          uint64_t limit, uint64_t *out_nbytes);
/* Submits it. `bias`: rows values that the epilogue adds, or cols values that it makes (BGRADB);
 * else NULL. The context is current.
 * UNSUPPORTED: there is no algorithm, or cuBLASLt refuses to run it, and nothing ran. A problem
 * that was refused once is refused again without a call of the library. */
fy_status_t fy__cuda_lt_run(fy__cuda_device_t *dev, CUstream stream,
                            const fy__cuda_lt_problem_t *problem, const void *a, const void *b,
                            void *d, const void *bias, void *workspace, uint64_t workspace_nbytes);

#endif
