/* Chains (FY_LAUNCH_CHAIN): several elementwise ops in one pass. Each op runs on a block that stays
 * in the cache, then the next op on the same block, by the loops that run it alone; so the bits are
 * the same. Values between ops are blocks on the stack. A source that repeats or has gaps is first
 * copied to such a block. Cheap f32 ops of which each reads the one before run on registers.
 * Not here: which calls make a chain (ops/fuse.c), the loops (loops_template.h), the instructions
 * for registers (chain_code.c). */
#include "backends/kernels/chain.h"

#include <stdatomic.h>
#include <string.h>

#include "backends/kernels/rows.h"
#include "opset/formulas/index.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum {
    OPS = 64,      /* of a chain, at most */
    OPERANDS = 32, /* in memory */
    BLOCKS = 24,   /* on the stack: values, copied sources, results that go past the cache */
    AHEAD = 4,     /* blocks: so far ahead sources are requested from memory */
    BLOCK = 512,   /* elements, at most: four blocks of f32 are a quarter of a small L1 cache */
    ALIGNED = FY__CHAIN_LANES, /* elements: blocks begin at multiples of this */
    ROOM = 48 << 10,           /* bytes of stack for blocks */
    ROW = 1024,                /* elements of a row that the last op reduces, at most */
    SHARES = 8,                /* pieces for each thread: a thread that wakes late takes fewer */
    RUNS = 8
};
/* From this size on a result goes past the cache, as in memcpy. */
#define STREAMED_NBYTES (4u << 20)
/* The time of an op on registers, of its time alone in the cache. */
#define ON_REGISTERS 0.5

enum form { FORM_ONE, FORM_TWO, FORM_SCALED, FORM_LAUNCH, FORM_ROWS, FORM_DROPOUT };

/* An op with its loop. FORM_LAUNCH, FORM_ROWS: its family runs it, on one axis or on rows. */
typedef struct step {
    const fy_chain_op_t *op;
    enum form form;
    union {
        fy__loop1_fn one;
        fy__loop2_fn two;
        fy__loop_scaled_fn scaled;
    } loop;
    double p, q;
    int64_t state[2]; /* FORM_DROPOUT: seed and counter of its draws */
    int run, count;   /* the first of `count` ops that run on registers; 0: it is not */
} step_t;

typedef struct operand {
    const fy_desc_t *desc;
    int shift; /* an element has 1 << shift bytes */
    int block; /* its block on the stack; -1: used where it is */
    /* a source on a block: the block is the same for each period of this many elements; 0: never */
    int64_t period;
    int64_t row;  /* of a reduction's result: elements for each of its elements; else 1 */
    int is_state; /* of dropout: read and written before the first block */
} operand_t;

typedef struct chain {
    const fy_host_api_t *host;
    const fy__loops_t *loops;
    int nsteps, noperands, ndst, nblocks, nruns;
    step_t step[OPS];
    fy__chain_run_t run[RUNS];
    operand_t operand[OPERANDS];
    int first_value;         /* block of the first value */
    int64_t nelem, n, piece; /* elements: of all, of a block, of a thread */
    int64_t row;             /* elements of a row; blocks have whole rows. 1: no reduction */
    int64_t block_nbytes;
    int is_forced;         /* a number of threads is set: ops inside must not take them */
    _Atomic int64_t *next; /* the first element that no thread has taken */
} chain_t;

/* ---- preparing ---- */

static int is_flat(const fy_desc_t *desc) { return fy__desc_is_dense(desc); }

/* Elements after which a source repeats: all axes before the last ones have stride 0, and those are
 * without gaps. 0: it does not. */
static int64_t period_of(const fy_desc_t *desc)
{
    int64_t period = 1;
    int axis = desc->rank - 1;
    for (; axis >= 0 && (desc->dims[axis] == 1 || desc->strides[axis] == period); axis--)
        period *= desc->dims[axis];
    for (; axis >= 0; axis--)
        if (desc->dims[axis] != 1 && desc->strides[axis] != 0) return 0;
    return period;
}

static int is_reduction(fy_op_t op)
{
    const fy__kernel_row_t *row = &fy__kernel_rows[op];
    return row->run == fy__run_sum || row->run == fy__run_extreme;
}

static int is_dropout(fy_op_t op) { return op == FY_OP_DROPOUT || op == FY_OP_DROPOUT_BACKWARD; }

