/* matmul: batches, strides and dtypes, cut down to single products (gemm.h).
 * f32 operands that BLAS can name (one of the two strides is 1) are used where they lie; everything
 * else, and f16 and bf16, is packed to f32 in launch->workspace, by tiles if the limit is small; a
 * dst that BLAS cannot name is computed there and then stored, rounded once.
 * Read fy__run_matmul from the end of the file upwards. */
#include <string.h>

#include "backends/kernels/gemm.h"
#include "backends/kernels/rows.h"

/* What fits this many bytes is packed on the stack, and with less workspace than this tiles of this
 * size are used. */
enum { STACK_NBYTES = 12288, SPREAD_WORK = 1 << 20 /* multiplications in 20 us */ };

typedef struct problem {
    const fy_host_api_t *host;
    const fy__loops_t *loops;
    fy__matrix_t a, b, c; /* of the first batch item */
    fy__index_t batch;    /* strides of c, a, b */
    int64_t nbatch;
    int accumulate;
} problem_t;

/* Where a matrix is for BLAS: 'N' row by row, 'T' column by column, 0 neither. */
typedef struct place {
    char order;
    int64_t ld;
} place_t;

static inline place_t place_of(const fy__matrix_t *x)
{
    place_t place = { 0, 0 };
    if ((x->column_stride == 1 || x->columns == 1) &&
        (x->row_stride >= x->columns || x->rows == 1)) {
        place.order = 'N';
        place.ld = x->rows == 1 ? x->columns : x->row_stride;
    } else if ((x->row_stride == 1 || x->rows == 1) &&
               (x->column_stride >= x->rows || x->columns == 1)) {
        place.order = 'T';
        place.ld = x->columns == 1 ? x->rows : x->column_stride;
    }
    return place;
}

/* ---- from launch to problem ---- */

static inline fy__matrix_t matrix_of(const fy_desc_t *desc, int transpose)
{
    const int r = desc->rank - 2 + (transpose != 0), c = desc->rank - 1 - (transpose != 0);
    return (fy__matrix_t){ (char *)desc->data, desc->dims[r],    desc->dims[c],
                           desc->strides[r],   desc->strides[c], desc->dtype };
}

/* One f32 product whose operands BLAS can name where they lie: most calls, so the way is kept
 * short. */
typedef struct plain {
    fy__matrix_t a, b, c;
    place_t at_a, at_b, at_c;
} plain_t;

/* The commonest of them, seen at a glance. */
static inline int is_plainest(const fy_launch_t *launch)
{
    const fy_matmul_attrs_t *attrs = (const fy_matmul_attrs_t *)launch->attrs;
    return (launch->flags & FY_LAUNCH_CONTIGUOUS) != 0 && launch->dst->dtype == FY_DTYPE_F32 &&
           launch->src[0].rank == 2 && launch->src[1].rank == 2 && launch->src[0].dims[1] > 0 &&
           !(attrs->transpose_a | attrs->transpose_b);
}

static inline int is_plain(const fy_launch_t *launch, plain_t *plain)
{
    const fy_matmul_attrs_t *attrs = (const fy_matmul_attrs_t *)launch->attrs;
    const fy_desc_t *src = launch->src;
    if (launch->dst->dtype != FY_DTYPE_F32 || launch->dst->rank != 2 || src[0].rank != 2 ||
        src[1].rank != 2)
        return 0;
    plain->a = matrix_of(&src[0], attrs->transpose_a);
    plain->b = matrix_of(&src[1], attrs->transpose_b);
    plain->c = matrix_of(launch->dst, 0);
    plain->at_a = place_of(&plain->a);
    plain->at_b = place_of(&plain->b);
    plain->at_c = place_of(&plain->c);
    return plain->at_a.order && plain->at_b.order && plain->at_c.order == 'N' &&
           plain->a.columns > 0;
}

static fy__matrix_t transposed(const fy__matrix_t *x)
{
    return (
        fy__matrix_t){ x->data, x->columns, x->rows, x->column_stride, x->row_stride, x->dtype };
}

