/* Every rule by which the reader of safetensors refuses a file has a file, named after the rule,
 * which data/make_rejects.py writes to the build's folder REJECTS (tests.cmake). Each
 * is refused with the right code and text, and no file stays open. A file without a row, or a row
 * without its file, fails. */
#include <sys/stat.h>

#include "tests/unit/train/fixture.h"

static const struct {
    const char *rule, *says;
    fy_status_t status; /* 0: CORRUPT_DATA */
} rules[] = {
    { "begin-after-end", "ends at 0, before it begins, at 8" },
    { "begin-not-zero",
      "'a' begins at byte 8 of the data, and the tensors before it end at 0: a hole" },
    { "bytes-behind-the-last", "1 bytes behind the last tensor" },
    { "control-character", "control character" },
    { "data-cut-off", "ends at byte 8 of the data, and the file has 7" },
    { "depth", "something nested, where a whole number must be" },
    { "depth-100000", "something nested" },
    { "depth-metadata", "something nested, where a text must be" },
    { "dim-past-63-bits", "past 2^63 - 1" },
    { "duplicate-key", "has 'shape' twice" },
    { "duplicate-metadata", "'__metadata__' appears twice" },
    { "duplicate-metadata-escaped", "'__metadata__' appears twice" },
    { "duplicate-metadata-key", "has 'k' twice" },
    { "duplicate-name", "two tensors are called 'a'" },
    { "duplicate-name-escaped", "two tensors are called 'a'" },
    { "dtype-half-byte", "has 12 bits, which are no whole bytes" },
    { "dtype-lower-case", "unknown dtype, 'f32'" },
    { "dtype-number", "a text was expected" },
    { "dtype-unknown", "unknown dtype, 'F33'" },
    { "empty-header", "0 bytes by its own word" },
    { "escape-unknown", "an unknown escape" },
    { "extra-key", "unknown key, 'strides'" },
    { "half-a-pair", "half of a surrogate pair" },
    { "half-a-pair-low", "half of a surrogate pair" },
    { "header-list", "begins with '{'" },
    { "header-longer-than-the-file", "3 bytes by its own word; it can have 2 to 2" },
    { "header-not-begun-by-brace", "begins with '{'" },
    { "header-past-64-bits", "18446744073709551615 bytes by its own word" },
    { "header-without-end", "a ',' or '}' was expected" },
    { "hole", "'b' begins at byte 12 of the data, and the tensors before it end at 8: a hole" },
    { "key-without-value", "a '{' was expected" },
    { "leading-zero", "begins with 0" },
    { "metadata-number", "a text was expected" },
    { "missing-data-offsets", "has no 'data_offsets'" },
    { "missing-dtype", "has no 'dtype'" },
    { "missing-shape", "has no 'shape'" },
    { "nul-in-name", "or a zero" },
    { "number-exponent", "a point or an exponent" },
    { "number-fraction", "a point or an exponent" },
    { "number-huge", "past 2^64 - 1" },
    { "number-minus-zero", "a whole number, 0 or more" },
    { "number-negative", "a whole number, 0 or more" },
    { "offsets-one", "one number, not two" },
    { "offsets-three", "more than two numbers" },
    { "overlap", "begins at byte 4 of the data, and the tensors before it end at 8: they overlap" },
    { "overlap-same", "they overlap" },
    { "product-overflow", "the size of tensor 'a' overflows" },
    { "product-overflow-empty", "the size of tensor 'a' overflows" },
    { "product-overflow-bytes", "the size of tensor 'a' overflows" },
    { "rank-nine", "more than 8 axes", FY_STATUS_UNSUPPORTED },
    { "shape-and-offsets-differ", "8 bytes by its shape and dtype, and 12 by its offsets" },
    { "shape-number", "a '[' was expected" },
    { "shorter-than-a-length", "it has 6 bytes" },
    { "something-behind-the-header", "something behind the header's end" },
    { "tensor-null", "a '{' was expected" },
    { "trailing-comma", "a text was expected" },
    { "utf8-cut-off", "not valid UTF-8" },
    { "utf8-latin1", "not valid UTF-8" },
    { "utf8-overlong", "not valid UTF-8" },
    { "utf8-past-the-last", "not valid UTF-8" },
    { "utf8-surrogate", "not valid UTF-8" },
    { "zero-padded-header", "in its header, is zero" },
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
        assert_refused(path, rules[i].status ? rules[i].status : FY_STATUS_CORRUPT_DATA,
                       rules[i].says);
    }
    assert_int_equal(ts_open_files(), before);
}

TS_TEST(test_every_file_has_a_rule)
{
    const struct dirent *entry;
    int files = 0;
    DIR *listing = opendir(REJECTS);
    assert_non_null(listing);
    while ((entry = readdir(listing))) {
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
    closedir(listing);
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
    const size_t n = read_file("tests/unit/train/data/golden.safetensors", bytes, sizeof bytes - 1);
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
