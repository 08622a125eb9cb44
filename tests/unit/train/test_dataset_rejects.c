/* Every rule by which a reader of data sets refuses a file has a file, named after the rule, which
 * data/make_dataset_rejects.py writes to the build's folder REJECTS (tests.cmake). Each is refused
 * with a text that names the file and the error. A file without a row, or a row without its file,
 * fails.
 * The suffix selects the reader: NAME.images (with good.labels), NAME.labels (with good.images),
 * NAME.cifar10. Not here: tables (test_table.c). */
#include "tests/unit/train/fixture.h"

/* Rules of both files of a pair. */
static const struct {
    const char *name, *images, *labels; /* their texts; NULL: that of images */
} pairs[] = {
    { "bytes-behind-the-data", "[3, 2, 2] are 12 bytes, but 13 follow the header",
      "[3] are 3 bytes, but 4 follow the header" },
    { "data-cut-off", "[3, 2, 2] are 12 bytes, but 11 follow the header",
      "[3] are 3 bytes, but 2 follow the header" },
    { "empty", "0 bytes: an IDX file begins with two zero bytes, a type and a rank" },
    { "first-byte-not-zero", "byte 0: an IDX file begins with two zero bytes, found 0x01 0x00" },
    { "gzip-block-type", "byte 11: no valid gzip: invalid block type" },
    { "gzip-bytes-behind-the-data", "more data than the 12 bytes that the header says",
      "more data than the 3 bytes that the header says" },
    { "gzip-checksum", "byte 38: no valid gzip: incorrect data check",
      "byte 27: no valid gzip: incorrect data check" },
    { "gzip-cut-off", "the compressed data ends early, after 33 bytes that inflate to 28",
      "the compressed data ends early, after 22 bytes that inflate to 11" },
    { "gzip-data-cut-off", "the header says 12 bytes of data, but 11 follow it",
      "the header says 3 bytes of data, but 2 follow it" },
    { "gzip-header-only", "the compressed data ends early, after 10 bytes that inflate to 0" },
    { "gzip-in-gzip", "byte 0: an IDX file begins with two zero bytes, found 0x1f 0x8b" },
    { "gzip-length", "byte 42: no valid gzip: incorrect length check",
      "byte 31: no valid gzip: incorrect length check" },
    { "gzip-method", "byte 4: no valid gzip: unknown compression method" },
    { "gzip-size-past-what-it-can-hold",
      "[1048576, 2, 2] are 4194304 bytes, but at most 43328 follow the header",
      "[1048576] are 1048576 bytes, but at most 31984 follow the header" },
    { "gzip-trailing-bytes", "byte 42: 4 bytes follow the end of the compressed data",
      "byte 31: 4 bytes follow the end of the compressed data" },
    { "little-endian-magic", "byte 0: an IDX file begins with two zero bytes, found 0x03 0x08",
      "byte 0: an IDX file begins with two zero bytes, found 0x01 0x08" },
    { "little-endian-sizes", "byte 12: the product of the sizes is past 2^64",
      "[50331648] are 50331648 bytes, but 3 follow the header" },
    { "magic-cut-off", "3 bytes: an IDX file begins with two zero bytes, a type and a rank" },
    { "no-data", "[3, 2, 2] are 12 bytes, but 0 follow the header",
      "[3] are 3 bytes, but 0 follow the header" },
    { "rank-nine", "byte 3: rank 9; in IDX files it is 1 to 8" },
    { "rank-two", "byte 3: rank 2; that of images is 3 or 4: these are perhaps the other file's",
      "byte 3: rank 2; that of labels is 1: these are perhaps the other file's" },
    { "rank-zero", "byte 3: rank 0; in IDX files it is 1 to 8" },
    { "second-byte-not-zero", "byte 0: an IDX file begins with two zero bytes, found 0x00 0x01" },
    { "size-cut-off", "it ends inside of its header, which has 3 sizes",
      "it ends inside of its header, which has 1 sizes" },
    { "size-of-everything", "byte 12: the product of the sizes is past 2^64",
      "[4294967295] are 4294967295 bytes, but 3 follow the header" },
    { "size-zero", "byte 12: size 2 is 0", "byte 4: size 0 is 0" },
    { "type-float", "byte 2: type 0x0d (32-bit floats) where images are unsigned bytes, 0x08",
      "byte 2: type 0x0d (32-bit floats) where labels are unsigned bytes, 0x08" },
    { "type-signed-bytes", "byte 2: type 0x09 (signed bytes) where images are unsigned bytes, 0x08",
      "byte 2: type 0x09 (signed bytes) where labels are unsigned bytes, 0x08" },
    { "type-unknown", "byte 2: type 0x0a (no type of IDX) where images are unsigned bytes, 0x08",
      "byte 2: type 0x0a (no type of IDX) where labels are unsigned bytes, 0x08" },
};

