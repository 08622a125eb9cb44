/* .npz archives: round trips, an archive of numpy.savez_compressed, every byte damaged, every
 * length, hostile sizes, host memory that fails at each allocation. Against NumPy itself:
 * python/tests/test_files.py. */
#include <sys/stat.h>

#include "tests/support/sweep.h"
#include "tests/unit/train/fixture.h"

static const char *path;
static unsigned char bytes[8192];
static size_t nbytes;

/* numpy.savez_compressed(x=arange(6, dtype='<f4').reshape(2, 3), zeros=zeros(200, '|u1')), version
 * 2.4: an input that fuzzing begins with. */
static unsigned char compressed[400];

static const float values[6] = { 0, 1, 2, 3, 4, 5 };

/* Two arrays, "x" and "a/b"; the file's bytes are then in `bytes`. */
static void write_two(void)
{
    const fy_scope_t scope = fy_scope_begin("write");
    fy_tensor_t *x = ts_host_f32(FY_DIMS(2, 3), values), *y;
    ts_ok(fy_transpose(x, NULL, &y));
    ts_ok(fy_npz_write(path, 2, (fy_npz_entry_t[]){ { "x", x }, { "a/b", y } }));
    fy_scope_end(scope, 0, NULL);
    nbytes = read_file(path, bytes, sizeof bytes);
}

TS_TEST(arrays_come_back)
{
    fy_npz_t *file;
    fy_tensor_t *x, *y;
    write_two();
    ts_ok(fy_npz_open(path, &file));
    assert_int_equal(fy_npz_count(file), 2);
    assert_string_equal(fy_npz_name(file, 0), "x");
    assert_string_equal(fy_npz_name(file, 1), "a/b");
    assert_null(fy_npz_name(file, 2));
    ts_ok(fy_npz_read(file, 0, &x));
    ts_expect_f32(x, values, 6);
    ts_ok(fy_npz_read(file, 1, &y));
    assert_int_equal(ts_info(y).dims[0], 3);
    ts_expect_f32(y, (float[]){ 0, 3, 1, 4, 2, 5 }, 6);
    ts_fails(fy_npz_read(file, 2, &x), INVALID_ARGUMENT);
    fy_npz_close(file);
    fy_npz_close(NULL);
    ts_ok(fy_npz_write(path, 0, NULL)); /* an archive without arrays */
    ts_ok(fy_npz_open(path, &file));
    assert_int_equal(fy_npz_count(file), 0);
    fy_npz_close(file);
}

TS_TEST(compressed_arrays_are_read)
{
    fy_npz_t *file;
    fy_tensor_t *x, *zeros;
    write_file("x.npz", compressed, sizeof compressed);
    ts_ok(fy_npz_open(path, &file));
    assert_int_equal(fy_npz_count(file), 2);
    ts_ok(fy_npz_read(file, 0, &x));
    ts_expect_f32(x, values, 6);
    ts_ok(fy_npz_read(file, 1, &zeros));
    assert_int_equal(ts_info(zeros).nbytes, 200);
    fy_npz_close(file);
}

/* Opens and reads all; the first failure. */
static fy_status_t read_all(void)
{
    fy_npz_t *file;
    fy_status_t status = fy_npz_open(path, &file);
    for (size_t i = 0; status == FY_STATUS_OK && i < fy_npz_count(file); i++) {
        fy_tensor_t *x;
        status = fy_npz_read(file, i, &x);
        fy_tensor_destroy(x);
    }
    if (file) fy_npz_close(file);
    return status;
}

static void damage_each_byte(const unsigned char *from, size_t count)
{
    static const unsigned char masks[] = { 1, 0x80, 0xff };
    memcpy(bytes, from, count);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < sizeof masks; k++) {
            bytes[i] ^= masks[k];
            write_file("x.npz", bytes, count);
            const fy_status_t status = read_all();
            if (status != FY_STATUS_OK && status != FY_STATUS_CORRUPT_DATA &&
                status != FY_STATUS_UNSUPPORTED && status != FY_STATUS_OUT_OF_MEMORY)
                fail_msg("byte %zu: %s", i, fy_error_get()->text);
            bytes[i] ^= masks[k];
        }
    for (size_t i = 0; i < count; i++) {
        write_file("x.npz", bytes, i);
        assert_int_not_equal(read_all(), FY_STATUS_OK);
    }
}

TS_TEST(damaged_archives_are_refused_or_read)
{
    unsigned char own[sizeof bytes];
    write_two();
    const size_t count = nbytes;
    memcpy(own, bytes, count);
    damage_each_byte(own, count);
    damage_each_byte(compressed, sizeof compressed);
}

static size_t find(const char *magic, int which)
{
    for (size_t i = 0; i + 4 <= nbytes; i++)
        if (memcmp(bytes + i, magic, 4) == 0 && !which--) return i;
    fail_msg("no '%s'", magic);
    return 0;
}

/* One change to a valid archive, and the refusal. */
static void refuse(size_t at, unsigned char value, fy_status_t want, const char *text)
{
    const unsigned char before = bytes[at];
    bytes[at] = value;
    write_file("x.npz", bytes, nbytes);
    const fy_status_t status = read_all();
    if (status != want || !strstr(fy_error_get()->text, text))
        fail_msg("byte %zu: status %d, '%s', not '%s'", at, (int)status, fy_error_get()->text,
                 text);
    bytes[at] = before;
}

