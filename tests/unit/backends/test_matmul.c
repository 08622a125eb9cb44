/* matmul against the oracle: dtypes, sizes around tile edges, transposes, strides
 * that BLAS can and cannot express, batches, accumulate, and every workspace limit from zero up. */
#include <omp.h>

#include "backends/kernels/threads.h"
#include "tests/unit/backends/kernel_fixture.h"

enum { DENSE, TRANSPOSED, GAPS, REPEATED_ROW, REPEATED_COLUMN, LAYOUTS };

/* A rows x columns matrix (stored transposed if `flip`), with `batch` leading axes. */
static tensor_t make_matrix(int32_t dtype, int nbatch, const int64_t *batch, int64_t rows,
                            int64_t columns, int layout)
{
    int64_t dims[FY_MAX_RANK], strides[FY_MAX_RANK], step;
    const int rank = nbatch + 2;
    for (int i = 0; i < nbatch; i++) dims[i] = batch[i];
    dims[rank - 2] = rows;
    dims[rank - 1] = columns;
    strides[rank - 2] = layout == TRANSPOSED        ? 1
                        : layout == GAPS            ? 2 * columns + 3
                        : layout == REPEATED_ROW    ? 0
                        : layout == REPEATED_COLUMN ? 1
                                                    : columns;
    strides[rank - 1] = layout == TRANSPOSED        ? rows
                        : layout == GAPS            ? 2
                        : layout == REPEATED_COLUMN ? 0
                                                    : 1;
    step = layout == GAPS ? rows * (2 * columns + 3) + 5 : rows * columns;
    for (int i = nbatch - 1; i >= 0; i--) {
        strides[i] = step;
        step *= dims[i];
    }
    return make(dtype, rank, dims, strides);
}

static void check(tensor_t *a, tensor_t *b, tensor_t *c, int transpose_a, int transpose_b,
                  uint32_t accumulate, uint64_t limit, const char *name)
{
    const fy_matmul_attrs_t attrs = { transpose_a, transpose_b };
    const int64_t depth = a->desc.dims[a->desc.rank - (transpose_a ? 2 : 1)];
    const int32_t dtype = c->desc.dtype;
    fill_noise(&a->desc, 1);
    fill_noise(&b->desc, 2);
    fill_noise(&c->desc, 3);
    double *before = copy_of(&c->desc);
    ts_expected_t expected = expect(FY_OP_MATMUL, SRCS(a, b), &attrs);
    ts_ok(run(FY_OP_MATMUL, c, SRCS(a, b), &attrs, accumulate, limit));
    for (int64_t i = 0; i < count_of(&c->desc); i++) {
        double want = expected.value.f[i], size = expected.scale[i] / ((double)depth + 1);
        if (accumulate) want += before[i], size += fabs(before[i]);
        const double compute = dtype == FY_DTYPE_F64 ? 0x1p-52 : 0x1p-23;
        double bound = compute * sqrt((double)depth + 2) * 2 * size + 1e-30;
        if (dtype == FY_DTYPE_F16 || dtype == FY_DTYPE_BF16)
            bound += 0.51 * epsilon_of(dtype) * fabs(want) + 0x1p-25;
        expect_near(get(&c->desc, i), want, bound, name, i);
    }
    free(before);
    ts_expected_free(&expected);
    DROP(a, b, c);
}

TS_TEST(sizes_and_dtypes)
{
    static const int64_t sizes[][3] = { { 1, 1, 1 },  { 4, 4, 4 },  { 1, 64, 10 },   { 64, 1, 10 },
                                        { 6, 8, 96 }, { 7, 9, 97 }, { 49, 51, 193 }, { 16, 16, 0 },
                                        { 0, 5, 3 },  { 5, 0, 3 },  { 65, 130, 33 } };
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        for (size_t s = 0; s < COUNT_OF(sizes); s++) {
            for (int flags = 0; flags < 8; flags++) {
                const int64_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
                tensor_t a = flags & 1 ? make_matrix(dtype, 0, NULL, k, m, DENSE)
                                       : make_matrix(dtype, 0, NULL, m, k, DENSE);
                tensor_t b = flags & 2 ? make_matrix(dtype, 0, NULL, n, k, DENSE)
                                       : make_matrix(dtype, 0, NULL, k, n, DENSE);
                tensor_t c = make_matrix(dtype, 0, NULL, m, n, DENSE);
                check(&a, &b, &c, flags & 1, flags & 2, flags & 4 ? 1 : 0, 32 << 20, "size");
            }
        }
    }
}

