/* The innermost loops: flat, contiguous, one dtype, no threads, no decisions. One table of them per
 * instruction set; dispatch.c picks the table once. loops_template.h is the text of all tables.
 * Not here: strides, broadcasting and half precision of the elementwise ops (rows.c stages blocks
 * for that). A NULL entry: no such loop.
 * dst may be exactly one of the sources; partial overlap is not allowed. */
#ifndef FERRY_BACKENDS_KERNELS_LOOPS_H_
#define FERRY_BACKENDS_KERNELS_LOOPS_H_

#include <ferry/op.h>

#include "opset/formulas/step.h"

typedef void (*fy__loop1_fn)(int64_t n, void *dst, const void *a);
typedef void (*fy__loop2_fn)(int64_t n, void *dst, const void *a, const void *b);
typedef void (*fy__loop3_fn)(int64_t n, void *dst, const void *cond, const void *a, const void *b);
typedef void (*fy__loop_scaled_fn)(int64_t n, void *dst, const void *a, double p, double q);

/* A running sum: floats in f64, integers in i64. */
typedef union fy__sum {
    double f;
    int64_t i;
} fy__sum_t;
/* *sum += a[0] + ... */
typedef void (*fy__sum_row_fn)(int64_t n, const void *a, fy__sum_t *sum);
/* sums[j] += a[j] */
typedef void (*fy__sum_columns_fn)(int64_t n, const void *a, fy__sum_t *sums);
/* *sum += (a[i] - b[i])^2, in f64 */
typedef void (*fy__sum_squares_fn)(int64_t n, const void *a, const void *b, double *sum);
/* A step of n elements: parameter, up to two states, gradient. */
typedef void (*fy__step_fn)(int64_t n, const fy__rates_t *rates, void *param, void *state1,
                            void *state2, const void *grad);
/* Elements of 1 << k bytes; strides in elements. */
typedef void (*fy__move_fn)(int64_t n, void *dst, int64_t dst_stride, const void *src,
                            int64_t src_stride);

/* The places of ops in the tables of their families, in the order of their rows. */
enum fy__unary {
#define UNARY(number, ENUM, ...) FY__UNARY_##ENUM,
#include "opset/ops.def"
    FY__UNARY_COUNT
};
enum fy__binary {
#define BINARY(number, ENUM, ...) FY__BINARY_##ENUM,
#define SLOPE(number, ENUM, ...)  FY__BINARY_##ENUM,
#include "opset/ops.def"
    FY__BINARY_COUNT
};
enum fy__scaled {
#define SCALED(number, ENUM, ...) FY__SCALED_##ENUM,
#include "opset/ops.def"
    FY__SCALED_COUNT
};
enum fy__compare {
#define COMPARE(number, ENUM, ...) FY__COMPARE_##ENUM,
#include "opset/ops.def"
    FY__COMPARE_COUNT
};
enum fy__test {
#define TEST(number, ENUM, ...) FY__TEST_##ENUM,
#include "opset/ops.def"
    FY__TEST_COUNT
};
enum fy__step {
    FY__STEP_SGD,
    FY__STEP_SGD_MOMENTUM,
    FY__STEP_ADAM,
    FY__STEP_ADADELTA,
    FY__STEP_RMSPROP,
    FY__STEP_RMSPROP_MOMENTUM,
    FY__STEP_RMSPROP_CENTERED,
    FY__STEP_LARS,
    FY__STEP_LAMB_STATE,  /* the states alone */
    FY__STEP_LAMB_UPDATE, /* into `param`, of the parameter in `grad` */
    FY__STEP_LAMB,        /* the parameter alone */
    FY__STEP_COUNT
};

/* Instructions of a chain: on a group of elements in registers, which FY__CHAIN_LANES is a multiple
 * of. */
enum fy__chain_kind {
    FY__CHAIN_END,
    FY__CHAIN_LOAD,
    FY__CHAIN_STORE,
    FY__CHAIN_STREAM, /* past the cache; the address is a multiple of 64 */
#define ONE(ENUM, ...)  FY__CHAIN_##ENUM,
#define SCALED          ONE
#define TWO             ONE
#define FROM(ENUM, ...) FY__CHAIN_FROM_##ENUM,
#include "backends/kernels/chain.def"
};
enum { FY__CHAIN_LANES = 128 };
typedef struct fy__chain_code {
    int kind;
    float p, q;
    char *at; /* of the first element of the operand in memory */
} fy__chain_code_t;

enum { FY__GEMM_ROWS = 6, FY__GEMM_COLUMNS = 8 };

/* Windows of one row of dense f32 images, all inside the image; the backward ones do not
 * overlap. */
