/* Text as a data set: samples and labels, files that are too short, loaders, generated text. */
#include "tests/unit/train/fixture.h"

enum { CONTEXT = 4 };
static const char *path;

static void write_text(const char *text) { path = write_file("text", text, strlen(text)); }

static fy_dataset_t *read_text(const char *text, int64_t context)
{
    fy_dataset_t *set;
    write_text(text);
    ts_ok(fy_dataset_read_text(path, context, NULL, &set));
    return set;
}

static void expect_sample(const fy_dataset_t *set, uint64_t index, const char *x, const char *y)
{
    int32_t sample[CONTEXT], labels[CONTEXT];
    ts_ok(fy_dataset_get(set, index, sample, labels));
    for (int i = 0; i < CONTEXT; i++) {
        assert_int_equal(sample[i], (unsigned char)x[i]);
        assert_int_equal(labels[i], (unsigned char)y[i]);
    }
}

TS_DEVICE_TEST(test_samples)
{
    fy_dataset_info_t info = FY_DATASET_INFO_INIT;
    fy_dataset_t *set = read_text("abcdefgh\xffij", CONTEXT);
    ts_ok(fy_dataset_query(set, &info));
    assert_int_equal(info.samples, 2);
    assert_int_equal(info.rank, 1);
    assert_int_equal(info.dims[0], CONTEXT);
    assert_int_equal(info.dtype, FY_DTYPE_I32);
    assert_int_equal(info.classes, 256);
    assert_int_equal(info.labels, CONTEXT);
    expect_sample(set, 0, "abcd", "bcde");
    expect_sample(set, 1, "efgh", "fgh\xff");
    ts_fails(fy_dataset_write_idx(set, path, path), INVALID_ARGUMENT);
    fy_dataset_destroy(set);

    fy_dataset_options_t options = FY_DATASET_OPTIONS_INIT;
    options.max_samples = 1;
    ts_ok(fy_dataset_read_text(path, CONTEXT, &options, &set));
    ts_ok(fy_dataset_query(set, &info));
    assert_int_equal(info.samples, 1);
    fy_dataset_destroy(set);
}

TS_DEVICE_TEST(test_refusals)
{
    fy_dataset_t *set;
    write_text("abcd");
    ts_fails_with(fy_dataset_read_text(path, 4, NULL, &set), CORRUPT_DATA, "4 bytes of text");
    assert_null(set);
    ts_fails(fy_dataset_read_text(path, 0, NULL, &set), INVALID_ARGUMENT);
    ts_fails(fy_dataset_read_text(NULL, 4, NULL, &set), INVALID_ARGUMENT);
    ts_fails(fy_dataset_read_text("/no/such/file", 4, NULL, &set), IO);
    ts_fails(fy_dataset_synthetic_text(4, 4, 1, &set), INVALID_ARGUMENT);
    ts_ok(fy_dataset_synthetic_text(5, 4, 1, &set));
    fy_loader_t *loader;
    fy_loader_options_t options = FY_LOADER_OPTIONS_INIT;
    options.scale = 1.0 / 255;
    ts_fails_with(fy_loader_create(ctx->device, set, &options, &loader), INVALID_ARGUMENT,
                  "tokens");
    fy_dataset_destroy(set);
    const fy_dataset_info_t info = { sizeof info, 1, 1, { 1 }, FY_DTYPE_F32, 0, 1, 2 };
    ts_fails_with(fy_dataset_create(&info, (float[]){ 0 }, (float[]){ 0 }, &set), INVALID_ARGUMENT,
                  "2 labels a sample and 0 classes");
}

/* Resident and streamed batches are the same tokens and labels. */
TS_DEVICE_TEST(test_loaders)
{
    fy_dataset_t *set = read_text("abcdefghijklm", CONTEXT);
    for (int resident = 0; resident < 2; resident++) {
        fy_loader_options_t options = FY_LOADER_OPTIONS_INIT;
        fy_loader_t *loader;
        fy_tensor_t *x, *y;
        int32_t got[2 * CONTEXT];
        options.batch = 2;
        options.shuffle = 0;
        options.resident = resident;
        ts_ok(fy_loader_create(ctx->device, set, &options, &loader));
        ts_ok(fy_loader_next(loader, &x, &y));
        const fy_tensor_info_t info = ts_info(x), labels = ts_info(y);
        assert_int_equal(info.dtype, FY_DTYPE_I32);
        assert_int_equal(info.rank, 2);
        assert_int_equal(labels.rank, 2);
        assert_int_equal(labels.dims[1], CONTEXT);
        ts_read(x, got, sizeof got);
        for (int i = 0; i < 2 * CONTEXT; i++) assert_int_equal(got[i], 'a' + i);
        ts_read(y, got, sizeof got);
        for (int i = 0; i < 2 * CONTEXT; i++) assert_int_equal(got[i], 'b' + i);
        ts_ok(fy_loader_next(loader, &x, &y));
        assert_int_equal(ts_info(x).dims[0], 1);
        fy_loader_destroy(loader);
    }
    fy_dataset_destroy(set);
}

TS_DEVICE_TEST(test_generated)
{
    fy_dataset_t *first, *second;
    int32_t a[16], b[16];
    ts_ok(fy_dataset_synthetic_text(1000, 16, 7, &first));
    ts_ok(fy_dataset_synthetic_text(2000, 16, 7, &second));
    for (uint64_t i = 0; i < 62; i++) {
        ts_ok(fy_dataset_get(first, i, a, NULL));
        ts_ok(fy_dataset_get(second, i, b, NULL));
        assert_memory_equal(a, b, sizeof a);
        for (int j = 0; j < 16; j++)
            assert_true(a[j] == ' ' || a[j] == '.' || (a[j] >= 'a' && a[j] <= 'z'));
    }
    fy_dataset_destroy(first);
    fy_dataset_destroy(second);
}

TS_SUITE(.begin = make_folder, .end = drop_folder);
