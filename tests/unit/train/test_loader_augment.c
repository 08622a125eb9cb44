/* Images that a streamed loader changes: resize, pad, crop, flip. Beside fy_resize2d and beside
 * pixels looked up one by one; the same for any number of workers, and after a seek.
 * Not here: order and figures of batches (test_loader.c). */
#include <stdbool.h>
#include <math.h>

#include <ferry/train/train.h>

#include "tests/support/harness.h"

enum { N = 24, HEIGHT = 5, WIDTH = 7, CHANNELS = 3, PIXELS = HEIGHT * WIDTH * CHANNELS, BATCH = 6 };
enum { MOST = 16 * 16 * CHANNELS };

static unsigned char pixels[N * PIXELS];

static fy_dataset_t *make_set(fy_dtype_t dtype)
{
    static float reals[N * PIXELS];
    static int32_t labels[N];
    fy_dataset_t *dataset;
    const fy_dataset_info_t info = { sizeof info, N, 3, { HEIGHT, WIDTH, CHANNELS }, dtype, N };
    for (int i = 0; i < N * PIXELS; i++) {
        pixels[i] = (unsigned char)(1 + i * 193 % 255); /* none is 0, as padding is */
        reals[i] = (float)pixels[i] / 7;
    }
    for (int i = 0; i < N; i++) labels[i] = i; /* which sample it is */
    ts_ok(
        fy_dataset_create(&info, dtype == FY_DTYPE_U8 ? (void *)pixels : reals, labels, &dataset));
    return dataset;
}

static fy_loader_options_t streamed(void)
{
    fy_loader_options_t options = FY_LOADER_OPTIONS_INIT;
    options.batch = BATCH;
    options.seed = 5;
    options.resident = 0;
    options.augment = 1;
    return options;
}

static fy_loader_t *make(ts_ctx_t *ctx, fy_dtype_t dtype, const fy_loader_options_t *options)
{
    fy_dataset_t *dataset = make_set(dtype);
    fy_loader_t *loader;
    ts_ok(fy_loader_create(ctx->device, dataset, options, &loader));
    fy_dataset_destroy(dataset);
    return loader;
}

typedef struct batch {
    int64_t rows, dims[4];
    float x[BATCH * MOST];
    int32_t y[BATCH];
} batch_t;

/* rows 0: the end of the epoch. */
static void next(fy_loader_t *loader, batch_t *out)
{
    fy_tensor_t *x, *y;
    fy_scope_t scope = fy_scope_begin("step");
    memset(out, 0, sizeof *out);
    ts_ok(fy_loader_next(loader, &x, &y));
    if (x) {
        const fy_tensor_info_t info = ts_info(x);
        out->rows = info.dims[0];
        memcpy(out->dims, info.dims, sizeof out->dims);
        assert_true(info.nbytes <= sizeof out->x);
        ts_read(x, out->x, info.nbytes);
        ts_read(y, out->y, (size_t)out->rows * sizeof *out->y);
    }
    fy_scope_end(scope, 0, NULL);
}

/* ---- which pixels ---- */

/* Pixel of sample `n` in an image with `pad` zeros around it. */
static float padded(int n, int64_t y, int64_t x, int64_t c, int64_t pad)
{
    y -= pad;
    x -= pad;
    if (y < 0 || y >= HEIGHT || x < 0 || x >= WIDTH) return 0;
    return pixels[n * PIXELS + (y * WIDTH + x) * CHANNELS + c];
}

/* Is this the crop at (top, left)? */
static bool is_crop(const float *x, int n, int64_t size, int64_t pad, int64_t top, int64_t left,
                    bool mirrored)
{
    for (int64_t h = 0; h < size; h++)
        for (int64_t w = 0; w < size; w++)
            for (int64_t c = 0; c < CHANNELS; c++)
                if (x[(h * size + w) * CHANNELS + c] !=
                    padded(n, top + h, left + (mirrored ? size - 1 - w : w), c, pad))
                    return false;
    return true;
}

