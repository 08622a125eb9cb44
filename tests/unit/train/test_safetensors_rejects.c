/* Every rule by which the reader of safetensors refuses a file has a row with such a file. Each is
 * refused with the right code and text, and no file stays open. */
#include <sys/stat.h>

#include "tests/unit/train/fixture.h"

#define TENSOR(dtype, shape, begin, end) \
    "{'dtype':" dtype ",'shape':" shape ",'data_offsets':[" #begin "," #end "]}"
#define T(begin, end) TENSOR("'F32'", "[2]", begin, end)
#define A(tensor)     "{'a':" tensor "}"

/* Headers with ' in place of ", and the number of bytes behind them. */
static const struct {
    size_t nbytes;
    const char *header, *says;
    fy_status_t status; /* 0: CORRUPT_DATA */
} headers[] = {
    { 0, A(T(8, 0)), "ends at 0, before it begins, at 8" },
    { 16, A(T(8, 16)),
      "'a' begins at byte 8 of the data, and the tensors before it end at 0: a hole" },
    { 9, A(T(0, 8)), "1 bytes behind the last tensor" },
    { 8, "{'a\n':" T(0, 8) "}", "control character" },
    { 7, A(T(0, 8)), "ends at byte 8 of the data, and the file has 7" },
    { 8, A(TENSOR("'F32'", "[[2]]", 0, 8)), "something nested, where a whole number must be" },
    { 0, "{'__metadata__':{'k':{'k':'v'}}}", "something nested, where a text must be" },
    { 0, A(TENSOR("'F32'", "[0,9223372036854775808]", 0, 0)), "past 2^63 - 1" },
    { 8, "{'a':{'dtype':'F32','shape':[2],'shape':[2],'data_offsets':[0,8]}}",
      "has 'shape' twice" },
    { 0, "{'__metadata__':{},'__metadata__':{}}", "'__metadata__' appears twice" },
    { 0, "{'__metadata__':{},'__meta\\u0064ata__':{}}", "'__metadata__' appears twice" },
    { 0, "{'__metadata__':{'k':'1','\\u006b':'2'}}", "has 'k' twice" },
    { 16, "{'a':" T(0, 8) ",'a':" T(8, 16) "}", "two tensors are called 'a'" },
    { 16, "{'a':" T(0, 8) ",'\\u0061':" T(8, 16) "}", "two tensors are called 'a'" },
    { 1, A(TENSOR("'F4'", "[3]", 0, 1)), "has 12 bits, which are no whole bytes" },
    { 8, A(TENSOR("'f32'", "[2]", 0, 8)), "unknown dtype, 'f32'" },
    { 8, A(TENSOR("32", "[2]", 0, 8)), "a text was expected" },
    { 8, A(TENSOR("'F33'", "[2]", 0, 8)), "unknown dtype, 'F33'" },
    { 0, "", "0 bytes by its own word" },
    { 8, "{'\\x61':" T(0, 8) "}", "an unknown escape" },
    { 8, "{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,8],'strides':[1]}}",
      "unknown key, 'strides'" },
    { 8, "{'\\ud83d':" T(0, 8) "}", "half of a surrogate pair" },
    { 8, "{'\\ude00':" T(0, 8) "}", "half of a surrogate pair" },
    { 0, "[]", "begins with '{'" },
    { 0, " {}", "begins with '{'" },
    { 8, "{'a':" T(0, 8), "a ',' or '}' was expected" },
    { 20, "{'a':" T(0, 8) ",'b':" T(12, 20) "}",
      "'b' begins at byte 12 of the data, and the tensors before it end at 8: a hole" },
    { 0, "{'a':}", "a '{' was expected" },
    { 8, A(T(00, 8)), "begins with 0" },
    { 0, "{'__metadata__':{'k':1}}", "a text was expected" },
    { 8, "{'a':{'dtype':'F32','shape':[2]}}", "has no 'data_offsets'" },
    { 8, "{'a':{'shape':[2],'data_offsets':[0,8]}}", "has no 'dtype'" },
    { 8, "{'a':{'dtype':'F32','data_offsets':[0,8]}}", "has no 'shape'" },
    { 8, "{'a\\u0000b':" T(0, 8) "}", "or a zero" },
    { 8, A(T(0, 8e0)), "a point or an exponent" },
    { 8, A(T(0, 8.0)), "a point or an exponent" },
    { 8, A(T(0, 18446744073709551616)), "past 2^64 - 1" },
    { 8, A(T(-0, 8)), "a whole number, 0 or more" },
    { 8, A(TENSOR("'F32'", "[-2]", 0, 8)), "a whole number, 0 or more" },
    { 8, "{'a':{'dtype':'F32','shape':[2],'data_offsets':[8]}}", "one number, not two" },
    { 8, "{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,8,8]}}", "more than two numbers" },
    { 12, "{'a':" T(0, 8) ",'b':" T(4, 12) "}",
      "begins at byte 4 of the data, and the tensors before it end at 8: they overlap" },
    { 8, "{'a':" T(0, 8) ",'b':" T(0, 8) "}", "they overlap" },
    { 0, A(TENSOR("'F32'", "[4294967296,4294967296]", 0, 0)), "the size of tensor 'a' overflows" },
    { 0, A(TENSOR("'F32'", "[9223372036854775807,0]", 0, 0)), "the size of tensor 'a' overflows" },
    { 0, A(TENSOR("'F32'", "[4611686018427387904]", 0, 0)), "the size of tensor 'a' overflows" },
    { 8, A(TENSOR("'F32'", "[2,1,1,1,1,1,1,1,1]", 0, 8)), "more than 8 axes",
      FY_STATUS_UNSUPPORTED },
    { 12, A(T(0, 12)), "8 bytes by its shape and dtype, and 12 by its offsets" },
    { 8, A(TENSOR("'F32'", "2", 0, 8)), "a '[' was expected" },
    { 8, "{'a':" T(0, 8) "}x", "something behind the header's end" },
    { 0, "{'a':null}", "a '{' was expected" },
    { 8, "{'a':" T(0, 8) ",}", "a text was expected" },
    { 0, "{'a':1 \xc3", "not valid UTF-8" },
    { 0, "{'__metadata__':{'\xfc':''}}", "not valid UTF-8" },
    { 0, "{'__metadata__':{'\xc0\xaf':''}}", "not valid UTF-8" },
    { 0, "{'__metadata__':{'\xf4\x90\x80\x80':''}}", "not valid UTF-8" },
    { 0, "{'__metadata__':{'\xed\xa0\x80':''}}", "not valid UTF-8" },
};

