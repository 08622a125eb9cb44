/* batch_norm, its gradients, and batch_norm_inference: statistics of the last axis' channels over
 * all rows, then one pass that writes the result.
 * Rows are cut into at most PIECES pieces, by their number alone. A piece is read in blocks of
 * BLOCK rows; blocks and pieces are joined in order, in f64. So the bits do not depend on the
 * threads. Rows of few channels are joined into one longer row (`lanes` rows, at most WIDTH
 * elements) to fill vectors; the rows that are left are one more piece.
 * Operands that are strided or of half precision are staged block by block on the stack.
 * Not here: the innermost loops (loops_norm.h). */
#include <math.h>
#include <string.h>

#include "backends/kernels/rows.h"

/* SERIAL: f32 elements that one thread reads in about 20 us. WIDTH: columns whose sums fit the
 * stack. */
enum { PIECES = 32, BLOCK = 32, COLUMNS = 64, WIDTH = 128, SERIAL = 49152 };
/* Doubles for each column: two sums of each piece and of the rest, a zero, four constants. */
enum { DOUBLES = 2 * (PIECES + 1) + 1 + 4 };
enum { CENTER, SCALE, SHIFT, SLOPE };

/* An operand of x's shape. data NULL: there is none. */
typedef struct side {
    const fy_desc_t *desc;
    char *data;
    int shift, is_direct, is_dense;
} side_t;

typedef struct norm {
    const fy__loops_t *loops;
    const fy_launch_t *launch;
    side_t x, add, dy, y, out;
    int32_t compute; /* f32 or f64, which are 0 and 1 */
    int shift, relu, all_direct;
    int64_t rows, channels, lanes, folded, piece_rows;
    int64_t first, width; /* the columns of this pass */
    int64_t npieces, nfolded;
    double *sums; /* [npieces][2][width] */
    double *zeros;
    char *constants[4]; /* [width] of the compute type */
} norm_t;

typedef struct piece {
    int64_t first, rows, lanes, columns;
    double *sums[2];
} piece_t;

static side_t side_of(norm_t *norm, const fy_desc_t *desc)
{
    side_t side = { .desc = desc, .data = desc->data, .shift = fy__log2_size(desc->dtype) };
    side.is_dense = fy__desc_is_dense(desc);
    side.is_direct = side.is_dense && desc->dtype == norm->compute;
    norm->all_direct &= side.is_direct;
    return side;
}

static void measure(norm_t *norm, const fy_desc_t *x)
{
    norm->compute = fy__compute_dtype(x->dtype);
    norm->shift = fy__log2_size(norm->compute);
    norm->channels = x->dims[x->rank - 1];
    norm->rows = 1;
    for (int axis = 0; axis + 1 < x->rank; axis++) norm->rows *= x->dims[axis];
    norm->lanes = 1;
    while (norm->lanes < 64 && norm->lanes * 2 * norm->channels <= WIDTH) norm->lanes *= 2;
    norm->folded = norm->rows / norm->lanes;
    const int64_t share = (norm->folded + PIECES - 1) / PIECES;
    norm->piece_rows = share <= BLOCK ? BLOCK : (share + BLOCK - 1) / BLOCK * BLOCK;
    norm->nfolded = (norm->folded + norm->piece_rows - 1) / norm->piece_rows;
    norm->npieces = norm->nfolded + (norm->folded * norm->lanes != norm->rows);
}

static piece_t piece_of(const norm_t *norm, int64_t p)
{
    piece_t piece = { .first = p * norm->piece_rows * norm->lanes,
                      .rows = norm->folded - p * norm->piece_rows,
                      .lanes = norm->lanes,
                      .columns = norm->width };
    if (p == norm->nfolded) {
        piece.first = norm->folded * norm->lanes;
        piece.rows = norm->rows - piece.first;
        piece.lanes = 1;
        piece.columns = norm->width / norm->lanes;
    } else if (piece.rows > norm->piece_rows) {
        piece.rows = norm->piece_rows;
    }
    for (int i = 0; i < 2; i++) piece.sums[i] = norm->sums + (2 * p + i) * norm->width;
    return piece;
}

/* ---- blocks ---- */

typedef struct block {
    int64_t row, rows, column, columns;
} block_t;

/* The first element; rows are *out_stride elements apart. */
static char *place(const norm_t *norm, const side_t *side, const piece_t *piece,
                   const block_t *block, int64_t *out_stride)
{
    const int64_t at = (piece->first + block->row * piece->lanes) * norm->channels + norm->first +
                       block->column;
    *out_stride = piece->lanes * norm->channels;
    return side->data + at * ((int64_t)1 << side->shift);
}