/* The strides of desc's leading axes under dst's: 0 where it repeats or has no such axis. */
static void batch_strides(const fy_desc_t *desc, const fy_desc_t *dst, int64_t *strides)
{
    const int missing = dst->rank - desc->rank;
    for (int axis = 0; axis < dst->rank - 2; axis++) {
        const int own = axis - missing;
        strides[axis] = own < 0 || desc->dims[own] == 1 ? 0 : desc->strides[own];
    }
}

static void make_batch(problem_t *problem, const fy_launch_t *launch)
{
    const fy_desc_t *dst = launch->dst;
    int64_t a[FY_MAX_RANK], b[FY_MAX_RANK];
    const int64_t *const strides[3] = { dst->strides, a, b };
    batch_strides(&launch->src[0], dst, a);
    batch_strides(&launch->src[1], dst, b);
    fy__index_make(&problem->batch, dst->rank - 2, dst->dims, 3, strides);
    problem->nbatch = 1;
    for (int axis = 0; axis < problem->batch.rank; axis++)
        problem->nbatch *= problem->batch.dims[axis];
    if (problem->nbatch < 2 || problem->batch.rank != 1) return;
    /* One B for all, A and C without gaps: the batch is only more rows. */
    const int64_t *c_step = problem->batch.strides[0], *a_step = problem->batch.strides[1],
                  *b_step = problem->batch.strides[2];
    if (*b_step == 0 && *a_step == problem->a.rows * problem->a.row_stride &&
        *c_step == problem->c.rows * problem->c.row_stride) {
        problem->a.rows *= problem->nbatch;
        problem->c.rows *= problem->nbatch;
        problem->nbatch = 1;
    }
}

static void make_problem(problem_t *problem, const fy_launch_t *launch)
{
    const fy_matmul_attrs_t *attrs = (const fy_matmul_attrs_t *)launch->attrs;
    problem->a = matrix_of(&launch->src[0], attrs->transpose_a);
    problem->b = matrix_of(&launch->src[1], attrs->transpose_b);
    problem->c = matrix_of(launch->dst, 0);
    problem->nbatch = 1;
    problem->accumulate = (launch->accumulate & 1u) != 0;
    if (launch->dst->rank > 2) make_batch(problem, launch);
    /* C^T = B^T A^T: dst is then row by row */
    if (problem->c.column_stride != 1 && problem->c.row_stride == 1) {
        const fy__matrix_t a = transposed(&problem->b), b = transposed(&problem->a),
                           c = transposed(&problem->c);
        problem->a = a;
        problem->b = b;
        problem->c = c;
        for (int axis = 0; problem->nbatch > 1 && axis < problem->batch.rank; axis++) {
            const int64_t step = problem->batch.strides[1][axis];
            problem->batch.strides[1][axis] = problem->batch.strides[2][axis];
            problem->batch.strides[2][axis] = step;
        }
    }
}

/* ---- the plan: which operands are packed, in tiles of what size ---- */

typedef struct plan {
    int pack_a, pack_b, pack_c;
    int64_t m, n, k; /* of a tile */
    uint64_t a_nbytes, b_nbytes, c_nbytes;
} plan_t;

static uint64_t piece_nbytes(int is_packed, int64_t rows, int64_t columns)
{
    return is_packed ? ((uint64_t)rows * (uint64_t)columns * sizeof(float) + 63) / 64 * 64 : 0;
}

static int needs_pack(const fy__matrix_t *x, int is_dst)
{
    const place_t place = place_of(x);
    return x->dtype != FY_DTYPE_F32 || place.order == 0 || (is_dst && place.order != 'N');
}

/* The tile is halved along its longest useful side until it fits, so that a plan made for `limit`
 * bytes is also the plan for the bytes it takes: workspace and launch agree. */
static plan_t make_plan(const problem_t *problem, uint64_t limit)
{
    plan_t plan = { needs_pack(&problem->a, 0),
                    needs_pack(&problem->b, 0),
                    needs_pack(&problem->c, 1),
                    0,
                    0,
                    0,
                    0,
                    0,
                    0 };
    plan.m = problem->c.rows;
    plan.n = problem->c.columns;
    plan.k = problem->a.columns;
    for (;;) {
        plan.a_nbytes = piece_nbytes(plan.pack_a, plan.m, plan.k);
        plan.b_nbytes = piece_nbytes(plan.pack_b, plan.k, plan.n);
        plan.c_nbytes = piece_nbytes(plan.pack_c, plan.m, plan.n);
        if (plan.a_nbytes + plan.b_nbytes + plan.c_nbytes <= limit) return plan;
        const int64_t m = plan.pack_a || plan.pack_c ? plan.m : 0,
                      n = plan.pack_b || plan.pack_c ? plan.n : 0,
                      k = plan.pack_a || plan.pack_b ? plan.k : 0;
        int64_t *longest = m >= n && m >= k ? &plan.m : n >= k ? &plan.n : &plan.k;
        *longest = (*longest + 1) / 2;
    }
}

