/* Every rule by which a reader of data sets or of tables refuses a file has a file, named after the
 * rule, which data/make_dataset_rejects.py writes to the build's folder REJECTS (tests.cmake). Each
 * is refused with a text that names the file and the error. A file without a row, or a row without
 * its file, fails.
 * The suffix selects the reader: NAME.images (with good.labels), NAME.labels (with good.images),
 * NAME.cifar10, NAME.table. */
#include "tests/unit/train/fixture.h"

static const struct {
    const char *file, *says;
} rules[] = {
    { "blank-lines-only.table", "no numbers in 7 bytes (0 header lines skipped)" },
    { "bytes-behind-the-data.images", "[3, 2, 2] are 12 bytes, but 13 follow the header" },
    { "bytes-behind-the-data.labels", "[3] are 3 bytes, but 4 follow the header" },
    { "channels-last.cifar10", "byte 0: label 200 of record 0; it may be 0 to 9" },
    { "comments-only.table", "no numbers in 10 bytes (0 header lines skipped)" },
    { "data-cut-off.images", "[3, 2, 2] are 12 bytes, but 11 follow the header" },
    { "data-cut-off.labels", "[3] are 3 bytes, but 2 follow the header" },
    { "decimal-comma.table", "2:1: a decimal number was expected, found '1,5'" },
    { "empty-field.table", "2:3: a number was expected where a field is empty, found ''" },
    { "empty-first-field.table", "2:1: a number was expected where a field is empty, found ''" },
    { "empty.cifar10", "no records: the file is empty" },
    { "empty.images", "0 bytes: an IDX file begins with two zero bytes, a type and a rank" },
    { "empty.labels", "0 bytes: an IDX file begins with two zero bytes, a type and a rank" },
    { "empty.table", "no numbers in 0 bytes (0 header lines skipped)" },
    { "exponent-without-digits.table", "1:3: a decimal number was expected, found '2e'" },
    { "first-byte-not-zero.images",
      "byte 0: an IDX file begins with two zero bytes, found 0x01 0x00" },
    { "first-byte-not-zero.labels",
      "byte 0: an IDX file begins with two zero bytes, found 0x01 0x00" },
    { "gzip-block-type.images", "byte 11: no valid gzip: invalid block type" },
    { "gzip-block-type.labels", "byte 11: no valid gzip: invalid block type" },
    { "gzip-bytes-behind-the-data.images", "more data than the 12 bytes that the header says" },
    { "gzip-bytes-behind-the-data.labels", "more data than the 3 bytes that the header says" },
    { "gzip-checksum.cifar10", "byte 308: no valid gzip: incorrect data check" },
    { "gzip-checksum.images", "byte 38: no valid gzip: incorrect data check" },
    { "gzip-checksum.labels", "byte 27: no valid gzip: incorrect data check" },
    { "gzip-cut-off.cifar10",
      "the compressed data ends early, after 303 bytes that inflate to 3073" },
    { "gzip-cut-off.images", "the compressed data ends early, after 33 bytes that inflate to 28" },
    { "gzip-cut-off.labels", "the compressed data ends early, after 22 bytes that inflate to 11" },
    { "gzip-data-cut-off.images", "the header says 12 bytes of data, but 11 follow it" },
    { "gzip-data-cut-off.labels", "the header says 3 bytes of data, but 2 follow it" },
    { "gzip-empty.cifar10", "no records: the file is empty" },
    { "gzip-header-only.images",
      "the compressed data ends early, after 10 bytes that inflate to 0" },
    { "gzip-header-only.labels",
      "the compressed data ends early, after 10 bytes that inflate to 0" },
    { "gzip-in-gzip.images", "byte 0: an IDX file begins with two zero bytes, found 0x1f 0x8b" },
    { "gzip-in-gzip.labels", "byte 0: an IDX file begins with two zero bytes, found 0x1f 0x8b" },
    { "gzip-label.cifar10", "byte 0: label 11 of record 0; it may be 0 to 9" },
    { "gzip-length.images", "byte 42: no valid gzip: incorrect length check" },
    { "gzip-length.labels", "byte 31: no valid gzip: incorrect length check" },
    { "gzip-method.images", "byte 4: no valid gzip: unknown compression method" },
    { "gzip-method.labels", "byte 4: no valid gzip: unknown compression method" },
    { "gzip-no-multiple.cifar10",
      "3074 bytes, inflated, are no multiple of 3073, a record's size: 1 are left over" },
    { "gzip-size-past-what-it-can-hold.images",
      "[1048576, 2, 2] are 4194304 bytes, but at most 43328 follow the header" },
    { "gzip-size-past-what-it-can-hold.labels",
      "[1048576] are 1048576 bytes, but at most 31984 follow the header" },
    { "gzip-trailing-bytes.cifar10", "byte 312: 1 bytes follow the end of the compressed data" },
    { "gzip-trailing-bytes.images", "byte 42: 4 bytes follow the end of the compressed data" },
    { "gzip-trailing-bytes.labels", "byte 31: 4 bytes follow the end of the compressed data" },
    { "gzip.table", "byte 3 is NUL: this is no text" },
    { "header-line.table", "1:1: a decimal number was expected, found 'a'" },
    { "hexadecimal.table", "1:3: a decimal number was expected, found '0x10'" },
    { "images-for-labels.labels",
      "byte 3: rank 3; that of labels is 1: these are perhaps the other file's" },
    { "inf.table", "1:1: a decimal number was expected, found 'inf'" },
    { "label-of-second-record.cifar10", "byte 3073: label 255 of record 1; it may be 0 to 9" },
    { "label-ten.cifar10", "byte 0: label 10 of record 0; it may be 0 to 9" },
    { "labels-for-images.images",
      "byte 3: rank 1; that of images is 3 or 4: these are perhaps the other file's" },
    { "little-endian-magic.images",
      "byte 0: an IDX file begins with two zero bytes, found 0x03 0x08" },
    { "little-endian-magic.labels",
      "byte 0: an IDX file begins with two zero bytes, found 0x01 0x08" },
    { "little-endian-sizes.images", "byte 12: the product of the sizes is past 2^64" },
    { "little-endian-sizes.labels", "[50331648] are 50331648 bytes, but 3 follow the header" },
    { "magic-cut-off.images",
      "3 bytes: an IDX file begins with two zero bytes, a type and a rank" },
    { "magic-cut-off.labels",
      "3 bytes: an IDX file begins with two zero bytes, a type and a rank" },
    { "nan.table", "1:3: a decimal number was expected, found 'nan'" },
    { "no-data.images", "[3, 2, 2] are 12 bytes, but 0 follow the header" },
    { "no-data.labels", "[3] are 3 bytes, but 0 follow the header" },
    { "no-multiple.cifar10",
      "3072 bytes are no multiple of 3073, a record's size: 3072 are left over" },
    { "no-number.table", "2:3: a decimal number was expected, found 'four'" },
    { "nul.table", "byte 5 is NUL: this is no text" },
    { "one-byte-more.cifar10",
      "3074 bytes are no multiple of 3073, a record's size: 1 are left over" },
    { "one-byte.cifar10", "1 bytes are no multiple of 3073, a record's size: 1 are left over" },
    { "one-fewer.images", "has 2 images, " REJECTS "/good.labels has 3 labels" },
    { "one-field-fewer.table",
      "2:2: the rows above have 2 fields, this one ends after 1, found ''" },
    { "one-field-more.table", "2:5: the rows above have 2 fields, this one has more, found '5'" },
    { "one-more.labels", "good.images has 3 images, " REJECTS "/one-more.labels has 4 labels" },
    { "past-f64.table", "1:3: the number is too large for f64, found '1e999'" },
    { "product-past-64-bits.images", "byte 12: the product of the sizes is past 2^64" },
    { "product-wraps-to-the-length.images", "byte 16: the product of the sizes is past 2^64" },
    { "rank-five.images",
      "byte 3: rank 5; that of images is 3 or 4: these are perhaps the other file's" },
    { "rank-nine.images", "byte 3: rank 9; in IDX files it is 1 to 8" },
    { "rank-nine.labels", "byte 3: rank 9; in IDX files it is 1 to 8" },
    { "rank-two.images",
      "byte 3: rank 2; that of images is 3 or 4: these are perhaps the other file's" },
    { "rank-two.labels",
      "byte 3: rank 2; that of labels is 1: these are perhaps the other file's" },
    { "rank-zero.images", "byte 3: rank 0; in IDX files it is 1 to 8" },
    { "rank-zero.labels", "byte 3: rank 0; in IDX files it is 1 to 8" },
    { "second-byte-not-zero.images",
      "byte 0: an IDX file begins with two zero bytes, found 0x00 0x01" },
    { "second-byte-not-zero.labels",
      "byte 0: an IDX file begins with two zero bytes, found 0x00 0x01" },
    { "sign-only.table", "1:3: a decimal number was expected, found '-'" },
    { "size-cut-off.images", "it ends inside of its header, which has 3 sizes" },
    { "size-cut-off.labels", "it ends inside of its header, which has 1 sizes" },
    { "size-of-everything.images", "byte 12: the product of the sizes is past 2^64" },
    { "size-of-everything.labels", "[4294967295] are 4294967295 bytes, but 3 follow the header" },
    { "size-past-the-limit.images", "[2147483648, 2, 2] are 8589934592 bytes, more than max_nbytes "
                                    "= 4294967296: raise the limit if that is meant" },
    { "size-zero.images", "byte 12: size 2 is 0" },
    { "size-zero.labels", "byte 4: size 0 is 0" },
    { "two-numbers-in-a-field.table", "2:3: a decimal number was expected, found '4 5'" },
    { "two-points.table", "1:3: a decimal number was expected, found '1.2.3'" },
    { "type-float.images",
      "byte 2: type 0x0d (32-bit floats) where images are unsigned bytes, 0x08" },
    { "type-float.labels",
      "byte 2: type 0x0d (32-bit floats) where labels are unsigned bytes, 0x08" },
    { "type-signed-bytes.images",
      "byte 2: type 0x09 (signed bytes) where images are unsigned bytes, 0x08" },
    { "type-signed-bytes.labels",
      "byte 2: type 0x09 (signed bytes) where labels are unsigned bytes, 0x08" },
    { "type-unknown.images",
      "byte 2: type 0x0a (no type of IDX) where images are unsigned bytes, 0x08" },
    { "type-unknown.labels",
      "byte 2: type 0x0a (no type of IDX) where labels are unsigned bytes, 0x08" },
    { "utf-16.table", "byte 3 is NUL: this is no text" },
};
enum { NRULES = sizeof rules / sizeof *rules };

