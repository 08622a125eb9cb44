/* Data sets: accepted and refused files, creating, splitting, writing and reading again, the known
 * sets.
 * Not here: written files that must be refused (test_dataset_rejects.c), loaders
 * (test_loader.c). */
#include <math.h>

#include "tests/unit/train/fixture.h"

static fy_dataset_info_t info_of(const fy_dataset_t *dataset)
{
    fy_dataset_info_t info = FY_DATASET_INFO_INIT;
    ts_ok(fy_dataset_query(dataset, &info));
    return info;
}

static void expect_set(const fy_dataset_t *dataset, uint64_t samples, int rank, const int64_t *dims,
                       int64_t classes, int64_t targets)
{
    const fy_dataset_info_t info = info_of(dataset);
    assert_int_equal(info.samples, samples);
    assert_int_equal(info.rank, rank);
    for (int i = 0; i < rank; i++) assert_int_equal(info.dims[i], dims[i]);
    assert_int_equal(info.classes, classes);
    assert_int_equal(info.targets, targets);
}

static int32_t label_of(const fy_dataset_t *dataset, uint64_t index)
{
    int32_t label = -1;
    ts_ok(fy_dataset_get(dataset, index, NULL, &label));
    return label;
}

/* Three images of 2 x 3 and their labels. */
static const unsigned char images[] = {
    0, 0, 8, 3, 0, 0, 0, 3, 0,  0,  0,  2,  0,  0,  0,  3,  1,
    2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18
};
static const unsigned char labels[] = { 0, 0, 8, 1, 0, 0, 0, 3, 4, 0, 7 };

TS_TEST(idx_is_read)
{
    fy_dataset_t *dataset;
    unsigned char sample[6];
    const char *x = write_file("x", images, sizeof images),
               *y = write_file("y", labels, sizeof labels);
    ts_ok(fy_dataset_read_idx(x, y, NULL, &dataset));
    expect_set(dataset, 3, FY_DIMS(2, 3, 1), 8, 0); /* classes: the largest label + 1 */
    assert_int_equal(info_of(dataset).dtype, FY_DTYPE_U8);
    ts_ok(fy_dataset_get(dataset, 1, sample, NULL));
    assert_memory_equal(sample, images + 16 + 6, 6);
    assert_int_equal(label_of(dataset, 0), 4);
    assert_int_equal(label_of(dataset, 2), 7);
    ts_fails(fy_dataset_get(dataset, 3, sample, NULL), INVALID_ARGUMENT);
    fy_dataset_destroy(dataset);

    fy_dataset_options_t options = FY_DATASET_OPTIONS_INIT;
    options.max_samples = 2;
    ts_ok(fy_dataset_read_idx(x, y, &options, &dataset));
    assert_int_equal(info_of(dataset).samples, 2);
    assert_int_equal(info_of(dataset).classes, 8); /* of the whole file */
    ts_fails(fy_dataset_get(dataset, 2, sample, NULL), INVALID_ARGUMENT);
    fy_dataset_destroy(dataset);
    options.max_nbytes = 17;
    ts_fails(fy_dataset_read_idx(x, y, &options, &dataset), CORRUPT_DATA);
    assert_null(dataset);
}

TS_TEST(idx_with_channels)
{
    static const unsigned char colour[] = { 0, 0, 8, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0,
                                            0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6 };
    static const unsigned char one[] = { 0, 0, 8, 1, 0, 0, 0, 1, 1 };
    fy_dataset_t *dataset;
    ts_ok(fy_dataset_read_idx(write_file("x", colour, sizeof colour),
                              write_file("y", one, sizeof one), NULL, &dataset));
    assert_int_equal(info_of(dataset).rank, 3);
    assert_int_equal(info_of(dataset).dims[2], 3);
    ts_ok(fy_dataset_write_idx(dataset, in_folder("x2"), in_folder("y2")));
    fy_dataset_destroy(dataset);
    ts_ok(fy_dataset_read_idx(in_folder("x2"), in_folder("y2"), NULL, &dataset));
    assert_int_equal(info_of(dataset).dims[2], 3);
    fy_dataset_destroy(dataset);
}

