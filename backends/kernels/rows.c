/* Walking strided operands by rows, and staging blocks of them; see rows.h.
 * Threads get contiguous ranges of the linear index, so a thread's first and last rows may be
 * partial. */
#include "backends/kernels/rows.h"

#include <string.h>

void fy__walk_make(fy__walk_t *walk, const fy_desc_t *dst, const fy_desc_t *src, int nsrc)
{
    const int64_t *strides[FY_INDEX_OPERANDS] = { dst->strides };
    walk->data[0] = (char *)dst->data;
    walk->log2_size[0] = fy__log2_size(dst->dtype);
    for (int k = 0; k < nsrc; k++) {
        strides[k + 1] = src[k].strides;
        walk->data[k + 1] = (char *)src[k].data;
        walk->log2_size[k + 1] = fy__log2_size(src[k].dtype);
    }
    walk->nelem = fy__desc_nelem(dst);
    fy__index_make(&walk->index, dst->rank, dst->dims, nsrc + 1, strides);
}

void fy__walk_range(const fy__walk_t *walk, int64_t begin, int64_t end, fy__row_fn row,
                    const void *context)
{
    const fy__index_t *index = &walk->index;
    const int last = index->rank - 1, noperands = index->noperands;
    int64_t at[FY_INDEX_RANK], stride[FY_INDEX_OPERANDS], rest = begin;
    char *ptr[FY_INDEX_OPERANDS];
    if (begin >= end) return;
    for (int axis = last; axis >= 0; axis--) {
        at[axis] = rest % index->dims[axis];
        rest /= index->dims[axis];
    }
    for (int k = 0; k < noperands; k++) {
        int64_t offset = 0;
        for (int axis = 0; axis <= last; axis++) offset += at[axis] * index->strides[k][axis];
        ptr[k] = walk->data[k] + offset * ((int64_t)1 << walk->log2_size[k]);
        stride[k] = index->strides[k][last];
    }
    for (;;) {
        const int64_t left = index->dims[last] - at[last],
                      n = left < end - begin ? left : end - begin;
        row(context, n, ptr, stride);
        begin += n;
        if (begin == end) return;
        /* To the start of the next row: this axis back to 0, then carry. */
        for (int k = 0; k < noperands; k++)
            ptr[k] -= at[last] * stride[k] * ((int64_t)1 << walk->log2_size[k]);
        at[last] = 0;
        for (int axis = last - 1; axis >= 0; axis--) {
            const int64_t back = ++at[axis] == index->dims[axis] ? index->dims[axis] - 1 : -1;
            for (int k = 0; k < noperands; k++)
                ptr[k] -= back * index->strides[k][axis] * ((int64_t)1 << walk->log2_size[k]);
            if (back < 0) break;
            at[axis] = 0;
        }
    }
}

void fy__walk_all(const fy__walk_t *walk, int64_t serial, fy__row_fn row, const void *context)
{
    const int64_t n = walk->nelem;
    const int threads = fy__threads_for(n, serial);
    if (threads == 1) {
        fy__walk_range(walk, 0, n, row, context);
        return;
    }
    const int64_t piece = (n / threads + 64) / 64 * 64; /* no two threads write one cache line */
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        const int64_t begin = t * piece,
                      end = t == threads - 1 || begin + piece > n ? n : begin + piece;
        fy__walk_range(walk, begin, end, row, context);
    }
}

/* ---- staging ---- */

void fy__stage_in(const fy__loops_t *loops, int64_t n, void *dst, int32_t to, const void *src,
                  int64_t stride, int32_t from)
{
    _Alignas(64) char packed[FY__BLOCK * 8];
    const int k = fy__log2_size(from);
    if (from == to) {
        loops->move[k](n, dst, 1, src, stride);
    } else if (stride == 1) {
        loops->cast[from][to](n, dst, src);
    } else {
        loops->move[k](n, packed, 1, src, stride);
        loops->cast[from][to](n, dst, packed);
    }
}