/* Is operand i a state, used once and not for each element? */
static int is_state(const fy_launch_t *launch, int i)
{
    const fy_chain_op_t *ops = (const fy_chain_op_t *)launch->attrs;
    for (size_t k = 0; k < launch->attrs_nbytes / sizeof *ops; k++)
        for (int j = 1; is_dropout(ops[k].op) && j < ops[k].nsrc; j++)
            if (ops[k].src[j] == i) return 1;
    return 0;
}

/* Elements of a row if the last op reduces rows; else 1. */
static int64_t row_of(const fy_launch_t *launch)
{
    const fy_chain_op_t *ops = (const fy_chain_op_t *)launch->attrs;
    const fy_chain_op_t *last = &ops[launch->attrs_nbytes / sizeof *ops - 1];
    int64_t nrows = 1;
    if (!is_reduction(last->op) || last->dst >= launch->ndst) return 1;
    const fy_desc_t *dst = &launch->dst[last->dst];
    for (int axis = 0; axis < dst->rank; axis++) nrows *= dst->dims[axis];
    return nrows ? (int64_t)launch->nelem / nrows : 1;
}

/* Ops of one dtype that assign have a loop; others run as launches. */
static void bind(step_t *step, const fy__loops_t *loops)
{
    const fy_chain_op_t *op = step->op;
    const fy__kernel_row_t *row = &fy__kernel_rows[op->op];
    const int32_t dtype = op->dst_dtype;
    step->form = is_reduction(op->op) ? FORM_ROWS : is_dropout(op->op) ? FORM_DROPOUT : FORM_LAUNCH;
    step->p = op->attrs[0];
    if (op->accumulate || step->form != FORM_LAUNCH) return;
    if (row->run == fy__run_unary && (step->loop.one = loops->unary[row->index][dtype]))
        step->form = FORM_ONE;
    if (row->run == fy__run_binary && (step->loop.two = loops->binary[row->index][dtype]))
        step->form = FORM_TWO;
    if (dtype > FY_DTYPE_F64) return;
    step->q = op->attrs_nbytes > sizeof(double) ? op->attrs[1] : 0;
    if (row->run == fy__run_scaled) step->loop.scaled = loops->scaled[row->index][dtype];
    if (row->run == fy__run_affine) step->loop.scaled = loops->affine[dtype];
    if (row->run == fy__run_clamp) step->loop.scaled = loops->clamp[dtype];
    if (row->run == fy__run_scaled || row->run == fy__run_affine || row->run == fy__run_clamp)
        step->form = FORM_SCALED;
}

/* May result i go past the cache? Not if an op reads it. */
static int is_streamed(const fy_launch_t *launch, int i)
{
#if defined(__x86_64__)
    const fy_chain_op_t *ops = (const fy_chain_op_t *)launch->attrs;
    const size_t count = launch->attrs_nbytes / sizeof *ops;
    const uint64_t nbytes = launch->nelem << fy__log2_size(launch->dst[i].dtype);
    if (nbytes < STREAMED_NBYTES || (uintptr_t)launch->dst[i].data % 16) return 0;
    if (is_state(launch, i)) return 0;
    if (row_of(launch) > 1 && row_of(launch) % 64) return 0; /* blocks begin at other addresses */
    for (size_t k = 0; k < count; k++) {
        if (ops[k].dst == i && (ops[k].accumulate || is_reduction(ops[k].op) ||
                                ops[k].op == FY_OP_AXPY || ops[k].op == FY_OP_CLIP_BY_NORM))
            return 0;
        for (int j = 0; j < ops[k].nsrc; j++)
            if (ops[k].src[j] == i) return 0;
    }
    for (int k = 0; k < launch->nsrc; k++)
        if (launch->src[k].data == launch->dst[i].data) return 0;
    return 1;
#else
    (void)launch;
    (void)i;
    return 0;
#endif
}

static int nvalues_of(const fy_launch_t *launch)
{
    const fy_chain_op_t *ops = (const fy_chain_op_t *)launch->attrs;
    const int noperands = launch->ndst + launch->nsrc;
    int nvalues = 0;
    for (size_t k = 0; k < launch->attrs_nbytes / sizeof *ops; k++)
        if (ops[k].dst >= noperands + nvalues) nvalues = ops[k].dst - noperands + 1;
    return nvalues;
}