/* The content decides the kind, not the name. */
TS_TEST(gzip_is_inflated)
{
    fy_dataset_t *dataset;
    char command[512];
    const char *x = write_file("images.bin", images, sizeof images),
               *y = write_file("labels.bin", labels, sizeof labels);
    snprintf(command, sizeof command, "gzip -nc %s > %s/x.gz && gzip -nc %s > %s/y", x, folder, y,
             folder);
    assert_int_equal(system(command), 0);
    ts_ok(fy_dataset_read_idx(in_folder("x.gz"), in_folder("y"), NULL, &dataset));
    assert_int_equal(info_of(dataset).samples, 3);
    assert_int_equal(label_of(dataset, 2), 7);
    fy_dataset_destroy(dataset);
    /* Concatenated members are one stream. */
    snprintf(command, sizeof command,
             "head -c 9 %s | gzip -nc > %s/y2; tail -c +10 %s | gzip -nc >> %s/y2", y, folder, y,
             folder);
    assert_int_equal(system(command), 0);
    ts_ok(fy_dataset_read_idx(in_folder("x.gz"), in_folder("y2"), NULL, &dataset));
    assert_int_equal(label_of(dataset, 2), 7);
    fy_dataset_destroy(dataset);
    /* Zeros behind members are padding. */
    snprintf(command, sizeof command,
             "{ head -c 9 %s | gzip -nc; head -c 700 /dev/zero; tail -c +10 %s | gzip -nc; head -c "
             "200000 /dev/zero; } > %s/y3",
             y, y, folder);
    assert_int_equal(system(command), 0);
    ts_ok(fy_dataset_read_idx(in_folder("x.gz"), in_folder("y3"), NULL, &dataset));
    assert_int_equal(label_of(dataset, 2), 7);
    fy_dataset_destroy(dataset);
    /* 64 MiB of zeros in 64 KiB: refused by its header, or by the cap. */
    fy_dataset_options_t options = FY_DATASET_OPTIONS_INIT;
    options.max_nbytes = 1 << 20;
    snprintf(command, sizeof command, "head -c 64M /dev/zero | gzip -nc > %s/bomb.gz", folder);
    assert_int_equal(system(command), 0);
    ts_fails(fy_dataset_read_idx(in_folder("bomb.gz"), y, &options, &dataset), CORRUPT_DATA);
    const char *paths[] = { in_folder("bomb.gz") };
    ts_fails_with(fy_dataset_read_cifar10(1, paths, &options, &dataset), CORRUPT_DATA,
                  "max_nbytes = 1048576");
    assert_null(dataset);
    /* A file that is not IDX by its first bytes is not read to its end. A file that is too large is
     * not read at all. */
    ts_fails_with(fy_dataset_read_idx("/dev/zero", y, NULL, &dataset), IO,
                  "cannot read /dev/zero: it is a device");
    snprintf(command, sizeof command, "truncate -s 1T %s/sparse", folder);
    assert_int_equal(system(command), 0);
    const char *sparse[] = { in_folder("sparse") };
    ts_fails_with(fy_dataset_read_idx(sparse[0], y, NULL, &dataset), CORRUPT_DATA,
                  "sparse: 1099511627776 bytes, more than max_nbytes = 4294967296");
    ts_fails_with(fy_dataset_read_cifar10(1, sparse, NULL, &dataset), CORRUPT_DATA,
                  "sparse: 1099511627776 bytes, more than max_nbytes");
}

