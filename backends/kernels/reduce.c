/* sum, mean, norm, prod, any, all, max, min over any set of axes. Fused axes are split into kept
 * ones and reduced ones. If the innermost axis is reduced, rows are folded into one number
 * (fold_rows), else columns are folded side by side (fold_columns), so that memory is read in order
 * either way.
 * Floats are summed and multiplied in f64, integers in i64; any and all count elements in i64. When
 * few outputs fold much, the reduced range is cut in a fixed number of pieces and their results are
 * combined in order: bits do not depend on the thread count. */
#include <math.h>
#include <string.h>

#include "opset/formulas/index.h"
#include "backends/kernels/rows.h"

enum { COLUMNS = 128, PIECES = 32, PIECE_MIN = 16384, SERIAL = 81920 };

typedef struct axes {
    int rank;
    /* lengths and strides; rank may be 0 */
    int64_t dims[FY_INDEX_RANK], src[FY_INDEX_RANK], dst[FY_INDEX_RANK];
    int64_t nelem;
} axes_t;

typedef struct reduce {
    const fy__loops_t *loops;
    const fy_launch_t *launch;
    axes_t kept, reduced;
    int32_t dtype, compute;
    int shift;    /* log2 of a source element's bytes */
    int is_sum;   /* all but max, min */
    int is_float; /* what is summed */
    int is_norm, is_product, is_count;
    fy__sum_row_fn sum_row; /* of values, their squares, ones; or products */
    fy__sum_columns_fn sum_columns;
    int64_t count; /* elements folded into each output */
} reduce_t;

/* A running result: sums, or the best value so far in the compute dtype. */
typedef union fold {
    fy__sum_t sum;
    float f32;
    double f64;
    int32_t i32;
    int64_t i64;
    uint8_t u8;
} fold_t;

static void push_axis(axes_t *axes, int64_t dim, int64_t src, int64_t dst)
{
    axes->nelem *= dim;
    if (dim == 1) return;
    const int n = axes->rank;
    if (n > 0 && axes->src[n - 1] == src * dim && axes->dst[n - 1] == dst * dim) {
        axes->dims[n - 1] *= dim;
    } else {
        axes->dims[axes->rank++] = dim;
    }
    axes->src[axes->rank - 1] = src;
    axes->dst[axes->rank - 1] = dst;
}

/* Kept and reduced axes, each fused; dst may have the reduced axes with length 1 or not at all. */
static void split_axes(reduce_t *reduce)
{
    const fy_reduce_attrs_t *attrs = (const fy_reduce_attrs_t *)reduce->launch->attrs;
    const fy_desc_t *src = reduce->launch->src, *dst = reduce->launch->dst;
    const uint32_t mask = attrs->axes ? attrs->axes : ~0u;
    int dst_axis = 0;
    reduce->kept.nelem = reduce->reduced.nelem = 1;
    for (int axis = 0; axis < src->rank; axis++) {
        const int is_reduced = (mask >> axis & 1u) != 0;
        if (is_reduced) {
            push_axis(&reduce->reduced, src->dims[axis], src->strides[axis], 0);
            dst_axis += dst->rank == src->rank; /* keepdims */
        } else {
            push_axis(&reduce->kept, src->dims[axis], src->strides[axis], dst->strides[dst_axis++]);
        }
    }
    reduce->count = reduce->reduced.nelem;
}

/* ---- folding contiguous runs ---- */

static fy__sum_t one_of(const reduce_t *reduce)
{
    return reduce->is_float ? (fy__sum_t){ .f = 1 } : (fy__sum_t){ .i = 1 };
}

static void fold_start(const reduce_t *reduce, fold_t *fold, const char *first)
{
    memset(fold, 0, sizeof *fold);
    if (!reduce->is_sum)
        fy__stage_in(reduce->loops, 1, fold, reduce->compute, first, 1, reduce->dtype);
    else if (reduce->is_product)
        fold->sum = one_of(reduce);
}