/* Every place and both directions occur; an epoch draws others than the one before. */
TS_DEVICE_TEST(crops_lie_everywhere)
{
    enum {
        SIZE = 4,
        PAD = 1,
        TOPS = HEIGHT + 2 * PAD - SIZE + 1,
        LEFTS = WIDTH + 2 * PAD - SIZE + 1
    };
    static batch_t batch;
    fy_loader_options_t options = streamed();
    int counts[TOPS][LEFTS] = { { 0 } }, mirrored = 0, found = 0, last[N] = { 0 }, same = 0;
    options.pad = PAD;
    options.crop = SIZE;
    options.flip = 1;
    fy_loader_t *loader = make(ctx, FY_DTYPE_U8, &options);
    for (int epoch = 0; epoch < 20;) {
        next(loader, &batch);
        if (!batch.rows) epoch++;
        for (int64_t i = 0; i < batch.rows; i++) {
            const float *x = batch.x + i * SIZE * SIZE * CHANNELS;
            int at = -1;
            for (int k = 0; k < TOPS * LEFTS * 2 && at < 0; k++)
                if (is_crop(x, batch.y[i], SIZE, PAD, k / 2 / LEFTS, k / 2 % LEFTS, k % 2)) at = k;
            if (at < 0) fail_msg("epoch %d: sample %d is no crop", epoch, batch.y[i]);
            counts[at / 2 / LEFTS][at / 2 % LEFTS]++;
            mirrored += at % 2;
            same += epoch > 0 && last[batch.y[i]] == at;
            last[batch.y[i]] = at;
            found++;
        }
    }
    assert_int_equal(found, 20 * N);
    for (int i = 0; i < TOPS * LEFTS; i++) assert_true(counts[i / LEFTS][i % LEFTS] > 0);
    assert_in_range(mirrored, found / 2 - found / 8, found / 2 + found / 8);
    assert_in_range(same, 0, found / 8);
    fy_loader_destroy(loader);
}

TS_DEVICE_TEST(evaluation_takes_the_centre)
{
    static batch_t batch;
    fy_loader_options_t options = streamed();
    options.shuffle = 0;
    options.crop = 3;
    options.flip = 1;
    options.augment = 0;
    fy_loader_t *loader = make(ctx, FY_DTYPE_U8, &options);
    next(loader, &batch);
    assert_int_equal(batch.dims[1], 3);
    assert_int_equal(batch.dims[2], 3);
    for (int64_t i = 0; i < BATCH; i++)
        assert_true(is_crop(batch.x + i * 9 * CHANNELS, (int)i, 3, 0, 1, 2, false));
    fy_loader_info_t info = FY_LOADER_INFO_INIT;
    ts_ok(fy_loader_query(loader, &info));
    assert_int_equal(info.rank, 3);
    assert_int_equal(info.dims[0], 3);
    assert_int_equal(info.dims[1], 3);
    assert_int_equal(info.dims[2], CHANNELS);
    fy_loader_destroy(loader);
}

/* ---- resize ---- */