typedef struct fy__pool_row {
    /* x: the first window's first pixel; avg_pool_backward looks at it only with relu */
    const float *x, *dy;
    float *out; /* y, or dx at that pixel */
    int64_t count, channels, kernel_h, kernel_w;
    /* elements from a row of pixels to the next one, from a window to the next one */
    int64_t row, step;
    int relu, accumulate;
} fy__pool_row_t;
typedef void (*fy__pool_row_fn)(const fy__pool_row_t *row);
/* Rows of normalisation, in the compute type; strides in elements, columns side by side. center and
 * those after it have one value a column. */
typedef struct fy__norm_rows {
    int64_t rows, columns;
    const void *x, *add, *dy, *y; /* add, y: NULL if there is none */
    void *out;                    /* y, or dx */
    int64_t x_stride, add_stride, dy_stride, y_stride, out_stride;
    const void *center, *scale, *shift, *slope;
    int relu, adds; /* adds: out += */
} fy__norm_rows_t;
/* C = A B, or += with `adds`. Strides in elements; columns of C are contiguous, and so are those of
 * B, or else those of A and rows of B. */
typedef struct fy__small_gemm {
    int64_t m, n, k;
    const float *a;
    int64_t a_row, a_column;
    const float *b;
    int64_t b_row, b_column;
    float *c;
    int64_t c_row;
    int adds;
} fy__small_gemm_t;

/* A convolution of one image whose windows have few elements ("taps"), all inside it. */
typedef struct fy__few {
    const float *x, *dy;
    float *y;
    const int64_t *taps;          /* from a window's first element: elements of x */
    const float *w, *bias;        /* [ntaps][padded], [padded], zeros behind nouts */
    float *sums;                  /* [ntaps + 1][padded]: the gradients of w and of bias */
    int64_t ntaps, nouts, padded; /* padded: to a multiple of 32 */
    int64_t nrows, count;         /* of y, and pixels in each */
    /* elements of x from a row of y to the next one, from a pixel of y to the next one */
    int64_t row, step;
    int relu;
} fy__few_t;

/* The gradient of depthwise kernels of 5 x 5. `nchannels` of an image are in blocks of depth_lanes.
 * A panel is [block][row][column][lane]. Steps are in elements. */
enum { FY__DEPTH_SIZE = 5, FY__DEPTH_TAPS = 25 };

/* One row of a panel: `left` zeros, `count` pixels of x, zeros up to `width`. */
typedef struct fy__depth_pack {
    const float *x;
    float *out;
    int64_t nchannels, left, count, width;
    int64_t step, block; /* from a pixel of x to the next one, from a block to the next one */
} fy__depth_pack_t;

/* sums += the gradients of kernels and bias by some rows of dy. */
typedef struct fy__depth_weight {
    const float *x; /* the first window's first place in the panel */
    const float *dy;
    float *sums; /* [block][FY__DEPTH_TAPS + 1][lane]: the last one is the bias' */
    int64_t nchannels, nrows, count;
    int64_t stride;       /* columns: 1 or 2 */
    int64_t step, dy_row; /* from a pixel of dy, from a row of dy, to the next one */
    /* of the panel: from a row to the next one, from a row of windows to the next one */
    int64_t row, row_step, block;
    int has_bias;
} fy__depth_weight_t;

