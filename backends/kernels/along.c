/* take_along_axis along the last axis, its gradient, and topk: a task a row. A row's elements are
 * taken, added or compared by one thread in one order. An index out of range is clamped (the
 * gradient adds nothing) and raises *launch->fault. Not here: gather of whole rows (gather.c). */
#include <string.h>

#include "opset/formulas/half.h"
#include "opset/formulas/index.h"
#include "backends/kernels/rows.h"

typedef struct along {
    const fy__loops_t *loops;
    const fy_launch_t *launch;
} along_t;

/* The first element of row i: of all axes but the last. */
static char *row_of(const fy_desc_t *desc, int64_t i)
{
    return (char *)desc->data + fy__offset_of(i, desc->rank - 1, desc->dims, desc->strides) *
                                    ((int64_t)1 << fy__log2_size(desc->dtype));
}

static int64_t last_length(const fy_desc_t *desc) { return desc->dims[desc->rank - 1]; }
static int64_t last_stride(const fy_desc_t *desc) { return desc->strides[desc->rank - 1]; }

static int64_t index_at(const fy_desc_t *indices, const char *row, int64_t k)
{
    const int64_t at = k * last_stride(indices);
    return indices->dtype == FY_DTYPE_I32 ? ((const int32_t *)row)[at] : ((const int64_t *)row)[at];
}

static void raise_fault(const fy_launch_t *launch)
{
    /* several threads may */
    if (launch->fault) __atomic_store_n(launch->fault, 1, __ATOMIC_RELAXED);
}

/* to[k] = from[index[k]] by a loop of the element's size and the index's type; returns whether an
 * index was out of range. Strides in elements. */
#define TAKE(bits, index_bits)                                                         \
    static int take_##bits##_by_##index_bits(                                          \
        int64_t n, void *to, int64_t to_stride, const void *from, int64_t from_stride, \
        const void *index, int64_t index_stride, int64_t last)                         \
    {                                                                                  \
        uint##bits##_t *d = (uint##bits##_t *)to;                                      \
        const uint##bits##_t *x = (const uint##bits##_t *)from;                        \
        const int##index_bits##_t *at = (const int##index_bits##_t *)index;            \
        int bad = 0;                                                                   \
        for (int64_t k = 0; k < n; k++) {                                              \
            const int64_t asked = at[k * index_stride];                                \
            const int64_t i = asked < 0 ? 0 : asked > last ? last : asked;             \
            bad |= i != asked;                                                         \
            d[k * to_stride] = x[i * from_stride];                                     \
        }                                                                              \
        return bad;                                                                    \
    }
#define TAKES(bits) TAKE(bits, 32) TAKE(bits, 64)
TAKES(8)
TAKES(16)
TAKES(32)
TAKES(64)

static void take_row(const void *context, int64_t row)
{
#define BOTH(bits)                               \
    {                                            \
        take_##bits##_by_32, take_##bits##_by_64 \
    }
    static int (*const take[4][2])(int64_t, void *, int64_t, const void *, int64_t, const void *,
                                   int64_t, int64_t) = { BOTH(8), BOTH(16), BOTH(32), BOTH(64) };
    const fy_launch_t *launch = ((const along_t *)context)->launch;
    const fy_desc_t *dst = launch->dst, *src = &launch->src[0], *indices = &launch->src[1];
    if (take[fy__log2_size(src->dtype)][indices->dtype == FY_DTYPE_I64](
            last_length(dst), row_of(dst, row), last_stride(dst), row_of(src, row),
            last_stride(src), row_of(indices, row), last_stride(indices), last_length(src) - 1))
        raise_fault(launch);
}

/* Block by block of the result: all indices of the row are read for each. */
static void add_row(const void *context, int64_t row)
{
    const along_t *along = (const along_t *)context;
    const fy_launch_t *launch = along->launch;
    const fy_desc_t *dst = launch->dst, *dy = &launch->src[0], *indices = &launch->src[1];
    const int64_t n = last_length(dst), size = (int64_t)1 << fy__log2_size(dst->dtype);
    const char *from = row_of(dy, row), *index = row_of(indices, row);
    for (int64_t begin = 0; begin < n; begin += FY__BLOCK) {
        double sums[FY__BLOCK] = { 0 };
        const int64_t m = n - begin < FY__BLOCK ? n - begin : FY__BLOCK;
        char *to = row_of(dst, row) + begin * last_stride(dst) * size;
        if ((launch->accumulate & 1u) != 0)
            fy__stage_in(along->loops, m, sums, FY_DTYPE_F64, to, last_stride(dst), dst->dtype);
        for (int64_t k = 0; k < last_length(dy); k++) {
            const int64_t at = index_at(indices, index, k);
            double x;
            if (at < 0 || at >= n) raise_fault(launch);
            if (at < begin || at >= begin + m) continue;
            fy__stage_in(along->loops, 1, &x, FY_DTYPE_F64, from + k * last_stride(dy) * size, 1,
                         dy->dtype);
            sums[at - begin] += x;
        }
        fy__stage_out(along->loops, m, to, last_stride(dst), dst->dtype, sums, FY_DTYPE_F64);
    }
}