static int ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* The out parameter must be NULL after a failure. */
static fy_status_t read_named(const char *path, const char *name, int *out_is_null)
{
    fy_dataset_t *dataset = (fy_dataset_t *)1;
    fy_table_t *table = (fy_table_t *)1;
    fy_status_t status;
    if (ends_with(name, ".table")) {
        status = fy_table_read(path, NULL, &table);
        *out_is_null = !table;
        if (table) fy_table_destroy(table);
        return status;
    }
    if (ends_with(name, ".images"))
        status = fy_dataset_read_idx(path, REJECTS "/good.labels", NULL, &dataset);
    else if (ends_with(name, ".labels"))
        status = fy_dataset_read_idx(REJECTS "/good.images", path, NULL, &dataset);
    else
        status = fy_dataset_read_cifar10(1, &path, NULL, &dataset);
    *out_is_null = !dataset;
    if (dataset) fy_dataset_destroy(dataset);
    return status;
}

TS_TEST(every_rule)
{
    const int before = ts_open_files();
    for (int i = 0; i < NRULES; i++) {
        char path[1024];
        int is_null;
        snprintf(path, sizeof path, REJECTS "/%s", rules[i].file);
        const fy_status_t status = read_named(path, rules[i].file, &is_null);
        const char *text = fy_error_get()->text;
        if (status != FY_STATUS_CORRUPT_DATA || !is_null || !strstr(text, path) ||
            !strstr(text, rules[i].says))
            fail_msg("%s: %s, '%s', not CORRUPT_DATA, '%s'", path, fy_status_name(status), text,
                     rules[i].says);
    }
    assert_int_equal(ts_open_files(), before);
}