TS_TEST(strides)
{
    static const uint64_t limits[] = { 0, 16384, 32 << 20 };
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        for (int la = 0; la < LAYOUTS; la++) {
            for (int lb = 0; lb < LAYOUTS; lb++) {
                for (int lc = 0; lc <= GAPS; lc++) {
                    const int accumulate = (la + lb + lc) % 2;
                    tensor_t a = make_matrix(dtype, 0, NULL, 37, 45, la),
                             b = make_matrix(dtype, 0, NULL, 45, 70, lb);
                    tensor_t c = make_matrix(dtype, 0, NULL, 37, 70, lc);
                    check(&a, &b, &c, 0, 0, (uint32_t)accumulate, limits[(la + 2 * lb + lc) % 3],
                          "strides");
                }
            }
        }
    }
}

TS_TEST(batches)
{
    static const int64_t both[2] = { 3, 5 }, last[1] = { 5 }, ones[2] = { 3, 1 };
    static const struct {
        int na, nb;
        const int64_t *a, *b;
    } cases[] = { { 2, 2, both, both }, { 2, 0, both, NULL }, { 0, 2, NULL, both },
                  { 2, 1, both, last }, { 1, 2, last, ones }, { 2, 1, ones, last } };
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        for (size_t k = 0; k < COUNT_OF(cases); k++) {
            for (int layout = 0; layout <= GAPS; layout++) {
                tensor_t a = make_matrix(dtype, cases[k].na, cases[k].a, 9, 17, layout);
                tensor_t b = make_matrix(dtype, cases[k].nb, cases[k].b, 17, 6, (layout + 1) % 3);
                tensor_t c = make_matrix(dtype, 2, both, 9, 6, (layout + (int)k) % 3);
                check(&a, &b, &c, 0, 0, k % 2, 32 << 20, "batch");
            }
        }
    }
}

/* Many products on several threads. */
TS_TEST(a_large_batch)
{
    const int64_t batch[1] = { 300 };
    tensor_t a = make_matrix(FY_DTYPE_F32, 1, batch, 20, 30, DENSE),
             b = make_matrix(FY_DTYPE_F32, 1, batch, 30, 25, TRANSPOSED);
    tensor_t c = make_matrix(FY_DTYPE_F32, 1, batch, 20, 25, DENSE);
    check(&a, &b, &c, 0, 0, 0, 0, "large batch");
}

TS_TEST(workspace_is_exact_and_bounded)
{
    const int64_t n = 3000;
    const int64_t dims[2] = { n, n }, strides[2] = { n, 1 }, bad[2] = { 2 * n, 2 };
    const fy_matmul_attrs_t attrs = { 0, 0 };
    char byte = 0;
    for (int32_t dtype = 0; dtype <= FY_DTYPE_BF16; dtype++) {
        fy_desc_t dst = { .data = &byte, .dtype = dtype, .rank = 2 }, src[2];
        memcpy(dst.dims, dims, sizeof dims);
        memcpy(dst.strides, strides, sizeof strides);
        src[0] = src[1] = dst;
        fy_launch_t launch = launch_of(FY_OP_MATMUL, 1, &dst, 2, src, &attrs);
        const int half = dtype == FY_DTYPE_F16 || dtype == FY_DTYPE_BF16;
        assert_true(fy__kernels_workspace(&launch, UINT64_MAX) == (half ? 3u * 36000000u : 0u));
        for (uint64_t limit = 0; limit < 64u << 20; limit = limit * 2 + 1000) {
            const uint64_t want = fy__kernels_workspace(&launch, limit);
            assert_true(want <= limit);
            assert_true(fy__kernels_workspace(&launch, want) == want);
            if (half && limit >= 32u << 20) assert_true(want > 8u << 20);
        }
        memcpy(src[0].strides, bad, sizeof bad);
        assert_true(fy__kernels_workspace(&launch, UINT64_MAX) == (half ? 3u * 36000000u
                                                                   : dtype == FY_DTYPE_F32
                                                                       ? 36000000u
                                                                       : 0u));
    }
}

/* One small product by one loop table, between words that must not change: the rows of C are `gap`
 * columns apart. */
