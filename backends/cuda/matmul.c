/* Row-major products for a column-major library: d = a b becomes d' = b' a', so its first operand
 * is our second and nothing is copied.
 * A transpose, asked for or in the strides, is an operation flag. Batch axes are fused, folded into
 * the rows where b does not vary, given to cuBLASLt as one strided batch, and walked here if more
 * are left. Layouts without a unit stride go to the kernel. */
#include "backends/cuda/matmul.h"

#include <limits.h>
#include <string.h>

#include "opset/formulas/index.h"

/* One operand: its matrix after transposes, and the strides of dst's batch axes (0: broadcast). */
typedef struct matrix {
    int64_t rows, cols, row_stride, col_stride;
    int64_t batch[FY_MAX_RANK];
} matrix_t;

static matrix_t matrix_of(const fy_desc_t *desc, int transpose, int nbatch)
{
    const int r = desc->rank - 2, c = desc->rank - 1;
    matrix_t m = { .rows = desc->dims[r],
                   .cols = desc->dims[c],
                   .row_stride = desc->strides[r],
                   .col_stride = desc->strides[c] };
    if (transpose)
        m = (matrix_t){
            .rows = m.cols, .cols = m.rows, .row_stride = m.col_stride, .col_stride = m.row_stride
        };
    for (int axis = 0; axis < nbatch; axis++) { /* leading axes are aligned at the end */
        const int own = axis - (nbatch - r);
        m.batch[axis] = own < 0 || desc->dims[own] == 1 ? 0 : desc->strides[own];
    }
    return m;
}

/* A matrix as cuBLASLt would have to see it. Row-major here is column-major there, so "plain" needs
 * no flag. */
static int layout_of(const matrix_t *m, int64_t *out_ld, int32_t *out_transpose)
{
    int64_t by_rows = m->rows == 1 ? m->cols : m->row_stride,
            by_cols = m->cols == 1 ? m->rows : m->col_stride;
    if ((m->col_stride == 1 || m->cols == 1) && by_rows >= m->cols) {
        *out_ld = by_rows > 0 ? by_rows : 1;
        *out_transpose = 0;
        return 1;
    }
    if ((m->row_stride == 1 || m->rows == 1) && by_cols >= m->rows) {
        *out_ld = by_cols > 0 ? by_cols : 1;
        *out_transpose = 1;
        return 1;
    }
    return 0;
}

/* What the address, and every address a batch step away, is a multiple of. */
static uint32_t alignment_of(const void *data, int64_t batch_stride, const int64_t *steps,
                             int nsteps, uint64_t element_nbytes)
{
    uint64_t bits = (uint64_t)(uintptr_t)data | (uint64_t)batch_stride * element_nbytes | 256;
    for (int i = 0; i < nsteps; i++) bits |= (uint64_t)steps[i];
    return (uint32_t)(bits & (~bits + 1));
}

void fy__cuda_matmul_plan(const fy_launch_t *launch, fy__cuda_matmul_t *out)
{
    const fy_matmul_attrs_t *attrs = launch->attrs;
    const fy_desc_t *dst = &launch->dst[0];
    const int nbatch = dst->rank - 2;
    const int64_t size = (int64_t)fy__cuda_dtype_nbytes(dst->dtype);
    matrix_t a = matrix_of(&launch->src[0], attrs->transpose_a, nbatch),
             b = matrix_of(&launch->src[1], attrs->transpose_b, nbatch),
             d = matrix_of(dst, 0, nbatch);
    fy__index_t index;
    memset(out, 0, sizeof *out);
    fy__index_make(&index, nbatch, dst->dims, 3,
                   (const int64_t *const[]){ a.batch, b.batch, d.batch });
    int n = index.rank;
    if (n == 1 && index.dims[0] == 1) n = 0;

    /* [B, M, K] x [K, N]: the batch is more rows. */
    if (n > 0 && index.strides[1][n - 1] == 0 && a.col_stride == 1 &&
        index.strides[0][n - 1] == a.rows * a.row_stride &&
        index.strides[2][n - 1] == d.rows * d.row_stride) {
        n--;
        a.rows *= index.dims[n];
        d.rows *= index.dims[n];
    }
    fy__cuda_lt_problem_t *p = &out->problem;
    p->batch = 1;
    if (n > 0) {
        n--;
        p->batch = index.dims[n];
        p->batch_a = index.strides[1][n];
        p->batch_b = index.strides[0][n];
        p->batch_d = index.strides[2][n];
    }
    out->nouter = n;
    for (int axis = 0; axis < n; axis++) {
        out->outer[axis] = index.dims[axis];
        out->step_a[axis] = index.strides[1][axis] * size;
        out->step_b[axis] = index.strides[0][axis] * size;
        out->step_d[axis] = index.strides[2][axis] * size;
    }
    out->a = launch->src[1].data;
    out->b = launch->src[0].data;
    out->d = dst->data;
    p->rows = d.cols;
    p->cols = d.rows;
    p->inner = a.cols;
    p->dtype = p->dtype_d = dst->dtype;
    p->accumulate = (int32_t)(launch->accumulate & 1);
    int32_t transpose_d = 0;
    out->takes_lt = layout_of(&b, &p->lda, &p->transpose_a) &&
                    layout_of(&a, &p->ldb, &p->transpose_b) &&
                    layout_of(&d, &p->ldd, &transpose_d) && !transpose_d && p->batch <= INT32_MAX;
    p->align_a = alignment_of(out->a, p->batch_a, out->step_a, n, (uint64_t)size);
    p->align_b = alignment_of(out->b, p->batch_b, out->step_b, n, (uint64_t)size);
    p->align_d = alignment_of(out->d, p->batch_d, out->step_d, n, (uint64_t)size);
}