static const struct {
    const char *file, *says;
} rules[] = {
    { "channels-last.cifar10", "byte 0: label 200 of record 0; it may be 0 to 9" },
    { "empty.cifar10", "no records: the file is empty" },
    { "gzip-checksum.cifar10", "byte 308: no valid gzip: incorrect data check" },
    { "gzip-cut-off.cifar10",
      "the compressed data ends early, after 303 bytes that inflate to 3073" },
    { "gzip-empty.cifar10", "no records: the file is empty" },
    { "gzip-label.cifar10", "byte 0: label 11 of record 0; it may be 0 to 9" },
    { "gzip-no-multiple.cifar10",
      "3074 bytes, inflated, are no multiple of 3073, a record's size: 1 are left over" },
    { "gzip-trailing-bytes.cifar10", "byte 312: 1 bytes follow the end of the compressed data" },
    { "images-for-labels.labels",
      "byte 3: rank 3; that of labels is 1: these are perhaps the other file's" },
    { "label-of-second-record.cifar10", "byte 3073: label 255 of record 1; it may be 0 to 9" },
    { "label-ten.cifar10", "byte 0: label 10 of record 0; it may be 0 to 9" },
    { "labels-for-images.images",
      "byte 3: rank 1; that of images is 3 or 4: these are perhaps the other file's" },
    { "no-multiple.cifar10",
      "3072 bytes are no multiple of 3073, a record's size: 3072 are left over" },
    { "one-byte.cifar10", "1 bytes are no multiple of 3073, a record's size: 1 are left over" },
    { "one-byte-more.cifar10",
      "3074 bytes are no multiple of 3073, a record's size: 1 are left over" },
    { "one-fewer.images", "has 2 images, " REJECTS "/good.labels has 3 labels" },
    { "one-more.labels", "good.images has 3 images, " REJECTS "/one-more.labels has 4 labels" },
    { "product-past-64-bits.images", "byte 12: the product of the sizes is past 2^64" },
    { "product-wraps-to-the-length.images", "byte 16: the product of the sizes is past 2^64" },
    { "rank-five.images",
      "byte 3: rank 5; that of images is 3 or 4: these are perhaps the other file's" },
    { "size-past-the-limit.images", "[2147483648, 2, 2] are 8589934592 bytes, more than max_nbytes "
                                    "= 4294967296: raise the limit if that is meant" },
};
enum { NPAIRS = sizeof pairs / sizeof *pairs, NRULES = sizeof rules / sizeof *rules };

static int ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static fy_status_t read_named(const char *path, fy_dataset_t **out_dataset)
{
    if (ends_with(path, ".images"))
        return fy_dataset_read_idx(path, REJECTS "/good.labels", NULL, out_dataset);
    if (ends_with(path, ".labels"))
        return fy_dataset_read_idx(REJECTS "/good.images", path, NULL, out_dataset);
    return fy_dataset_read_cifar10(1, &path, NULL, out_dataset);
}

static void expect_refused(const char *name, const char *suffix, const char *says)
{
    char path[1024];
    fy_dataset_t *dataset = (fy_dataset_t *)1;
    snprintf(path, sizeof path, REJECTS "/%s%s", name, suffix);
    ts__fails(read_named(path, &dataset), FY_STATUS_CORRUPT_DATA, path, __FILE__, __LINE__, path,
              says, ts__end);
    assert_null(dataset);
}

TS_TEST(every_rule)
{
    const int before = ts_open_files();
    for (int i = 0; i < NPAIRS; i++) {
        expect_refused(pairs[i].name, ".images", pairs[i].images);
        expect_refused(pairs[i].name, ".labels",
                       pairs[i].labels ? pairs[i].labels : pairs[i].images);
    }
    for (int i = 0; i < NRULES; i++) expect_refused(rules[i].file, "", rules[i].says);
    assert_int_equal(ts_open_files(), before);
}

TS_TEST(every_file_has_a_rule)
{
    const struct dirent *entry;
    int files = 0;
    DIR *listing = opendir(REJECTS);
    assert_non_null(listing);
    while ((entry = readdir(listing))) {
        char path[1024];
        fy_dataset_t *dataset;
        snprintf(path, sizeof path, REJECTS "/%s", entry->d_name);
        if (strncmp(entry->d_name, "good.", 5) == 0) {
            ts_ok(read_named(path, &dataset));
            fy_dataset_destroy(dataset);
        } else if (entry->d_name[0] != '.') {
            files++;
        }
    }
    closedir(listing);
    assert_int_equal(files, 2 * NPAIRS + NRULES);
}

/* Every prefix of a good file is refused, and so is every additional byte; compressed files too. */
TS_TEST(every_prefix_is_refused)
{
    static const char *const commands[] = { "cat %s/good.%s", "gzip -nc %s/good.%s" };
    static const char *const names[] = { "images", "labels" };
    char command[1024], path[] = "/tmp/ferry-cut-XXXXXX", bytes[1024];
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (int way = 0; way < 2; way++)
        for (int which = 0; which < 2; which++) {
            snprintf(command, sizeof command, commands[way], REJECTS, names[which]);
            FILE *pipe = popen(command, "r");
            assert_non_null(pipe);
            const size_t n = fread(bytes, 1, sizeof bytes - 1, pipe);
            assert_int_equal(pclose(pipe), 0);
            assert_true(n > 0);
            bytes[n] = 1; /* zeros behind compressed data are padding */
            for (size_t cut = 0; cut <= n + 1; cut++) {
                fy_dataset_t *dataset;
                assert_int_equal(ftruncate(fd, 0), 0);
                assert_int_equal(pwrite(fd, bytes, cut, 0), cut);
                const fy_status_t status =
                    fy_dataset_read_idx(which ? REJECTS "/good.images" : path,
                                        which ? path : REJECTS "/good.labels", NULL, &dataset);
                assert_int_equal(status, cut == n ? FY_STATUS_OK : FY_STATUS_CORRUPT_DATA);
                fy_dataset_destroy(dataset);
            }
        }
    close(fd);
    unlink(path);
}

TS_TEST(missing_files_are_refused)
{
    fy_dataset_t *dataset;
    ts_fails(fy_dataset_read_idx("/tmp", REJECTS "/good.labels", NULL, &dataset), IO);
    ts_fails_with(fy_dataset_read_idx(REJECTS "/good.images", REJECTS "not-there", NULL, &dataset),
                  IO, "not-there");
}

static int prepare(void)
{
    if (access(REJECTS, F_OK) != 0) {
        puts("skipped: the build had no python3 to write " REJECTS);
        return 77;
    }
    return 0;
}

TS_SUITE(.prepare = prepare);