fy_status_t fy__run_take_along_axis(const fy_host_api_t *host, const fy__loops_t *loops,
                                    const fy_launch_t *launch)
{
    const along_t along = { loops, launch };
    const fy_desc_t *indices = &launch->src[1];
    const int64_t elements = fy__desc_nelem(indices) + (int64_t)launch->nelem;
    int64_t rows = 1;
    (void)host;
    for (int axis = 0; axis < indices->rank - 1; axis++) rows *= indices->dims[axis];
    fy__for_each(rows, fy__threads_for(elements, 8192),
                 launch->op == FY_OP_TAKE_ALONG_AXIS ? take_row : add_row, &along);
    return FY_STATUS_OK;
}

/* ---- topk: the heap of a row is the row of its indices, least on top ---- */

typedef struct row {
    const char *x;
    int64_t stride;
    int32_t dtype;
} row_t;

#define VALUE(T, i) (((const T *)row->x)[(i)*row->stride])
/* Whether element a comes before b: NaN first, then larger values, then smaller indices. */
#define BEFORE(T, widen)                         \
    do {                                         \
        const T x = widen(a), y = widen(b);      \
        if ((x != x) != (y != y)) return x != x; \
        return x > y || (!(x < y) && a < b);     \
    } while (0)
#define SKIP(T, widen)                      \
    do {                                    \
        const T x = widen(a);               \
        while (b < n && widen(b) <= x) b++; \
        return b;                           \
    } while (0)
#define F32(i)  VALUE(float, i)
#define F64(i)  VALUE(double, i)
#define F16(i)  fy__f32_from_f16(VALUE(uint16_t, i))
#define BF16(i) fy__f32_from_bf16(VALUE(uint16_t, i))
#define I32(i)  VALUE(int32_t, i)
#define I64(i)  VALUE(int64_t, i)
#define U8(i)   VALUE(uint8_t, i)
#define BY_DTYPE(DO)                     \
    switch (row->dtype) {                \
    case FY_DTYPE_F32: DO(float, F32);   \
    case FY_DTYPE_F64: DO(double, F64);  \
    case FY_DTYPE_F16: DO(float, F16);   \
    case FY_DTYPE_BF16: DO(float, BF16); \
    case FY_DTYPE_I32: DO(int32_t, I32); \
    case FY_DTYPE_I64: DO(int64_t, I64); \
    default: DO(uint8_t, U8);            \
    }
static int is_before(const row_t *row, int64_t a, int64_t b) { BY_DTYPE(BEFORE) }
/* The first of the elements b .. n - 1 that may come before element a < b, else n. */
static int64_t skip(const row_t *row, int64_t a, int64_t b, int64_t n) { BY_DTYPE(SKIP) }

/* Puts `element` into the heap of n at `hole` or below. */
static void sift(const row_t *row, int64_t *heap, int64_t step, int64_t n, int64_t hole,
                 int64_t element)
{
    for (int64_t child; (child = 2 * hole + 1) < n; hole = child) {
        if (child + 1 < n && is_before(row, heap[child * step], heap[(child + 1) * step])) child++;
        if (is_before(row, heap[child * step], element)) break;
        heap[hole * step] = heap[child * step];
    }
    heap[hole * step] = element;
}

static void find_row(const void *context, int64_t i)
{
    const fy_launch_t *launch = ((const along_t *)context)->launch;
    const fy_desc_t *src = launch->src, *values = &launch->dst[0], *indices = &launch->dst[1];
    const row_t row = { row_of(src, i), last_stride(src), src->dtype };
    const int64_t n = last_length(src), k = last_length(values), step = last_stride(indices),
                  size = (int64_t)1 << fy__log2_size(src->dtype);
    int64_t *heap = (int64_t *)(void *)row_of(indices, i);
    char *to = row_of(values, i);
    for (int64_t j = 0; j < k; j++) heap[j * step] = j;
    for (int64_t j = k / 2 - 1; j >= 0; j--) sift(&row, heap, step, k, j, heap[j * step]);
    for (int64_t j = k; (j = skip(&row, heap[0], j, n)) < n; j++)
        if (is_before(&row, j, heap[0])) sift(&row, heap, step, k, 0, j);
    for (int64_t left = k - 1; left > 0; left--) {
        const int64_t least = heap[0], moved = heap[left * step];
        heap[left * step] = least;
        sift(&row, heap, step, left, 0, moved);
    }
    for (int64_t j = 0; j < k; j++)
        memcpy(to + j * last_stride(values) * size, row.x + heap[j * step] * row.stride * size,
               (size_t)size);
}

fy_status_t fy__run_topk(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch)
{
    const along_t along = { loops, launch };
    const int64_t elements = fy__desc_nelem(launch->src);
    (void)host;
    if (launch->nelem > 0)
        fy__for_each((int64_t)launch->nelem / last_length(launch->dst),
                     fy__threads_for(elements, 8192), find_row, &along);
    return FY_STATUS_OK;
}
