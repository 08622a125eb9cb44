/* Kernels that are chosen by layout: sums of columns, copies between layouts that are dense along
 * different axes, gradients of max_pool2d. The cases cover edges of tiles, rows that are read
 * together, gaps, unaligned addresses, every dtype. Each case asserts which kernel ran. With
 * FAKE_CUDA_KERNELS=ptx the kernels' PTX computes. See backends/cuda/pack_copy.c, pack_reduce.c,
 * pack_image.c. */
#include "op_case.h"

static int ran(const char *kernel)
{
    return strncmp(driver.fake_cuda_last_kernel(), kernel, strlen(kernel)) == 0;
}

/* ---- columns ---- */

typedef struct table {
    int rank;
    uint32_t axes;
    int64_t dims[3], strides[3];
} table_t;
static const table_t tables[] = {
    /* 8 rows at once, and one more */
    { 2, 1, { 9, 32 }, { 32, 1 } },
    /* too few for the column kernel; the last kernel is another one */
    { 2, 1, { 8, 32 }, { 32, 1 } },
    /* no 16-byte accesses */
    { 2, 1, { 16, 48 }, { 48, 1 } },
    { 2, 1, { 23, 33 }, { 33, 1 } },
    { 2, 1, { 23, 48 }, { 64, 1 } }, /* gaps */
    { 2, 1, { 23, 48 }, { 49, 1 } },
    { 2, 1, { 23, 48 }, { 0, 1 } }, /* one row for all */
    /* two axes that do not fuse */
    { 3, 3, { 3, 17, 64 }, { 2048, 64, 1 } },
    /* kept axes that fuse */
    { 3, 1, { 19, 3, 32 }, { 96, 32, 1 } },
    /* a kept axis in front */
    { 3, 1, { 19, 3, 32 }, { 128, 32, 1 } },
    { 3, 2, { 3, 19, 32 }, { 608, 32, 1 } },
    /* long: split where there is workspace */
    { 2, 1, { 4001, 40 }, { 40, 1 } },
};

static fy_desc_t sums_of(const table_t *t, int32_t dtype)
{
    int64_t dims[3];
    int rank = 0;
    for (int axis = 0; axis < t->rank; axis++)
        if (!(t->axes >> axis & 1)) dims[rank++] = t->dims[axis];
    return describe(dtype, rank, dims, NULL);
}

TS_TEST(columns_are_added_up)
{
    for (size_t i = 0; i < LENGTH(tables); i++) {
        const table_t *t = &tables[i];
        const fy_reduce_attrs_t attrs = { t->axes, 0 };
        for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
            const int is_float = dtype <= FY_DTYPE_BF16;
            op_case_t c = { .ndst = 1, .nsrc = 1, .attrs = &attrs, .close = CLOSE };
            c.src[0] = describe(dtype, t->rank, t->dims, t->strides);
            c.dst[0] = sums_of(t, is_float ? dtype : FY_DTYPE_I64);
            for (int mean = 0; mean <= is_float; mean++) {
                c.op = mean ? FY_OP_MEAN : FY_OP_SUM;
                for (c.shifted = 0; c.shifted < 4; c.shifted++) {
                    c.accumulate = mean && dtype != FY_DTYPE_F16;
                    run_case(&c);
                    assert_int_equal(ran("fy_reduce_columns"), t->dims[0] != 8);
                }
                for (c.shifted = 0, c.workspace_limit = 1000; c.workspace_limit <= 1000000;
                     c.workspace_limit *= 1000)
                    run_case(&c);
                c.workspace_limit = 0;
            }
        }
    }
}

/* With wide accesses or not, each column is added in the same order: the same bits. */
TS_TEST(a_sum_does_not_depend_on_addresses)
{
    enum { ROWS = 37, COLUMNS = 64 };
    static float x[ROWS * COLUMNS + 1];
    float sums[2][COLUMNS];
    const fy_reduce_attrs_t attrs = { 1, 0 };
    for (int shift = 0; shift < 2; shift++) {
        for (int64_t k = 0; k < ROWS * COLUMNS; k++) x[k + shift] = (float)(k % 1009) * 1.37e-3f;
        char *block = device_bytes(x, sizeof x);
        fy_desc_t src = DENSE_OF(FY_DTYPE_F32, ROWS, COLUMNS), dst = DENSE(F32, COLUMNS);
        src.data = block + shift * 4;
        dst.data = device_bytes(x, COLUMNS * 4);
        fy_launch_t launch = launch_of(FY_OP_SUM, 1, &dst, &src, &attrs);
        assert_ok(cuda->launch(dev, stream, &launch));
        fetch(sums[shift], dst.data, COLUMNS * 4);
        cuda->free(dev, dst.data, COLUMNS * 4);
        cuda->free(dev, block, sizeof x);
    }
    assert_memory_equal(sums[0], sums[1], COLUMNS * 4);
}