static const struct {
    const char *bytes;
    size_t nbytes;
    const char *says;
} files[] = {
    { "\3\0\0\0\0\0\0\0{}", 10, "3 bytes by its own word; it can have 2 to 2" },
    { "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "18446744073709551615 bytes by its own word" },
    { "\2\0\0\0{}", 6, "it has 6 bytes" },
    { "\x8\0\0\0\0\0\0\0{}\0\0\0\0\0\0", 16, "in its header, is zero" },
};

static void assert_refused(const char *path, fy_status_t status, const char *says)
{
    fy_safetensors_t *file = (fy_safetensors_t *)1;
    const fy_status_t got = fy_safetensors_open(path, &file);
    if (got != status || file || !strstr(fy_error_get()->text, says) ||
        !strstr(fy_error_get()->text, path))
        fail_msg("%s: %s, '%s', not %s, '%s'", path, fy_status_name(got), fy_error_get()->text,
                 fy_status_name(status), says);
}

static const char *write_header(const char *header, size_t nbytes)
{
    const uint64_t length = strlen(header);
    char *bytes = calloc(1, 8 + length + nbytes);
    assert_non_null(bytes);
    memcpy(bytes, &length, 8);
    for (uint64_t i = 0; i < length; i++) bytes[8 + i] = header[i] == '\'' ? '"' : header[i];
    const char *path = write_file("x", bytes, 8 + length + nbytes);
    free(bytes);
    return path;
}

TS_TEST(test_every_rule)
{
    static const char start[] = "{'a':{'dtype':'F32','shape':";
    static char deep[100000];
    const int before = ts_open_files();
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        assert_refused(write_header(headers[i].header, headers[i].nbytes),
                       headers[i].status ? headers[i].status : FY_STATUS_CORRUPT_DATA,
                       headers[i].says);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_refused(write_file("x", files[i].bytes, files[i].nbytes), FY_STATUS_CORRUPT_DATA,
                       files[i].says);
    memset(deep, '[', sizeof deep - 1);
    memcpy(deep, start, sizeof start - 1);
    assert_refused(write_header(deep, 8), FY_STATUS_CORRUPT_DATA, "something nested");
    assert_int_equal(ts_open_files(), before);
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

TS_SUITE(.begin = make_folder, .end = drop_folder);