int fy__chain_supports(const fy_launch_t *launch)
{
    const size_t count = launch->attrs_nbytes / sizeof(fy_chain_op_t);
    const int noperands = launch->ndst + launch->nsrc;
    if (launch->op != FY_LAUNCH_CHAIN || count < 1 || count > OPS || launch->ndst < 1 ||
        noperands > OPERANDS || noperands + nvalues_of(launch) > BLOCKS)
        return 0;
    const int64_t row = row_of(launch);
    return row <= ROW && row * (noperands + nvalues_of(launch)) * 8 <= ROOM;
}

/* f32 elements that one thread does in 20 us. */
static int64_t serial_of(const chain_t *chain)
{
    double time = 0;
    for (int k = 0, rest = 0; k < chain->nsteps; k++, rest--) {
        const fy_chain_op_t *op = chain->step[k].op;
        const int64_t serial = is_dropout(op->op) ? FY__DROPOUT_SERIAL
                                                  : fy__elementwise_serial(op->op);
        if (chain->step[k].count) rest = chain->step[k].count;
        time += (rest > 0 ? ON_REGISTERS : 1.0) / (double)fy__serial_of(op->dst_dtype, serial);
    }
    return time > 1 ? 1 : (int64_t)(1.0 / time);
}

/* As many elements as fit the blocks, and whole periods of a source that repeats. */
static int64_t block_size(const chain_t *chain, int shift)
{
    int64_t n = (ROOM / (chain->nblocks ? chain->nblocks : 1)) >> shift;
    if (chain->row > 1)
        return n < BLOCK || chain->row > BLOCK ? chain->row : BLOCK / chain->row * chain->row;
    n = (n < BLOCK ? n : BLOCK) / ALIGNED * ALIGNED;
    for (int i = 0; i < chain->noperands; i++) {
        const int64_t period = chain->operand[i].block < 0 ? 0 : chain->operand[i].period;
        if (period > 1 && period * ALIGNED <= n) return n / (period * ALIGNED) * period * ALIGNED;
    }
    return n;
}

static void find_runs(chain_t *chain, const fy_chain_op_t *ops)
{
    chain->nruns = 0;
    for (int k = 0; k < chain->nsteps && chain->nruns < RUNS; k++) {
        step_t *step = &chain->step[k];
        step->run = chain->nruns;
        step->count =
            fy__chain_encode(ops, chain->nsteps, k, chain->noperands, &chain->run[step->run]);
        if (!step->count) continue;
        chain->nruns++;
        k += step->count - 1;
    }
}

/* Result i goes past the cache, and the run that sets it can store it so, without a block. */
static int stream_from_registers(chain_t *chain, const fy_launch_t *launch, int i)
{
    if ((uintptr_t)launch->dst[i].data % 64) return 0;
    for (int k = 0; k < chain->nsteps; k++) {
        const step_t *step = &chain->step[k];
        if (!step->count && step->op->dst == i) return 0;
        if (step->count) k += step->count - 1;
    }
    for (int r = 0; r < chain->nruns; r++)
        for (int c = 0; c < chain->run[r].ncodes; c++)
            if (chain->run[r].code[c].kind == FY__CHAIN_STORE && chain->run[r].operand[c] == i)
                chain->run[r].code[c].kind = FY__CHAIN_STREAM;
    return 1;
}

