/* Dense arrays of decoded values, and the bits of all eight dtypes: the operands of the oracle.
 * Float dtypes are stored as doubles, integers and bool as int64, so every value of every dtype
 * (except i64 as double) is exact here.
 * Deliberately independent of Ferry's own conversions. See oracle.h. */
#ifndef FERRY_TESTS_SUPPORT_VALUE_H_
#define FERRY_TESTS_SUPPORT_VALUE_H_

#include <stdbool.h>

#include <ferry/types.h>

bool ts_is_float(fy_dtype_t dtype);
/* Half an ulp at 1.0, relative: the unit roundoff. */
double ts_unit(fy_dtype_t dtype);
/* The unit roundoff of the compute type: f64 for f64, else f32. */
double ts_unit_compute(fy_dtype_t dtype);
/* Smallest positive value of a float dtype. */
double ts_tiny(fy_dtype_t dtype);
/* x rounded to dtype: to nearest even, overflow to infinity, subnormals kept. */
double ts_round(fy_dtype_t dtype, double x);
/* The low bits of x as dtype reads them. */
int64_t ts_wrap(fy_dtype_t dtype, uint64_t x);
int64_t ts_int_min(fy_dtype_t dtype);
int64_t ts_int_max(fy_dtype_t dtype);

typedef struct ts_array {
    fy_dtype_t dtype;
    int rank;
    int64_t dims[FY_MAX_RANK];
    uint64_t nelem;
    double *f;  /* float dtypes */
    int64_t *i; /* the others */
} ts_array_t;

/* Zeros. Aborts the test if memory runs out. */
void ts_array_make(ts_array_t *array, fy_dtype_t dtype, int rank, const int64_t *dims);
void ts_array_free(ts_array_t *array);
double ts_array_get(const ts_array_t *array, uint64_t index);
/* Element `from` of src to element `to` of dst, of the same kind of dtype. */
void ts_array_move(ts_array_t *dst, uint64_t to, const ts_array_t *src, uint64_t from);
/* Element `index` of dense `bytes`. */
void ts_encode(const ts_array_t *array, uint64_t index, void *bytes, uint64_t at);
void ts_decode(ts_array_t *array, uint64_t index, const void *bytes, uint64_t at);

/* splitmix64: Steele, Lea, Flood 2014. */
typedef struct ts_random {
    uint64_t state;
} ts_random_t;
uint64_t ts_random_next(ts_random_t *random);
double ts_random_unit(ts_random_t *random);
int64_t ts_random_below(ts_random_t *random, int64_t n);
/* $FERRY_SEED, else $FERRY_FIRST, else `fallback`. */
uint64_t ts_seed(uint64_t fallback);

typedef enum ts_domain {
    TS_ANY,      /* [-4, 4]; integers [-9, 9], u8 0..18 */
    TS_POS,      /* (0.1, 4]; integers 1..9 */
    TS_UNIT,     /* [-1, 1] */
    TS_BIG,      /* [-1000, 1000] */
    TS_WIDE,     /* floats [-100, 100]; integers any bits */
    TS_TIES,     /* -1, 0, 1 */
    TS_SPECIAL,  /* NaN, infinities, zeros, subnormals, extremes */
    TS_NANS,     /* [-4, 4] with some NaN */
    TS_COND,     /* bool */
    TS_INDEX,    /* i64, 0 .. limit-1 */
    TS_INDEX32,  /* i32, the same */
    TS_RNG,      /* i64 [2]: seed, counter */
    TS_BELOW,    /* 0 .. limit-1, in the main dtype */
    TS_PARTS,    /* f64 [n, 3]: limit * row, 0.5 .. 1.5, 0 .. 1: parts of a step (ops.h) */
    TS_SCALING,  /* f64 [5]: limit, limit, 0, 3, 0: loss scaling (ops.h); limit negative: found */
    TS_FULL,     /* [-4, 4], in f32 if the main dtype is f16 or bf16 */
    TS_FULL_POS, /* (0.1, 4], the same */
    TS_ENDS,     /* of every magnitude, from the smallest subnormal on; integers any bits */
    TS_DOMAIN_COUNT
} ts_domain_t;
/* The dtype of an operand with this domain in an op whose main dtype is `main_dtype`. */
fy_dtype_t ts_domain_dtype(ts_domain_t domain, fy_dtype_t main_dtype);
/* Fills with values of the domain, each as the dtype holds it. repeat_axis >= 0: equal along that
 * axis. */
void ts_array_fill(ts_array_t *array, ts_domain_t domain, int64_t limit, int repeat_axis,
                   ts_random_t *random);

#endif