fy_status_t fy__cuda_matmul_run(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch,
                                const fy__cuda_matmul_t *matmul)
{
    int64_t count = 1;
    for (int axis = 0; axis < matmul->nouter; axis++) count *= matmul->outer[axis];
    for (int64_t i = 0; i < count; i++) {
        int64_t a = fy__offset_of(i, matmul->nouter, matmul->outer, matmul->step_a),
                b = fy__offset_of(i, matmul->nouter, matmul->outer, matmul->step_b),
                d = fy__offset_of(i, matmul->nouter, matmul->outer, matmul->step_d);
        const fy_status_t status = fy__cuda_lt_run(dev, stream, &matmul->problem, matmul->a + a,
                                                   matmul->b + b, matmul->d + d, matmul->bias,
                                                   launch->workspace, launch->workspace_nbytes);
        if (status == FY_STATUS_UNSUPPORTED && i > 0 && matmul->problem.accumulate)
            return FY__CUDA_FAIL(FY_STATUS_INTERNAL,
                                 "matmul on cuda:%d: cuBLASLt refused product %lld of %lld, and "
                                 "those before it were added\n  Compute the sum again; Ferry's "
                                 "kernel then does all of it",
                                 dev->index, (long long)i + 1, (long long)count);
        FY_TRY(status);
    }
    return FY_STATUS_OK;
}

/* ---- the kernel: any strides ---- */

static void set_matrix(fy__cuda_operand_t *operand, const fy_desc_t *desc, const matrix_t *m,
                       const fy_desc_t *dst)
{
    fy__cuda_operand_point(operand, desc->data, desc->dtype);
    for (int axis = 0; axis < dst->rank - 2; axis++)
        fy__cuda_operand_add(operand, dst->dims[axis], m->batch[axis]);
    fy__cuda_operand_add(operand, m->rows, m->row_stride);
    fy__cuda_operand_add(operand, m->cols, m->col_stride);
}

void fy__cuda_pack_matmul(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    const fy_matmul_attrs_t *attrs = launch->attrs;
    const fy_desc_t *dst = &launch->dst[0];
    const int nbatch = dst->rank - 2;
    matrix_t a = matrix_of(&launch->src[0], attrs->transpose_a, nbatch),
             b = matrix_of(&launch->src[1], attrs->transpose_b, nbatch);
    fy__cuda_args_t *args = &out->args;
    fy__cuda_request_init(out, launch->op, launch->nelem, 2, NULL, 0);
    args->accumulate = launch->accumulate & 1;
    fy__cuda_operand_set(&args->dst[0], dst);
    set_matrix(&args->src[0], &launch->src[0], &a, dst);
    set_matrix(&args->src[1], &launch->src[1], &b, dst);
    fy__cuda_args_size(args, launch->nelem);
    const uint64_t tiles_m = ((uint64_t)a.rows + FY__CUDA_MATMUL_TILE - 1) / FY__CUDA_MATMUL_TILE,
                   tiles_n = ((uint64_t)b.cols + FY__CUDA_MATMUL_TILE - 1) / FY__CUDA_MATMUL_TILE;
    out->kernel = FY__CUDA_KERNEL_BY(dst->dtype == FY_DTYPE_F64, fy_matmul);
    out->threads = launch->nelem / ((uint64_t)a.rows * (uint64_t)b.cols) * tiles_m * tiles_n;
    out->square = 1;
}