TS_TEST(cifar10_is_read)
{
    enum { N = 70 }; /* more than the reader reads at once */
    static unsigned char records[N * 3073];
    fy_dataset_t *dataset;
    unsigned char sample[3072];
    for (size_t i = 0; i < sizeof records; i++)
        records[i] = (unsigned char)(i % 3073 ? (i / 3073 + i % 3073 * 7) : i / 3073 % 10);
    write_file("a", records, sizeof records);
    write_file("b", records + 5 * 3073, 2 * 3073);
    const char *paths[] = { in_folder("a"), in_folder("b") };
    ts_ok(fy_dataset_read_cifar10(2, paths, NULL, &dataset));
    expect_set(dataset, N + 2, FY_DIMS(32, 32, 3), 10, 0);
    for (uint64_t i = 0; i < N + 2; i++) {
        const unsigned char *record = records + (i < N ? i : i - N + 5) * 3073;
        int32_t label;
        ts_ok(fy_dataset_get(dataset, i, sample, &label));
        assert_int_equal(label, record[0]);
        for (int p = 0; p < 1024; p++)
            for (int c = 0; c < 3; c++)
                assert_int_equal(sample[3 * p + c], record[1 + c * 1024 + p]);
    }
    ts_ok(fy_dataset_write_cifar10(dataset, in_folder("c")));
    fy_dataset_t *again;
    paths[0] = in_folder("c");
    ts_ok(fy_dataset_read_cifar10(1, paths, NULL, &again));
    assert_int_equal(info_of(again).samples, N + 2);
    ts_ok(fy_dataset_get(again, N + 1, sample, NULL));
    assert_int_equal(sample[3 * 1023 + 2], records[6 * 3073 + 3072]);
    fy_dataset_destroy(again);
    ts_fails(fy_dataset_write_idx(dataset, in_folder("no-folder/x"), in_folder("y")), IO);
    fy_dataset_destroy(dataset);
    fy_dataset_options_t options = FY_DATASET_OPTIONS_INIT;
    options.max_samples = 66;
    paths[0] = in_folder("a");
    ts_ok(fy_dataset_read_cifar10(2, paths, &options, &dataset));
    assert_int_equal(info_of(dataset).samples, 66);
    fy_dataset_destroy(dataset);
    ts_fails(fy_dataset_read_cifar10(0, paths, NULL, &dataset), INVALID_ARGUMENT);
    paths[1] = in_folder("not-there");
    ts_fails_with(fy_dataset_read_cifar10(2, paths, NULL, &dataset), IO, "not-there");
    assert_null(dataset);
}

static fy_dataset_t *make_counted(uint64_t samples)
{
    float data[64];
    int32_t classes[32];
    fy_dataset_t *dataset;
    const fy_dataset_info_t info = { sizeof info, samples, 1, { 2 }, FY_DTYPE_F32, .classes = 4 };
    for (uint64_t i = 0; i < samples; i++) {
        data[2 * i] = (float)i;
        data[2 * i + 1] = (float)i + 0.5f;
        classes[i] = (int32_t)i % 4;
    }
    ts_ok(fy_dataset_create(&info, data, classes, &dataset));
    return dataset;
}

