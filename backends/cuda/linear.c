/* linear: a product with its fused steps, and the product of its parameters' gradients. cuBLASLt
 * adds the bias while it stores. relu follows in a separate launch. cuBLASLt applies it only if the
 * device was opened with relu=fused: its documentation says max(x, 0), which may turn NaN into 0,
 * and Ferry's relu keeps NaN. Other activations follow too, but not in half precision, which must
 * round once: there, and where cuBLASLt has no such epilogue, the unrounded product goes to
 * scratch, and one launch adds the bias, applies the activation and rounds.
 * Ferry's kernel takes layouts that cuBLASLt does not support. cuBLASLt's gelu is the tanh form and
 * Ferry's uses erf, so it is not used; its DRELU_BGRAD reads a mask that RELU_AUX must have stored,
 * and the tape keeps y. See matmul.c. */
#include "backends/cuda/matmul.h"

#include <cublasLt.h>
#include <string.h>

static int32_t activation_of(const fy_launch_t *launch)
{
    return ((const fy_linear_attrs_t *)launch->attrs)->activation;
}

static int is_half(const fy_launch_t *launch)
{
    return launch->dst[0].dtype == FY_DTYPE_F16 || launch->dst[0].dtype == FY_DTYPE_BF16;
}

/* Does it keep what has been rounded? */
static int is_exact(int32_t activation)
{
    return activation == FY_ACTIVATION_NONE || activation == FY_ACTIVATION_RELU;
}

/* A vector as a matrix of one row. */
static fy_desc_t with_rows(const fy_desc_t *desc)
{
    if (desc->rank > 1) return *desc;
    fy_desc_t row = *desc;
    row.rank = 2;
    row.dims[1] = desc->dims[0];
    row.strides[1] = desc->strides[0];
    row.dims[0] = 1;
    row.strides[0] = desc->dims[0] * desc->strides[0];
    return row;
}

fy_launch_t fy__cuda_linear_product(const fy_launch_t *launch, fy_desc_t *dst, fy_desc_t *src)
{
    static const fy_matmul_attrs_t by_rows = { 0, 1 }; /* w is [O, I] */
    fy_launch_t product = *launch;
    *dst = with_rows(&launch->dst[0]);
    src[0] = with_rows(&launch->src[0]);
    src[1] = launch->src[1];
    product.op = FY_OP_MATMUL;
    product.nsrc = 2;
    product.dst = dst;
    product.src = src;
    product.attrs = &by_rows;
    product.attrs_nbytes = sizeof by_rows;
    return product;
}

int fy__cuda_linear_plan(const fy__cuda_device_t *dev, const fy_launch_t *launch,
                         const fy_launch_t *product, fy__cuda_matmul_t *out)
{
    const fy_desc_t *bias = launch->nsrc == 3 ? &launch->src[2] : NULL;
    const int32_t activation = activation_of(launch);
    fy__cuda_matmul_plan(product, out);
    if (out->problem.inner == 0 || !out->takes_lt ||
        (bias != NULL && bias->strides[0] != 1 && bias->dims[0] != 1))
        return 0;
    if (is_half(launch) && !is_exact(activation)) return 0;
    if (bias != NULL) out->problem.epilogue |= CUBLASLT_EPILOGUE_BIAS;
    if (activation == FY_ACTIVATION_RELU && dev->fused_relu)
        out->problem.epilogue |= CUBLASLT_EPILOGUE_RELU;
    if (bias == NULL) return 1;
    out->bias = bias->data;
    out->problem.align_bias = fy__cuda_lt_alignment(bias->data);
    return 1;
}

int fy__cuda_pack_linear_activation(const fy__cuda_device_t *dev, const fy_launch_t *launch,
                                    fy__cuda_request_t *out)
{
    static const uint32_t ops[] = { [FY_ACTIVATION_RELU] = FY_OP_RELU,
                                    [FY_ACTIVATION_TANH] = FY_OP_TANH,
                                    [FY_ACTIVATION_SIGMOID] = FY_OP_SIGMOID,
                                    [FY_ACTIVATION_GELU] = FY_OP_GELU };
    const int32_t activation = activation_of(launch);
    fy_launch_t in_place = *launch;
    if (activation == FY_ACTIVATION_NONE || (activation == FY_ACTIVATION_RELU && dev->fused_relu))
        return 0;
    in_place.op = ops[activation];
    in_place.nsrc = 1;
    in_place.src = launch->dst;
    in_place.attrs = NULL;
    fy__cuda_pack_elementwise(&in_place, out);
    return 1;
}

void fy__cuda_pack_linear(const fy_launch_t *launch, const fy_launch_t *product,
                          fy__cuda_request_t *out)
{
    fy__cuda_pack_matmul(product, out);
    out->args.op = FY_OP_LINEAR;
    memset(&out->args.attrs, 0, sizeof out->args.attrs);
    out->args.attrs.linear.activation = activation_of(launch);
    out->args.nsrc = launch->nsrc;
    if (launch->nsrc == 3) fy__cuda_operand_set(&out->args.src[2], &launch->src[2]);
}

/* ---- through scratch ---- */

enum { ROWS_ALIKE = 64, SCRATCH_ALIGNMENT = 256 };

