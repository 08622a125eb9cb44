/* The oracle of test_bytes.c. A storage is a list of numbers. A handle is a place in a storage: an
 * offset, dims and strides. A write through any handle changes the numbers, and a read through any
 * other sees them. Each number has its derivatives with respect to the elements of the watched
 * tensors (forward mode: Griewank and Walther, "Evaluating Derivatives", 2008, chapter 3). So
 * views, overwritten bytes and ops in place need no rules. Next: bytes.c (calls), test_bytes.c. */
#ifndef FERRY_TESTS_PROPERTY_BYTES_H_
#define FERRY_TESTS_PROPERTY_BYTES_H_

#include <math.h>

#include "tests/support/harness.h"
#include "tests/support/value.h"

enum { MOST = 24, LEAVES = 3, LEAF_MOST = 6, COLUMNS = LEAVES * LEAF_MOST, RANK = 3 };

/* `size` and `dsize`: sums of absolute values in place of sums, which bound rounding errors.
 * INFINITY: the number is unknown. */
typedef struct number {
    double v, size, d[COLUMNS], dsize[COLUMNS];
    bool is_exact; /* no device may round it */
} number_t;

typedef struct bytes {
    fy_dtype_t dtype;
    int64_t n;
    number_t at[MOST];
    /* 1 + the column of a watched element, and while its bytes are not another result's; 0: none */
    int home[MOST], leaf[MOST];
    uint64_t written[MOST]; /* when; 0: before the record */
    bool is_used;
} bytes_t;

typedef struct handle {
    fy_tensor_t *t; /* NULL: a free slot */
    bytes_t *bytes;
    int64_t offset, dims[RANK], strides[RANK];
    int rank;
    bool is_read_only, is_detached;
    /* detached: when it was made; what was written before is a constant for it */
    uint64_t seen;
    uint64_t leaf_record; /* it is a watched tensor or a view of one in this record */
    bool is_held;         /* watched, or the place of a gradient */
    int depth;            /* views of views */
} handle_t;

static inline int64_t count_of(int rank, const int64_t *dims)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= dims[i];
    return n;
}
static inline int64_t nelem(const handle_t *h) { return count_of(h->rank, h->dims); }

static inline int64_t place_of(const handle_t *h, int64_t element)
{
    int64_t at = h->offset;
    for (int i = h->rank; i-- > 0;) {
        at += element % h->dims[i] * h->strides[i];
        element /= h->dims[i];
    }
    return at;
}

static inline void make_dense(handle_t *h, int rank, const int64_t *dims)
{
    h->rank = rank;
    for (int64_t i = rank, stride = 1; i-- > 0; stride *= dims[i]) {
        h->dims[i] = dims[i];
        h->strides[i] = stride;
    }
}

static inline bool is_dense(const handle_t *h)
{
    int64_t stride = 1;
    for (int i = h->rank; i-- > 0; stride *= h->dims[i])
        if (h->dims[i] != 1 && h->strides[i] != stride) return nelem(h) == 0;
    return true;
}

/* The element of `src` that belongs to element `element` of a result of these dims. */
static inline int64_t broadcast_of(const handle_t *src, int rank, const int64_t *dims,
                                   int64_t element)
{
    int64_t index[RANK], at = 0;
    for (int i = rank; i-- > 0; element /= dims[i]) index[i] = element % dims[i];
    for (int i = 0; i < src->rank; i++)
        at = at * src->dims[i] + (src->dims[i] == 1 ? 0 : index[i + rank - src->rank]);
    return at;
}

/* As NumPy broadcasts; false: the shapes do not fit. */
static inline bool broadcast_dims(const handle_t *a, const handle_t *b, int *rank, int64_t *dims)
{
    *rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 0; i < *rank; i++) {
        const int in_a = i - *rank + a->rank, in_b = i - *rank + b->rank;
        const int64_t x = in_a < 0 ? 1 : a->dims[in_a], y = in_b < 0 ? 1 : b->dims[in_b];
        if (x != y && x != 1 && y != 1) return false;
        dims[i] = x == 1 ? y : x;
    }
    return true;
}

static inline bool has_dims(const handle_t *h, int rank, const int64_t *dims)
{
    if (h->rank != rank) return false;
    for (int i = 0; i < rank; i++)
        if (h->dims[i] != dims[i]) return false;
    return true;
}

/* ---- numbers ---- */

static inline number_t constant(double v)
{
    return (number_t){ .v = v, .size = isfinite(v) ? fabs(v) : 1, .is_exact = true };
}

