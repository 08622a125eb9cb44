/* scaled_dot_product_attention and its gradient. Scores exist only as blocks on the stack, of at
 * most 64 rows and 64 keys, so that a block and what it is made of fit the caches. A task is a
 * block of rows, or of keys, of one head; it goes through the other blocks in order. So the bits
 * depend on the shape alone, not on the thread count. Half precision is computed in f32.
 * The gradient computes the probabilities from the saved log-sum-exp: once, if there are enough
 * short heads, else for blocks of keys and then again for blocks of rows. Not here: the loops
 * themselves (loops.h). */
#include <math.h>
#include <string.h>

#include "opset/formulas/attention.h"
#include "backends/kernels/rows.h"

/* Elements of a block; rows or keys in it; elements of a head's gradient of q; rows that are
 * fetched before they are read. */
enum { ROOM = FY__ATTENTION_WIDTH, MOST_BLOCK = 64, HEAD_ROOM = 4 * ROOM, AHEAD = 4 };

typedef struct attention {
    const fy__loops_t *loops;
    const fy_desc_t *q, *k, *v, *mask, *y, *lse, *dy, *dq, *dk, *dv;
    int64_t heads, rows, keys, width, block, row_blocks, key_blocks;
    int64_t mask_strides[4]; /* 0 where the mask repeats */
    int is_causal;
    double scale, ones[MOST_BLOCK];
} attention_t;

/* What one task works at: a head of a sample. */
typedef struct task {
    const attention_t *a;
    int64_t batch, head;
} task_t;

typedef struct block {
    int64_t first, n;
} block_t;

/* *index: of the task; becomes that of the block, of which a head has `nblocks`. */
static task_t task_of(const attention_t *a, int64_t *index, int64_t nblocks)
{
    const int64_t pair = *index / nblocks;
    *index %= nblocks;
    return (task_t){ a, pair / a->heads, pair % a->heads };
}

static block_t block_of(const attention_t *a, int64_t index, int64_t end)
{
    const int64_t first = index * a->block;
    return (block_t){ first, end - first < a->block ? end - first : a->block };
}

/* Element d of row `row` of a tensor [B, ., H, D]. */
static const char *at(const task_t *t, const fy_desc_t *x, int64_t row, int64_t d)
{
    return (const char *)x->data + (t->batch * x->strides[0] + row * x->strides[1] +
                                    t->head * x->strides[2] + d * x->strides[3]) *
                                       ((int64_t)1 << fy__log2_size(x->dtype));
}

static const char *lse_at(const task_t *t, int64_t row)
{
    const fy_desc_t *lse = t->a->lse;
    return (const char *)lse->data +
           (t->batch * lse->strides[0] + t->head * lse->strides[1] + row * lse->strides[2]) *
               ((int64_t)1 << fy__log2_size(lse->dtype));
}

#define T        float
#define N(name)  name##_f32
#define COMPUTE  FY_DTYPE_F32
#define IS_FLOAT 1
#include "backends/kernels/attention_template.h"
#undef T
#undef N
#undef COMPUTE
#undef IS_FLOAT
#define T        double
#define N(name)  name##_f64
#define COMPUTE  FY_DTYPE_F64
#define IS_FLOAT 0
#include "backends/kernels/attention_template.h"

static attention_t begin(const fy__loops_t *loops, const fy_launch_t *launch, int first, int mask)
{
    const fy_attention_attrs_t *attrs = (const fy_attention_attrs_t *)launch->attrs;
    attention_t a = { .loops = loops,
                      .q = &launch->src[first],
                      .k = &launch->src[first + 1],
                      .v = &launch->src[first + 2],
                      .is_causal = attrs->is_causal };
    a.rows = a.q->dims[1];
    a.keys = a.k->dims[1];
    a.heads = a.q->dims[2];
    a.width = a.q->dims[3];
    a.scale = attrs->scale != 0 ? attrs->scale : 1 / sqrt((double)a.width);
    a.block = ROOM / a.width < MOST_BLOCK ? ROOM / a.width : MOST_BLOCK;
    a.row_blocks = (a.rows + a.block - 1) / a.block;
    a.key_blocks = (a.keys + a.block - 1) / a.block;
    for (int i = 0; i < MOST_BLOCK; i++) a.ones[i] = 1;
    if (launch->nsrc > mask) {
        a.mask = &launch->src[mask];
        for (int i = 1; i <= a.mask->rank; i++)
            if (a.mask->dims[a.mask->rank - i] > 1)
                a.mask_strides[4 - i] = a.mask->strides[a.mask->rank - i];
    }
    return a;
}

/* `products`: block by block, of those that the gradient or the result needs. */
static int threads_of(const attention_t *a, int products)
{
    const double pairs = (double)a->q->dims[0] * (double)a->heads * (double)a->rows *
                         (double)a->keys / (a->is_causal ? 2 : 1);
    return fy__threads_for_cost(pairs * (2.0 * products * (double)a->width + 16), 0);
}

fy_status_t fy__run_attention(const fy_host_api_t *host, const fy__loops_t *loops,
                              const fy_launch_t *launch)
{
    attention_t a = begin(loops, launch, 0, 3);
    const int is_f64 = a.q->dtype == FY_DTYPE_F64;
    (void)host;
    a.y = &launch->dst[0];
    a.lse = &launch->dst[1];
    fy__for_each(a.q->dims[0] * a.heads * a.row_blocks, threads_of(&a, 2),
                 is_f64 ? forward_f64 : forward_f32, &a);
    return FY_STATUS_OK;
}

/* Whole heads as tasks: enough for the threads, short, and with blocks of keys that no row cuts. */
static int fits_heads(const attention_t *a, int64_t pairs, int threads)
{
    return pairs >= 2 * (int64_t)threads && a->rows * a->width <= HEAD_ROOM &&
           (!a->is_causal || a->rows >= a->keys || a->rows % a->block == 0);
}

fy_status_t fy__run_attention_backward(const fy_host_api_t *host, const fy__loops_t *loops,
                                       const fy_launch_t *launch)
{
    attention_t a = begin(loops, launch, 1, 6);
    const int is_f64 = a.q->dtype == FY_DTYPE_F64, threads = threads_of(&a, 7);
    const int64_t pairs = a.q->dims[0] * a.heads;
    (void)host;
    a.dy = &launch->src[0];
    a.y = &launch->src[4];
    a.lse = &launch->src[5];
    a.dq = &launch->dst[0];
    a.dk = &launch->dst[1];
    a.dv = &launch->dst[2];
    if (fits_heads(&a, pairs, threads)) {
        fy__for_each(pairs, threads, is_f64 ? backward_head_f64 : backward_head_f32, &a);
        return FY_STATUS_OK;
    }
    fy__for_each(pairs * a.key_blocks, threads, is_f64 ? backward_keys_f64 : backward_keys_f32, &a);
    fy__for_each(pairs * a.row_blocks, threads, is_f64 ? backward_rows_f64 : backward_rows_f32, &a);
    return FY_STATUS_OK;
}