typedef struct fy__loops {
    const char *name;
    fy__loop1_fn unary[FY__UNARY_COUNT][FY_DTYPE_COUNT];
    fy__loop2_fn binary[FY__BINARY_COUNT][FY_DTYPE_COUNT];
    /* by the sources' dtype; dst is bool */
    fy__loop2_fn compare[FY__COMPARE_COUNT][FY_DTYPE_COUNT];
    fy__loop1_fn test[FY__TEST_COUNT][FY_DTYPE_COUNT]; /* dst is bool */
    fy__loop_scaled_fn scaled[FY__SCALED_COUNT][2];    /* f32, f64: the formula with p and q */
    fy__loop_scaled_fn affine[2];                      /* f32, f64: p * a + q */
    fy__loop_scaled_fn axpy[2];                        /* dst += p * a */
    fy__loop_scaled_fn clamp[2];                       /* to p .. q */
    /* dst to norm p, a being its norm */
    fy__loop_scaled_fn clip[2];
    fy__step_fn step[FY__STEP_COUNT][2];               /* fy__step */
    fy__loop1_fn cast[FY_DTYPE_COUNT][FY_DTYPE_COUNT]; /* [from][to] */
    fy__loop3_fn where[4];                             /* elements of 1, 2, 4, 8 bytes */
    fy__move_fn move[4];
    fy__sum_row_fn sum_row[FY_DTYPE_COUNT];
    fy__sum_columns_fn sum_columns[FY_DTYPE_COUNT];
    fy__sum_row_fn square_row[2]; /* sums of squares */
    fy__sum_columns_fn square_columns[2];
    /* *sum *= each; f64 or i64, as sums. And the number of elements that are not 0, always i. */
    fy__sum_row_fn product_row[FY_DTYPE_COUNT], count_row[FY_DTYPE_COUNT];
    fy__sum_columns_fn product_columns[FY_DTYPE_COUNT], count_columns[FY_DTYPE_COUNT];
    fy__loop1_fn max_row[FY_DTYPE_COUNT], min_row[FY_DTYPE_COUNT]; /* *dst = max(*dst, a[0], ...) */
    fy__sum_squares_fn sum_squares[2];
    /* dst = exp(a - shift); returns their sum */
    double (*exp_row_f32)(int64_t n, float *dst, const float *a, float shift);
    double (*exp_row_f64)(int64_t n, double *dst, const double *a, double shift);
    /* code ends with FY__CHAIN_END; n is a multiple of FY__CHAIN_LANES */
    void (*chain_f32)(int64_t n, const fy__chain_code_t *code);
    /* Philox blocks counter, counter + 1, ...: 4 lanes each, in order. nblocks is a multiple of
     * 4. */
    void (*philox)(int64_t nblocks, uint64_t key, uint64_t counter, uint32_t *lanes);
    /* keep[i]: is element i kept? 64 elements a group, of Philox blocks counter, counter + 1, ...
     * Then dst = keep ? p * a : 0. */
    void (*dropout_keep)(int64_t ngroups, uint64_t key, uint64_t counter, uint32_t threshold,
                         uint32_t *keep);
    /* f32, f64 */
    void (*dropout[2])(int64_t n, void *dst, const void *a, const uint32_t *keep, double p);
    /* npairs of normal values from 2 (f32) or 4 (f64) lanes a pair; npairs is a multiple of 8. */
    void (*normal_f32)(int64_t npairs, const uint32_t *lanes, float mean, float std, float *out);
    void (*normal_f64)(int64_t npairs, const uint32_t *lanes, double mean, double std, double *out);
    /* block = A * B, of panels packed as [k][FY__GEMM_ROWS] and [k][FY__GEMM_COLUMNS]; all aligned
     * to 64 bytes. */
    void (*gemm_block_f64)(int64_t k, const double *a, const double *b, double *block);
    /* loops_conv.h; NULL where vectors are short */
    void (*few_forward)(const fy__few_t *few), (*few_weight)(const fy__few_t *few);
    /* loops_depthwise.h; NULL where vectors are short */
    int64_t depth_lanes;
    void (*depth_pack)(const fy__depth_pack_t *pack);
    void (*depth_weight)(const fy__depth_weight_t *weight);
    /* loops_image.h */
    fy__pool_row_fn max_pool_f32, avg_pool_f32, max_pool_backward_f32, avg_pool_backward_f32;
    /* loops_norm.h; f32, f64 */
    void (*norm_moments[2])(int64_t rows, int64_t columns, const void *x, int64_t stride,
                            void *mean, void *rest, void *squares);
    void (*norm_join[2])(int64_t columns, double before, double rows, const void *mean,
                         const void *rest, const void *squares, double *out_mean, double *out_m2);
    void (*norm_apply[2])(const fy__norm_rows_t *rows);
    void (*norm_sums[2])(const fy__norm_rows_t *rows, double *sums, double *products);
    void (*norm_dx[2])(const fy__norm_rows_t *rows);
    void (*norm_row_sums[2])(int64_t n, const void *a, double center, double *sums);
    void (*norm_row_apply[2])(int64_t n, void *dst, const void *a, const void *weight,
                              const void *bias, double mean, double rstd);
    void (*norm_row_products[2])(int64_t n, const void *grad, const void *weight, const void *a,
                                 double mean, double *sums);
    void (*norm_row_dx[2])(int64_t n, void *dst, const void *grad, const void *weight,
                           const void *a, double mean, const double *by, int adds);
    void (*norm_row_params[2])(int64_t n, const void *grad, const void *a, double mean, double rstd,
                               void *out_sums, void *out_products);
    /* m, n, k > 0 */
    void (*gemm_small_f32)(const fy__small_gemm_t *gemm);
} fy__loops_t;

extern const fy__loops_t fy__loops_base;
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FY__LOOPS_X86 1
extern const fy__loops_t fy__loops_avx2, fy__loops_avx512;
#else
#define FY__LOOPS_X86 0
#endif

#endif
