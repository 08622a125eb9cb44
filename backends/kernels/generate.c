/* Ops that read no tensor: fill, and arange, rand, randn, randperm, which compute each element from
 * its linear index.
 * The latter make pieces of 256 elements in a buffer and move them to where dst has them; which
 * elements a piece holds does not depend on the number of threads. How random numbers come about:
 * opset/formulas/random.h. */
#include "opset/formulas/cast.h"
#include "opset/formulas/random.h"
#include "backends/kernels/rows.h"

enum { PIECE = FY__BLOCK };

/* ---- fill ---- */

typedef union pattern {
    float f32;
    double f64;
    uint16_t half;
    int32_t i32;
    int64_t i64;
    uint8_t u8;
} pattern_t;

typedef struct filler {
    pattern_t pattern;
    fy__move_fn move;
} filler_t;

static void fill_row(const void *context, int64_t n, char *const *ptr, const int64_t *stride)
{
    const filler_t *filler = (const filler_t *)context;
    filler->move(n, ptr[0], stride[0], &filler->pattern, 0);
}

fy_status_t fy__run_fill(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch)
{
    const fy_fill_attrs_t *attrs = (const fy_fill_attrs_t *)launch->attrs;
    filler_t filler = { .pattern.i64 = 0, .move = loops->move[fy__log2_size(launch->dst->dtype)] };
    fy__walk_t walk;
    (void)host;
    switch (launch->dst->dtype) {
    case FY_DTYPE_F32: filler.pattern.f32 = (float)attrs->value; break;
    case FY_DTYPE_F64: filler.pattern.f64 = attrs->value; break;
    case FY_DTYPE_F16: filler.pattern.half = fy__f16_from_f64(attrs->value); break;
    case FY_DTYPE_BF16: filler.pattern.half = fy__bf16_from_f64(attrs->value); break;
    case FY_DTYPE_I32: filler.pattern.i32 = (int32_t)attrs->int_value; break;
    case FY_DTYPE_I64: filler.pattern.i64 = attrs->int_value; break;
    case FY_DTYPE_U8: filler.pattern.u8 = (uint8_t)attrs->int_value; break;
    default: filler.pattern.u8 = attrs->int_value != 0; break;
    }
    fy__walk_make(&walk, launch->dst, NULL, 0);
    fy__walk_all(&walk, 1 << 19 >> walk.log2_size[0], fill_row, &filler);
    return FY_STATUS_OK;
}

/* ---- from the index ---- */

typedef struct generator {
    const fy__loops_t *loops;
    const void *attrs;
    int32_t dtype;
    int64_t seed, counter;
    fy__perm_t perm;
} generator_t;

/* Elements first .. first + n - 1 into out, contiguous, of the generator's dtype. first is a
 * multiple of PIECE; n of 16, at most PIECE. */
typedef void (*piece_fn)(const generator_t *generator, int64_t first, int64_t n, void *out);

static void arange_piece(const generator_t *generator, int64_t first, int64_t n, void *out)
{
    const fy_arange_attrs_t *attrs = (const fy_arange_attrs_t *)generator->attrs;
    double values[PIECE];
    for (int64_t i = 0; i < n; i++) values[i] = attrs->start + (double)(first + i) * attrs->step;
    generator->loops->cast[FY_DTYPE_F64][generator->dtype](n, out, values);
}

/* The lanes that elements first .. need: one an element, two for f64. */
static void draw_lanes(const generator_t *generator, int64_t first, int64_t n,
                       uint32_t lanes[2 * PIECE])
{
    const int64_t per_block = generator->dtype == FY_DTYPE_F64 ? 2 : 4;
    const uint64_t counter = (uint64_t)generator->counter + (uint64_t)(first / per_block);
    generator->loops->philox(n / per_block, (uint64_t)generator->seed, counter, lanes);
}

static void rand_piece(const generator_t *generator, int64_t first, int64_t n, void *out)
{
    const fy_rand_attrs_t *attrs = (const fy_rand_attrs_t *)generator->attrs;
    const float low = (float)attrs->low, high = (float)attrs->high;
    uint32_t lanes[2 * PIECE];
    draw_lanes(generator, first, n, lanes);
    switch (generator->dtype) {
    case FY_DTYPE_F32:
        for (int64_t i = 0; i < n; i++) ((float *)out)[i] = fy__rand_f32(lanes[i], low, high);
        break;
    case FY_DTYPE_F64:
        for (int64_t i = 0; i < n; i++)
            ((double *)out)[i] =
                fy__rand_f64(lanes[2 * i], lanes[2 * i + 1], attrs->low, attrs->high);
        break;
    case FY_DTYPE_F16:
        for (int64_t i = 0; i < n; i++) ((uint16_t *)out)[i] = fy__rand_f16(lanes[i], low, high);
        break;
    default:
        for (int64_t i = 0; i < n; i++) ((uint16_t *)out)[i] = fy__rand_bf16(lanes[i], low, high);
        break;
    }
}