static void prepare(chain_t *chain, const fy_launch_t *launch)
{
    const fy_chain_op_t *ops = (const fy_chain_op_t *)launch->attrs;
    int shift = 0;
    chain->nsteps = (int)(launch->attrs_nbytes / sizeof *ops);
    chain->ndst = launch->ndst;
    chain->noperands = launch->ndst + launch->nsrc;
    chain->nelem = (int64_t)launch->nelem;
    chain->row = row_of(launch);
    chain->nblocks = 0;
    for (int k = 0; k < chain->nsteps; k++) {
        const int size = fy__log2_size(ops[k].dst_dtype);
        chain->step[k] = (step_t){ .op = &ops[k] };
        bind(&chain->step[k], chain->loops);
        shift = size > shift ? size : shift;
    }
    find_runs(chain, ops);
    for (int i = 0; i < chain->noperands; i++) {
        operand_t *operand = &chain->operand[i];
        const int is_dst = i < chain->ndst;
        operand->desc = is_dst ? &launch->dst[i] : &launch->src[i - chain->ndst];
        operand->shift = fy__log2_size(operand->desc->dtype);
        operand->row = is_dst && ops[chain->nsteps - 1].dst == i ? chain->row : 1;
        operand->is_state = is_state(launch, i);
        operand->period = is_dst || operand->is_state ? 0 : period_of(operand->desc);
        const int has_block = operand->is_state ? 0
                              : is_dst          ? is_streamed(launch, i) &&
                                             !stream_from_registers(chain, launch, i)
                                       : !is_flat(operand->desc);
        operand->block = has_block ? chain->nblocks++ : -1;
        shift = operand->shift > shift ? operand->shift : shift;
    }
    chain->first_value = chain->nblocks;
    chain->nblocks += nvalues_of(launch);
    chain->n = block_size(chain, shift);
    chain->block_nbytes = chain->n << shift;
    for (int i = 0; i < chain->noperands; i++)
        if (chain->operand[i].period && chain->n % chain->operand[i].period)
            chain->operand[i].period = 0;
}

/* The draws of each dropout, in the order of the ops, as if each ran alone. */
static void read_states(chain_t *chain)
{
    for (int k = 0; k < chain->nsteps; k++) {
        step_t *step = &chain->step[k];
        if (step->form != FORM_DROPOUT) continue;
        const fy_desc_t *state = chain->operand[step->op->src[1]].desc;
        const fy_desc_t *before =
            step->op->op == FY_OP_DROPOUT ? chain->operand[step->op->src[2]].desc : NULL;
        fy__dropout_state(state, before, chain->nelem, step->state);
    }
}

/* ---- running ---- */

/* Where the operands of a step are for the current block, and how far the next block is. */
typedef struct place {
    char *at[4]; /* dst, sources */
    int64_t step[4];
} place_t;

typedef struct cursor {
    const chain_t *chain;
    char *at; /* advances as rows come */
    int shift;
} cursor_t;

static void take_row(const void *context, int64_t n, char *const *ptr, const int64_t *stride)
{
    cursor_t *cursor = *(cursor_t *const *)context;
    cursor->chain->loops->move[cursor->shift](n, cursor->at, 1, ptr[0], stride[0]);
    cursor->at += n << cursor->shift;
}

static void gather(const chain_t *chain, const operand_t *operand, int64_t first, int64_t n,
                   char *block)
{
    fy__walk_t walk;
    cursor_t cursor = { chain, block, operand->shift }, *context = &cursor;
    fy__walk_make(&walk, operand->desc, NULL, 0);
    fy__walk_range(&walk, first, first + n, take_row, &context);
}

/* Past the cache; both are aligned to 16 bytes. */
static void stream_out(char *dst, const char *src, int64_t nbytes)
{
#if defined(__x86_64__)
    int64_t i = 0;
    for (; i + 64 <= nbytes; i += 64) {
        const __m128i a = _mm_load_si128((const __m128i *)(const void *)(src + i)),
                      b = _mm_load_si128((const __m128i *)(const void *)(src + i + 16)),
                      c = _mm_load_si128((const __m128i *)(const void *)(src + i + 32)),
                      d = _mm_load_si128((const __m128i *)(const void *)(src + i + 48));
        _mm_stream_si128((__m128i *)(void *)(dst + i), a);
        _mm_stream_si128((__m128i *)(void *)(dst + i + 16), b);
        _mm_stream_si128((__m128i *)(void *)(dst + i + 32), c);
        _mm_stream_si128((__m128i *)(void *)(dst + i + 48), d);
    }
    memcpy(dst + i, src + i, (size_t)(nbytes - i));
#else
    memcpy(dst, src, (size_t)nbytes);
#endif
}

/* A later block of a source, so that it arrives while this one is computed. */
static inline void prefetch(const operand_t *operand, int64_t first, int64_t n, int64_t end)
{
    if (first >= end) return;
    const char *at = (const char *)operand->desc->data + (first << operand->shift),
               *stop = at + ((end - first < n ? end - first : n) << operand->shift);
    for (; at < stop; at += 64) __builtin_prefetch(at, 0, 2); /* second-level cache */
}