TS_TEST(created_sets)
{
    fy_dataset_t *dataset = make_counted(5);
    float sample[2];
    int32_t bad[1] = { 4 };
    ts_ok(fy_dataset_get(dataset, 3, sample, NULL));
    assert_true(sample[0] == 3 && sample[1] == 3.5f);
    fy_dataset_destroy(dataset);
    fy_dataset_destroy(NULL);
    fy_dataset_info_t info = { sizeof info, 1, 1, { 2 }, FY_DTYPE_F32, .classes = 4 };
    ts_fails(fy_dataset_create(&info, sample, bad, &dataset), BAD_VALUE);
    assert_null(dataset);
    bad[0] = -1;
    ts_fails(fy_dataset_create(&info, sample, bad, &dataset), BAD_VALUE);
    const fy_dataset_info_t refused[] = {
        { sizeof info, 1, 1, { 2 }, FY_DTYPE_F32, .classes = 4, .targets = 1 },
        { sizeof info, 1, 1, { 2 }, FY_DTYPE_F32 },
        { sizeof info, 1, 1, { 2 }, FY_DTYPE_F32, .classes = -1 },
        { sizeof info, 1, 1, { 2 }, FY_DTYPE_F32, .targets = -1 },
        { sizeof info, 1, 1, { 2 }, FY_DTYPE_F32, .classes = 4, .labels = -1 },
        { sizeof info, 1, 1, { 2 }, FY_DTYPE_F64, .classes = 4 },
        { sizeof info, 1, 1, { 0 }, FY_DTYPE_F32, .classes = 4 },
        { sizeof info, 1, 1, { INT64_MAX / 2 }, FY_DTYPE_F32, .classes = 4 },
        { sizeof info, 1ull << 40, 1, { 1ll << 40 }, FY_DTYPE_F32, .classes = 4 },
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        row_fails(i, fy_dataset_create(&refused[i], sample, bad, &dataset),
                  FY_STATUS_INVALID_ARGUMENT, "dataset_create");
    ts_fails(fy_dataset_create(NULL, sample, bad, &dataset), INVALID_ARGUMENT);
    ts_fails(fy_dataset_query(NULL, &info), INVALID_ARGUMENT);
}

TS_TEST(tables_become_data_sets)
{
    static const double values[] = { 1, 2, 3, 4, 5, 6 };
    fy_table_t *table;
    fy_dataset_t *dataset;
    float sample[2], target[2];
    ts_ok(fy_table_create(2, 3, values, &table));
    ts_ok(fy_dataset_from_table(table, 1, &dataset));
    expect_set(dataset, 2, FY_DIMS(2), 0, 1);
    ts_ok(fy_dataset_get(dataset, 1, sample, target));
    assert_true(sample[0] == 4 && sample[1] == 5 && target[0] == 6);
    ts_fails(fy_dataset_write_idx(dataset, in_folder("x"), in_folder("y")), INVALID_ARGUMENT);
    ts_fails(fy_dataset_write_cifar10(dataset, in_folder("x")), INVALID_ARGUMENT);
    fy_dataset_destroy(dataset);
    ts_fails(fy_dataset_from_table(table, 3, &dataset), INVALID_ARGUMENT);
    ts_fails(fy_dataset_from_table(table, 0, &dataset), INVALID_ARGUMENT);
    assert_null(dataset);
    fy_table_destroy(table);
}

TS_TEST(parts_share_memory)
{
    enum { N = 20 };
    fy_dataset_t *all = make_counted(N), *first, *rest, *other, *other_rest, *third, *fourth;
    float sample[2];
    int seen[N] = { 0 }, differs = 0, moved = 0;
    ts_ok(fy_dataset_split(all, 15, 3, &first, &rest));
    ts_ok(fy_dataset_split(all, 15, 4, &other, &other_rest));
    ts_ok(fy_dataset_split(first, 5, -1, &third, &fourth)); /* a part of a part */
    fy_dataset_destroy(all);                                /* the memory stays */
    assert_int_equal(info_of(first).samples, 15);
    assert_int_equal(info_of(rest).samples, 5);
    for (uint64_t i = 0; i < N; i++) {
        ts_ok(fy_dataset_get(i < 15 ? first : rest, i < 15 ? i : i - 15, sample, NULL));
        seen[(int)sample[0]]++;
        moved += sample[0] != (float)i;
        assert_int_equal(label_of(i < 15 ? first : rest, i < 15 ? i : i - 15), (int)sample[0] % 4);
    }
    for (int i = 0; i < N; i++) assert_int_equal(seen[i], 1);
    assert_true(moved > N / 2);
    for (uint64_t i = 0; i < 15; i++) {
        float mine[2];
        ts_ok(fy_dataset_get(first, i, sample, NULL));
        ts_ok(fy_dataset_get(other, i, mine, NULL));
        differs += sample[0] != mine[0];
        ts_ok(fy_dataset_get(i < 5 ? third : fourth, i < 5 ? i : i - 5, mine, NULL));
        assert_true(mine[0] == sample[0]);
    }
    assert_true(differs > 5);
    fy_dataset_destroy(other);
    ts_fails(fy_dataset_split(first, 16, 0, &all, &other), INVALID_ARGUMENT);
    assert_null(all);
    assert_null(other);
    fy_dataset_t *const parts[] = { first, rest, third, other_rest };
    for (size_t i = 0; i < 4; i++) fy_dataset_destroy(parts[i]);
    ts_ok(fy_dataset_get(fourth, 0, sample, NULL));
    fy_dataset_destroy(fourth);

    all = make_counted(N);
    ts_ok(fy_dataset_split(all, 0, -1, &first, &rest));
    assert_int_equal(info_of(first).samples, 0);
    assert_int_equal(info_of(rest).samples, N);
    ts_ok(fy_dataset_split(rest, 12, -1, &third, &fourth));
    ts_ok(fy_dataset_get(fourth, 2, sample, NULL));
    assert_true(sample[0] == 14);
    fy_dataset_t *const sets[] = { all, first, rest, third, fourth };
    for (size_t i = 0; i < 5; i++) fy_dataset_destroy(sets[i]);
}

/* FNV-1a: reduces the bytes of a synthetic set to one number. */
static uint64_t hash_of(const fy_dataset_t *dataset)
{
    static unsigned char sample[3072];
    const fy_dataset_info_t info = info_of(dataset);
    uint64_t hash = 0xcbf29ce484222325u;
    const size_t nbytes = (size_t)(info.dims[0] * info.dims[1] * info.dims[2]);
    for (uint64_t i = 0; i < info.samples; i++) {
        int32_t label;
        ts_ok(fy_dataset_get(dataset, i, sample, &label));
        assert_int_equal(label, i % 10);
        for (size_t b = 0; b < nbytes; b++) hash = (hash ^ sample[b]) * 0x100000001b3u;
    }
    return hash;
}

TS_TEST(synthetic_sets_are_reproducible)
{
    fy_dataset_t *digits, *more, *images_set;
    unsigned char a[3072], b[3072];
    ts_ok(fy_dataset_synthetic_digits(50, 7, &digits));
    ts_ok(fy_dataset_synthetic_digits(60, 7, &more));
    ts_ok(fy_dataset_synthetic_images(20, 7, &images_set));
    assert_int_equal(info_of(digits).dims[0], 28);
    assert_int_equal(info_of(images_set).dims[2], 3);
    assert_int_equal(hash_of(digits), 0xc47cda878531f407u);
    assert_int_equal(hash_of(images_set), 0xdcd6f4bad427dc27u);
    for (uint64_t i = 0; i < 50; i++) { /* more samples do not change the first ones */
        ts_ok(fy_dataset_get(digits, i, a, NULL));
        ts_ok(fy_dataset_get(more, i, b, NULL));
        assert_memory_equal(a, b, 784);
    }
    ts_ok(fy_dataset_get(digits, 3, a, NULL));
    ts_ok(fy_dataset_get(digits, 13, b, NULL));
    assert_memory_not_equal(a, b, 784);
    fy_dataset_destroy(digits);
    ts_ok(fy_dataset_synthetic_digits(50, 8, &digits));
    ts_ok(fy_dataset_get(digits, 3, b, NULL));
    assert_memory_not_equal(a, b, 784);
    ts_ok(fy_dataset_write_idx(digits, in_folder("x"), in_folder("y")));
    fy_dataset_destroy(more);
    ts_ok(fy_dataset_read_idx(in_folder("x"), in_folder("y"), NULL, &more));
    assert_int_equal(hash_of(digits), hash_of(more));
    fy_dataset_destroy(digits);
    fy_dataset_destroy(more);
    fy_dataset_destroy(images_set);
    ts_fails(fy_dataset_synthetic_digits(0, 1, &digits), INVALID_ARGUMENT);
    ts_fails(fy_dataset_synthetic_images(UINT64_MAX, 1, &digits), INVALID_ARGUMENT);
    assert_null(digits);
}

TS_TEST(known_names)
{
    static const struct {
        const char *name;
        int is_test;
        uint64_t samples;
    } made_up[] = { { "mnist", 0, 10000 },  { "mnist", 1, 2000 },   { "cifar10", 0, 10000 },
                    { "cifar10", 1, 2000 }, { "airfoil", 0, 1500 }, { "airfoil", 1, 3 } };
    fy_dataset_t *dataset;
    for (size_t i = 0; i < sizeof made_up / sizeof *made_up; i++) {
        ts_ok(fy_dataset_open(made_up[i].name, NULL, made_up[i].is_test, &dataset));
        assert_int_equal(info_of(dataset).samples, made_up[i].samples);
        fy_dataset_destroy(dataset);
    }
    ts_fails_with(fy_dataset_open("imagenet", NULL, 0, &dataset), INVALID_ARGUMENT,
                  "mnist, cifar10 and airfoil");
    ts_fails_with(fy_dataset_open("mnist", folder, 0, &dataset), UNAVAILABLE,
                  "train-images-idx3-ubyte");
    ts_fails_with(fy_dataset_open("cifar10", folder, 1, &dataset), UNAVAILABLE, "test_batch.bin");
    ts_fails(fy_dataset_open("airfoil", folder, 1, &dataset), UNAVAILABLE);
    write_file("t10k-images-idx3-ubyte", images, sizeof images);
    ts_fails_with(fy_dataset_open("mnist", folder, 1, &dataset), IO, "t10k-labels-idx1-ubyte");
    write_file("t10k-labels-idx1-ubyte", labels, sizeof labels);
    ts_ok(fy_dataset_open("mnist", folder, 1, &dataset));
    assert_int_equal(info_of(dataset).samples, 3);
    fy_dataset_destroy(dataset);
    /* files that are there and cannot be looked at are not missing ones */
    static const char *const names[] = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                         "test_batch.bin", "airfoil_self_noise.dat" };
    char path[512];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(symlink(names[i], path), 0); /* of itself: ELOOP */
    }
    ts_fails_with(fy_dataset_open("mnist", folder, 0, &dataset), IO, "train-images-idx3-ubyte");
    ts_fails_with(fy_dataset_open("cifar10", folder, 1, &dataset), IO, "test_batch.bin");
    ts_fails_with(fy_dataset_open("airfoil", folder, 1, &dataset), IO, "airfoil_self_noise.dat");
}