static void fold_run(const reduce_t *reduce, int64_t n, const char *src, int64_t stride,
                     fold_t *fold)
{
    const fy__loops_t *loops = reduce->loops;
    const fy__loop1_fn extreme =
        (reduce->launch->op == FY_OP_MAX ? loops->max_row : loops->min_row)[reduce->compute];
    if (stride == 1 && reduce->dtype == reduce->compute) {
        if (reduce->is_sum)
            reduce->sum_row(n, src, &fold->sum);
        else
            extreme(n, fold, src);
        return;
    }
    for (int64_t done = 0; done < n; done += FY__BLOCK) {
        _Alignas(64) char block[FY__BLOCK * 8];
        const int64_t m = n - done < FY__BLOCK ? n - done : FY__BLOCK;
        fy__stage_in(loops, m, block, reduce->compute,
                     src + done * stride * ((int64_t)1 << reduce->shift), stride, reduce->dtype);
        if (reduce->is_sum)
            reduce->sum_row(m, block, &fold->sum);
        else
            extreme(m, fold, block);
    }
}

/* Elements begin .. end-1 of the reduced range, behind `base`. */
static void fold_range(const reduce_t *reduce, const char *base, int64_t begin, int64_t end,
                       fold_t *fold)
{
    const axes_t *axes = &reduce->reduced;
    const int64_t inner = axes->rank ? axes->dims[axes->rank - 1] : 1,
                  stride = axes->rank ? axes->src[axes->rank - 1] : 1;
    while (begin < end) {
        const int64_t skip = begin % inner,
                      n = inner - skip < end - begin ? inner - skip : end - begin;
        const int64_t offset = fy__offset_of(begin, axes->rank, axes->dims, axes->src);
        fold_run(reduce, n, base + offset * ((int64_t)1 << reduce->shift), stride, fold);
        begin += n;
    }
}

static void fold_join(const reduce_t *reduce, fold_t *into, const fold_t *from)
{
    if (reduce->is_product && reduce->is_float)
        into->sum.f *= from->sum.f;
    else if (reduce->is_product)
        into->sum.i = (int64_t)((uint64_t)into->sum.i * (uint64_t)from->sum.i);
    else if (reduce->is_sum && reduce->is_float)
        into->sum.f += from->sum.f;
    else if (reduce->is_sum)
        into->sum.i = (int64_t)((uint64_t)into->sum.i + (uint64_t)from->sum.i);
    else
        (reduce->launch->op == FY_OP_MAX ? reduce->loops->max_row
                                         : reduce->loops->min_row)[reduce->compute](1, into, from);
}

/* ---- writing results ---- */

static void write_result(const reduce_t *reduce, int64_t output, const fold_t *fold)
{
    const fy_desc_t *dst = reduce->launch->dst;
    char *at = (char *)dst->data +
               fy__offset_of(output, reduce->kept.rank, reduce->kept.dims, reduce->kept.dst) *
                   ((int64_t)1 << fy__log2_size(dst->dtype));
    const int accumulate = (reduce->launch->accumulate & 1u) != 0 && reduce->is_sum;
    /* i64 sums and extremes keep their type, up to half precision */
    if (!reduce->is_sum || !reduce->is_float) {
        fold_t result = *fold;
        if (reduce->is_count)
            result.sum.i = reduce->launch->op == FY_OP_ALL ? result.sum.i == reduce->count
                                                           : result.sum.i != 0;
        fy__stage_out(reduce->loops, 1, at, 1, dst->dtype, &result,
                      reduce->is_sum ? FY_DTYPE_I64 : reduce->compute);
        return;
    }
    double value = reduce->launch->op == FY_OP_MEAN ? fold->sum.f / (double)reduce->count
                                                    : fold->sum.f;
    if (reduce->is_norm) value = sqrt(value);
    if (accumulate) {
        double old;
        fy__stage_in(reduce->loops, 1, &old, FY_DTYPE_F64, at, 1, dst->dtype);
        value += old;
    }
    fy__stage_out(reduce->loops, 1, at, 1, dst->dtype, &value, FY_DTYPE_F64);
}

