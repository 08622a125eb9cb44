/* index_add, and the gradient of gather, which is the same on zeros or on a gradient that is there:
 * dst[indices[i], :] += alpha * src[i, :]. Threads divide the elements of a row, and each goes
 * through all indices in order, so equal indices are added in one order by any number of threads.
 * An index out of range adds nothing and raises *launch->fault. Not here: gather (gather.c). */
#include "backends/kernels/rows.h"

enum { LEAST_COLUMNS = 16 }; /* of a thread */

typedef struct index_add {
    const fy_launch_t *launch;
    const fy__loops_t *loops;
    fy_desc_t dst_row, src_row; /* the axes behind the first of dst */
    double alpha;
    int64_t width; /* elements of a row */
    int is_assigned, pieces;
} index_add_t;

/* ptr[0] += alpha * ptr[1]; f32 or f64 */
static void add_row(const void *context, int64_t n, char *const *ptr, const int64_t *stride)
{
    const index_add_t *add = (const index_add_t *)context;
    const int32_t dtype = add->launch->dst->dtype;
    _Alignas(64) char y[FY__BLOCK * 8], x[FY__BLOCK * 8];
    const int shift = fy__log2_size(dtype);
    if (stride[0] == 1 && stride[1] == 1) {
        add->loops->axpy[dtype](n, ptr[0], ptr[1], add->alpha, 0);
        return;
    }
    for (int64_t i = 0; i < n; i += FY__BLOCK) {
        const int64_t m = n - i < FY__BLOCK ? n - i : FY__BLOCK;
        char *to = ptr[0] + i * stride[0] * ((int64_t)1 << shift);
        fy__stage_in(add->loops, m, y, dtype, to, stride[0], dtype);
        fy__stage_in(add->loops, m, x, dtype, ptr[1] + i * stride[1] * ((int64_t)1 << shift),
                     stride[1], dtype);
        add->loops->axpy[dtype](m, y, x, add->alpha, 0);
        fy__stage_out(add->loops, m, to, stride[0], dtype, y, dtype);
    }
}

static void zero_row(const void *context, int64_t n, char *const *ptr, const int64_t *stride)
{
    static const uint64_t zero;
    const index_add_t *add = (const index_add_t *)context;
    const int shift = fy__log2_size(add->launch->dst->dtype);
    add->loops->move[shift](n, ptr[0], stride[0], &zero, 0);
}

static void add_piece(const void *context, int64_t piece)
{
    const index_add_t *add = (const index_add_t *)context;
    const fy_desc_t *dst = add->launch->dst, *src = &add->launch->src[0],
                    *indices = &add->launch->src[1];
    const int64_t begin = add->width * piece / add->pieces,
                  end = add->width * (piece + 1) / add->pieces;
    const int64_t nbytes = (int64_t)1 << fy__log2_size(dst->dtype), n = fy__desc_nelem(indices);
    fy__walk_t walk;
    fy__walk_make(&walk, &add->dst_row, &add->src_row, 1);
    for (int64_t row = 0; add->is_assigned && row < dst->dims[0]; row++) {
        walk.data[0] = (char *)dst->data + row * dst->strides[0] * nbytes;
        walk.data[1] = walk.data[0];
        fy__walk_range(&walk, begin, end, zero_row, add);
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = fy__offset_of(i, indices->rank, indices->dims, indices->strides);
        const int64_t row = indices->dtype == FY_DTYPE_I32 ? ((const int32_t *)indices->data)[at]
                                                           : ((const int64_t *)indices->data)[at];
        if (row < 0 || row >= dst->dims[0]) {
            /* several threads may */
            if (add->launch->fault) __atomic_store_n(add->launch->fault, 1, __ATOMIC_RELAXED);
            continue;
        }
        walk.data[0] = (char *)dst->data + row * dst->strides[0] * nbytes;
        walk.data[1] = (char *)src->data +
                       fy__offset_of(i, indices->rank, src->dims, src->strides) * nbytes;
        fy__walk_range(&walk, begin, end, add_row, add);
    }
}

fy_status_t fy__run_index_add(const fy_host_api_t *host, const fy__loops_t *loops,
                              const fy_launch_t *launch)
{
    const int is_gradient = launch->op == FY_OP_GATHER_BACKWARD;
    const fy_desc_t *dst = launch->dst, *src = &launch->src[0];
    const int lead = launch->src[1].rank;
    index_add_t add = { .launch = launch, .loops = loops };
    (void)host;
    add.alpha = is_gradient ? 1 : ((const fy_axpy_attrs_t *)launch->attrs)->alpha;
    add.is_assigned = is_gradient && !launch->accumulate;
    add.dst_row = (fy_desc_t){ .dtype = dst->dtype, .rank = dst->rank - 1 };
    add.src_row = add.dst_row;
    for (int k = 1; k < dst->rank; k++) {
        add.dst_row.dims[k - 1] = add.src_row.dims[k - 1] = dst->dims[k];
        add.dst_row.strides[k - 1] = dst->strides[k];
        add.src_row.strides[k - 1] = src->strides[lead + k - 1];
    }
    add.width = fy__desc_nelem(&add.dst_row);
    const int64_t elements = fy__desc_nelem(src) + (add.is_assigned ? (int64_t)launch->nelem : 0);
    const int threads = fy__threads_for(elements, fy__serial_of(dst->dtype, 1 << 17));
    const int64_t most = add.width / LEAST_COLUMNS;
    add.pieces = most < 1 ? 1 : most < threads ? (int)most : threads;
    /* a row without elements still has its indices checked */
    fy__for_each(add.pieces, add.pieces, add_piece, &add);
    return FY_STATUS_OK;
}