static void run_launch(const chain_t *chain, const step_t *step, int64_t n, char *const *at)
{
    const fy_chain_op_t *op = step->op;
    fy_desc_t desc[4];
    fy_launch_t launch = { .struct_size = sizeof launch,
                           .op = op->op,
                           .nsrc = op->nsrc,
                           .ndst = 1,
                           .flags = FY_LAUNCH_DENSE,
                           .accumulate = op->accumulate,
                           .dst = &desc[0],
                           .src = &desc[1],
                           .attrs = op->attrs,
                           .attrs_nbytes = op->attrs_nbytes,
                           .nelem = (uint64_t)n };
    for (int k = 0; k <= op->nsrc; k++) {
        desc[k].data = at[k];
        desc[k].dtype = k ? op->src_dtype[k - 1] : op->dst_dtype;
        desc[k].rank = 1;
        desc[k].dims[0] = n;
        desc[k].strides[0] = 1;
    }
    (void)fy__kernel_rows[op->op].run(chain->host, chain->loops, &launch);
}

/* The families of reductions run each row as they would alone. */
static void run_rows(const chain_t *chain, const step_t *step, int64_t n, char *const *at)
{
    const fy_chain_op_t *op = step->op;
    const fy_reduce_attrs_t last_axis = { .axes = 2 };
    fy_desc_t src = { .data = at[1],
                      .dtype = op->src_dtype[0],
                      .rank = 2,
                      .dims = { n / chain->row, chain->row },
                      .strides = { chain->row, 1 } },
              dst = { .data = at[0],
                      .dtype = op->dst_dtype,
                      .rank = 1,
                      .dims = { n / chain->row },
                      .strides = { 1 } };
    const fy_launch_t launch = { .struct_size = sizeof launch,
                                 .op = op->op,
                                 .nsrc = 1,
                                 .ndst = 1,
                                 .dst = &dst,
                                 .src = &src,
                                 .attrs = &last_axis,
                                 .attrs_nbytes = sizeof last_axis,
                                 .nelem = (uint64_t)(n / chain->row) };
    (void)fy__kernel_rows[op->op].run(chain->host, chain->loops, &launch);
}

/* `first`: the number of the first element. */
static inline void run_step(const chain_t *chain, const step_t *step, int64_t first, int64_t n,
                            char *const *at)
{
    switch (step->form) {
    case FORM_DROPOUT:
        fy__dropout_block(chain->loops, step->op->dst_dtype, step->state, step->p, first, n, at[0],
                          at[1]);
        break;
    case FORM_ONE: step->loop.one(n, at[0], at[1]); break;
    case FORM_TWO: step->loop.two(n, at[0], at[1], at[2]); break;
    case FORM_SCALED: step->loop.scaled(n, at[0], at[1], step->p, step->q); break;
    case FORM_LAUNCH: run_launch(chain, step, n, at); break;
    case FORM_ROWS: run_rows(chain, step, n, at); break;
    }
}

static void find_place(const chain_t *chain, unsigned operand, int64_t first, char *room,
                       char **out_at, int64_t *out_step)
{
    int block = chain->first_value + (int)operand - chain->noperands;
    *out_step = 0;
    if ((int)operand < chain->noperands) {
        const operand_t *o = &chain->operand[operand];
        block = o->block;
        if (block < 0) {
            *out_at = (char *)o->desc->data + ((first / o->row) << o->shift);
            *out_step = (chain->n / o->row) << o->shift;
            return;
        }
    }
    *out_at = room + block * chain->block_nbytes;
}

/* The instructions with the addresses of the elements from `first` on. */
typedef struct code {
    fy__chain_code_t code[3 * FY__CHAIN_RUN + 2];
    int64_t step[3 * FY__CHAIN_RUN + 2];
} code_t;

/* The ops of a run: on registers, and the elements behind the last group one op after the other. */
static void run_registers(const chain_t *chain, int k, int64_t from, int64_t n,
                          const place_t *place, code_t *code)
{
    const step_t *first = &chain->step[k];
    const fy__chain_run_t *run = &chain->run[first->run];
    const int64_t done = n / FY__CHAIN_LANES * FY__CHAIN_LANES;
    chain->loops->chain_f32(done, code->code);
    for (int c = 0; c < run->ncodes; c++) code->code[c].at += code->step[c];
    for (int i = k; done < n && i < k + first->count; i++) {
        char *at[4] = { NULL };
        for (int j = 0; j <= chain->step[i].op->nsrc; j++)
            at[j] = place[i].at[j] + done * (int64_t)sizeof(float);
        run_step(chain, &chain->step[i], from + done, n - done, at);
    }
}