TS_TEST(hostile_archives_are_refused_with_numbers)
{
    write_two();
    const size_t end = nbytes - 22, first = find("PK\1\2", 0), second = find("PK\1\2", 1),
                 local = find("PK\3\4", 1);
    refuse(end + 20, 1, FY_STATUS_CORRUPT_DATA, "without comment");
    refuse(end + 10, 3, FY_STATUS_UNSUPPORTED, "several files");
    refuse(end + 4, 1, FY_STATUS_UNSUPPORTED, "several files");
    refuse(end + 12, bytes[end + 12] + 1, FY_STATUS_CORRUPT_DATA, "it must end at byte");
    refuse(end + 19, 0x7f, FY_STATUS_CORRUPT_DATA, "it must end at byte");
    refuse(first + 8, 1, FY_STATUS_UNSUPPORTED, "flags 0x1 (encryption");
    refuse(first + 10, 99, FY_STATUS_UNSUPPORTED, "compression 99");
    refuse(first + 24, 7, FY_STATUS_CORRUPT_DATA, "which is not possible");
    refuse(first + 16, bytes[first + 16] ^ 1, FY_STATUS_CORRUPT_DATA, "disagrees");
    refuse(first + 28, 200, FY_STATUS_CORRUPT_DATA, "line 0 of its directory has");
    refuse(second + 42, 0, FY_STATUS_CORRUPT_DATA, "begins at byte"); /* overlaps the first */
    refuse(local + 26, bytes[local + 26] + 1, FY_STATUS_CORRUPT_DATA, "bytes from byte");
    refuse(find("x.npy", 1) + 2, 'N', FY_STATUS_UNSUPPORTED, "is not NAME.npy");
    bytes[local - 1] ^= 1; /* the last byte of x's data */
    write_file("x.npz", bytes, nbytes);
    assert_int_equal(read_all(), FY_STATUS_CORRUPT_DATA);
    ts_text_has("has the CRC-32 0x");
    /* 132 bytes that claim to give 4 GiB - 2 */
    memcpy(bytes, compressed, nbytes = sizeof compressed);
    const size_t line = find("PK\1\2", 0);
    bytes[line + 24] = 0xfe;
    memset(bytes + line + 25, 0xff, 3);
    write_file("x.npz", bytes, nbytes);
    assert_int_equal(read_all(), FY_STATUS_CORRUPT_DATA);
    ts_text_has("that give 4294967294, which is not possible");
}

TS_TEST(bad_writes_are_refused)
{
    char names[2][8] = { "x", "x" };
    fy_tensor_t *x = ts_host_f32(FY_DIMS(2, 3), values);
    ts_fails_with(fy_npz_write(path, 2, (fy_npz_entry_t[]){ { names[0], x }, { names[1], x } }),
                  INVALID_ARGUMENT, "two of the 2 entries are 'x'");
    ts_fails(fy_npz_write(path, 1, (fy_npz_entry_t[]){ { "", x } }), INVALID_ARGUMENT);
    ts_fails(fy_npz_write(path, 1, (fy_npz_entry_t[]){ { NULL, x } }), INVALID_ARGUMENT);
    ts_fails_with(fy_npz_write(path, 1, (fy_npz_entry_t[]){ { "\xff", x } }), INVALID_ARGUMENT,
                  "the name of entry 0 is not UTF-8");
    ts_fails(fy_npz_write(path, 1, (fy_npz_entry_t[]){ { "x", NULL } }), INVALID_ARGUMENT);
    ts_fails(fy_npz_write(NULL, 0, NULL), INVALID_ARGUMENT);
    ts_fails(fy_npz_write(path, 70000, (fy_npz_entry_t[]){ { "x", x } }), INVALID_ARGUMENT);
}

static fy_status_t program(fy_device_t *device)
{
    fy_tensor_t *x;
    fy_npz_t *file = NULL;
    (void)device;
    FY_TRY(fy_zeros(fy_device_host(), FY_DTYPE_F32, FY_DIMS(2, 3), &x));
    write_file("x.npz", compressed, sizeof compressed);
    fy_status_t status = read_all();
    if (status == FY_STATUS_OK) status = fy_npz_write(path, 1, (fy_npz_entry_t[]){ { "x", x } });
    if (status == FY_STATUS_OK) status = fy_npz_open(path, &file);
    fy_npz_close(file);
    fy_tensor_destroy(x);
    return status;
}

TS_TEST(host_memory_fails_at_each_place) { ts_sweep_host_memory("host", 400, program); }

static int begin(void **state)
{
    if (make_folder(state)) return -1;
    path = in_folder("x.npz");
    return read_file("tests/fuzz/corpus_npz/compressed", compressed, sizeof compressed) !=
           sizeof compressed;
}

/* Fails if a temporary file was left. */
static int end(void **state)
{
    unlink(path);
    return drop_empty_folder(state);
}

TS_SUITE(.begin = begin, .end = end, .set_up = begin_scope, .tear_down = end_scope);
