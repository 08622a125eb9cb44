/* Elementwise work on operands of any stride and dtype, by rows: it iterates over fused axes and
 * passes the innermost one as a row. A row that is not contiguous or not of the compute type goes
 * through small buffers on the stack, block by block.
 * Not here: the ops (elementwise.c), the form of a flat loop (loops.h). */
#ifndef FERRY_BACKENDS_KERNELS_ROWS_H_
#define FERRY_BACKENDS_KERNELS_ROWS_H_

#include "opset/formulas/index.h"
#include "backends/kernels/family.h"

#define FY__BLOCK \
    256 /* elements staged at once: four operands and a temporary are 10 KiB of stack */

/* Called for each row: `n` elements, operand k from ptr[k] on with stride[k] elements between
 * neighbours. */
typedef void (*fy__row_fn)(const void *context, int64_t n, char *const *ptr, const int64_t *stride);

typedef struct fy__walk {
    fy__index_t index; /* operand 0 is dst */
    char *data[FY_INDEX_OPERANDS];
    int log2_size[FY_INDEX_OPERANDS];
    int64_t nelem;
} fy__walk_t;

/* Operands of one shape (a repeating one has stride 0). 1 + nsrc <= FY_INDEX_OPERANDS. */
void fy__walk_make(fy__walk_t *walk, const fy_desc_t *dst, const fy_desc_t *src, int nsrc);
/* Elements begin .. end-1 in row-major order, on the calling thread. */
void fy__walk_range(const fy__walk_t *walk, int64_t begin, int64_t end, fy__row_fn row,
                    const void *context);
/* All elements, on as many threads as fy__threads_for(nelem, serial) says. */
void fy__walk_all(const fy__walk_t *walk, int64_t serial, fy__row_fn row, const void *context);

/* A contiguous block: dst and src hold elements of the compute dtypes. */
struct fy__map;
typedef void (*fy__block_fn)(const struct fy__map *map, int64_t n, void *dst, void *const *src);

/* One elementwise launch. */
typedef struct fy__map {
    const fy__loops_t *loops;
    fy__block_fn block;
    int noperands;
    int32_t dtype[FY_INDEX_OPERANDS], compute[FY_INDEX_OPERANDS]; /* as stored, as computed */
    /* dst += result: a float dst; reads dst */
    int accumulate;
    /* half precision is not widened (where, cast) */
    int keeps_bytes;
    /* the block function updates dst in place (axpy) */
    int reads_dst;
    union {
        fy__loop1_fn one;
        fy__loop2_fn two;
        fy__loop3_fn three;
        fy__loop_scaled_fn scaled;
    } loop;
    double p, q;
} fy__map_t;

/* serial: f32 elements that one thread does in 20 us. */
void fy__map_run(fy__map_t *map, const fy_launch_t *launch, int64_t serial);
void fy__map_accumulate(const fy__loops_t *loops, const fy_launch_t *launch); /* dst += src */

/* n elements from a strided place of dtype `from` to a contiguous one of dtype `to`; and back. n <=
 * FY__BLOCK. */
void fy__stage_in(const fy__loops_t *loops, int64_t n, void *dst, int32_t to, const void *src,
                  int64_t stride, int32_t from);
void fy__stage_out(const fy__loops_t *loops, int64_t n, void *dst, int64_t stride, int32_t to,
                   const void *src, int32_t from);

/* ---- lines: operands of one shape along one axis; blocks of them in dtype `compute` ---- */

enum { FY__LINE_OPERANDS = 3 };

typedef struct fy__lines {
    const fy__loops_t *loops;
    int64_t n, count; /* elements of a line; lines */
    int rank;         /* the other axes */
    int64_t dims[FY_MAX_RANK], strides[FY__LINE_OPERANDS][FY_MAX_RANK];
    char *data[FY__LINE_OPERANDS];
    int64_t step[FY__LINE_OPERANDS], size[FY__LINE_OPERANDS]; /* along the axis; of an element */
    int32_t dtype[FY__LINE_OPERANDS], compute;
} fy__lines_t;

/* A scalar is one line of one element. */
void fy__lines_make(fy__lines_t *lines, const fy__loops_t *loops, int32_t compute, int axis,
                    int noperands, const fy_desc_t *const *operands);
/* Line i of operand k. */
static inline char *fy__line_at(const fy__lines_t *lines, int k, int64_t i)
{
    return lines->data[k] +
           fy__offset_of(i, lines->rank, lines->dims, lines->strides[k]) * lines->size[k];
}
/* m elements of a line of operand k, from `first` on, to a block and back. m <= FY__BLOCK. */
static inline void fy__line_load(const fy__lines_t *lines, int k, const char *line, int64_t first,
                                 int64_t m, void *block)
{
    fy__stage_in(lines->loops, m, block, lines->compute,
                 line + first * lines->step[k] * lines->size[k], lines->step[k], lines->dtype[k]);
}
/* Where elements from `first` on are if they need no staging, else the block. */
static inline void *fy__line_in(const fy__lines_t *lines, int k, char *line, int64_t first,
                                void *block)
{
    const int is_direct = lines->step[k] == 1 && lines->dtype[k] == lines->compute;
    return is_direct ? (void *)(line + first * lines->size[k]) : block;
}
static inline const void *fy__line_get(const fy__lines_t *lines, int k, const char *line,
                                       int64_t first, int64_t m, void *block)
{
    const void *in = fy__line_in(lines, k, (char *)line, first, block);
    if (in == block) fy__line_load(lines, k, line, first, m, block);
    return in;
}
/* Nothing is left to do for elements that were written in place. */
static inline void fy__line_store(const fy__lines_t *lines, int k, char *line, int64_t first,
                                  int64_t m, const void *block)
{
    if (block == line + first * lines->size[k]) return;
    fy__stage_out(lines->loops, m, line + first * lines->step[k] * lines->size[k], lines->step[k],
                  lines->dtype[k], block, lines->compute);
}

/* ---- dense f16 and bf16 as f32 in scratch, for kernels that compute in f32 ---- */

static inline int fy__is_half(int32_t dtype)
{
    return dtype == FY_DTYPE_F16 || dtype == FY_DTYPE_BF16;
}
/* Bytes of n elements of f32, in whole cache lines. */
static inline uint64_t fy__wide_nbytes(int64_t n)
{
    return ((uint64_t)n * sizeof(float) + 63) / 64 * 64;
}
/* Elements first .. first + n - 1 of a dense operand, to f32 and back; on several threads. */
void fy__widen(const fy__loops_t *loops, const fy_desc_t *half, int64_t first, int64_t n, void *to);
void fy__narrow(const fy__loops_t *loops, const fy_desc_t *half, int64_t first, int64_t n,
                const void *from);

#endif
