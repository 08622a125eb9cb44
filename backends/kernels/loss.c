/* mse_loss and its gradient: mean((pred - target)^2) as one number. Differences, squares and their
 * sum are f64. The range is cut in a fixed number of pieces that are joined in order, so the bits
 * do not depend on the thread count. Of nothing: NaN. */
#include "backends/kernels/rows.h"

enum { PIECES = 32 };

typedef struct squares {
    const fy__loops_t *loops;
    int32_t dtype, compute;
    double *sum; /* of this piece */
} squares_t;

/* Operand 0 is pred (nothing is written), 1 is target. */
static void add_row(const void *context, int64_t n, char *const *ptr, const int64_t *stride)
{
    const squares_t *squares = (const squares_t *)context;
    const int shift = fy__log2_size(squares->dtype);
    if (stride[0] == 1 && stride[1] == 1 && squares->dtype == squares->compute) {
        squares->loops->sum_squares[squares->compute](n, ptr[0], ptr[1], squares->sum);
        return;
    }
    for (int64_t done = 0; done < n; done += FY__BLOCK) {
        _Alignas(64) char a[FY__BLOCK * 8], b[FY__BLOCK * 8];
        const int64_t m = n - done < FY__BLOCK ? n - done : FY__BLOCK;
        fy__stage_in(squares->loops, m, a, squares->compute,
                     ptr[0] + done * stride[0] * ((int64_t)1 << shift), stride[0], squares->dtype);
        fy__stage_in(squares->loops, m, b, squares->compute,
                     ptr[1] + done * stride[1] * ((int64_t)1 << shift), stride[1], squares->dtype);
        squares->loops->sum_squares[squares->compute](m, a, b, squares->sum);
    }
}

typedef struct pieces {
    const fy__loops_t *loops;
    const fy__walk_t *walk;
    int32_t dtype;
    double *sums;
} pieces_t;

static void add_piece(const void *context, int64_t p)
{
    const pieces_t *pieces = (const pieces_t *)context;
    const squares_t squares = { pieces->loops, pieces->dtype, fy__compute_dtype(pieces->dtype),
                                &pieces->sums[p] };
    const int64_t n = pieces->walk->nelem, piece = (n + PIECES - 1) / PIECES,
                  begin = p * piece < n ? p * piece : n;
    fy__walk_range(pieces->walk, begin, begin + piece < n ? begin + piece : n, add_row, &squares);
}

fy_status_t fy__run_mse_loss(const fy_host_api_t *host, const fy__loops_t *loops,
                             const fy_launch_t *launch)
{
    const int32_t dtype = launch->src->dtype;
    double sums[PIECES] = { 0 }, total = 0;
    fy__walk_t walk;
    (void)host;
    fy__walk_make(&walk, &launch->src[0], &launch->src[1], 1);
    const pieces_t pieces = { loops, &walk, dtype, sums };
    fy__for_each(PIECES, fy__threads_for(walk.nelem, fy__serial_of(dtype, 81920)), add_piece,
                 &pieces);
    for (int p = 0; p < PIECES; p++) total += sums[p];
    total /= (double)walk.nelem;
    fy__stage_out(loops, 1, launch->dst->data, 1, launch->dst->dtype, &total, FY_DTYPE_F64);
    return FY_STATUS_OK;
}

/* ---- the gradient: dy 2 (pred - target) / n, whose factor is known once dy is read ---- */

static void block_f32(const fy__map_t *map, int64_t n, void *dst, void *const *src)
{
    const float *a = (const float *)src[0], *b = (const float *)src[1], factor = (float)map->p;
    float *d = (float *)dst;
    for (int64_t i = 0; i < n; i++) d[i] = (a[i] - b[i]) * factor;
}

static void block_f64(const fy__map_t *map, int64_t n, void *dst, void *const *src)
{
    const double *a = (const double *)src[0], *b = (const double *)src[1];
    double *d = (double *)dst;
    for (int64_t i = 0; i < n; i++) d[i] = (a[i] - b[i]) * map->p;
}

fy_status_t fy__run_mse_loss_backward(const fy_host_api_t *host, const fy__loops_t *loops,
                                      const fy_launch_t *launch)
{
    fy__map_t map = { .loops = loops,
                      .block = fy__compute_dtype(launch->dst->dtype) == FY_DTYPE_F64 ? block_f64
                                                                                     : block_f32 };
    fy_launch_t differences = *launch; /* elementwise, but for dy */
    double dy;
    (void)host;
    fy__stage_in(loops, 1, &dy, FY_DTYPE_F64, launch->src->data, 1, launch->src->dtype);
    map.p = launch->nelem ? 2 * dy / (double)launch->nelem : 0;
    differences.src = launch->src + 1;
    differences.nsrc = 2;
    fy__map_run(&map, &differences, 98304);
    return FY_STATUS_OK;
}