static uint64_t sums_nbytes(int64_t rows, int64_t cols, uint64_t size)
{
    return ((uint64_t)rows * (uint64_t)cols * size + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT *
           SCRATCH_ALIGNMENT;
}

int fy__cuda_linear_scratch(const fy_launch_t *launch, const fy_launch_t *product, void *workspace,
                            uint64_t nbytes, fy__cuda_linear_scratch_t *out)
{
    fy__cuda_lt_problem_t *p = &out->matmul.problem;
    fy__cuda_matmul_plan(product, &out->matmul);
    if (!out->matmul.takes_lt || p->inner == 0 || p->batch != 1 || out->matmul.nouter != 0)
        return 0;
    p->dtype_d = launch->dst[0].dtype == FY_DTYPE_F64 ? FY_DTYPE_F64 : FY_DTYPE_F32;
    const uint64_t size = fy__cuda_dtype_nbytes(p->dtype_d);
    out->rows = out->at_once = p->cols; /* cuBLASLt's columns are our rows */
    out->nbytes = sums_nbytes(out->rows, p->rows, size);
    if (out->nbytes > nbytes) { /* the last quarter is left to cuBLASLt */
        out->at_once = (int64_t)((nbytes - nbytes / 4) / ((uint64_t)p->rows * size)) / ROWS_ALIKE *
                       ROWS_ALIKE;
        if (out->at_once == 0) return 0;
        out->nbytes = sums_nbytes(out->at_once, p->rows, size);
    }
    p->ldd = p->rows;
    p->align_d = SCRATCH_ALIGNMENT;
    /* from a row of x to the next; across, if x is transposed */
    const uint64_t step = (uint64_t)p->ldb * fy__cuda_dtype_nbytes(p->dtype);
    if (out->at_once < out->rows)
        p->align_b = fy__cuda_lt_alignment(
            (const void *)(uintptr_t)(p->align_b | (p->transpose_b ? 128 : step)));
    out->matmul.d = workspace;
    return 1;
}

fy__cuda_lt_problem_t fy__cuda_linear_run_problem(const fy__cuda_linear_scratch_t *scratch,
                                                  int64_t count)
{
    fy__cuda_lt_problem_t problem = scratch->matmul.problem;
    problem.cols = count;
    return problem;
}

void fy__cuda_pack_linear_finish(const fy_launch_t *launch, const fy_launch_t *product,
                                 const fy__cuda_linear_scratch_t *scratch, int64_t first,
                                 int64_t count, fy__cuda_request_t *out)
{
    const fy__cuda_lt_problem_t *p = &scratch->matmul.problem;
    const fy_desc_t *dst = &product->dst[0];
    const int64_t ld = dst->rank > 1 ? dst->strides[dst->rank - 2] : p->rows,
                  size = (int64_t)fy__cuda_dtype_nbytes(dst->dtype);
    const fy_linear_attrs_t attrs = { activation_of(launch) };
    fy__cuda_args_t *args = &out->args;
    fy__cuda_request_init(out, FY_OP_LINEAR, (uint64_t)(count * p->rows), launch->nsrc == 3 ? 2 : 1,
                          &attrs, sizeof attrs);
    fy__cuda_operand_point(&args->dst[0], (char *)dst->data + first * ld * size, dst->dtype);
    fy__cuda_operand_point(&args->src[0], scratch->matmul.d, p->dtype_d);
    fy__cuda_operand_add(&args->dst[0], count, ld);
    fy__cuda_operand_add(&args->dst[0], p->rows, 1);
    fy__cuda_operand_add(&args->src[0], count, p->rows);
    fy__cuda_operand_add(&args->src[0], p->rows, 1);
    if (launch->nsrc == 3) {
        fy__cuda_operand_point(&args->src[1], launch->src[2].data, launch->src[2].dtype);
        fy__cuda_operand_add(&args->src[1], count, 0);
        fy__cuda_operand_add(&args->src[1], p->rows, launch->src[2].strides[0]);
    }
    fy__cuda_args_size(args, args->nelem);
    const int wide = dst->dtype == FY_DTYPE_F64;
    const uint32_t at_once = (uint32_t)(16 / size);
    (void)fy__cuda_set_wide_apart(args, 1, 0, args->nsrc, at_once);
    out->kernel = FY__CUDA_KERNEL_BY(wide, fy_linear_finish);
    out->threads = args->wide > 1 ? args->nelem / args->wide : args->nelem;
}

int fy__cuda_linear_params_plan(const fy_launch_t *launch, const fy_launch_t *product,
                                fy__cuda_matmul_t *out)
{
    const fy_desc_t *db = &launch->dst[1];
    fy__cuda_matmul_plan(product, out);
    if (!out->takes_lt || out->problem.inner == 0 || out->problem.batch != 1 || out->nouter != 0)
        return 0;
    if ((launch->accumulate >> 1 & 1) != 0 || (db->strides[0] != 1 && db->dims[0] != 1) ||
        db->dtype == FY_DTYPE_F64)
        return 0;
    /* cuBLASLt's b is dy: its sums over the rows, one for each column of dw' */
    out->problem.epilogue = CUBLASLT_EPILOGUE_BGRADB;
    out->bias = db->data;
    out->problem.align_bias = fy__cuda_lt_alignment(db->data);
    return 1;
}