/* Skipped without the real data. */
static const char *real_data(const char *name)
{
    static char path[512];
    const char *base = getenv("FERRY_DATA");
    if (!base || !*base) base = "data"; /* of the sources, where CTest starts tests */
    snprintf(path, sizeof path, "%s/%s", base, name);
    if (access(path, R_OK) == 0) return base;
    print_message("skipped: no %s (FERRY_DATA says where data sets are)\n", path);
    skip();
    return NULL;
}

static void assert_md5(const char *path, const char *want)
{
    char command[256], got[64] = "";
    snprintf(command, sizeof command, "md5sum %s", path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(got, sizeof got, pipe));
    pclose(pipe);
    got[32] = 0;
    assert_string_equal(got, want);
}

/* All bytes are read, and writing them again gives the files with the published checksums. */
TS_TEST(the_real_mnist_is_read)
{
    static const char *const sums[2][2] = {
        { "6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624" },
        { "2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637" }
    };
    const char *data = real_data("mnist");
    for (int is_test = 0; is_test < 2; is_test++) {
        fy_dataset_t *dataset;
        ts_ok(fy_dataset_open("mnist", data, is_test, &dataset));
        assert_int_equal(info_of(dataset).samples, is_test ? 10000 : 60000);
        assert_int_equal(info_of(dataset).classes, 10);
        ts_ok(fy_dataset_write_idx(dataset, in_folder("x"), in_folder("y")));
        assert_md5(in_folder("x"), sums[is_test][0]);
        assert_md5(in_folder("y"), sums[is_test][1]);
        fy_dataset_destroy(dataset);
    }
}

