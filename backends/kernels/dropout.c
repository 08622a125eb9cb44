/* dropout, dropout2d and their gradients, which are the same with a state that was kept: y = keep ?
 * x / (1 - p) : 0. Which elements are kept is a function of the state and the element's number
 * (formulas/random.h), so neither threads nor layouts change it, and nothing is stored. Not here:
 * the vectors (loops_template.h), other draws (generate.c), which blocks of a chain (chain.c). */
#include "opset/formulas/random.h"
#include "backends/kernels/rows.h"

enum { PIECE = FY__BLOCK };

typedef struct dropout {
    const fy__loops_t *loops;
    const fy_desc_t *src, *dst;
    int32_t dtype, compute;
    int shift;
    int64_t seed, counter;
    uint32_t threshold;
    double scale;
    fy__walk_t from, to; /* dropout; the same elements in the same order */
} dropout_t;

/* Which of elements first .. are kept, in whole groups from the one that has `first` on; at most
 * PIECE elements behind that. Returns where `first` stands. */
static const uint32_t *keep_from(const dropout_t *drop, int64_t first, int64_t n,
                                 uint32_t keep[PIECE + 2 * FY_DROPOUT_GROUP])
{
    const int64_t group = first / FY_DROPOUT_GROUP, last = (first + n - 1) / FY_DROPOUT_GROUP;
    drop->loops->dropout_keep(last - group + 1, (uint64_t)drop->seed,
                              (uint64_t)drop->counter + (uint64_t)group * FY_DROPOUT_BLOCKS,
                              drop->threshold, keep);
    return keep + first % FY_DROPOUT_GROUP;
}

/* n <= PIECE elements in a row. */
static void apply(const dropout_t *drop, int64_t n, char *dst, int64_t dst_stride, const char *src,
                  int64_t src_stride, const uint32_t *keep)
{
    _Alignas(64) char x[PIECE * 8];
    if (src_stride == 1 && dst_stride == 1 && drop->dtype == drop->compute) {
        drop->loops->dropout[drop->compute](n, dst, src, keep, drop->scale);
        return;
    }
    fy__stage_in(drop->loops, n, x, drop->compute, src, src_stride, drop->dtype);
    drop->loops->dropout[drop->compute](n, x, x, keep, drop->scale);
    fy__stage_out(drop->loops, n, dst, dst_stride, drop->dtype, x, drop->compute);
}

/* ---- for chains ---- */

void fy__dropout_state(const fy_desc_t *state, const fy_desc_t *before, int64_t n,
                       int64_t out_state[2])
{
    int64_t *counter = (int64_t *)state->data + state->strides[0];
    out_state[0] = ((const int64_t *)state->data)[0];
    out_state[1] = *counter;
    if (!before) return;
    ((int64_t *)before->data)[0] = out_state[0];
    ((int64_t *)before->data)[before->strides[0]] = out_state[1];
    *counter = (int64_t)((uint64_t)out_state[1] + fy__dropout_blocks((uint64_t)n));
}

void fy__dropout_block(const fy__loops_t *loops, int32_t dtype, const int64_t state[2], double p,
                       int64_t first, int64_t n, char *dst, const char *src)
{
    const dropout_t drop = { .loops = loops,
                             .dtype = dtype,
                             .compute = fy__compute_dtype(dtype),
                             .shift = fy__log2_size(dtype),
                             .seed = state[0],
                             .counter = state[1],
                             .threshold = fy__dropout_threshold(p),
                             .scale = fy__dropout_scale(p) };
    _Alignas(64) uint32_t keep[PIECE + 2 * FY_DROPOUT_GROUP];
    for (int64_t i = 0; i < n; i += PIECE) {
        const int64_t m = n - i < PIECE ? n - i : PIECE, offset = i * ((int64_t)1 << drop.shift);
        apply(&drop, m, dst + offset, 1, src + offset, 1, keep_from(&drop, first + i, m, keep));
    }
}

/* ---- dropout: pieces of the row-major order ---- */

typedef struct cursor {
    const dropout_t *drop;
    char **at; /* advances as rows come */
} cursor_t;

static void take_row(const void *context, int64_t n, char *const *ptr, const int64_t *stride)
{
    const cursor_t *cursor = (const cursor_t *)context;
    cursor->drop->loops->move[cursor->drop->shift](n, *cursor->at, 1, ptr[0], stride[0]);
    *cursor->at += n * ((int64_t)1 << cursor->drop->shift);
}

static void put_row(const void *context, int64_t n, char *const *ptr, const int64_t *stride)
{
    const cursor_t *cursor = (const cursor_t *)context;
    cursor->drop->loops->move[cursor->drop->shift](n, ptr[0], stride[0], *cursor->at, 1);
    *cursor->at += n * ((int64_t)1 << cursor->drop->shift);
}

static int is_dense(const fy__walk_t *walk)
{
    return walk->index.rank == 1 && walk->index.strides[0][0] == 1;
}