/* The sums of n adjacent results in a float dst: the same arithmetic, vectorized. n <= COLUMNS */
static void write_sums(const reduce_t *reduce, int64_t first, int64_t n, double *sums)
{
    const fy__loops_t *loops = reduce->loops;
    const fy_desc_t *dst = reduce->launch->dst;
    const axes_t *kept = &reduce->kept;
    char *at = (char *)dst->data + fy__offset_of(first, kept->rank, kept->dims, kept->dst) *
                                       ((int64_t)1 << fy__log2_size(dst->dtype));
    if (reduce->launch->op == FY_OP_MEAN)
        for (int64_t j = 0; j < n; j++) sums[j] /= (double)reduce->count;
    if (reduce->is_norm)
        for (int64_t j = 0; j < n; j++) sums[j] = sqrt(sums[j]);
    if (reduce->launch->accumulate & 1u) {
        double old[COLUMNS];
        fy__stage_in(loops, n, old, FY_DTYPE_F64, at, 1, dst->dtype);
        for (int64_t j = 0; j < n; j++) sums[j] += old[j];
    }
    fy__stage_out(loops, n, at, 1, dst->dtype, sums, FY_DTYPE_F64);
}

/* ---- the two orders ---- */

static const char *source_of(const reduce_t *reduce, int64_t output)
{
    return (const char *)reduce->launch->src->data +
           fy__offset_of(output, reduce->kept.rank, reduce->kept.dims, reduce->kept.src) *
               ((int64_t)1 << reduce->shift);
}

static void fold_output(const void *context, int64_t output)
{
    const reduce_t *reduce = (const reduce_t *)context;
    const char *base = source_of(reduce, output);
    fold_t fold;
    fold_start(reduce, &fold, base);
    fold_range(reduce, base, 0, reduce->count, &fold);
    write_result(reduce, output, &fold);
}

/* One output, many elements: fixed pieces, joined in order. */
typedef struct pieces {
    const reduce_t *reduce;
    const char *base;
    fold_t *folds;
} pieces_t;

static void fold_piece(const void *context, int64_t p)
{
    const pieces_t *pieces = (const pieces_t *)context;
    const int64_t count = pieces->reduce->count, piece = (count + PIECES - 1) / PIECES;
    const int64_t begin = p * piece < count ? p * piece : count,
                  end = begin + piece < count ? begin + piece : count;
    fold_start(pieces->reduce, &pieces->folds[p], pieces->base);
    fold_range(pieces->reduce, pieces->base, begin, end, &pieces->folds[p]);
}

static void fold_output_in_pieces(const reduce_t *reduce, int64_t output)
{
    fold_t folds[PIECES];
    const pieces_t pieces = { reduce, source_of(reduce, output), folds };
    fy__for_each(PIECES, fy__threads_for(reduce->count, fy__serial_of(reduce->dtype, SERIAL)),
                 fold_piece, &pieces);
    for (int p = 1; p < PIECES; p++) fold_join(reduce, &folds[0], &folds[p]);
    write_result(reduce, output, &folds[0]);
}

/* Outputs first .. first + n - 1, neighbours along the innermost kept axis, whose source stride is
 * 1. */
static void fold_columns(const reduce_t *reduce, int64_t first, int64_t n)
{
    const fy__loops_t *loops = reduce->loops;
    const fy__loop2_fn best =
        loops->binary[reduce->launch->op == FY_OP_MAX ? FY__BINARY_MAXIMUM : FY__BINARY_MINIMUM]
                     [reduce->compute];
    const int size_shift = fy__log2_size(reduce->compute);
    const char *base = source_of(reduce, first);
    fy__sum_t sums[COLUMNS];
    _Alignas(64) char extremes[COLUMNS * 8], block[COLUMNS * 8];
    memset(sums, 0, sizeof sums);
    if (reduce->is_product)
        for (int64_t j = 0; j < n; j++) sums[j] = one_of(reduce);
    for (int64_t i = 0; i < reduce->count; i++) {
        const int64_t offset =
            fy__offset_of(i, reduce->reduced.rank, reduce->reduced.dims, reduce->reduced.src);
        const void *line = base + offset * ((int64_t)1 << reduce->shift);
        if (reduce->dtype != reduce->compute) {
            fy__stage_in(loops, n, block, reduce->compute, line, 1, reduce->dtype);
            line = block;
        }
        if (reduce->is_sum)
            reduce->sum_columns(n, line, sums);
        else if (i == 0)
            memcpy(extremes, line, (size_t)n << size_shift);
        else
            best(n, extremes, extremes, line);
    }
    if (reduce->is_sum && reduce->is_float && reduce->kept.dst[reduce->kept.rank - 1] == 1) {
        double values[COLUMNS];
        for (int64_t j = 0; j < n; j++) values[j] = sums[j].f;
        write_sums(reduce, first, n, values);
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        fold_t fold;
        memset(&fold, 0, sizeof fold);
        if (reduce->is_sum)
            fold.sum = sums[j];
        else
            memcpy(&fold, extremes + (j << size_shift), (size_t)1 << size_shift);
        write_result(reduce, first + j, &fold);
    }
}