TS_TEST(the_real_cifar10_is_read)
{
    const char *data = real_data("cifar10");
    char command[1024];
    fy_dataset_t *dataset;
    ts_ok(fy_dataset_open("cifar10", data, 1, &dataset));
    ts_ok(fy_dataset_write_cifar10(dataset, in_folder("x")));
    fy_dataset_destroy(dataset);
    snprintf(command, sizeof command,
             "cd %s/cifar10 && { cat test_batch.bin 2>/dev/null || gzip -dc test_batch.bin.gz; } | "
             "cmp - %s",
             data, in_folder("x"));
    assert_int_equal(system(command), 0);
}

TS_TEST(the_real_airfoil_is_read)
{
    const char *data = real_data("airfoil");
    fy_dataset_t *train, *test;
    float sample[5], target;
    double sum = 0;
    ts_ok(fy_dataset_open("airfoil", data, 0, &train));
    ts_ok(fy_dataset_open("airfoil", data, 1, &test));
    expect_set(train, 1500, FY_DIMS(5), 0, 1);
    for (uint64_t i = 0; i < 1503; i++) {
        ts_ok(fy_dataset_get(i < 1500 ? train : test, i < 1500 ? i : i - 1500, sample, &target));
        sum += target;
    }
    assert_true(fabs(sum) < 1e-3); /* standardised over all rows */
    fy_dataset_destroy(train);
    fy_dataset_destroy(test);
}

TS_SUITE(.begin = make_folder, .end = drop_folder);