static void drop_piece(const void *context, int64_t p)
{
    const dropout_t *drop = (const dropout_t *)context;
    const int64_t first = p * PIECE,
                  n = drop->to.nelem - first < PIECE ? drop->to.nelem - first : PIECE;
    _Alignas(64) uint32_t keep[PIECE + 2 * FY_DROPOUT_GROUP];
    _Alignas(64) char x[PIECE * 8], *at = x;
    const cursor_t cursor = { drop, &at };
    const uint32_t *kept = keep_from(drop, first, n, keep);
    const int64_t offset = first * ((int64_t)1 << drop->shift);
    const int from_dense = is_dense(&drop->from), to_dense = is_dense(&drop->to);
    if (!from_dense) fy__walk_range(&drop->from, first, first + n, take_row, &cursor);
    apply(drop, n, to_dense ? drop->to.data[0] + offset : x, 1,
          from_dense ? drop->from.data[0] + offset : x, 1, kept);
    at = x;
    if (!to_dense) fy__walk_range(&drop->to, first, first + n, put_row, &cursor);
}

/* ---- dropout2d: an image at a time ---- */

/* Pixels whose channels lie side by side, one behind the other: several are one row, if the
 * channels' fate is written down as often. */
static int64_t pixels_a_row(const dropout_t *drop)
{
    const fy_desc_t *src = drop->src, *dst = drop->dst;
    const int64_t c = src->dims[3], w = src->dims[2];
    for (int i = 0; i < 2; i++) {
        const int64_t *strides = i ? dst->strides : src->strides;
        if ((strides[3] != 1 && c > 1) || (strides[2] != c && w > 1)) return 1;
    }
    return c >= PIECE / 2 ? 1 : PIECE / c < w ? PIECE / c : w;
}

static void drop_image(const void *context, int64_t n)
{
    const dropout_t *drop = (const dropout_t *)context;
    const int64_t *dims = drop->src->dims, *ss = drop->src->strides, *ds = drop->dst->strides,
                  channels = dims[3];
    const int64_t together = pixels_a_row(drop);
    _Alignas(64) uint32_t keep[PIECE + 2 * FY_DROPOUT_GROUP], again[PIECE];
    for (int64_t first = 0; first < channels; first += PIECE) {
        const int64_t m = channels - first < PIECE ? channels - first : PIECE;
        const uint32_t *kept = keep_from(drop, n * channels + first, m, keep);
        for (int64_t k = 0; together > 1 && k < together; k++)
            memcpy(again + k * m, kept, (size_t)m * sizeof *kept);
        for (int64_t h = 0; h < dims[1]; h++) {
            for (int64_t w = 0; w < dims[2]; w += together) {
                const int64_t run = (together < dims[2] - w ? together : dims[2] - w) * m;
                const int64_t from = n * ss[0] + h * ss[1] + w * ss[2] + first * ss[3];
                const int64_t to = n * ds[0] + h * ds[1] + w * ds[2] + first * ds[3];
                const int64_t src_stride = together > 1 ? 1 : ss[3],
                              dst_stride = together > 1 ? 1 : ds[3];
                apply(drop, run, (char *)drop->dst->data + to * ((int64_t)1 << drop->shift),
                      dst_stride,
                      (const char *)drop->src->data + from * ((int64_t)1 << drop->shift),
                      src_stride, together > 1 ? again : kept);
            }
        }
    }
}

/* ---- the four ops ---- */

fy_status_t fy__run_dropout(const fy_host_api_t *host, const fy__loops_t *loops,
                            const fy_launch_t *launch)
{
    const int of_channels = launch->op == FY_OP_DROPOUT2D || launch->op == FY_OP_DROPOUT2D_BACKWARD;
    const int draws = launch->op == FY_OP_DROPOUT || launch->op == FY_OP_DROPOUT2D;
    const double p = ((const fy_dropout_attrs_t *)launch->attrs)->p;
    const fy_desc_t *src = &launch->src[0], *state = draws ? &launch->dst[1] : &launch->src[1];
    dropout_t drop = { .loops = loops,
                       .src = src,
                       .dst = &launch->dst[0],
                       .dtype = src->dtype,
                       .compute = fy__compute_dtype(src->dtype) };
    (void)host;
    drop.shift = fy__log2_size(src->dtype);
    drop.threshold = fy__dropout_threshold(p);
    drop.scale = fy__dropout_scale(p);
    fy__walk_make(&drop.from, src, NULL, 0);
    fy__walk_make(&drop.to, &launch->dst[0], NULL, 0);
    const int64_t n = drop.to.nelem;
    const int threads = fy__threads_for(n, FY__DROPOUT_SERIAL);
    const int64_t ndrawn = of_channels && n > 0 ? src->dims[0] * src->dims[3] : n;
    int64_t numbers[2];
    fy__dropout_state(state, draws ? &launch->dst[2] : NULL, ndrawn, numbers);
    drop.seed = numbers[0];
    drop.counter = numbers[1];
    if (n == 0) return FY_STATUS_OK;
    if (of_channels)
        fy__for_each(src->dims[0], threads, drop_image, &drop);
    else
        fy__for_each((n + PIECE - 1) / PIECE, threads, drop_piece, &drop);
    return FY_STATUS_OK;
}