/* So are norms, by rows and by channels; a large mean costs no digits. */
TS_TEST(a_norm_does_not_depend_on_addresses)
{
    enum { ROWS = 700, COLUMNS = 64, N = ROWS * COLUMNS };
    static float x[N + 1], y[2][2][N], weight[COLUMNS], bias[COLUMNS];
    const fy_norm_attrs_t by_rows = { 0 };
    const fy_batch_norm_attrs_t by_channels = { 0.5, 0, FY_ACTIVATION_NONE };
    for (int i = 0; i < COLUMNS; i++) weight[i] = 1;
    for (int shift = 0; shift < 2; shift++) {
        for (int k = 0; k < N; k++) x[k + shift] = 1000 + (float)(k * 7 / 5 % 31) / 4096;
        char *block = device_bytes(x, sizeof x);
        fy_desc_t src[] = { DENSE_OF(FY_DTYPE_F32, ROWS, COLUMNS), DENSE(F32, COLUMNS),
                            DENSE(F32, COLUMNS) },
                  dst[] = { src[0], DENSE(F32, ROWS), DENSE(F32, ROWS), DENSE(F32, COLUMNS),
                            DENSE(F32, COLUMNS) };
        src[0].data = block + shift * 4;
        src[1].data = device_bytes(weight, sizeof weight);
        src[2].data = device_bytes(bias, sizeof bias);
        for (int i = 0; i < 5; i++) dst[i].data = device_bytes(x, sizeof x);
        void *workspace = device_bytes(x, sizeof x);
        for (int channels = 0; channels < 2; channels++) {
            fy_launch_t launch = launch_of(channels ? FY_OP_BATCH_NORM : FY_OP_LAYER_NORM,
                                           channels ? 3 : 1, dst, src,
                                           channels ? (const void *)&by_channels : &by_rows);
            launch.ndst = channels ? 5 : 3;
            if (channels) dst[1].dims[0] = dst[2].dims[0] = COLUMNS;
            launch.workspace_nbytes = channels ? cuda->workspace(dev, &launch, sizeof x) : 0;
            launch.workspace = workspace;
            assert_int_equal(launch.workspace_nbytes > 0, channels);
            assert_ok(cuda->launch(dev, stream, &launch));
            fetch(y[channels][shift], dst[0].data, N * 4);
        }
        for (int i = 0; i < 5; i++) cuda->free(dev, dst[i].data, sizeof x);
        cuda->free(dev, workspace, sizeof x);
        cuda->free(dev, src[1].data, sizeof weight);
        cuda->free(dev, src[2].data, sizeof bias);
        cuda->free(dev, block, sizeof x);
    }
    for (int channels = 0; channels < 2; channels++) {
        assert_memory_equal(y[channels][0], y[channels][1], N * 4);
        for (int i = 0; i < N; i++) {
            const int n = channels ? ROWS : COLUMNS, step = channels ? COLUMNS : 1,
                      first = channels ? i % COLUMNS : i / COLUMNS * COLUMNS;
            double mean = 0, squares = 0;
            for (int k = 0; k < n; k++) mean += (double)x[1 + first + k * step] / n;
            for (int k = 0; k < n; k++) squares += pow(x[1 + first + k * step] - mean, 2) / n;
            assert_true(fabs(y[channels][0][i] - (x[1 + i] - mean) / sqrt(squares)) < 1e-5);
        }
    }
}

/* ---- copies ---- */