void fy__stage_out(const fy__loops_t *loops, int64_t n, void *dst, int64_t stride, int32_t to,
                   const void *src, int32_t from)
{
    _Alignas(64) char packed[FY__BLOCK * 8];
    const int k = fy__log2_size(to);
    if (from == to) {
        loops->move[k](n, dst, stride, src, 1);
    } else if (stride == 1) {
        loops->cast[from][to](n, dst, src);
    } else {
        loops->cast[from][to](n, packed, src);
        loops->move[k](n, dst, stride, packed, 1);
    }
}

static void map_row(const void *context, int64_t n, char *const *ptr, const int64_t *stride)
{
    const fy__map_t *map = (const fy__map_t *)context;
    _Alignas(64) char buffer[FY_INDEX_OPERANDS][FY__BLOCK * 8];
    int direct[FY_INDEX_OPERANDS], all_direct = 1;
    void *operand[FY_INDEX_OPERANDS];
    for (int k = 0; k < map->noperands; k++) {
        direct[k] = (stride[k] == 1 || n == 1) && map->dtype[k] == map->compute[k] &&
                    (k > 0 || !map->accumulate);
        all_direct &= direct[k];
        operand[k] = ptr[k];
    }
    if (all_direct) {
        map->block(map, n, operand[0], operand + 1);
        return;
    }
    /* NOLINTBEGIN(clang-analyzer-core.*): a walk hands on a pointer and a stride for each
     * operand */
    for (int64_t done = 0; done < n; done += FY__BLOCK) {
        const int64_t m = n - done < FY__BLOCK ? n - done : FY__BLOCK;
        char *at[FY_INDEX_OPERANDS];
        for (int k = 0; k < map->noperands; k++) {
            at[k] = ptr[k] + done * stride[k] * ((int64_t)1 << fy__log2_size(map->dtype[k]));
            operand[k] = direct[k] ? at[k] : buffer[k];
            /* a repeated element is staged once */
            const int reads = k == 0 ? map->reads_dst : stride[k] != 0 || done == 0;
            if (!direct[k] && reads)
                fy__stage_in(map->loops, m, buffer[k], map->compute[k], at[k], stride[k],
                             map->dtype[k]);
        }
        map->block(map, m, operand[0], operand + 1);
        if (direct[0]) continue;
        if (map->accumulate) {
            _Alignas(64) char old[FY__BLOCK * 8];
            fy__stage_in(map->loops, m, old, map->compute[0], at[0], stride[0], map->dtype[0]);
            map->loops->binary[FY__BINARY_ADD][map->compute[0]](m, buffer[0], old, buffer[0]);
        }
        fy__stage_out(map->loops, m, at[0], stride[0], map->dtype[0], buffer[0], map->compute[0]);
    }
    /* NOLINTEND(clang-analyzer-core.*) */
}

/* A row of a map whose operands all need no staging. */
static void map_direct_row(const void *context, int64_t n, char *const *ptr, const int64_t *stride)
{
    const fy__map_t *map = (const fy__map_t *)context;
    void *src[FY_INDEX_OPERANDS - 1] = { NULL };
    (void)stride;
    for (int k = 1; k < map->noperands; k++)
        /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): a walk sets noperands */
        src[k - 1] = ptr[k];
    map->block(map, n, ptr[0], src);
}

/* Dense operands of the dtypes that are computed in, to be added to, and few: blocks, without a
 * walk. */
static int accumulate_dense(const fy__map_t *map, const fy_launch_t *launch, int64_t serial)
{
    const int64_t n = (int64_t)launch->nelem;
    const int32_t dtype = launch->dst->dtype;
    const int shift = fy__log2_size(dtype);
    if (!(launch->flags & FY_LAUNCH_DENSE) || dtype != map->compute[0] ||
        fy__threads_for(n, serial) != 1)
        return 0;
    for (int k = 1; k <= launch->nsrc; k++)
        if (map->dtype[k] != dtype) return 0;
    for (int64_t done = 0; done < n; done += FY__BLOCK) {
        _Alignas(64) char sum[FY__BLOCK * 8];
        void *src[FY_INDEX_OPERANDS - 1];
        const int64_t m = n - done < FY__BLOCK ? n - done : FY__BLOCK;
        char *dst = (char *)launch->dst->data + done * ((int64_t)1 << shift);
        for (int k = 1; k <= launch->nsrc; k++)
            src[k - 1] = (char *)launch->src[k - 1].data + done * ((int64_t)1 << shift);
        map->block(map, m, sum, src);
        map->loops->binary[FY__BINARY_ADD][dtype](m, dst, dst, sum);
    }
    return 1;
}