static void randn_piece(const generator_t *generator, int64_t first, int64_t n, void *out)
{
    const fy_randn_attrs_t *attrs = (const fy_randn_attrs_t *)generator->attrs;
    const fy__loops_t *loops = generator->loops;
    uint32_t lanes[2 * PIECE];
    float values[PIECE];
    draw_lanes(generator, first, n, lanes);
    if (generator->dtype == FY_DTYPE_F64) {
        loops->normal_f64(n / 2, lanes, attrs->mean, attrs->std, (double *)out);
    } else {
        loops->normal_f32(n / 2, lanes, (float)attrs->mean, (float)attrs->std, values);
        loops->cast[FY_DTYPE_F32][generator->dtype](n, out, values);
    }
}

static void randperm_piece(const generator_t *generator, int64_t first, int64_t n, void *out)
{
    const int64_t count = generator->perm.n;
    for (int64_t i = 0; i < n; i++) {
        ((int64_t *)out)[i] =
            first + i < count ? (int64_t)fy__perm_at(&generator->perm, (uint32_t)(first + i)) : 0;
    }
}

typedef struct cursor {
    const char **from; /* advances as rows are written */
    fy__move_fn move;
    int log2_size;
} cursor_t;

static void put_row(const void *context, int64_t n, char *const *ptr, const int64_t *stride)
{
    const cursor_t *cursor = (const cursor_t *)context;
    cursor->move(n, ptr[0], stride[0], *cursor->from, 1);
    *cursor->from += n * ((int64_t)1 << cursor->log2_size);
}

static void make_piece(const generator_t *generator, piece_fn piece, const fy__walk_t *walk,
                       int64_t first)
{
    _Alignas(64) char buffer[PIECE * 8];
    const char *from = buffer;
    const int64_t n = walk->nelem - first < PIECE ? walk->nelem - first : PIECE;
    const cursor_t cursor = { &from, generator->loops->move[walk->log2_size[0]],
                              walk->log2_size[0] };
    piece(generator, first, (n + 15) / 16 * 16, buffer);
    fy__walk_range(walk, first, first + n, put_row, &cursor);
}

/* Elements, by one thread. */
static int64_t generated_in_20_us(fy_op_t op)
{
    switch (op) {
    case FY_OP_ARANGE: return 24576;
    case FY_OP_RAND: return 7168;
    case FY_OP_RANDN: return 4096;
    default: return 1024;
    }
}

fy_status_t fy__run_generate(const fy_host_api_t *host, const fy__loops_t *loops,
                             const fy_launch_t *launch)
{
    generator_t generator = { .loops = loops, .attrs = launch->attrs, .dtype = launch->dst->dtype };
    int64_t *state = launch->op == FY_OP_ARANGE ? NULL : (int64_t *)launch->dst[1].data;
    piece_fn piece = arange_piece;
    uint64_t advance = 0;
    fy__walk_t walk;
    (void)host;
    fy__walk_make(&walk, launch->dst, NULL, 0);
    const int64_t n = walk.nelem;
    int64_t *counter = state ? state + launch->dst[1].strides[0] : NULL;
    if (n == 0) return FY_STATUS_OK;
    if (state) {
        generator.seed = *state;
        generator.counter = *counter;
        advance = fy__rng_blocks((uint64_t)n, generator.dtype == FY_DTYPE_F64);
    }
    if (launch->op == FY_OP_RAND) piece = rand_piece;
    if (launch->op == FY_OP_RANDN) piece = randn_piece;
    if (launch->op == FY_OP_RANDPERM) {
        if (n > UINT32_MAX)
            return host->fail(FY_STATUS_UNSUPPORTED, __FILE__, __LINE__,
                              "randperm: %lld elements, the most is 2^32 - 1", (long long)n);
        piece = randperm_piece;
        generator.perm = fy__perm_make(generator.seed, generator.counter, (uint64_t)n);
        advance = 1;
    }
    const int threads = fy__threads_for(n, generated_in_20_us(launch->op));
    if (threads == 1) {
        for (int64_t first = 0; first < n; first += PIECE)
            make_piece(&generator, piece, &walk, first);
    } else {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t first = 0; first < n; first += PIECE)
            make_piece(&generator, piece, &walk, first);
    }
    if (state) *counter = (int64_t)((uint64_t)generator.counter + advance);
    return FY_STATUS_OK;
}