static void check_small(const fy__loops_t *loops, int64_t m, int64_t n, int64_t k, int transpose_a,
                        int transpose_b, int adds)
{
    enum { GAP = 3, MOST = 70 * 40 };
    static float a[MOST], b[MOST], c[MOST], before[MOST];
    const int64_t lda = transpose_a ? m : k, ldb = transpose_b ? k : n, ldc = n + GAP;
    for (int64_t i = 0; i < MOST; i++)
        a[i] = (float)(i % 23 - 11) / 8, b[i] = (float)(i % 19 - 9) / 4,
        c[i] = before[i] = (float)(i % 7);
    const fy__small_gemm_t gemm = { m,
                                    n,
                                    k,
                                    a,
                                    transpose_a ? 1 : lda,
                                    transpose_a ? lda : 1,
                                    b,
                                    transpose_b ? 1 : ldb,
                                    transpose_b ? ldb : 1,
                                    c + GAP,
                                    ldc,
                                    adds };
    loops->gemm_small_f32(&gemm);
    for (int64_t i = 0; i < MOST; i++) {
        const int64_t row = (i - GAP) / ldc, column = (i - GAP) % ldc;
        double want = before[i];
        if (i >= GAP && row < m && column < n) {
            want = adds ? before[i] : 0;
            for (int64_t p = 0; p < k; p++)
                want += (double)a[transpose_a ? p * lda + row : row * lda + p] *
                        b[transpose_b ? column * ldb + p : p * ldb + column];
        }
        /* sums of few small multiples of 1/32 are exact */
        expect_near(c[i], want, 0, loops->name, i);
    }
}

TS_TEST(small_products_of_every_table)
{
    static const int64_t ms[] = { 1, 2, 3, 4, 5, 9 },
                         ns[] = { 1, 3, 4, 5, 8, 10, 15, 16, 17, 31, 32, 33, 48, 64, 67 },
                         ks[] = { 1, 2, 3, 4, 7, 16, 17, 33, 40 };
    const fy__loops_t *tables[3];
    const size_t ntables = find_tables(tables);
    for (size_t t = 0; t < ntables; t++)
        for (size_t i = 0; i < COUNT_OF(ms); i++)
            for (size_t j = 0; j < COUNT_OF(ns); j++)
                for (size_t p = 0; p < COUNT_OF(ks); p++)
                    for (int flags = 0; flags < 6; flags++) /* not both transposed */
                        check_small(tables[t], ms[i], ns[j], ks[p], flags % 3 == 1, flags % 3 == 2,
                                    flags >= 3);
}

/* OpenMP may deliver fewer threads than it announces; oneDNN would omit the missing threads'
 * parts. */
TS_TEST(fewer_threads_than_announced)
{
    const int threads = omp_get_max_threads(), dynamic = omp_get_dynamic();
    omp_set_num_threads(8 * omp_get_num_procs());
    omp_set_dynamic(1);
    fy__threads_set(8 * omp_get_num_procs()); /* by its cost, this would run on one thread */
    tensor_t a = make_matrix(FY_DTYPE_F32, 0, NULL, 256, 256, DENSE),
             b = make_matrix(FY_DTYPE_F32, 0, NULL, 256, 256, DENSE),
             c = make_matrix(FY_DTYPE_F32, 0, NULL, 256, 256, DENSE);
    check(&a, &b, &c, 0, 0, 0, UINT64_MAX, "dynamic teams");
    assert_int_equal(omp_get_dynamic(), 1); /* the caller's settings are unchanged */
    assert_int_equal(omp_get_max_threads(), 8 * omp_get_num_procs());
    omp_set_num_threads(threads);
    omp_set_dynamic(dynamic);
    fy__threads_set(FY__THREADS_AUTO);
}

/* Tiles under a small limit give the result of one large tile. */
TS_TEST(tiles_agree)
{
    static const uint64_t limits[] = { 0, 12288, 20000, 100000, 1000000 };
    for (size_t l = 0; l < COUNT_OF(limits); l++) {
        tensor_t a = make_matrix(FY_DTYPE_BF16, 0, NULL, 130, 150, DENSE),
                 b = make_matrix(FY_DTYPE_BF16, 0, NULL, 150, 170, TRANSPOSED);
        tensor_t c = make_matrix(FY_DTYPE_BF16, 0, NULL, 130, 170, TRANSPOSED);
        check(&a, &b, &c, 0, 0, l % 2, limits[l], "tiles");
    }
}