/* Between a block and `staged`, whose rows are COLUMNS apart. */
static void stage(const norm_t *norm, const side_t *side, const piece_t *piece,
                  const block_t *block, char *staged, int is_store)
{
    const fy_desc_t *desc = side->desc;
    const int axis = desc->rank - 1;
    for (int64_t i = 0; i < block->rows; i++) {
        char *to = staged + i * COLUMNS * ((int64_t)1 << norm->shift);
        for (int64_t j = 0, n; j < block->columns; j += n) {
            const int64_t column = norm->first + block->column + j,
                          channel = column % norm->channels,
                          row = piece->first + (block->row + i) * piece->lanes +
                                column / norm->channels;
            n = side->is_dense ? block->columns - j : norm->channels - channel;
            if (n > block->columns - j) n = block->columns - j;
            const int64_t at = side->is_dense
                                   ? row * norm->channels + channel
                                   : fy__offset_of(row, axis, desc->dims, desc->strides) +
                                         channel * desc->strides[axis];
            const int64_t stride = side->is_dense ? 1 : desc->strides[axis];
            char *from = side->data + at * ((int64_t)1 << side->shift);
            char *there = to + j * ((int64_t)1 << norm->shift);
            if (is_store)
                fy__stage_out(norm->loops, n, from, stride, desc->dtype, there, norm->compute);
            else
                fy__stage_in(norm->loops, n, there, norm->compute, from, stride, desc->dtype);
        }
    }
}

/* The loops that add up columns read a block column by column; this reads it in order before. */
static void prefetch(const char *rows, uint64_t nbytes)
{
    for (uint64_t at = 0; at < nbytes; at += 64) __builtin_prefetch(rows + at);
}

static const void *fetch(const norm_t *norm, const side_t *side, const piece_t *piece,
                         const block_t *block, char *staged, int64_t *out_stride)
{
    if (side->data == NULL) return NULL;
    if (side->is_direct) return place(norm, side, piece, block, out_stride);
    stage(norm, side, piece, block, staged, 0);
    *out_stride = COLUMNS;
    return staged;
}

/* Calls fn for each block; whole rows where nothing is staged and fn does not mind. */
typedef void (*block_fn)(const norm_t *norm, const piece_t *piece, const block_t *block);
static void each_block(const norm_t *norm, int64_t p, int narrow, block_fn fn)
{
    const piece_t piece = piece_of(norm, p);
    const int64_t step = narrow || !norm->all_direct ? COLUMNS : piece.columns;
    for (int64_t i = 0; i < piece.rows; i += BLOCK)
        for (int64_t j = 0; j < piece.columns; j += step) {
            const block_t block = { i, piece.rows - i < BLOCK ? piece.rows - i : BLOCK, j,
                                    piece.columns - j < step ? piece.columns - j : step };
            fn(norm, &piece, &block);
        }
}

static const char *constant(const norm_t *norm, int which, int64_t column)
{
    return norm->constants[which] + column * ((int64_t)1 << norm->shift);
}

/* ---- statistics ---- */

static void join_block(const norm_t *norm, const piece_t *piece, const block_t *block)
{
    _Alignas(64) char staged[BLOCK * COLUMNS * sizeof(double)];
    _Alignas(64) double mean[COLUMNS], rest[COLUMNS], squares[COLUMNS];
    int64_t stride = 0;
    const void *x = fetch(norm, &norm->x, piece, block, staged, &stride);
    if (norm->x.is_direct && block->column == 0)
        prefetch(x, (uint64_t)(block->rows * stride) << norm->shift);
    norm->loops->norm_moments[norm->compute](block->rows, block->columns, x, stride, mean, rest,
                                             squares);
    norm->loops->norm_join[norm->compute](block->columns, (double)block->row, (double)block->rows,
                                          mean, rest, squares, piece->sums[0] + block->column,
                                          piece->sums[1] + block->column);
}

static void clear(const piece_t *piece)
{
    for (int i = 0; i < 2; i++) memset(piece->sums[i], 0, (size_t)piece->columns * sizeof(double));
}

static void moments_of_piece(const void *context, int64_t p)
{
    const norm_t *norm = context;
    const piece_t piece = piece_of(norm, p);
    clear(&piece);
    each_block(norm, p, 1, join_block);
}

/* Joins the pieces in the first one, then lane by lane and the rest: *out_mean and *out_m2 of each
 * channel are at the front of both arrays. */