TS_TEST(every_file_has_a_rule)
{
    const struct dirent *entry;
    int files = 0;
    DIR *listing = opendir(REJECTS);
    assert_non_null(listing);
    while ((entry = readdir(listing))) {
        const char *name = entry->d_name;
        char path[1024];
        int i = 0, is_null;
        if (!ends_with(name, ".images") && !ends_with(name, ".labels") &&
            !ends_with(name, ".cifar10") && !ends_with(name, ".table"))
            continue;
        if (strncmp(name, "good.", 5) == 0) {
            snprintf(path, sizeof path, REJECTS "/%s", name);
            ts_ok(read_named(path, name, &is_null));
            continue;
        }
        while (i < NRULES && strcmp(rules[i].file, name) != 0) i++;
        if (i == NRULES) fail_msg("no rule is called as %s", name);
        files++;
    }
    closedir(listing);
    assert_int_equal(files, NRULES);
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
            bytes[n] = 0;
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
    fy_table_t *table;
    ts_fails(fy_dataset_read_idx("/tmp", REJECTS "/good.labels", NULL, &dataset), IO);
    ts_fails_with(fy_dataset_read_idx(REJECTS "/good.images", REJECTS "not-there", NULL, &dataset),
                  IO, "not-there");
    ts_fails(fy_table_read("/tmp", NULL, &table), IO);
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