uint64_t fy__matmul_workspace(const fy_launch_t *launch, uint64_t limit)
{
    problem_t problem;
    plain_t plain;
    if (is_plainest(launch)) return 0;
    if (launch->src->dtype == FY_DTYPE_F64 || limit <= STACK_NBYTES || launch->nelem == 0 ||
        is_plain(launch, &plain))
        return 0;
    make_problem(&problem, launch);
    const plan_t plan = make_plan(&problem, limit);
    const uint64_t nbytes = plan.a_nbytes + plan.b_nbytes + plan.c_nbytes;
    return nbytes <= STACK_NBYTES ? 0 : nbytes;
}

/* ---- packing ---- */

typedef struct pack {
    const fy__loops_t *loops;
    fy__matrix_t from; /* rows are what is written as lines */
    float *to;
} pack_t;

static void pack_line(const void *context, int64_t line)
{
    const pack_t *pack = (const pack_t *)context;
    const fy__matrix_t *from = &pack->from;
    const int shift = fy__log2_size(from->dtype);
    const char *src = from->data + line * from->row_stride * ((int64_t)1 << shift);
    float *dst = pack->to + line * from->columns;
    if (from->column_stride == 1) {
        pack->loops->cast[from->dtype][FY_DTYPE_F32](from->columns, dst, src);
        return;
    }
    for (int64_t j = 0; j < from->columns; j += FY__BLOCK) {
        const int64_t n = from->columns - j < FY__BLOCK ? from->columns - j : FY__BLOCK;
        fy__stage_in(pack->loops, n, dst + j, FY_DTYPE_F32,
                     src + j * from->column_stride * ((int64_t)1 << shift), from->column_stride,
                     from->dtype);
    }
}

/* A tile as BLAS wants it: where it lies, or packed along its contiguous side. `*packed` is what
 * `to` holds already. */
static place_t pack_tile(const problem_t *problem, const fy__matrix_t *tile, int is_packed,
                         float *to, const char **packed, const float **data)
{
    *data = (const float *)(const void *)tile->data;
    if (!is_packed) return place_of(tile);
    const int by_column = tile->row_stride == 1 && tile->column_stride != 1;
    pack_t pack = { problem->loops, by_column ? transposed(tile) : *tile, to };
    if (*packed != tile->data)
        fy__for_each(pack.from.rows, fy__threads_for(tile->rows * tile->columns, 32768), pack_line,
                     &pack);
    *packed = tile->data;
    *data = to;
    return (place_t){ by_column ? 'T' : 'N', pack.from.columns };
}

typedef struct unpack {
    const fy__loops_t *loops;
    fy__matrix_t to;
    const float *from;
    int accumulate;
} unpack_t;

static void unpack_line(const void *context, int64_t line)
{
    const unpack_t *unpack = (const unpack_t *)context;
    const fy__matrix_t *to = &unpack->to;
    const int shift = fy__log2_size(to->dtype);
    for (int64_t j = 0; j < to->columns; j += FY__BLOCK) {
        const int64_t n = to->columns - j < FY__BLOCK ? to->columns - j : FY__BLOCK;
        char *at = to->data +
                   (line * to->row_stride + j * to->column_stride) * ((int64_t)1 << shift);
        const float *from = unpack->from + line * to->columns + j;
        float old[FY__BLOCK];
        if (unpack->accumulate) {
            fy__stage_in(unpack->loops, n, old, FY_DTYPE_F32, at, to->column_stride, to->dtype);
            unpack->loops->binary[FY__BINARY_ADD][FY_DTYPE_F32](n, old, old, from);
            from = old;
        }
        fy__stage_out(unpack->loops, n, at, to->column_stride, to->dtype, from, FY_DTYPE_F32);
    }
}