static void join_pieces(norm_t *norm)
{
    const int64_t span = norm->width / norm->lanes;
    const piece_t all = piece_of(norm, 0);
    double before = (double)all.rows;
    for (int64_t p = 1; p < norm->nfolded; p++) {
        const piece_t piece = piece_of(norm, p);
        norm->loops->norm_join[FY_DTYPE_F64](norm->width, before, (double)piece.rows, piece.sums[0],
                                             norm->zeros, piece.sums[1], all.sums[0], all.sums[1]);
        before += (double)piece.rows;
    }
    if (norm->nfolded == 0) return; /* the rest is all */
    for (int64_t lane = 1; lane < norm->lanes; lane++)
        norm->loops->norm_join[FY_DTYPE_F64](span, before * (double)lane, before,
                                             all.sums[0] + lane * span, norm->zeros,
                                             all.sums[1] + lane * span, all.sums[0], all.sums[1]);
    if (norm->npieces > norm->nfolded) {
        const piece_t rest = piece_of(norm, norm->nfolded);
        norm->loops->norm_join[FY_DTYPE_F64](span, before * (double)norm->lanes, (double)rest.rows,
                                             rest.sums[0], norm->zeros, rest.sums[1], all.sums[0],
                                             all.sums[1]);
    }
}

/* ---- values of channels ---- */

static char *value_at(const fy_desc_t *desc, int64_t channel)
{
    return (char *)desc->data +
           channel * desc->strides[0] * ((int64_t)1 << fy__log2_size(desc->dtype));
}

static double get(const norm_t *norm, const fy_desc_t *desc, int64_t channel)
{
    double value;
    fy__stage_in(norm->loops, 1, &value, FY_DTYPE_F64, value_at(desc, channel), 1, desc->dtype);
    return value;
}

static void put(const norm_t *norm, int dst, int64_t channel, double value)
{
    const fy_desc_t *desc = &norm->launch->dst[dst];
    if (norm->launch->accumulate >> dst & 1u) value += get(norm, desc, channel);
    fy__stage_out(norm->loops, 1, value_at(desc, channel), 1, desc->dtype, &value, FY_DTYPE_F64);
}

/* One value of the compute type for each lane of a channel; returns it as it was rounded. */
static double set_constant(const norm_t *norm, int which, int64_t channel, double value)
{
    const int64_t span = norm->width / norm->lanes;
    for (int64_t at = channel; at < norm->width; at += span) {
        if (norm->compute == FY_DTYPE_F64)
            ((double *)(void *)norm->constants[which])[at] = value;
        else
            ((float *)(void *)norm->constants[which])[at] = (float)value;
    }
    return norm->compute == FY_DTYPE_F64 ? value : (double)(float)value;
}

/* y = (x - center) scale + shift. What rounding the mean loses is in the shift. */
static void set_line(const norm_t *norm, int64_t channel, double mean, double scale, double bias)
{
    const double center = set_constant(norm, CENTER, channel, mean);
    set_constant(norm, SCALE, channel, scale);
    set_constant(norm, SHIFT, channel, mean == center ? bias : bias - (mean - center) * scale);
}

static void finish_statistics(norm_t *norm)
{
    const fy_launch_t *launch = norm->launch;
    const fy_batch_norm_attrs_t *attrs = launch->attrs;
    const double n = (double)norm->rows, momentum = attrs->momentum;
    join_pieces(norm);
    const piece_t all = piece_of(norm, 0);
    for (int64_t i = 0; i < norm->width / norm->lanes; i++) {
        const int64_t c = norm->first + i;
        const double mean = all.sums[0][i], variance = all.sums[1][i] / n,
                     rstd = 1 / sqrt(variance + attrs->eps);
        put(norm, 1, c, mean);
        put(norm, 2, c, rstd);
        put(norm, 3, c, (1 - momentum) * get(norm, &launch->dst[3], c) + momentum * mean);
        put(norm, 4, c,
            (1 - momentum) * get(norm, &launch->dst[4], c) + momentum * (all.sums[1][i] / (n - 1)));
        set_line(norm, i, mean, rstd * get(norm, &launch->src[1], c),
                 get(norm, &launch->src[2], c));
    }
}

static void take_running(norm_t *norm)
{
    const fy_launch_t *launch = norm->launch;
    const double eps = ((const fy_batch_norm_inference_attrs_t *)launch->attrs)->eps;
    for (int64_t i = 0; i < norm->width / norm->lanes; i++) {
        const int64_t c = norm->first + i;
        set_line(norm, i, get(norm, &launch->src[3], c),
                 get(norm, &launch->src[1], c) / sqrt(get(norm, &launch->src[4], c) + eps),
                 get(norm, &launch->src[2], c));
    }
}