typedef struct copy {
    int rank;
    int64_t dims[4], dst[4], src[4];
} copy_t;
static const copy_t copies[] = {
    { 2, { 16, 16 }, { 16, 1 }, { 1, 16 } },   /* less than a tile */
    { 2, { 15, 40 }, { 40, 1 }, { 1, 15 } },   /* too narrow */
    { 2, { 32, 64 }, { 64, 1 }, { 1, 32 } },   /* whole tiles */
    { 2, { 33, 65 }, { 65, 1 }, { 1, 33 } },   /* one element more in each direction */
    { 2, { 65, 129 }, { 131, 1 }, { 1, 70 } }, /* gaps */
    /* the result is the transposed one */
    { 2, { 33, 65 }, { 1, 33 }, { 65, 1 } },
    { 3, { 3, 40, 20 }, { 800, 20, 1 }, { 800, 1, 40 } }, /* a batch */
    { 3, { 40, 3, 20 }, { 60, 20, 1 }, { 1, 800, 40 } },  /* the batch axis lies between */
    {
        3, { 20, 3, 40 }, { 120, 40, 1 }, { 3, 60 },
        /* the shortest axis is the dense one: see below */
    },
    /* channels last to channels first */
    { 4, { 2, 16, 5, 7 }, { 560, 35, 7, 1 }, { 560, 1, 112, 16 } },
    { 4, { 2, 5, 7, 16 }, { 560, 112, 16, 1 }, { 560, 7, 1, 35 } }, /* and the reverse */
    /* repeats: not contiguous in the source */
    { 2, { 33, 65 }, { 65, 1 }, { 0, 33 } },
    { 2, { 40, 24 }, { 24, 1 }, { 32, 1 } }, /* rows: no tile */
};

static int is_tiled(const copy_t *c)
{
    int to = -1, from = -1;
    for (int axis = 0; axis < c->rank; axis++) {
        if (c->dst[axis] == 1 && c->dims[axis] >= 16) to = axis;
        if (c->src[axis] == 1 && c->dims[axis] >= 16) from = axis;
    }
    return to >= 0 && from >= 0 && to != from;
}

TS_TEST(layouts_are_exchanged)
{
    int ntiled = 0;
    for (size_t i = 0; i < LENGTH(copies); i++) {
        for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
            op_case_t c = { .op = FY_OP_COPY, .ndst = 1, .nsrc = 1 };
            c.dst[0] = describe(dtype, copies[i].rank, copies[i].dims, copies[i].dst);
            c.src[0] = describe(dtype, copies[i].rank, copies[i].dims, copies[i].src);
            for (c.shifted = 0; c.shifted < 4; c.shifted++) {
                run_case(&c);
                if (copies[i].rank < 4) assert_int_equal(ran("fy_transpose"), is_tiled(&copies[i]));
                ntiled += ran("fy_transpose");
            }
        }
    }
    assert_true(ntiled >= 8 * 4 * FY_DTYPE_COUNT);
}

/* Rows of 24 bytes, at multiples of 8: one thread for each 8 bytes. */
TS_TEST(short_rows_are_copied_by_wider_elements)
{
    op_case_t c = { .op = FY_OP_COPY, .ndst = 1, .nsrc = 1 };
    c.dst[0] = describe(FY_DTYPE_U8, 2, (const int64_t[]){ 100, 24 }, (const int64_t[]){ 24, 1 });
    c.src[0] = describe(FY_DTYPE_U8, 2, (const int64_t[]){ 100, 24 }, (const int64_t[]){ 40, 1 });
    /* 300, or 2,400, in whole blocks */
    static const unsigned threads[] = { 512, 2560, 2560, 2560 };
    for (c.shifted = 0; c.shifted < 4; c.shifted++) {
        run_case(&c);
        assert_int_equal(driver.fake_cuda_last_threads(), threads[c.shifted]);
    }
    c.dst[0] = describe(FY_DTYPE_F16, 2, (const int64_t[]){ 100, 6 }, (const int64_t[]){ 6, 1 });
    c.src[0] = describe(FY_DTYPE_F16, 2, (const int64_t[]){ 100, 6 }, (const int64_t[]){ 8, 1 });
    for (c.shifted = 0; c.shifted < 4; c.shifted++) run_case(&c);
    c.dst[0] = describe(FY_DTYPE_F32, 2, (const int64_t[]){ 100, 7 }, (const int64_t[]){ 7, 1 });
    c.src[0] = describe(FY_DTYPE_F32, 2, (const int64_t[]){ 100, 7 }, (const int64_t[]){ 8, 1 });
    for (c.shifted = 0; c.shifted < 4; c.shifted++) run_case(&c);
}