static fy__matrix_t tile_of(const fy__matrix_t *x, int64_t row, int64_t column, int64_t rows,
                            int64_t columns)
{
    fy__matrix_t tile = *x;
    tile.rows = x->rows - row < rows ? x->rows - row : rows;
    tile.columns = x->columns - column < columns ? x->columns - column : columns;
    tile.data += (row * x->row_stride + column * x->column_stride) *
                 ((int64_t)1 << fy__log2_size(x->dtype));
    return tile;
}

/* ---- one product ---- */

typedef struct scratch {
    char *base;
    const char *in_a, *in_b; /* the tiles packed there now */
} scratch_t;

static fy_status_t product_in_tiles(const problem_t *problem, const plan_t *plan,
                                    scratch_t *scratch, const fy__matrix_t *a,
                                    const fy__matrix_t *b, const fy__matrix_t *c)
{
    float *to_a = (float *)(void *)scratch->base,
          *to_b = (float *)(void *)(scratch->base + plan->a_nbytes);
    float *to_c = (float *)(void *)(scratch->base + plan->a_nbytes + plan->b_nbytes);
    for (int64_t i = 0; i < c->rows; i += plan->m) {
        for (int64_t j = 0; j < c->columns; j += plan->n) {
            const fy__matrix_t tile_c = tile_of(c, i, j, plan->m, plan->n);
            for (int64_t p = 0; p < a->columns; p += plan->k) {
                const fy__matrix_t tile_a = tile_of(a, i, p, plan->m, plan->k),
                                   tile_b = tile_of(b, p, j, plan->k, plan->n);
                const float *data_a, *data_b;
                const place_t at_a =
                    pack_tile(problem, &tile_a, plan->pack_a, to_a, &scratch->in_a, &data_a);
                const place_t at_b =
                    pack_tile(problem, &tile_b, plan->pack_b, to_b, &scratch->in_b, &data_b);
                const place_t at_c = plan->pack_c ? (place_t){ 'N', tile_c.columns }
                                                  : place_of(&tile_c);
                const int adds = p > 0 || (problem->accumulate && !plan->pack_c);
                FY_TRY(fy__gemm_f32(problem->host, at_a.order, at_b.order, tile_c.rows,
                                    tile_c.columns, tile_a.columns, data_a, at_a.ld, data_b,
                                    at_b.ld, adds ? 1.0f : 0.0f,
                                    plan->pack_c ? to_c : (float *)(void *)tile_c.data, at_c.ld));
            }
            if (!plan->pack_c) continue;
            const unpack_t unpack = { problem->loops, tile_c, to_c, problem->accumulate };
            fy__for_each(tile_c.rows, fy__threads_for(tile_c.rows * tile_c.columns, 32768),
                         unpack_line, &unpack);
        }
    }
    return FY_STATUS_OK;
}

/* ---- all products ---- */

static fy__matrix_t batch_item(const problem_t *problem, const fy__matrix_t *x, int operand,
                               int64_t item)
{
    fy__matrix_t at = *x;
    if (problem->nbatch > 1) {
        at.data += fy__offset_of(item, problem->batch.rank, problem->batch.dims,
                                 problem->batch.strides[operand]) *
                   ((int64_t)1 << fy__log2_size(x->dtype));
    }
    return at;
}

typedef struct direct {
    const problem_t *problem;
    place_t a, b, c;
    fy_status_t status; /* the first failure; oneDNN fails only for want of memory */
} direct_t;

static void direct_item(const void *context, int64_t item)
{
    direct_t *direct = (direct_t *)(uintptr_t)context;
    const problem_t *problem = direct->problem;
    const fy__matrix_t a = batch_item(problem, &problem->a, 1, item),
                       b = batch_item(problem, &problem->b, 2, item),
                       c = batch_item(problem, &problem->c, 0, item);
    const fy_status_t status = fy__gemm_f32(
        problem->host, direct->a.order, direct->b.order, c.rows, c.columns, a.columns,
        (const float *)(const void *)a.data, direct->a.ld, (const float *)(const void *)b.data,
        direct->b.ld, problem->accumulate ? 1.0f : 0.0f, (float *)(void *)c.data, direct->c.ld);
    if (status != FY_STATUS_OK) __atomic_store_n(&direct->status, status, __ATOMIC_RELAXED);
}