/* ---- the result ---- */

static fy__norm_rows_t rows_of(const norm_t *norm, const block_t *block)
{
    return (fy__norm_rows_t){ .rows = block->rows,
                              .columns = block->columns,
                              .center = constant(norm, CENTER, block->column),
                              .scale = constant(norm, SCALE, block->column),
                              .shift = constant(norm, SHIFT, block->column),
                              .slope = constant(norm, SLOPE, block->column),
                              .relu = norm->relu };
}

static void apply_block(const norm_t *norm, const piece_t *piece, const block_t *block)
{
    _Alignas(64) char staged[2][BLOCK * COLUMNS * sizeof(double)];
    fy__norm_rows_t rows = rows_of(norm, block);
    rows.x = fetch(norm, &norm->x, piece, block, staged[0], &rows.x_stride);
    rows.add = fetch(norm, &norm->add, piece, block, staged[1], &rows.add_stride);
    rows.out_stride = COLUMNS; /* a staged x is overwritten by its result */
    rows.out = norm->out.is_direct ? place(norm, &norm->out, piece, block, &rows.out_stride)
                                   : staged[0];
    if (!norm->out.is_direct && norm->x.is_direct) rows.out = staged[1];
    norm->loops->norm_apply[norm->compute](&rows);
    if (!norm->out.is_direct) stage(norm, &norm->out, piece, block, rows.out, 1);
}

static void apply_piece(const void *context, int64_t p) { each_block(context, p, 0, apply_block); }

/* ---- gradients ---- */

static void sum_block(const norm_t *norm, const piece_t *piece, const block_t *block)
{
    _Alignas(64) char staged[3][BLOCK * COLUMNS * sizeof(double)];
    fy__norm_rows_t rows = rows_of(norm, block);
    rows.x = fetch(norm, &norm->x, piece, block, staged[0], &rows.x_stride);
    rows.dy = fetch(norm, &norm->dy, piece, block, staged[1], &rows.dy_stride);
    rows.y = fetch(norm, &norm->y, piece, block, staged[2], &rows.y_stride);
    if (norm->all_direct) {
        const uint64_t nbytes = (uint64_t)(block->rows * rows.x_stride) << norm->shift;
        prefetch(rows.x, nbytes);
        prefetch(rows.dy, nbytes);
        if (rows.y) prefetch(rows.y, nbytes);
    }
    norm->loops->norm_sums[norm->compute](&rows, piece->sums[0] + block->column,
                                          piece->sums[1] + block->column);
}

static void sums_of_piece(const void *context, int64_t p)
{
    const norm_t *norm = context;
    const piece_t piece = piece_of(norm, p);
    clear(&piece);
    each_block(norm, p, 0, sum_block);
}

static double total(const norm_t *norm, int which, int64_t i)
{
    double sum = 0;
    for (int64_t p = 0; p < norm->npieces; p++) {
        const piece_t piece = piece_of(norm, p);
        for (int64_t at = i; at < piece.columns; at += norm->width / norm->lanes)
            sum += piece.sums[which][at];
    }
    return sum;
}

static void take_saved_mean(norm_t *norm)
{
    for (int64_t i = 0; i < norm->width / norm->lanes; i++)
        set_constant(norm, CENTER, i, get(norm, &norm->launch->src[3], norm->first + i));
}

/* With z = (x - mean) rstd: dweight = sum(dy z), dbias = sum(dy), dx = weight rstd (dy - dbias / n
 * - z dweight / n). */
static void finish_sums(norm_t *norm)
{
    const fy_launch_t *launch = norm->launch;
    const double n = (double)norm->rows;
    for (int64_t i = 0; i < norm->width / norm->lanes; i++) {
        const int64_t c = norm->first + i;
        const double rstd = get(norm, &launch->src[4], c), dbias = total(norm, 0, i),
                     dweight = total(norm, 1, i) * rstd,
                     scale = get(norm, &launch->src[2], c) * rstd;
        put(norm, 1, c, dweight);
        put(norm, 2, c, dbias);
        set_constant(norm, SCALE, i, scale);
        set_constant(norm, SHIFT, i, scale * dbias / n);
        set_constant(norm, SLOPE, i, scale * rstd * dweight / n);
    }
}

