/* matmul: from a launch to products for cuBLASLt, or to the fallback kernel. launch.c calls these
 * with the context current. */
#ifndef FERRY_BACKENDS_CUDA_MATMUL_H_
#define FERRY_BACKENDS_CUDA_MATMUL_H_

#include "backends/cuda/lt.h"
#include "backends/cuda/pack.h"

/* A product whose layout cuBLASLt takes, `nouter` times with steps (bytes) between them; or not:
 * then the kernel does it. */
typedef struct fy__cuda_matmul {
    int takes_lt;
    fy__cuda_lt_problem_t problem;
    const void *bias; /* dense: what problem.epilogue adds or makes */
    char *a, *b, *d;  /* in cuBLASLt's terms: its a is our src[1] */
    int nouter;       /* batch axes that are walked by the host */
    int64_t outer[FY_MAX_RANK], step_a[FY_MAX_RANK], step_b[FY_MAX_RANK], step_d[FY_MAX_RANK];
} fy__cuda_matmul_t;

void fy__cuda_matmul_plan(const fy_launch_t *launch, fy__cuda_matmul_t *out);
/* UNSUPPORTED: cuBLASLt refuses it. The same launch may then be run in another way: nothing was
 * added to dst. */
fy_status_t fy__cuda_matmul_run(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch,
                                const fy__cuda_matmul_t *matmul);
void fy__cuda_pack_matmul(const fy_launch_t *launch, fy__cuda_request_t *out);

/* linear: the product as a separate launch, whose operands are in `dst` and `src` (two). */
fy_launch_t fy__cuda_linear_product(const fy_launch_t *launch, fy_desc_t *dst, fy_desc_t *src);
/* The product with bias and, where cuBLASLt supports it, activation; 0: takes_lt is 0, or the
 * remaining step would round a second time. */
int fy__cuda_linear_plan(const fy__cuda_device_t *dev, const fy_launch_t *launch,
                         const fy_launch_t *product, fy__cuda_matmul_t *out);
/* The activation of dst that the plan has left; 0: none. */
int fy__cuda_pack_linear_activation(const fy__cuda_device_t *dev, const fy_launch_t *launch,
                                    fy__cuda_request_t *out);
/* All of it, by the kernel. */
void fy__cuda_pack_linear(const fy_launch_t *launch, const fy_launch_t *product,
                          fy__cuda_request_t *out);

/* linear in two: a plain product into scratch, as wide as it was added up, then bias and activation
 * in a launch that rounds once. For half precision with gelu, tanh, sigmoid, and where cuBLASLt has
 * no algorithm with the epilogue. Rows are done a run at a time where the scratch does not hold
 * all. */
typedef struct fy__cuda_linear_scratch {
    fy__cuda_matmul_t matmul; /* of all rows, into scratch */
    int64_t rows, at_once;    /* of dst; of a run, all or a multiple of 64 */
    uint64_t nbytes;          /* of a run's sums; cuBLASLt's own scratch lies behind */
} fy__cuda_linear_scratch_t;
/* 0: cuBLASLt does not take the layout, or `nbytes` of scratch do not hold 64 rows. */
int fy__cuda_linear_scratch(const fy_launch_t *launch, const fy_launch_t *product, void *workspace,
                            uint64_t nbytes, fy__cuda_linear_scratch_t *out);
/* The product of `count` rows. */
fy__cuda_lt_problem_t fy__cuda_linear_run_problem(const fy__cuda_linear_scratch_t *scratch,
                                                  int64_t count);
/* What follows it, for `count` rows from `first` on. */
void fy__cuda_pack_linear_finish(const fy_launch_t *launch, const fy_launch_t *product,
                                 const fy__cuda_linear_scratch_t *scratch, int64_t first,
                                 int64_t count, fy__cuda_request_t *out);
/* linear_backward_params: dw with db in one product, if cuBLASLt may do that; 0: they are two.
 * `product`: dw's. */
int fy__cuda_linear_params_plan(const fy_launch_t *launch, const fy_launch_t *product,
                                fy__cuda_matmul_t *out);

#endif
