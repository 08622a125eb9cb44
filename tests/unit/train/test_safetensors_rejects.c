/* Every rule by which the reader of safetensors refuses a file has a file, named after the rule,
 * which data/make_rejects.py writes to the build's folder REJECTS (tests.cmake). Each
 * is refused with the right code and text, and no file stays open. A file without a row, or a row
 * without its file, fails. */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ferry/ferry.h>
#include <ferry/train/safetensors.h>

#include "tests/support/harness.h"

static const struct {
    const char *rule;
    fy_status_t status;
    const char *says;
} rules[] = {
    { "begin-after-end", FY_STATUS_CORRUPT_DATA, "ends at 0, before it begins, at 8" },
    { "begin-not-zero", FY_STATUS_CORRUPT_DATA,
      "'a' begins at byte 8 of the data, and the tensors before it end at 0: a hole" },
    { "bytes-behind-the-last", FY_STATUS_CORRUPT_DATA, "1 bytes behind the last tensor" },
    { "control-character", FY_STATUS_CORRUPT_DATA, "control character" },
    { "data-cut-off", FY_STATUS_CORRUPT_DATA, "ends at byte 8 of the data, and the file has 7" },
    { "depth", FY_STATUS_CORRUPT_DATA, "something nested, where a whole number must be" },
    { "depth-100000", FY_STATUS_CORRUPT_DATA, "something nested" },
    { "depth-metadata", FY_STATUS_CORRUPT_DATA, "something nested, where a text must be" },
    { "dim-past-63-bits", FY_STATUS_CORRUPT_DATA, "past 2^63 - 1" },
    { "duplicate-key", FY_STATUS_CORRUPT_DATA, "has 'shape' twice" },
    { "duplicate-metadata", FY_STATUS_CORRUPT_DATA, "'__metadata__' appears twice" },
    { "duplicate-metadata-escaped", FY_STATUS_CORRUPT_DATA, "'__metadata__' appears twice" },
    { "duplicate-metadata-key", FY_STATUS_CORRUPT_DATA, "has 'k' twice" },
    { "duplicate-name", FY_STATUS_CORRUPT_DATA, "two tensors are called 'a'" },
    { "duplicate-name-escaped", FY_STATUS_CORRUPT_DATA, "two tensors are called 'a'" },
    { "dtype-half-byte", FY_STATUS_CORRUPT_DATA, "has 12 bits, which are no whole bytes" },
    { "dtype-lower-case", FY_STATUS_CORRUPT_DATA, "unknown dtype, 'f32'" },
    { "dtype-number", FY_STATUS_CORRUPT_DATA, "a text was expected" },
    { "dtype-unknown", FY_STATUS_CORRUPT_DATA, "unknown dtype, 'F33'" },
    { "empty-header", FY_STATUS_CORRUPT_DATA, "0 bytes by its own word" },
    { "escape-unknown", FY_STATUS_CORRUPT_DATA, "an unknown escape" },
    { "extra-key", FY_STATUS_CORRUPT_DATA, "unknown key, 'strides'" },
    { "half-a-pair", FY_STATUS_CORRUPT_DATA, "half of a surrogate pair" },
    { "half-a-pair-low", FY_STATUS_CORRUPT_DATA, "half of a surrogate pair" },
    { "header-list", FY_STATUS_CORRUPT_DATA, "begins with '{'" },
    { "header-longer-than-the-file", FY_STATUS_CORRUPT_DATA,
      "3 bytes by its own word; it can have 2 to 2" },
    { "header-not-begun-by-brace", FY_STATUS_CORRUPT_DATA, "begins with '{'" },
    { "header-past-64-bits", FY_STATUS_CORRUPT_DATA, "18446744073709551615 bytes by its own word" },
    { "header-without-end", FY_STATUS_CORRUPT_DATA, "a ',' or '}' was expected" },
    { "hole", FY_STATUS_CORRUPT_DATA,
      "'b' begins at byte 12 of the data, and the tensors before it end at 8: a hole" },
    { "key-without-value", FY_STATUS_CORRUPT_DATA, "a '{' was expected" },
    { "leading-zero", FY_STATUS_CORRUPT_DATA, "begins with 0" },
    { "metadata-number", FY_STATUS_CORRUPT_DATA, "a text was expected" },
    { "missing-data-offsets", FY_STATUS_CORRUPT_DATA, "has no 'data_offsets'" },
    { "missing-dtype", FY_STATUS_CORRUPT_DATA, "has no 'dtype'" },
    { "missing-shape", FY_STATUS_CORRUPT_DATA, "has no 'shape'" },
    { "nul-in-name", FY_STATUS_CORRUPT_DATA, "or a zero" },
    { "number-exponent", FY_STATUS_CORRUPT_DATA, "a point or an exponent" },
    { "number-fraction", FY_STATUS_CORRUPT_DATA, "a point or an exponent" },
    { "number-huge", FY_STATUS_CORRUPT_DATA, "past 2^64 - 1" },
    { "number-minus-zero", FY_STATUS_CORRUPT_DATA, "a whole number, 0 or more" },
    { "number-negative", FY_STATUS_CORRUPT_DATA, "a whole number, 0 or more" },
    { "offsets-one", FY_STATUS_CORRUPT_DATA, "one number, not two" },
    { "offsets-three", FY_STATUS_CORRUPT_DATA, "more than two numbers" },
    { "overlap", FY_STATUS_CORRUPT_DATA,
      "begins at byte 4 of the data, and the tensors before it end at 8: they overlap" },
    { "overlap-same", FY_STATUS_CORRUPT_DATA, "they overlap" },
    { "product-overflow", FY_STATUS_CORRUPT_DATA, "the size of tensor 'a' overflows" },
    { "product-overflow-empty", FY_STATUS_CORRUPT_DATA, "the size of tensor 'a' overflows" },
    { "product-overflow-bytes", FY_STATUS_CORRUPT_DATA, "the size of tensor 'a' overflows" },
    { "rank-nine", FY_STATUS_UNSUPPORTED, "more than 8 axes" },
    { "shape-and-offsets-differ", FY_STATUS_CORRUPT_DATA,
      "8 bytes by its shape and dtype, and 12 by its offsets" },
    { "shape-number", FY_STATUS_CORRUPT_DATA, "a '[' was expected" },
    { "shorter-than-a-length", FY_STATUS_CORRUPT_DATA, "it has 6 bytes" },
    { "something-behind-the-header", FY_STATUS_CORRUPT_DATA, "something behind the header's end" },
    { "tensor-null", FY_STATUS_CORRUPT_DATA, "a '{' was expected" },
    { "trailing-comma", FY_STATUS_CORRUPT_DATA, "a text was expected" },
    { "utf8-cut-off", FY_STATUS_CORRUPT_DATA, "not valid UTF-8" },
    { "utf8-latin1", FY_STATUS_CORRUPT_DATA, "not valid UTF-8" },
    { "utf8-overlong", FY_STATUS_CORRUPT_DATA, "not valid UTF-8" },
    { "utf8-past-the-last", FY_STATUS_CORRUPT_DATA, "not valid UTF-8" },
    { "utf8-surrogate", FY_STATUS_CORRUPT_DATA, "not valid UTF-8" },
    { "zero-padded-header", FY_STATUS_CORRUPT_DATA, "in its header, is zero" },
};
enum { NRULES = sizeof rules / sizeof *rules };

