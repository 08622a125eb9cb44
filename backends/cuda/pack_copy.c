/* Which kernel copies: fy_copy by 16 bytes an access, or by as many bytes as every row of both
 * sides allows; fy_transpose, through shared memory, where neighbours in the source and in the
 * result lie along different axes; else fy_copy one by one. Next: kernels/transpose.cu. */
#include "backends/cuda/flat.h"
#include "backends/cuda/pack.h"

enum { LEAST_EDGE = 16 }; /* a tile that is narrower leaves most threads idle */

/* Rows that are dense on both sides, but no multiple of 16 bytes: elements of 8, 4 or 2 bytes in
 * place of narrower ones. */
static void widen_elements(fy__cuda_args_t *args)
{
    static const struct {
        uint64_t nbytes;
        int32_t dtype;
    } units[] = { { 8, FY_DTYPE_I64 }, { 4, FY_DTYPE_I32 }, { 2, FY_DTYPE_F16 } };
    fy__cuda_operand_t *both[2] = { &args->dst[0], &args->src[0] };
    const uint64_t size = fy__cuda_dtype_nbytes(both[0]->dtype);
    const int last = both[0]->rank - 1;
    uint64_t bits = (uint64_t)both[0]->dims[last] * size;
    for (int i = 0; i < 2; i++) {
        if (both[i]->strides[last] != 1) return;
        bits |= both[i]->data;
        for (int axis = 0; axis < last; axis++) bits |= (uint64_t)both[i]->strides[axis] * size;
    }
    for (int u = 0; u < 3; u++) {
        if (units[u].nbytes <= size || bits % units[u].nbytes != 0) continue;
        const int64_t n = (int64_t)(units[u].nbytes / size);
        for (int i = 0; i < 2; i++) {
            both[i]->dtype = units[u].dtype;
            both[i]->dims[last] /= n;
            for (int axis = 0; axis < last; axis++) both[i]->strides[axis] /= n;
        }
        args->nelem /= (uint64_t)n;
        return;
    }
}

/* The axis along which neighbours lie side by side, if it is long enough for tiles; else -1. */
static int dense_axis(const fy__cuda_operand_t *operand)
{
    for (int axis = 0; axis < operand->rank; axis++)
        if (operand->strides[axis] == 1 && operand->dims[axis] >= LEAST_EDGE) return axis;
    return -1;
}

/* Moves axes a and b, in this order, to the back. */
static void move_back(fy__cuda_operand_t *operand, int a, int b)
{
    const fy__cuda_operand_t old = *operand;
    operand->rank = 0;
    for (int axis = 0; axis < old.rank; axis++)
        if (axis != a && axis != b)
            fy__cuda_operand_add(operand, old.dims[axis], old.strides[axis]);
    fy__cuda_operand_add(operand, old.dims[a], old.strides[a]);
    fy__cuda_operand_add(operand, old.dims[b], old.strides[b]);
}

static int is_transposed(fy__cuda_request_t *out)
{
    fy__cuda_args_t *args = &out->args;
    const int to = dense_axis(&args->dst[0]), from = dense_axis(&args->src[0]);
    if (to < 0 || from < 0 || to == from) return 0;
    const int64_t tile =
        FY__CUDA_TRANSPOSE_TILE((int64_t)fy__cuda_dtype_nbytes(args->dst[0].dtype));
    const int64_t rows = args->dst[0].dims[from], columns = args->dst[0].dims[to];
    const int64_t tiles = ((rows + tile - 1) / tile) * ((columns + tile - 1) / tile);
    move_back(&args->dst[0], from, to);
    move_back(&args->src[0], from, to);
    out->kernel = FY__CUDA_KERNEL_fy_transpose;
    out->threads = args->nelem / (uint64_t)(rows * columns) * (uint64_t)tiles * FY__CUDA_BLOCK;
    return 1;
}

void fy__cuda_choose_copy(fy__cuda_request_t *out)
{
    fy__cuda_args_t *args = &out->args;
    const uint64_t size = fy__cuda_dtype_nbytes(args->dst[0].dtype);
    if (!fy__cuda_set_wide(args, 1, 0, 1, (uint32_t)(16 / size))) {
        if (is_transposed(out)) return;
        widen_elements(args);
    }
    out->kernel = fy__cuda_is_flat(args) ? FY__CUDA_KERNEL_fy_copy_flat : FY__CUDA_KERNEL_fy_copy;
    out->threads = args->wide > 1 ? args->nelem / args->wide + 1 : args->nelem;
}