static inline bool is_unknown(const number_t *a) { return isinf(a->size); }

static inline bool depends(const number_t *a)
{
    for (int k = 0; k < COLUMNS; k++)
        if (a->dsize[k] != 0) return true;
    return false;
}

/* Its value is unknown, or only its derivatives are. */
static inline number_t unknown(number_t a, bool also_value)
{
    for (int k = 0; k < COLUMNS; k++)
        if (a.dsize[k] != 0) a.dsize[k] = INFINITY;
    if (also_value) a.size = INFINITY;
    return a;
}

/* How far a device may be from it. */
static inline double bound(const number_t *a, double unit)
{
    return a->is_exact ? 0 : 32 * unit * (a->size + unit);
}

/* v with the derivatives a.d * pa + b.d * pb. */
static inline number_t combine(double v, double size, const number_t *a, double pa,
                               const number_t *b, double pb, double size_pa, double size_pb)
{
    number_t r = { .v = v, .size = size, .is_exact = a->is_exact && b->is_exact };
    for (int k = 0; k < COLUMNS; k++) {
        if (a->dsize[k] != 0) {
            r.d[k] += a->d[k] * pa;
            r.dsize[k] += size_pa == 0 ? 0 : a->dsize[k] * size_pa;
        }
        if (b->dsize[k] != 0) {
            r.d[k] += b->d[k] * pb;
            r.dsize[k] += size_pb == 0 ? 0 : b->dsize[k] * size_pb;
        }
    }
    return r;
}

static inline number_t add(const number_t *a, const number_t *b, double scale)
{
    return combine(a->v + scale * b->v, a->size + fabs(scale) * b->size, a, 1, b, scale, 1,
                   fabs(scale));
}

static inline number_t mul(const number_t *a, const number_t *b)
{
    return combine(a->v * b->v, a->size * b->size, a, b->v, b, a->v, b->size, a->size);
}

static inline number_t affine(const number_t *a, double scale, double shift)
{
    const number_t none = constant(0);
    return combine(scale * a->v + shift, fabs(scale) * a->size + fabs(shift), a, scale, &none, 0,
                   fabs(scale), 0);
}

static inline number_t hyperbolic(const number_t *a)
{
    const number_t none = constant(0);
    const double y = tanh(a->v);
    number_t r =
        combine(y, fabs(y) + (is_unknown(a) ? INFINITY : a->size), a, 1 - y * y, &none, 0, 1, 0);
    r.is_exact = false;
    return r;
}

/* first if x > y (or_equal: or equal), else second. `x - y` decides: where rounding may decide the
 * other way, nothing is known but a value that both have. */
static inline number_t choose(const number_t *x, const number_t *y, bool or_equal,
                              const number_t *first, const number_t *second, double unit)
{
    const double error = bound(x, unit) + bound(y, unit);
    number_t r = x->v > y->v || (or_equal && x->v == y->v) ? *first : *second;
    const bool is_lost = is_unknown(x) || is_unknown(y);
    if (!is_lost && (error == 0 || fabs(x->v - y->v) > error)) return r;
    r = add(first, second, 1); /* depends on what either does */
    r.v = first->v;
    r.size += x->size + y->size;
    r.is_exact = false;
    return unknown(r, is_lost || !(fabs(first->v - second->v) <= error));
}

/* As a result of this dtype has it. */
static inline number_t as_stored(number_t a, fy_dtype_t dtype)
{
    const double most = 1 / ts_unit(dtype) / 256;
    a.v = ts_round(dtype, a.v);
    a.is_exact = a.is_exact && isfinite(a.v) && a.size < most && a.v * 64 == rint(a.v * 64);
    if (isnan(a.size)) a.size = INFINITY; /* unknown times 0 */
    if (!isfinite(a.v) && !is_unknown(&a)) a.size = 1;
    for (int k = 0; k < COLUMNS; k++)
        if (isnan(a.dsize[k])) a.dsize[k] = INFINITY;
    return a;
}

/* ---- programs ---- */

enum { SLOTS = 12, STORAGES = 64, NSTEPS = 60, LARGEST = 1000 };

typedef enum kind {
    NEW,
    UNARY,
    BINARY,
    WHERE,
    MATMUL,
    SUM,
    CONCAT,
    CAST,
    VIEW,
    SPLIT,
    FILL,
    COPY,
    AXPY,
    INTO,
    UPLOAD_INTO,
    CLIP,
    SEND,
    WATCH,
    BEGIN,
    PAUSE,
    OTHER_TAPE, /* watches a tensor and goes back */
    BACKWARD,
    READ,
    DROP
} kind_t;

