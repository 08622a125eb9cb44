/* gather and one_hot. gather: dst[i..., :] = table[indices[i...], :]. An index outside the table is
 * clamped and raises *launch->fault.
 * An empty table has no row to clamp to: the rows are set to zero bytes, and the flag is raised. */
#include "backends/kernels/rows.h"

#include <string.h>

typedef struct gather {
    const fy_launch_t *launch;
    const fy__loops_t *loops;
    fy_desc_t dst_row, table_row; /* the axes behind the first of the table */
    int indices_are_i32;
} gather_t;

static void copy_row(const void *context, int64_t n, char *const *ptr, const int64_t *stride)
{
    const fy__move_fn move = *(const fy__move_fn *)context;
    move(n, ptr[0], stride[0], ptr[1], stride[1]);
}

/* Rows first .. last-1 of dst, indices in row-major order; returns whether an index was out of
 * range. */
static int gather_rows(const gather_t *gather, int64_t first, int64_t last)
{
    const fy_desc_t *dst = gather->launch->dst, *table = &gather->launch->src[0],
                    *indices = &gather->launch->src[1];
    const int shift = fy__log2_size(dst->dtype);
    const int64_t nrows = table->dims[0];
    fy__walk_t walk;
    int bad = 0;
    fy__walk_make(&walk, &gather->dst_row, &gather->table_row, 1);
    const int flat = walk.index.rank == 1 && walk.index.strides[0][0] == 1 &&
                     walk.index.strides[1][0] == 1;
    for (int64_t i = first; i < last; i++) {
        const int64_t at = fy__offset_of(i, indices->rank, indices->dims, indices->strides);
        const int64_t asked = gather->indices_are_i32 ? ((const int32_t *)indices->data)[at]
                                                      : ((const int64_t *)indices->data)[at];
        const int64_t row = asked < 0 ? 0 : asked >= nrows ? nrows - 1 : asked;
        bad |= row != asked || nrows == 0;
        walk.data[0] = (char *)dst->data +
                       fy__offset_of(i, indices->rank, dst->dims, dst->strides) *
                           ((int64_t)1 << shift);
        walk.data[1] = (char *)table->data + row * table->strides[0] * ((int64_t)1 << shift);
        if (nrows == 0) {
            static const uint64_t zero;
            walk.data[1] = (char *)(uintptr_t)&zero;
            for (int k = 0; k < walk.index.rank; k++) walk.index.strides[1][k] = 0;
        }
        if (flat && nrows > 0) {
            memcpy(walk.data[0], walk.data[1], (size_t)walk.nelem << shift);
        } else {
            fy__walk_range(&walk, 0, walk.nelem, copy_row, &gather->loops->move[shift]);
        }
    }
    return bad;
}

fy_status_t fy__run_gather(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch)
{
    gather_t gather = { .launch = launch,
                        .loops = loops,
                        .indices_are_i32 = launch->src[1].dtype == FY_DTYPE_I32 };
    const fy_desc_t *table = &launch->src[0];
    const int lead = launch->src[1].rank;
    int bad = 0;
    (void)host;
    gather.table_row = (fy_desc_t){ .dtype = table->dtype, .rank = table->rank - 1 };
    gather.dst_row = (fy_desc_t){ .dtype = table->dtype, .rank = table->rank - 1 };
    for (int k = 1; k < table->rank; k++) {
        gather.table_row.dims[k - 1] = gather.dst_row.dims[k - 1] = table->dims[k];
        gather.table_row.strides[k - 1] = table->strides[k];
        gather.dst_row.strides[k - 1] = launch->dst->strides[lead + k - 1];
    }
    const int64_t n = fy__desc_nelem(&launch->src[1]);
    const int64_t row_nbytes = (fy__desc_nelem(&gather.table_row) << fy__log2_size(table->dtype)) +
                               64;
    const int threads = fy__threads_for(n * row_nbytes, 1 << 19);
    if (threads == 1) {
        bad = gather_rows(&gather, 0, n);
    } else {
        const int64_t piece = (n + threads - 1) / threads;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(| : bad)
        for (int t = 0; t < threads; t++) {
            const int64_t first = t * piece < n ? t * piece : n;
            bad |= gather_rows(&gather, first, first + piece < n ? first + piece : n);
        }
    }
    if (bad && launch->fault) *launch->fault = 1;
    return FY_STATUS_OK;
}

/* ---- one_hot: rows of zeros with a one ---- */

typedef struct one_hot {
    const fy_launch_t *launch;
    const fy__loops_t *loops;
} one_hot_t;

/* The bytes of 1 in a dtype. */
static uint64_t one_of(int32_t dtype)
{
    switch (dtype) {
    case FY_DTYPE_F32: return 0x3f800000u;
    case FY_DTYPE_F64: return UINT64_C(0x3ff0000000000000);
    case FY_DTYPE_F16: return 0x3c00u;
    case FY_DTYPE_BF16: return 0x3f80u;
    default: return 1;
    }
}

static void put_one_hot(const void *context, int64_t i)
{
    static const uint64_t zero;
    const one_hot_t *one_hot = (const one_hot_t *)context;
    const fy_launch_t *launch = one_hot->launch;
    const fy_desc_t *indices = &launch->src[0], *dst = launch->dst;
    const int axis = indices->rank, shift = fy__log2_size(dst->dtype);
    const int64_t at = fy__offset_of(i, indices->rank, indices->dims, indices->strides),
                  last = dst->dims[axis] - 1;
    const int64_t asked = indices->dtype == FY_DTYPE_I32 ? ((const int32_t *)indices->data)[at]
                                                         : ((const int64_t *)indices->data)[at];
    const int64_t index = asked < 0 ? 0 : asked > last ? last : asked;
    const uint64_t one = one_of(dst->dtype);
    char *row = (char *)dst->data +
                fy__offset_of(i, indices->rank, dst->dims, dst->strides) * ((int64_t)1 << shift);
    /* several threads may */
    if (index != asked && launch->fault) __atomic_store_n(launch->fault, 1, __ATOMIC_RELAXED);
    one_hot->loops->move[shift](last + 1, row, dst->strides[axis], &zero, 0);
    /* its low bytes come first */
    memcpy(row + index * dst->strides[axis] * ((int64_t)1 << shift), &one, (size_t)1 << shift);
}

fy_status_t fy__run_one_hot(const fy_host_api_t *host, const fy__loops_t *loops,
                            const fy_launch_t *launch)
{
    const one_hot_t one_hot = { launch, loops };
    const int64_t rows = fy__desc_nelem(&launch->src[0]);
    (void)host;
    if (launch->nelem > 0)
        fy__for_each(rows, fy__threads_for((int64_t)launch->nelem, 98304), put_one_hot, &one_hot);
    return FY_STATUS_OK;
}