static void dx_block(const norm_t *norm, const piece_t *piece, const block_t *block)
{
    _Alignas(64) char staged[4][BLOCK * COLUMNS * sizeof(double)];
    fy__norm_rows_t rows = rows_of(norm, block);
    rows.adds = (int)(norm->launch->accumulate & 1u);
    rows.x = fetch(norm, &norm->x, piece, block, staged[0], &rows.x_stride);
    rows.dy = fetch(norm, &norm->dy, piece, block, staged[1], &rows.dy_stride);
    rows.y = fetch(norm, &norm->y, piece, block, staged[2], &rows.y_stride);
    rows.out_stride = COLUMNS;
    rows.out = norm->out.is_direct ? place(norm, &norm->out, piece, block, &rows.out_stride)
                                   : staged[3];
    if (!norm->out.is_direct && rows.adds) stage(norm, &norm->out, piece, block, staged[3], 0);
    norm->loops->norm_dx[norm->compute](&rows);
    if (!norm->out.is_direct) stage(norm, &norm->out, piece, block, staged[3], 1);
}

static void dx_of_piece(const void *context, int64_t p) { each_block(context, p, 0, dx_block); }

/* ---- launches ---- */

static void run_columns(norm_t *norm, int threads)
{
    switch (norm->launch->op) {
    case FY_OP_BATCH_NORM:
        fy__for_each(norm->npieces, threads, moments_of_piece, norm);
        finish_statistics(norm);
        fy__for_each(norm->npieces, threads, apply_piece, norm);
        break;
    case FY_OP_BATCH_NORM_INFERENCE:
        take_running(norm);
        fy__for_each(norm->npieces, threads, apply_piece, norm);
        break;
    default:
        take_saved_mean(norm);
        fy__for_each(norm->npieces, threads, sums_of_piece, norm);
        finish_sums(norm);
        fy__for_each(norm->npieces, threads, dx_of_piece, norm);
        break;
    }
}

static void set_operands(norm_t *norm)
{
    const fy_launch_t *launch = norm->launch;
    const int is_backward = launch->op == FY_OP_BATCH_NORM_BACKWARD;
    norm->all_direct = 1;
    norm->x = side_of(norm, &launch->src[is_backward]);
    norm->out = side_of(norm, &launch->dst[0]);
    if (is_backward) {
        norm->dy = side_of(norm, &launch->src[0]);
        if (launch->nsrc == 6) norm->y = side_of(norm, &launch->src[5]);
    } else if (launch->op == FY_OP_BATCH_NORM) {
        if (launch->nsrc == 4) norm->add = side_of(norm, &launch->src[3]);
        norm->relu = ((const fy_batch_norm_attrs_t *)launch->attrs)->activation;
    } else {
        if (launch->nsrc == 6) norm->add = side_of(norm, &launch->src[5]);
        norm->relu = ((const fy_batch_norm_inference_attrs_t *)launch->attrs)->activation;
    }
}

/* Up to WIDTH columns need no workspace. */
uint64_t fy__batch_norm_workspace(const fy_launch_t *launch, uint64_t limit)
{
    norm_t norm = { .launch = launch };
    measure(&norm, &launch->src[launch->op == FY_OP_BATCH_NORM_BACKWARD]);
    const uint64_t nbytes = (uint64_t)norm.channels * DOUBLES * sizeof(double);
    return norm.channels <= WIDTH || nbytes > limit ? 0 : nbytes;
}

fy_status_t fy__run_batch_norm(const fy_host_api_t *host, const fy__loops_t *loops,
                               const fy_launch_t *launch)
{
    _Alignas(64) double stack[WIDTH * DOUBLES];
    norm_t norm = { .loops = loops, .launch = launch };
    (void)host;
    if (launch->nelem == 0) return FY_STATUS_OK;
    measure(&norm, &launch->src[launch->op == FY_OP_BATCH_NORM_BACKWARD]);
    set_operands(&norm);
    const int64_t most = norm.lanes * norm.channels;
    const int has_room = most <= WIDTH ||
                         launch->workspace_nbytes >= (uint64_t)most * DOUBLES * sizeof(double);
    double *room = most <= WIDTH || !has_room ? stack : launch->workspace;
    const int threads =
        fy__threads_for(norm.rows * norm.channels, fy__serial_of(norm.x.desc->dtype, SERIAL));
    for (int64_t step = has_room ? most : WIDTH; norm.first < norm.channels; norm.first += step) {
        norm.width = most - norm.first < step ? most - norm.first : step;
        norm.sums = room;
        norm.zeros = norm.sums + 2 * (PIECES + 1) * norm.width;
        memset(norm.zeros, 0, (size_t)norm.width * sizeof(double));
        for (int i = 0; i < 4; i++) norm.constants[i] = (char *)(norm.zeros + (1 + i) * norm.width);
        run_columns(&norm, threads);
    }
    return FY_STATUS_OK;
}