typedef struct step {
    kind_t kind;
    int a, b, c, to;
    uint64_t choice;
} step_t;

typedef struct program {
    step_t steps[NSTEPS];
    uint64_t seed;
    int shapes[4]; /* of k_shapes */
    bool has_halves, has_nans, in_graphs;
} program_t;

typedef struct leaf {
    handle_t *watched, *place; /* place NULL: the tape's */
    bool is_temporary;         /* until the next record */
    bool has_grad;
    bool is_lost; /* a backward failed: it may have a gradient */
    number_t grad[LEAF_MOST];
} leaf_t;

typedef struct counts {
    uint64_t calls, refused, backwards, busy_backwards, compared, gradients;
    uint64_t views_of_views, view_writes, writes_before, writes_between, zero_sizes, halves, nans;
    uint64_t graphs, taped, right; /* programs that went back; and had a gradient that is not 0 */
} counts_t;

typedef struct world {
    ts_ctx_t *ctx;
    handle_t slots[SLOTS];
    bytes_t storages[STORAGES];
    leaf_t leaves[LEAVES];
    fy_tape_t *tape;
    fy_scope_t pause;
    bool is_recording, is_paused;
    bool in_graph;   /* no call has run yet */
    bool is_over;    /* a call was refused in a graph, which cannot be ended then */
    bool runs_again; /* this step's op is the function of fy_tape_recompute */
    bool is_wild;    /* the record read NaN or infinity: its gradients may be any */
    uint64_t record, clock, record_began, writes; /* writes: to tensors that were there, in it */
    double unit;                                  /* of the least exact dtype so far */
    bool prints;
    char line[160], why[600];
    counts_t counts;
} world_t;

#define SAY(...)                                    \
    do {                                            \
        char text_[160];                            \
        if (!w->prints) break;                      \
        snprintf(text_, sizeof text_, __VA_ARGS__); \
        by_say(w, text_);                           \
    } while (0)

/* The first tensor from slot `slot` on that has the dtype of `a` and fits it: */
typedef enum fit {
    BROADCASTS, /* both have a common shape */
    INTO_A,     /* it can be broadcast to a's */
    SAME,
    PRODUCT, /* a matrix behind matrix a */
    JOINED   /* in all but the first axis */
} fit_t;

static inline bool by_is_live(const world_t *w) { return w->is_recording && !w->is_paused; }
static inline bool by_is_float(const handle_t *h) { return ts_is_float(h->bytes->dtype); }
static inline int by_slot(const world_t *w, const handle_t *h) { return (int)(h - w->slots); }
/* The number that reading an element through a handle gives, and writing one. */
number_t by_get(world_t *w, const handle_t *h, int64_t element);
void by_put(world_t *w, const handle_t *h, int64_t element, number_t a);
number_t by_sum(world_t *w, const handle_t *h);
/* Both have an element. */
bool by_shares(const handle_t *a, const handle_t *b);
handle_t *by_find(world_t *w, const handle_t *a, int slot, fit_t fit);
/* A call with these sources and a result that was there (NULL: none). True if it was made; a
 * refusal must have a reason. */
bool by_accepted(world_t *w, fy_status_t status, int nsrc, const handle_t *const *src,
                 const handle_t *dst);
void by_fail(world_t *w, const char *text);
void by_say(world_t *w, const char *text);
/* A dense result in a new storage, or in `into`. The numbers are in `numbers`, row-major. */
typedef struct result {
    int rank;
    int64_t dims[RANK];
    fy_dtype_t dtype;
    number_t numbers[MOST];
} result_t;

void by_use_dtype(world_t *w, fy_dtype_t dtype);
bool by_is_free_for(world_t *w, int slot);
void by_set_slot(world_t *w, int slot, handle_t h);
bool by_is_small(const result_t *r);
void by_keep_result(world_t *w, int to, fy_tensor_t *t, const result_t *r);
void by_write_result(world_t *w, handle_t *dst, const result_t *r);
void by_call_op(world_t *w, fy_op_t op, int nsrc, handle_t *const *src, const void *attrs,
                size_t attrs_nbytes, handle_t *into, int to, const result_t *r);
result_t by_like(const handle_t *h);
/* Ops, views, writes and uploads: all steps but those of tapes. */
void by_run_op(world_t *w, const program_t *p, const step_t *s);

#endif