static void find_places(const chain_t *chain, int64_t first, char *room, place_t *place,
                        code_t *code)
{
    for (int k = 0; k < chain->nsteps; k++) {
        const fy_chain_op_t *op = chain->step[k].op;
        for (int j = 0; j <= op->nsrc; j++)
            find_place(chain, j ? op->src[j - 1] : op->dst, first, room, &place[k].at[j],
                       &place[k].step[j]);
    }
    for (int r = 0; r < chain->nruns; r++)
        for (int c = 0; c < chain->run[r].ncodes; c++) {
            code[r].code[c] = chain->run[r].code[c];
            find_place(chain, chain->run[r].operand[c], first, room, &code[r].code[c].at,
                       &code[r].step[c]);
        }
}

static void run_steps(const chain_t *chain, int64_t first, int64_t n, place_t *place, code_t *code)
{
    for (int k = 0; k < chain->nsteps; k++) {
        const step_t *step = &chain->step[k];
        if (step->count) {
            run_registers(chain, k, first, n, place, &code[step->run]);
            k += step->count - 1;
        } else {
            run_step(chain, step, first, n, place[k].at);
        }
    }
    for (int k = 0; k < chain->nsteps; k++)
        for (int j = 0; j <= chain->step[k].op->nsrc; j++) place[k].at[j] += place[k].step[j];
}

/* The elements from `begin` to `end`, block by block. */
static void run_piece(const chain_t *chain, int64_t begin, int64_t end, char *room, int is_first)
{
    place_t place[OPS] = { 0 };
    code_t code[RUNS];
    find_places(chain, begin, room, place, code);
    for (int64_t first = begin; first < end; first += chain->n) {
        const int64_t n = end - first < chain->n ? end - first : chain->n;
        for (int i = chain->ndst; i < chain->noperands; i++) {
            const operand_t *o = &chain->operand[i];
            if (o->is_state) continue;
            if (o->block < 0) prefetch(o, first + AHEAD * chain->n, chain->n, end);
            if (o->block >= 0 && ((is_first && first == begin) || !o->period))
                gather(chain, o, first, n, room + o->block * chain->block_nbytes);
        }
        run_steps(chain, first, n, place, code);
        for (int i = 0; i < chain->ndst; i++) {
            const operand_t *o = &chain->operand[i];
            if (o->block >= 0)
                stream_out((char *)o->desc->data + (first << o->shift),
                           room + o->block * chain->block_nbytes, n << o->shift);
        }
    }
}

/* A thread takes pieces until there are none. */
static void run_pieces(const void *context, int64_t t)
{
    const chain_t *chain = (const chain_t *)context;
    _Alignas(64) char room[ROOM];
    int64_t begin;
    (void)t;
    const int before = chain->is_forced ? fy__threads_override(1) : 0;
    for (int is_first = 1; (begin = atomic_fetch_add_explicit(chain->next, chain->piece,
                                                              memory_order_relaxed)) < chain->nelem;
         is_first = 0)
        run_piece(chain, begin,
                  begin + chain->piece < chain->nelem ? begin + chain->piece : chain->nelem, room,
                  is_first);
    if (chain->is_forced) (void)fy__threads_override(before);
#if defined(__x86_64__)
    _mm_sfence(); /* other threads see what went past the cache */
#endif
}

fy_status_t fy__run_chain(const fy_host_api_t *host, const fy__loops_t *loops,
                          const fy_launch_t *launch)
{
    chain_t chain;
    _Atomic int64_t next = 0;
    chain.host = host;
    chain.loops = loops;
    chain.next = &next;
    prepare(&chain, launch);
    read_states(&chain);
    const int threads = fy__threads_for(chain.nelem, serial_of(&chain));
    const int64_t blocks = (chain.nelem + chain.n - 1) / chain.n;
    const int64_t pieces = threads > 1 ? (int64_t)threads * SHARES : 1;
    chain.is_forced = threads > 1 && fy__threads_facts().forced > 1;
    chain.piece = (blocks + pieces - 1) / pieces * chain.n; /* pieces begin at whole blocks */
    fy__for_each(threads, threads, run_pieces, &chain);
    return FY_STATUS_OK;
}