/* Of f32 the bits of fy_resize2d; of u8 those values, rounded. */
TS_DEVICE_TEST(resize_is_that_of_the_op)
{
    static batch_t batch;
    static float want[BATCH * MOST];
    static const fy_dtype_t dtypes[] = { FY_DTYPE_F32, FY_DTYPE_U8 };
    for (int d = 0; d < 2; d++)
        for (int64_t size = 3; size <= 16; size += 13) {
            fy_loader_options_t options = streamed();
            fy_tensor_t *x, *y;
            options.shuffle = 0;
            options.resize = size;
            fy_loader_t *loader = make(ctx, dtypes[d], &options);
            next(loader, &batch);
            fy_scope_t scope = fy_scope_begin("op");
            for (int i = 0; i < BATCH * PIXELS; i++)
                want[i] = d == 0 ? (float)pixels[i] / 7 : pixels[i];
            ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, 4,
                                 (const int64_t[]){ BATCH, HEIGHT, WIDTH, CHANNELS }, want, NULL,
                                 NULL, &x));
            if (ctx->device != fy_device_host()) ts_ok(fy_tensor_upload(x, ctx->device, NULL, &x));
            ts_ok(fy_resize2d(x, (int)size, (int)size, &y));
            const uint64_t nelem = ts_info(y).nelem;
            ts_read(y, want, nelem * sizeof *want);
            for (uint64_t i = 0; i < nelem; i++) {
                if (d == 0 && batch.x[i] != want[i])
                    fail_msg("element %d: %.9g, fy_resize2d %.9g", (int)i, (double)batch.x[i],
                             (double)want[i]);
                if (d == 1) assert_true(fabsf(batch.x[i] - want[i]) <= 0.50001f);
                if (d == 1) assert_true(batch.x[i] == floorf(batch.x[i]));
            }
            fy_scope_end(scope, 0, NULL);
            fy_loader_destroy(loader);
        }
}

/* ---- the same batches ---- */

TS_DEVICE_TEST(workers_do_not_matter)
{
    static const int ways[][2] = { { 0, 2 }, { 1, 1 }, { 4, 2 }, { 16, 5 } }; /* workers, depth */
    static batch_t first[3 * (N / BATCH + 1)], batch;
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        fy_loader_options_t options = streamed();
        options.resize = 9;
        options.pad = 2;
        options.crop = 8;
        options.flip = 1;
        options.workers = ways[way][0];
        options.depth = ways[way][1];
        fy_loader_t *loader = make(ctx, FY_DTYPE_U8, &options);
        for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
            next(loader, way ? &batch : &first[i]);
            if (way) assert_memory_equal(&batch, &first[i], sizeof batch);
        }
        /* the second batch of the second epoch again */
        ts_ok(fy_loader_seek(loader, 1, 1));
        next(loader, &batch);
        assert_memory_equal(&batch, &first[N / BATCH + 2], sizeof batch);
        fy_loader_destroy(loader);
    }
    assert_memory_not_equal(first[0].x, first[N / BATCH + 1].x, sizeof first[0].x);
}

/* ---- refusals ---- */

TS_DEVICE_TEST(refusals_name_the_numbers)
{
    static const struct {
        int64_t resize, pad, crop;
        int resident;
        const char *text;
    } rows[] = {
        { 0, 0, 6, 0, "crop is 6; images have a height of 5, with resize and padding 5" },
        { 4, 1, 7, 0, "crop is 7; images have a height of 5, with resize and padding 6" },
        { -1, 0, 0, 0, "resize is -1; it may be 0 to 65536 pixels" },
        { 0, 65537, 0, 0, "pad is 65537; it may be 0 to 65536 pixels" },
        { 0, 0, -2, 0, "crop is -2" },
        { 4, 0, 0, 1, "need resident 0" },
    };
    fy_loader_t *loader;
    fy_dataset_t *dataset = make_set(FY_DTYPE_U8), *text;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fy_loader_options_t options = streamed();
        options.resize = rows[i].resize;
        options.pad = rows[i].pad;
        options.crop = rows[i].crop;
        options.resident = rows[i].resident;
        ts_fails_with(fy_loader_create(ctx->device, dataset, &options, &loader), INVALID_ARGUMENT,
                      rows[i].text);
        assert_null(loader);
    }
    fy_dataset_destroy(dataset);
    fy_loader_options_t options = streamed();
    options.flip = 1;
    ts_ok(fy_dataset_synthetic_text(1000, 16, 1, &text));
    ts_fails_with(fy_loader_create(ctx->device, text, &options, &loader), INVALID_ARGUMENT,
                  "these samples are i32 of rank 1");
    fy_dataset_destroy(text);
}