static void fold_strip(const void *context, int64_t strip)
{
    const reduce_t *reduce = (const reduce_t *)context;
    const int64_t inner = reduce->kept.dims[reduce->kept.rank - 1],
                  across = (inner + COLUMNS - 1) / COLUMNS;
    const int64_t begin = strip % across * COLUMNS,
                  n = inner - begin < COLUMNS ? inner - begin : COLUMNS;
    fold_columns(reduce, strip / across * inner + begin, n);
}

static void choose_loops(reduce_t *reduce)
{
    const fy__loops_t *loops = reduce->loops;
    const int32_t compute = reduce->compute;
    if (reduce->is_norm) {
        reduce->sum_row = loops->square_row[compute];
        reduce->sum_columns = loops->square_columns[compute];
    } else if (reduce->is_product) {
        reduce->sum_row = loops->product_row[compute];
        reduce->sum_columns = loops->product_columns[compute];
    } else if (reduce->is_count) {
        reduce->sum_row = loops->count_row[compute];
        reduce->sum_columns = loops->count_columns[compute];
    } else {
        reduce->sum_row = loops->sum_row[compute];
        reduce->sum_columns = loops->sum_columns[compute];
    }
}

static fy_status_t run(const fy__loops_t *loops, const fy_launch_t *launch, int is_sum)
{
    reduce_t reduce = {
        .loops = loops, .launch = launch, .is_sum = is_sum, .dtype = launch->src->dtype
    };
    reduce.compute = fy__compute_dtype(reduce.dtype);
    reduce.shift = fy__log2_size(reduce.dtype);
    reduce.is_norm = launch->op == FY_OP_NORM;
    reduce.is_product = launch->op == FY_OP_PROD;
    reduce.is_count = launch->op == FY_OP_ANY || launch->op == FY_OP_ALL;
    reduce.is_float = fy__is_float(reduce.dtype) && !reduce.is_count;
    if (is_sum) choose_loops(&reduce);
    split_axes(&reduce);
    const axes_t *kept = &reduce.kept, *reduced = &reduce.reduced;
    if (kept->nelem == 0 || (reduce.count == 0 && !is_sum)) return FY_STATUS_OK;
    const int64_t kept_stride = kept->rank ? kept->src[kept->rank - 1] : 0;
    const int64_t reduced_stride = reduced->rank ? reduced->src[reduced->rank - 1] : 0;
    const int threads =
        fy__threads_for(kept->nelem * (reduce.count + 8), fy__serial_of(reduce.dtype, SERIAL));
    if (kept_stride == 1 && reduced_stride != 1 && reduce.count > 0) {
        const int64_t inner = kept->dims[kept->rank - 1];
        fy__for_each((inner + COLUMNS - 1) / COLUMNS * (kept->nelem / inner), threads, fold_strip,
                     &reduce);
    } else if (reduce.count >= 2 * PIECE_MIN && kept->nelem < PIECES) {
        for (int64_t output = 0; output < kept->nelem; output++)
            fold_output_in_pieces(&reduce, output);
    } else {
        fy__for_each(kept->nelem, threads, fold_output, &reduce);
    }
    return FY_STATUS_OK;
}

fy_status_t fy__run_sum(const fy_host_api_t *host, const fy__loops_t *loops,
                        const fy_launch_t *launch)
{
    (void)host;
    return run(loops, launch, 1);
}

fy_status_t fy__run_extreme(const fy_host_api_t *host, const fy__loops_t *loops,
                            const fy_launch_t *launch)
{
    (void)host;
    return run(loops, launch, 0);
}
