/* Ops that move elements without looking at them: copy (broadcast, any strides), concat, flip.
 * Transposes go in tiles, so that both sides are read and written by whole cache lines. */
#include "backends/kernels/rows.h"

#include <string.h>

enum { SHORT_BYTES = 64, SERIAL_BYTES = 1 << 19, SERIAL_TRANSPOSED = 1 << 16, TILE = 32 };

typedef struct move {
    fy__move_fn fn;
    int log2_size;
    int64_t run_nbytes; /* of a short run */
} move_t;

static void move_row(const void *context, int64_t n, char *const *ptr, const int64_t *stride)
{
    const move_t *move = (const move_t *)context;
    if (stride[0] == 1 && stride[1] == 1) {
        if (ptr[0] != ptr[1]) memcpy(ptr[0], ptr[1], (size_t)n << move->log2_size);
    } else {
        move->fn(n, ptr[0], stride[0], ptr[1], stride[1]);
    }
}

/* n short contiguous runs: the walk's last axis is the one before theirs. */
static void move_runs(const void *context, int64_t n, char *const *ptr, const int64_t *stride)
{
    const move_t *move = (const move_t *)context;
    const int64_t size = (int64_t)1 << move->log2_size, nbytes = move->run_nbytes;
    for (int64_t i = 0; i < n; i++)
        memcpy(ptr[0] + i * stride[0] * size, ptr[1] + i * stride[1] * size, (size_t)nbytes);
}

/* ---- transposes: dst is contiguous along the last fused axis, src along another one ---- */

typedef struct transpose {
    const fy__walk_t *walk;
    fy__move_fn fn;
    int axis; /* of src's stride 1; the last axis is dst's */
} transpose_t;

static int find_transpose(const fy__walk_t *walk)
{
    const fy__index_t *index = &walk->index;
    const int last = index->rank - 1;
    if (index->strides[0][last] != 1 || index->strides[1][last] < TILE / 4 || index->dims[last] < 8)
        return -1;
    for (int axis = 0; axis < last; axis++) {
        if (index->strides[1][axis] == 1 && index->dims[axis] >= 8) return axis;
    }
    return -1;
}

/* Tile number `tile`; tiles are numbered over (outer axes..., axis / TILE, last / TILE). */
static void move_tile(const transpose_t *transpose, int64_t tile)
{
    const fy__index_t *index = &transpose->walk->index;
    const int last = index->rank - 1, axis = transpose->axis;
    const int64_t across = (index->dims[last] + TILE - 1) / TILE,
                  down = (index->dims[axis] + TILE - 1) / TILE;
    const int64_t j0 = tile % across * TILE, i0 = tile / across % down * TILE;
    const int64_t nj = index->dims[last] - j0 < TILE ? index->dims[last] - j0 : TILE;
    const int64_t ni = index->dims[axis] - i0 < TILE ? index->dims[axis] - i0 : TILE;
    int64_t outer = tile / across / down, dst = i0 * index->strides[0][axis] + j0,
            src = i0 + j0 * index->strides[1][last];
    for (int k = last - 1; k >= 0; k--) {
        if (k == axis) continue;
        dst += outer % index->dims[k] * index->strides[0][k];
        src += outer % index->dims[k] * index->strides[1][k];
        outer /= index->dims[k];
    }
    for (int64_t i = 0; i < ni; i++) {
        const int shift = transpose->walk->log2_size[0];
        char *to = transpose->walk->data[0] +
                   (dst + i * index->strides[0][axis]) * ((int64_t)1 << shift);
        transpose->fn(nj, to, 1, transpose->walk->data[1] + (src + i) * ((int64_t)1 << shift),
                      index->strides[1][last]);
    }
}

static void move_transposed(const fy__walk_t *walk, const transpose_t *transpose)
{
    const fy__index_t *index = &walk->index;
    const int last = index->rank - 1;
    int64_t ntiles = ((index->dims[last] + TILE - 1) / TILE) *
                     ((index->dims[transpose->axis] + TILE - 1) / TILE);
    for (int k = 0; k < last; k++) ntiles *= k == transpose->axis ? 1 : index->dims[k];
    const int threads = fy__threads_for(walk->nelem << walk->log2_size[0], SERIAL_TRANSPOSED);
    if (threads == 1) {
        for (int64_t tile = 0; tile < ntiles; tile++) move_tile(transpose, tile);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t tile = 0; tile < ntiles; tile++) move_tile(transpose, tile);
}

/* dst = src, equal dims and dtype. */
static void move_all(const fy__loops_t *loops, const fy_desc_t *dst, const fy_desc_t *src)
{
    fy__walk_t walk;
    fy__walk_make(&walk, dst, src, 1);
    if (walk.nelem == 0) return;
    const int last = walk.index.rank - 1;
    const int64_t run = walk.index.dims[last];
    const move_t move = { loops->move[walk.log2_size[0]], walk.log2_size[0],
                          run << walk.log2_size[0] };
    const transpose_t transpose = { &walk, move.fn, find_transpose(&walk) };
    if (transpose.axis >= 0) {
        move_transposed(&walk, &transpose);
    } else if (last > 0 && walk.index.strides[0][last] == 1 && walk.index.strides[1][last] == 1 &&
               move.run_nbytes <= SHORT_BYTES) {
        walk.index.rank--;
        walk.nelem /= run;
        fy__walk_all(&walk, SERIAL_BYTES / move.run_nbytes, move_runs, &move);
    } else {
        fy__walk_all(&walk, SERIAL_BYTES >> walk.log2_size[0], move_row, &move);
    }
}

fy_status_t fy__run_copy(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch)
{
    (void)host;
    if ((launch->accumulate & 1u) != 0 && fy__is_float(launch->dst->dtype)) {
        fy__map_accumulate(loops, launch);
    } else {
        move_all(loops, launch->dst, launch->src);
    }
    return FY_STATUS_OK;
}

fy_status_t fy__run_concat(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch)
{
    const int axis = ((const fy_axis_attrs_t *)launch->attrs)->axis;
    fy_desc_t part = *launch->dst;
    (void)host;
    for (int k = 0; k < launch->nsrc; k++) {
        const fy_desc_t *src = &launch->src[k];
        part.dims[axis] = src->dims[axis];
        move_all(loops, &part, src);
        part.data = (char *)part.data + src->dims[axis] * part.strides[axis] *
                                            ((int64_t)1 << fy__log2_size(part.dtype));
    }
    return FY_STATUS_OK;
}

/* A copy from the last element on along the axes, with negative strides. */
fy_status_t fy__run_flip(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch)
{
    const uint32_t axes = ((const fy_flip_attrs_t *)launch->attrs)->axes;
    const fy_desc_t *src = launch->src;
    fy_desc_t reversed = *src;
    (void)host;
    if (launch->nelem == 0) return FY_STATUS_OK;
    reversed.data = (char *)src->data +
                    fy__reverse_axes(axes, src->rank, src->dims, src->strides, reversed.strides) *
                        ((int64_t)1 << fy__log2_size(src->dtype));
    move_all(loops, launch->dst, &reversed);
    return FY_STATUS_OK;
}