static void assert_refused(const char *path, fy_status_t status, const char *says)
{
    fy_safetensors_t *file = (fy_safetensors_t *)1;
    const fy_status_t got = fy_safetensors_open(path, &file);
    if (got != status || file || !strstr(fy_error_get()->text, says) ||
        !strstr(fy_error_get()->text, path))
        fail_msg("%s: %s, '%s', not %s, '%s'", path, fy_status_name(got), fy_error_get()->text,
                 fy_status_name(status), says);
}

TS_TEST(test_every_rule)
{
    const int before = ts_open_files();
    for (int i = 0; i < NRULES; i++) {
        char path[1024];
        snprintf(path, sizeof path, REJECTS "/%s.safetensors", rules[i].rule);
        assert_refused(path, rules[i].status, rules[i].says);
    }
    assert_int_equal(ts_open_files(), before);
}

TS_TEST(test_every_file_has_a_rule)
{
    const struct dirent *entry;
    int files = 0;
    DIR *folder = opendir(REJECTS);
    assert_non_null(folder);
    while ((entry = readdir(folder))) {
        const char *dot = strstr(entry->d_name, ".safetensors");
        int i = 0;
        if (!dot) continue;
        while (i < NRULES &&
               (strncmp(rules[i].rule, entry->d_name, (size_t)(dot - entry->d_name)) != 0 ||
                strlen(rules[i].rule) != (size_t)(dot - entry->d_name)))
            i++;
        if (i == NRULES) fail_msg("no rule is called as %s", entry->d_name);
        files++;
    }
    closedir(folder);
    assert_int_equal(files, NRULES);
}

/* Large files, and names that are not regular files. */
TS_TEST(test_large_and_special_files)
{
    char path[] = "/tmp/ferry-rejects-XXXXXX";
    const uint64_t length = 100000001;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, &length, sizeof length), sizeof length);
    assert_int_equal(ftruncate(fd, 100000016), 0); /* a sparse file: uses no disk space */
    assert_refused(path, FY_STATUS_CORRUPT_DATA,
                   "100000001 bytes by its own word; it can have 2 to 100000000");
    close(fd);
    unlink(path);
    assert_refused(path, FY_STATUS_IO, "cannot open");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(path, FY_STATUS_IO, "no regular file");
    unlink(path);
    assert_refused("/tmp", FY_STATUS_IO, "no regular file");
}

/* Every prefix of a good file is refused, and so is every additional byte. */
TS_TEST(test_every_prefix_is_refused)
{
    char bytes[1024], path[] = "/tmp/ferry-cut-XXXXXX";
    FILE *golden = fopen("tests/unit/train/data/golden.safetensors", "rb");
    assert_non_null(golden);
    const size_t n = fread(bytes, 1, sizeof bytes - 1, golden);
    fclose(golden);
    const int fd = mkstemp(path);
    for (size_t cut = 0; cut <= n + 1; cut++) {
        fy_safetensors_t *file;
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, bytes, cut, 0), cut);
        const fy_status_t status = fy_safetensors_open(path, &file);
        assert_int_equal(status, cut == n ? FY_STATUS_OK : FY_STATUS_CORRUPT_DATA);
        fy_safetensors_close(file);
    }
    close(fd);
    unlink(path);
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
