/* The f64 matrix product, which oneDNN does not have. Blocks of A and B are packed on the stack in
 * the order in which the register kernel (loops_template.h) reads them, so strides cost nothing in
 * the inner loop. Tiles of C are independent: one thread each.
 * Source: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008), with
 * one cache level instead of three. */
#include "backends/kernels/gemm.h"

/* packed: 36 + 36 KiB */
enum {
    MR = FY__GEMM_ROWS,
    NR = FY__GEMM_COLUMNS,
    MB = 8 * MR,
    NB = 6 * NR,
    KB = 96,
    SERIAL_PRODUCTS = 1 << 16
};

typedef struct product {
    const fy__loops_t *loops;
    const fy__matrix_t *a, *b, *c;
    int accumulate;
} product_t;

/* Panels of `width` lines side by side: out[panel][p][line]; lines beyond the matrix are 0. */
static void pack(double *out, int width, const double *from, int64_t nlines, int64_t line_stride,
                 int64_t depth, int64_t depth_stride)
{
    for (int64_t first = 0; first < nlines; first += width) {
        const int64_t n = nlines - first < width ? nlines - first : width;
        for (int64_t p = 0; p < depth; p++, out += width) {
            const double *at = from + first * line_stride + p * depth_stride;
            for (int64_t i = 0; i < n; i++) out[i] = at[i * line_stride];
            for (int64_t i = n; i < width; i++) out[i] = 0;
        }
    }
}

static void tile(const void *context, int64_t number)
{
    const product_t *product = (const product_t *)context;
    const fy__matrix_t *a = product->a, *b = product->b, *c = product->c;
    const int64_t across = (c->columns + NB - 1) / NB, i0 = number / across * MB,
                  j0 = number % across * NB;
    const int64_t m = c->rows - i0 < MB ? c->rows - i0 : MB,
                  n = c->columns - j0 < NB ? c->columns - j0 : NB;
    _Alignas(64) double packed_a[MB * KB], packed_b[KB * NB], block[MR * NR];
    for (int64_t p0 = 0; p0 < a->columns; p0 += KB) {
        const int64_t k = a->columns - p0 < KB ? a->columns - p0 : KB;
        const int adds = product->accumulate || p0 > 0;
        pack(packed_a, MR, (const double *)a->data + i0 * a->row_stride + p0 * a->column_stride, m,
             a->row_stride, k, a->column_stride);
        pack(packed_b, NR, (const double *)b->data + p0 * b->row_stride + j0 * b->column_stride, n,
             b->column_stride, k, b->row_stride);
        for (int64_t i = 0; i < m; i += MR) {
            for (int64_t j = 0; j < n; j += NR) {
                product->loops->gemm_block_f64(k, packed_a + i * k, packed_b + j * k, block);
                for (int64_t ii = 0; ii < MR && i + ii < m; ii++) {
                    for (int64_t jj = 0; jj < NR && j + jj < n; jj++) {
                        double *out = (double *)c->data + (i0 + i + ii) * c->row_stride +
                                      (j0 + j + jj) * c->column_stride;
                        *out = (adds ? *out : 0.0) + block[ii * NR + jj];
                    }
                }
            }
        }
    }
}

void fy__gemm_f64(const fy__loops_t *loops, const fy__matrix_t *a, const fy__matrix_t *b,
                  const fy__matrix_t *c, int accumulate)
{
    const product_t product = { loops, a, b, c, accumulate };
    const int64_t ntiles = ((c->rows + MB - 1) / MB) * ((c->columns + NB - 1) / NB);
    fy__for_each(ntiles, fy__threads_for(c->rows * c->columns * a->columns, SERIAL_PRODUCTS), tile,
                 &product);
}