/* Every operand is used where it lies. Products that are not worth several threads each are spread
 * over them, one product a thread; of large ones oneDNN takes care. */
static fy_status_t run_direct(const problem_t *problem, place_t a, place_t b, place_t c)
{
    direct_t direct = { problem, a, b, c, FY_STATUS_OK };
    const int64_t work = problem->c.rows * problem->c.columns * problem->a.columns;
    const int is_spread = work <= SPREAD_WORK || fy__threads_for(work, SPREAD_WORK) == 1;
    const int threads = is_spread ? fy__threads_for(problem->nbatch * work, SPREAD_WORK) : 1;
    fy__for_each(problem->nbatch, threads, direct_item, &direct);
    return direct.status;
}

/* An empty sum: zeros, unless they are only to be added. */
static void store_zeros(const fy_host_api_t *host, const fy__loops_t *loops,
                        const fy_launch_t *launch)
{
    const fy_fill_attrs_t zero = { 0.0, 0 };
    fy_launch_t fill = *launch;
    if (launch->accumulate & 1u) return;
    fill.attrs = &zero;
    (void)fy__run_fill(host, loops, &fill);
}

static fy_status_t run_packed(const problem_t *problem, const fy_launch_t *launch)
{
    _Alignas(64) char stack[STACK_NBYTES];
    const int on_stack = launch->workspace == NULL || launch->workspace_nbytes <= STACK_NBYTES;
    const plan_t plan = make_plan(problem, on_stack ? STACK_NBYTES : launch->workspace_nbytes);
    scratch_t scratch = { on_stack ? stack : (char *)launch->workspace, NULL, NULL };
    for (int64_t item = 0; item < problem->nbatch; item++) {
        const fy__matrix_t a = batch_item(problem, &problem->a, 1, item),
                           b = batch_item(problem, &problem->b, 2, item),
                           c = batch_item(problem, &problem->c, 0, item);
        FY_TRY(product_in_tiles(problem, &plan, &scratch, &a, &b, &c));
    }
    return FY_STATUS_OK;
}

fy_status_t fy__run_matmul(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch)
{
    problem_t problem;
    plain_t plain;
    if (launch->nelem == 0) return FY_STATUS_OK;
    if (is_plainest(launch)) {
        const fy_desc_t *a = &launch->src[0], *b = &launch->src[1], *c = launch->dst;
        return fy__gemm_f32(host, 'N', 'N', c->dims[0], c->dims[1], a->dims[1],
                            (const float *)a->data, a->dims[1], (const float *)b->data, b->dims[1],
                            launch->accumulate & 1u ? 1.0f : 0.0f, (float *)c->data, c->dims[1]);
    }
    if (is_plain(launch, &plain)) {
        return fy__gemm_f32(host, plain.at_a.order, plain.at_b.order, plain.c.rows, plain.c.columns,
                            plain.a.columns, (const float *)(const void *)plain.a.data,
                            plain.at_a.ld, (const float *)(const void *)plain.b.data, plain.at_b.ld,
                            launch->accumulate & 1u ? 1.0f : 0.0f, (float *)(void *)plain.c.data,
                            plain.at_c.ld);
    }
    make_problem(&problem, launch);
    problem.host = host;
    problem.loops = loops;
    if (__builtin_expect(problem.a.columns == 0, 0)) {
        store_zeros(host, loops, launch);
        return FY_STATUS_OK;
    }
    if (problem.c.dtype == FY_DTYPE_F32) {
        const place_t a = place_of(&problem.a), b = place_of(&problem.b), c = place_of(&problem.c);
        if (a.order && b.order && c.order == 'N') return run_direct(&problem, a, b, c);
    }
    if (problem.c.dtype != FY_DTYPE_F64) return run_packed(&problem, launch);
    for (int64_t item = 0; item < problem.nbatch; item++) {
        const fy__matrix_t a = batch_item(&problem, &problem.a, 1, item),
                           b = batch_item(&problem, &problem.b, 2, item),
                           c = batch_item(&problem, &problem.c, 0, item);
        fy__gemm_f64(loops, &a, &b, &c, problem.accumulate);
    }
    return FY_STATUS_OK;
}