/* ---- the gradient of max_pool2d ---- */

typedef struct pooled {
    int64_t n, h, w, c;
    int32_t kernel[2], stride[2], padding[2];
    int by_tiles;
} pooled_t;
static const pooled_t pooled[] = {
    { 2, 37, 19, 24, { 3, 3 }, { 2, 2 }, { 1, 1 }, 1 },   /* several tiles, the last ones short */
    { 1, 20, 17, 72, { 3, 3 }, { 1, 1 }, { 1, 1 }, 1 },   /* and of channels */
    { 1, 40, 5, 11, { 5, 1 }, { 3, 1 }, { 2, 0 }, 1 },    /* channels one by one */
    { 2, 18, 18, 8, { 2, 2 }, { 5, 40 }, { 0, 1 }, 1 },   /* pixels without a window */
    { 1, 17, 3, 16, { 2, 60 }, { 2, 60 }, { 1, 57 }, 1 }, /* one window in a row */
    { 1, 15, 10, 8, { 14, 9 }, { 1, 1 }, { 0, 4 }, 1 },   /* the most places */
    { 1, 9, 9, 8, { 16, 8 }, { 1, 1 }, { 8, 4 }, 0 },     /* one more */
    { 1, 3, 40, 8, { 1, 127 }, { 1, 1 }, { 0, 63 }, 1 },  /* small tiles */
};

/* Few values, so that windows have equal ones; NaN, and both zeros. */
static void give_ties(char *bytes, int64_t n, int32_t dtype)
{
    static const double values[] = { -2, -1, -0.0, 0, 1, 2, 3, NAN };
    for (int64_t k = 0; k < n; k++) {
        const uint64_t bits = random_bits() >> 20;
        const double x = values[bits % 8 == 7 && bits % 64 != 7 ? 6 : bits % 8];
        const float f = (float)x;
        switch (dtype) {
        case FY_DTYPE_F64: memcpy(bytes + k * 8, &x, 8); break;
        case FY_DTYPE_F32: memcpy(bytes + k * 4, &f, 4); break;
        default: {
            const uint16_t half = dtype == FY_DTYPE_F16 ? fy__f16_from_f32(f)
                                                        : fy__bf16_from_f32(f);
            memcpy(bytes + k * 2, &half, 2);
        }
        }
    }
}

static int64_t windows_along(const pooled_t *p, int axis)
{
    return ((axis ? p->w : p->h) + 2 * p->padding[axis] - p->kernel[axis]) / p->stride[axis] + 1;
}

/* Each window gives its dy to one pixel: the first of the largest, or the first NaN. */
TS_TEST(winners_of_windows_get_their_gradients)
{
    static char bytes[1 << 20];
    for (size_t i = 0; i < LENGTH(pooled); i++)
        for (size_t d = 0; d < LENGTH(floats); d++)
            for (int32_t relu = 0; relu < 2; relu++) {
                const pooled_t *p = &pooled[i];
                const fy_pool2d_attrs_t attrs = { p->kernel[0],
                                                  p->kernel[1],
                                                  p->stride[0],
                                                  p->stride[1],
                                                  p->padding[0],
                                                  p->padding[1],
                                                  relu,
                                                  0,
                                                  0 };
                const fy_desc_t x = DENSE_OF(floats[d], p->n, p->h, p->w, p->c);
                const fy_desc_t y =
                    DENSE_OF(floats[d], p->n, windows_along(p, 0), windows_along(p, 1), p->c);
                op_case_t c = OP_CASE(FY_OP_MAX_POOL2D_BACKWARD, 1, 2, .attrs = &attrs,
                                      .dst = { x }, .src = { y, x }, .close = CLOSE);
                give_ties(bytes, (int64_t)nelem_of(&x), floats[d]);
                c.given[1] = bytes;
                c.accumulate = (uint32_t)(i + d) & 1;
                for (c.shifted = 0; c.shifted < 8; c.shifted += 7) {
                    run_case(&c);
                    assert_int_equal(ran("fy_pool2d_tiles_f"), p->by_tiles);
                }
                c.shifted = 0;
                c.dst[0].strides[0] += 24; /* gaps */
                run_case(&c);
            }
}

TS_SUITE(.set_up = open_device, .tear_down = close_device, .prepare = load_or_skip);