void fy__map_run(fy__map_t *map, const fy_launch_t *launch, int64_t serial)
{
    fy__walk_t walk;
    serial = fy__serial_of(launch->dst->dtype, serial);
    map->accumulate = (launch->accumulate & 1u) != 0 && !map->keeps_bytes &&
                      fy__is_float(launch->dst->dtype);
    for (int k = 0; k <= launch->nsrc; k++) {
        map->dtype[k] = k == 0 ? launch->dst->dtype : launch->src[k - 1].dtype;
        map->compute[k] = map->keeps_bytes ? map->dtype[k] : fy__compute_dtype(map->dtype[k]);
    }
    if (map->accumulate && accumulate_dense(map, launch, serial)) return;
    fy__walk_make(&walk, launch->dst, launch->src, launch->nsrc);
    map->noperands = walk.index.noperands;
    int direct = !map->accumulate;
    for (int k = 0; k < map->noperands; k++) {
        direct &= walk.index.strides[k][walk.index.rank - 1] == 1 &&
                  map->dtype[k] == map->compute[k];
    }
    fy__walk_all(&walk, serial, direct ? map_direct_row : map_row, map);
}

void fy__lines_make(fy__lines_t *lines, const fy__loops_t *loops, int32_t compute, int axis,
                    int noperands, const fy_desc_t *const *operands)
{
    const fy_desc_t *first = operands[0];
    *lines = (fy__lines_t){ .loops = loops, .n = 1, .count = 1, .compute = compute };
    if (first->rank) lines->n = first->dims[axis];
    for (int k = 0; k < noperands; k++) {
        lines->data[k] = (char *)operands[k]->data;
        lines->dtype[k] = operands[k]->dtype;
        lines->size[k] = (int64_t)1 << fy__log2_size(operands[k]->dtype);
        lines->step[k] = first->rank ? operands[k]->strides[axis] : 1;
    }
    for (int i = 0; i < first->rank; i++) {
        if (i == axis) continue;
        for (int k = 0; k < noperands; k++)
            lines->strides[k][lines->rank] = operands[k]->strides[i];
        lines->dims[lines->rank++] = first->dims[i];
        lines->count *= first->dims[i];
    }
}

/* ---- whole operands, in pieces for threads ---- */

enum { PIECE = 1 << 15 }; /* elements that one thread converts at a time */

typedef struct cast {
    fy__loop1_fn loop;
    char *to;
    const char *from;
    int64_t n, to_nbytes, from_nbytes; /* elements, and bytes of one */
} cast_t;

static void cast_piece(const void *context, int64_t i)
{
    const cast_t *cast = (const cast_t *)context;
    const int64_t begin = i * PIECE, n = begin + PIECE < cast->n ? PIECE : cast->n - begin;
    cast->loop(n, cast->to + begin * cast->to_nbytes, cast->from + begin * cast->from_nbytes);
}

static void run_cast(const cast_t *cast)
{
    const int64_t npieces = (cast->n + PIECE - 1) / PIECE;
    fy__for_each(npieces, fy__threads_for(npieces, 2), cast_piece, cast);
}

void fy__widen(const fy__loops_t *loops, const fy_desc_t *half, int64_t first, int64_t n, void *to)
{
    run_cast(&(cast_t){ loops->cast[half->dtype][FY_DTYPE_F32], (char *)to,
                        (const char *)half->data + first * 2, n, sizeof(float), 2 });
}

void fy__narrow(const fy__loops_t *loops, const fy_desc_t *half, int64_t first, int64_t n,
                const void *from)
{
    run_cast(&(cast_t){ loops->cast[FY_DTYPE_F32][half->dtype], (char *)half->data + first * 2,
                        (const char *)from, n, 2, sizeof(float) });
}
