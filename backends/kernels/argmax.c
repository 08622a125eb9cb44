/* argmax and argmin along one axis: the first of equals; the first NaN if there is one. The result
 * is i64; its axis is gone or has length 1. */
#include "opset/formulas/index.h"
#include "backends/kernels/rows.h"

#define FIND_BY(name, sign, sfx, T)                                     \
    static int64_t name##_##sfx(int64_t n, const void *row, T *best)    \
    {                                                                   \
        const T *x = (const T *)row;                                    \
        int64_t at = -1;                                                \
        for (int64_t i = 0; i < n; i++) {                               \
            if (x[i] sign * best || (x[i] != x[i] && *best == *best)) { \
                *best = x[i];                                           \
                at = i;                                                 \
            }                                                           \
        }                                                               \
        return at;                                                      \
    }
#define FIND(sfx, T) FIND_BY(largest, >, sfx, T) FIND_BY(smallest, <, sfx, T)
FIND(f32, float)
FIND(f64, double)
FIND(i32, int32_t)
FIND(i64, int64_t)
FIND(u8, uint8_t)

typedef union best {
    float f32;
    double f64;
    int32_t i32;
    int64_t i64;
    uint8_t u8;
} best_t;

#define RUN(sfx) (is_min ? smallest_##sfx(n, row, &best->sfx) : largest_##sfx(n, row, &best->sfx))
static int64_t find(int is_min, int32_t dtype, int64_t n, const void *row, best_t *best)
{
    switch (dtype) {
    case FY_DTYPE_F32: return RUN(f32);
    case FY_DTYPE_F64: return RUN(f64);
    case FY_DTYPE_I32: return RUN(i32);
    case FY_DTYPE_I64: return RUN(i64);
    default: return RUN(u8);
    }
}

/* A row of any stride, block by block. */
static int64_t search_along(const fy__loops_t *loops, int is_min, int32_t dtype, const char *row,
                            int64_t n, int64_t stride)
{
    const int32_t compute = fy__compute_dtype(dtype);
    int64_t at = 0;
    best_t best = { .i64 = 0 };
    fy__stage_in(loops, 1, &best, compute, row, 1, dtype);
    if (stride == 1 && dtype == compute) {
        const int64_t found = find(is_min, compute, n, row, &best);
        return found < 0 ? 0 : found;
    }
    for (int64_t done = 0; done < n; done += FY__BLOCK) {
        _Alignas(64) char block[FY__BLOCK * 8];
        const int64_t m = n - done < FY__BLOCK ? n - done : FY__BLOCK;
        fy__stage_in(loops, m, block, compute,
                     row + done * stride * ((int64_t)1 << fy__log2_size(dtype)), stride, dtype);
        const int64_t found = find(is_min, compute, m, block, &best);
        if (found >= 0) at = done + found;
    }
    return at;
}

typedef struct search {
    const fy__loops_t *loops;
    const fy_desc_t *src, *dst;
    int is_min, axis, rank;
    int64_t dims[FY_MAX_RANK], from[FY_MAX_RANK], to[FY_MAX_RANK]; /* the other axes */
} search_t;

static void search_row(const void *context, int64_t i)
{
    const search_t *search = (const search_t *)context;
    const fy_desc_t *src = search->src;
    const int64_t offset = fy__offset_of(i, search->rank, search->dims, search->from);
    const char *row = (const char *)src->data + offset * ((int64_t)1 << fy__log2_size(src->dtype));
    int64_t *at = (int64_t *)search->dst->data +
                  fy__offset_of(i, search->rank, search->dims, search->to);
    *at = search_along(search->loops, search->is_min, src->dtype, row, src->dims[search->axis],
                       src->strides[search->axis]);
}

fy_status_t fy__run_argmax(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch)
{
    const fy_desc_t *src = launch->src, *dst = launch->dst;
    search_t search = { .loops = loops,
                        .src = src,
                        .dst = dst,
                        .is_min = launch->op == FY_OP_ARGMIN,
                        .axis = ((const fy_axis_attrs_t *)launch->attrs)->axis };
    int64_t noutputs = 1;
    (void)host;
    for (int k = 0, d = 0; k < src->rank; k++) {
        if (k == search.axis) {
            d += dst->rank == src->rank; /* keepdims */
            continue;
        }
        search.dims[search.rank] = src->dims[k];
        search.from[search.rank] = src->strides[k];
        search.to[search.rank++] = dst->strides[d++];
        noutputs *= src->dims[k];
    }
    if (src->dims[search.axis] == 0) return FY_STATUS_OK;
    fy__for_each(noutputs, fy__threads_for(noutputs * src->dims[search.axis], 16384), search_row,
                 &search);
    return FY_STATUS_OK;
}
