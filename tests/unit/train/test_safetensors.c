/* Safetensors: a file derived by hand from the format is read correctly and written byte for byte.
 * Also every dtype, strides, names with escapes, metadata, refusals of calls. Not here: malformed
 * files (test_safetensors_rejects.c), failing disks (test_safetensors_faults.c), the reference
 * implementation (test_safetensors_reference.sh). */

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ferry/ferry.h>
#include <ferry/train/safetensors.h>

#include "tests/support/test.h"

#define DATA "tests/unit/train/data/"

static void ok(fy_status_t status)
{
    if (status != FY_STATUS_OK) fail_msg("%s: %s", fy_status_name(status), fy_error_get()->text);
}

static void refused(fy_status_t got, fy_status_t want, const char *says)
{
    if (got != want || !strstr(fy_error_get()->text, says))
        fail_msg("%s: '%s', not %s: '%s'", fy_status_name(got), fy_error_get()->text,
                 fy_status_name(want), says);
}

static size_t read_file(const char *path, unsigned char *bytes, size_t room)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t n = fread(bytes, 1, room, file);
    fclose(file);
    return n;
}

/* Pairs of digits up to each '#'. */
static size_t read_listing(unsigned char *bytes, size_t room)
{
    char line[512];
    size_t n = 0;
    FILE *file = fopen(DATA "golden.hex.txt", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        unsigned byte;
        int used;
        for (const char *at = line; sscanf(at, " %2x%n", &byte, &used) == 1; at += used) {
            assert_true(n < room);
            bytes[n++] = (unsigned char)byte;
        }
    }
    fclose(file);
    return n;
}

static fy_tensor_t *host(fy_dtype_t dtype, int rank, const int64_t *dims, const void *data,
                         size_t nbytes)
{
    fy_tensor_t *tensor;
    void *to;
    ok(fy_tensor_create(fy_device_host(), dtype, rank, dims, &tensor));
    ok(fy_tensor_map(tensor, FY_ACCESS_WRITE, &to));
    if (nbytes) memcpy(to, data, nbytes);
    return tensor;
}

static const void *bytes_of(fy_tensor_t *tensor)
{
    void *data;
    ok(fy_tensor_map(tensor, FY_ACCESS_READ, &data));
    return data;
}

static void temp_path(char path[32])
{
    strcpy(path, "/tmp/ferry-st-XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}

TS_TEST(test_listing_and_golden_agree)
{
    unsigned char listing[1024], golden[1024];
    const size_t n = read_listing(listing, sizeof listing);
    assert_int_equal(read_file(DATA "golden.safetensors", golden, sizeof golden), n);
    assert_memory_equal(listing, golden, n);
}

TS_TEST(test_golden_is_read)
{
    static const struct {
        const char *name;
        fy_dtype_t dtype;
        int rank;
        int64_t dims[2];
        uint64_t offset, nbytes;
    } want[] = {
        { "b", FY_DTYPE_I64, 1, { 1 }, 0, 8 },
        { "a\"\xc3\xbc", FY_DTYPE_F32, 2, { 2, 2 }, 8, 16 },
        { "s", FY_DTYPE_F16, 0, { 0 }, 24, 2 },
        { "none", FY_DTYPE_U8, 2, { 0, 3 }, 26, 0 },
        { "flag", FY_DTYPE_BOOL, 1, { 3 }, 26, 3 },
    };
    static const float a[] = { 1, -2, 0.5f, INFINITY };
    fy_safetensors_t *file;
    ok(fy_safetensors_open(DATA "golden.safetensors", &file));
    assert_int_equal(fy_safetensors_count(file), 5);
    for (size_t i = 0; i < 5; i++) {
        fy_safetensors_info_t info = FY_SAFETENSORS_INFO_INIT;
        size_t index;
        ok(fy_safetensors_at(file, i, &info));
        assert_string_equal(info.name, want[i].name);
        assert_int_equal(info.dtype, want[i].dtype);
        assert_int_equal(info.rank, want[i].rank);
        for (int d = 0; d < info.rank; d++) assert_int_equal(info.dims[d], want[i].dims[d]);
        assert_int_equal(info.offset, want[i].offset);
        assert_int_equal(info.nbytes, want[i].nbytes);
        ok(fy_safetensors_find(file, want[i].name, &index));
        assert_int_equal(index, i);
    }
    assert_string_equal(fy_safetensors_metadata(file, "made"), "hand");
    assert_null(fy_safetensors_metadata(file, "mad"));
    fy_tensor_t *tensor[5];
    for (size_t i = 0; i < 5; i++) ok(fy_safetensors_read(file, i, &tensor[i]));
    fy_safetensors_close(file);
    assert_int_equal(*(const int64_t *)bytes_of(tensor[0]), -2);
    assert_memory_equal(bytes_of(tensor[1]), a, sizeof a);
    assert_int_equal(*(const uint16_t *)bytes_of(tensor[2]), 0x3e00);
    assert_memory_equal(bytes_of(tensor[4]), ((unsigned char[]){ 1, 0, 1 }), 3);
    for (size_t i = 0; i < 5; i++) fy_tensor_destroy(tensor[i]);
}

/* In the golden file, tensors are not in the order in which they are written, so this is the golden
 * in the writer's order. */
TS_TEST(test_golden_is_written)
{
    static const float a[] = { 1, -2, 0.5f, INFINITY }, turned[] = { 1, 0.5f, -2, INFINITY };
    static const int64_t b = -2;
    static const uint16_t s = 0x3e00;
    static const char header[] =
        "{\"__metadata__\":{\"made\":\"hand\"},\"b\":{\"dtype\":\"I64\",\"shape\":[1],\"data_"
        "offsets\":[0,8]},"
        "\"a\\\"\xc3\xbc\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[8,24]},"
        "\"s\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[24,26]},"
        "\"none\":{\"dtype\":\"U8\",\"shape\":[0,3],\"data_offsets\":[26,26]},"
        "\"flag\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[26,29]}}   ";
    unsigned char golden[1024], written[1024];
    char path[32];
    const size_t n = read_listing(golden, sizeof golden);
    assert_memory_equal(golden + 8, header, sizeof header - 1);
    fy_tensor_t *tb = host(FY_DTYPE_I64, FY_DIMS(1), &b, 8),
                *ta = host(FY_DTYPE_F32, FY_DIMS(2, 2), a, 16),
                *tt = host(FY_DTYPE_F32, FY_DIMS(2, 2), turned, 16),
                *ts = host(FY_DTYPE_F16, 0, NULL, &s, 2),
                *tn = host(FY_DTYPE_U8, FY_DIMS(0, 3), NULL, 0),
                *tf = host(FY_DTYPE_BOOL, FY_DIMS(3), "\1\0\1", 3), *view;
    ok(fy_transpose(tt, NULL, &view));
    const fy_safetensors_entry_t entries[] = {
        { "flag", tf }, { "none", tn }, { "a\"\xc3\xbc", ta }, { "s", ts }, { "b", tb }
    };
    const fy_safetensors_entry_t strided[] = {
        { "b", tb }, { "a\"\xc3\xbc", view }, { "s", ts }, { "none", tn }, { "flag", tf }
    };
    const fy_safetensors_pair_t pair = { "made", "hand" };
    temp_path(path);
    ok(fy_safetensors_write(path, 5, entries, 1, &pair));
    assert_int_equal(read_file(path, written, sizeof written), n);
    assert_memory_equal(written, golden, n);
    ok(fy_safetensors_write(path, 5, strided, 1,
                            &pair)); /* overwrites the file; one tensor has strides */
    assert_int_equal(read_file(path, written, sizeof written), n);
    assert_memory_equal(written, golden, n);
    unlink(path);
    fy_tensor_t *all[] = { tb, ta, tt, ts, tn, tf, view };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) fy_tensor_destroy(all[i]);
}

TS_TEST(test_every_dtype_and_name_comes_back)
{
    static const char *const names[FY_DTYPE_COUNT] = {
        "",           "a.b", "\x01\x1f\x7f", "\b\f\n\r\t\"\\/", "\xf0\x9f\x98\x80", "{\"x\":1}",
        "__metadata", "zz"
    };
    static const fy_safetensors_pair_t pairs[] = { { "z", "" },
                                                   { "", "\n\xc3\xa9" },
                                                   { "__metadata__", "{}" } };
    fy_safetensors_entry_t entries[FY_DTYPE_COUNT];
    fy_tensor_t *tensors[FY_DTYPE_COUNT];
    unsigned char bytes[48];
    char path[32];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = i & 1;
    for (int d = 0; d < FY_DTYPE_COUNT; d++) {
        tensors[d] = host((fy_dtype_t)d, FY_DIMS(1, 2, 3), bytes, 6 * fy_dtype_size((fy_dtype_t)d));
        entries[d] = (fy_safetensors_entry_t){ names[d], tensors[d] };
    }
    temp_path(path);
    ok(fy_safetensors_write(path, FY_DTYPE_COUNT, entries, 3, pairs));
    fy_safetensors_t *file;
    ok(fy_safetensors_open(path, &file));
    assert_int_equal(fy_safetensors_count(file), FY_DTYPE_COUNT);
    for (int i = 0; i < 3; i++)
        assert_string_equal(fy_safetensors_metadata(file, pairs[i].key), pairs[i].value);
    size_t last = 8;
    /* so that each starts at a multiple of its element size */
    for (size_t i = 0; i < FY_DTYPE_COUNT; i++) {
        fy_safetensors_info_t info = FY_SAFETENSORS_INFO_INIT;
        ok(fy_safetensors_at(file, i, &info));
        assert_true(fy_dtype_size(info.dtype) <= last);
        last = fy_dtype_size(info.dtype);
    }
    for (int d = 0; d < FY_DTYPE_COUNT; d++) {
        size_t index;
        fy_tensor_t *back, *into = host((fy_dtype_t)d, FY_DIMS(1, 2, 3), NULL, 0);
        ok(fy_safetensors_find(file, names[d], &index));
        ok(fy_safetensors_read(file, index, &back));
        assert_memory_equal(bytes_of(back), bytes, 6 * fy_dtype_size((fy_dtype_t)d));
        ok(fy_safetensors_read_into(file, index, into));
        assert_memory_equal(bytes_of(into), bytes, 6 * fy_dtype_size((fy_dtype_t)d));
        fy_tensor_destroy(into);
        fy_tensor_destroy(back);
        fy_tensor_destroy(tensors[d]);
    }
    fy_safetensors_close(file);
    unlink(path);
}

TS_TEST(test_an_empty_file_of_tensors)
{
    unsigned char bytes[64];
    char path[32];
    fy_safetensors_t *file;
    const fy_safetensors_pair_t pair = { "a", "b" };
    temp_path(path);
    ok(fy_safetensors_write(path, 0, NULL, 0, NULL));
    assert_int_equal(read_file(path, bytes, sizeof bytes), 16);
    assert_memory_equal(bytes, "\10\0\0\0\0\0\0\0{}      ", 16);
    ok(fy_safetensors_open(path, &file));
    assert_int_equal(fy_safetensors_count(file), 0);
    fy_safetensors_close(file);
    ok(fy_safetensors_write(path, 0, NULL, 1, &pair));
    ok(fy_safetensors_open(path, &file));
    assert_string_equal(fy_safetensors_metadata(file, "a"), "b");
    fy_safetensors_close(file);
    fy_safetensors_close(NULL);
    assert_int_equal(fy_safetensors_count(NULL), 0);
    unlink(path);
}

TS_TEST(test_reading_refuses)
{
    fy_safetensors_t *file;
    fy_safetensors_info_t info = FY_SAFETENSORS_INFO_INIT, unset = { 0 };
    fy_tensor_t *tensor = (fy_tensor_t *)1;
    size_t index = 9;
    refused(fy_safetensors_open(NULL, &file), FY_STATUS_INVALID_ARGUMENT, "path is NULL");
    ok(fy_safetensors_open(DATA "golden.safetensors", &file));
    refused(fy_safetensors_at(file, 5, &info), FY_STATUS_INVALID_ARGUMENT, "tensor 5 of");
    refused(fy_safetensors_at(file, 0, &unset), FY_STATUS_INVALID_ARGUMENT, "struct_size");
    refused(fy_safetensors_find(file, "c", &index), FY_STATUS_INVALID_ARGUMENT,
            "no tensor 'c' among its 5");
    refused(fy_safetensors_read(file, 5, &tensor), FY_STATUS_INVALID_ARGUMENT, "which has 5");
    assert_null(tensor);
    fy_tensor_t *f64 = host(FY_DTYPE_F64, FY_DIMS(2, 2), NULL, 0),
                *flat = host(FY_DTYPE_F32, FY_DIMS(4), NULL, 0),
                *square = host(FY_DTYPE_F32, FY_DIMS(2, 2), NULL, 0), *turned;
    ok(fy_transpose(square, NULL, &turned));
    refused(fy_safetensors_read_into(file, 1, f64), FY_STATUS_DTYPE_MISMATCH, "is f32, dst is f64");
    refused(fy_safetensors_read_into(file, 1, flat), FY_STATUS_SHAPE_MISMATCH, "another shape");
    refused(fy_safetensors_read_into(file, 1, turned), FY_STATUS_INVALID_ARGUMENT, "not dense");
    fy_tensor_destroy(turned);
    fy_tensor_destroy(square);
    fy_tensor_destroy(flat);
    fy_tensor_destroy(f64);
    fy_safetensors_close(file);
}

/* Tensors of dtypes that Ferry does not have: the file opens, the others are read. */
TS_TEST(test_dtypes_ferry_does_not_have)
{
    static const char header[] =
        "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]},"
        "\"c\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[8,11]}}";
    const uint64_t nbytes = sizeof header - 1;
    const unsigned char data[] = { 1, 2, 3, 4, 0, 0, 0xC0, 0x3F, 5, 6, 7 };
    static const struct {
        const char *dtype;
        uint64_t nbytes;
    } unknown[] = { { "F8_E4M3", 4 }, { NULL, 0 }, { "F4", 3 } };
    char path[] = "/tmp/ferry-safetensors-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, &nbytes, 8), 8);
    assert_int_equal(write(fd, header, nbytes), nbytes);
    assert_int_equal(write(fd, data, sizeof data), sizeof data);
    close(fd);
    fy_safetensors_t *file;
    fy_tensor_t *tensor, *dst;
    void *value;
    ok(fy_safetensors_open(path, &file));
    assert_int_equal(fy_safetensors_count(file), 3);
    for (size_t i = 0; i < 3; i++) {
        fy_safetensors_info_t info = FY_SAFETENSORS_INFO_INIT;
        ok(fy_safetensors_at(file, i, &info));
        assert_int_equal(info.is_supported, !unknown[i].dtype);
        if (info.is_supported) continue;
        assert_string_equal(info.file_dtype, unknown[i].dtype);
        assert_int_equal(info.nbytes, unknown[i].nbytes);
        assert_int_equal((int)info.dtype, -1);
        refused(fy_safetensors_read(file, i, &tensor), FY_STATUS_UNSUPPORTED, unknown[i].dtype);
        assert_null(tensor);
        ok(fy_zeros(fy_device_host(), FY_DTYPE_U8, FY_DIMS(4), &dst));
        refused(fy_safetensors_read_into(file, i, dst), FY_STATUS_UNSUPPORTED, "does not have");
        fy_tensor_destroy(dst);
    }
    ok(fy_safetensors_read(file, 1, &tensor));
    ok(fy_tensor_map(tensor, FY_ACCESS_READ, &value));
    assert_true(*(const float *)value == 1.5f);
    fy_tensor_destroy(tensor);
    fy_safetensors_close(file);
    unlink(path);
}

/* A byte that is not a valid BOOL, and a file that is truncated while it is open. */
TS_TEST(test_data_is_checked)
{
    unsigned char golden[1024];
    char path[32];
    fy_safetensors_t *file;
    fy_tensor_t *tensor;
    const size_t n = read_file(DATA "golden.safetensors", golden, sizeof golden);
    temp_path(path);
    golden[n - 2] = 2;
    FILE *out = fopen(path, "wb");
    assert_int_equal(fwrite(golden, 1, n, out), n);
    fclose(out);
    ok(fy_safetensors_open(path, &file));
    refused(fy_safetensors_read(file, 4, &tensor), FY_STATUS_CORRUPT_DATA,
            "element 1 of tensor 'flag' [bool] is the byte 2");
    assert_null(tensor);
    assert_int_equal(truncate(path, (off_t)(n - 1)), 0);
    refused(fy_safetensors_read(file, 4, &tensor), FY_STATUS_IO, "shortened since it was opened");
    fy_safetensors_close(file);
    unlink(path);
}

TS_TEST(test_writing_refuses)
{
    char path[32];
    unsigned char before[8];
    fy_device_t *sim;
    fy_tensor_t *x = host(FY_DTYPE_F32, FY_DIMS(2), "12345678", 8), *there;
    ok(fy_device_open("sim:0", &sim));
    ok(fy_tensor_upload(x, sim, NULL, &there));
    temp_path(path);
    FILE *old = fopen(path, "wb");
    fputs("old", old);
    fclose(old);
    const fy_safetensors_entry_t twice[] = { { "a", x }, { "b", x }, { "a", x } },
                                 away = { "a", there }, taken = { "__metadata__", x },
                                 latin = { "_\xfc", x }, unnamed = { NULL, x },
                                 nothing = { "a", NULL };
    const fy_safetensors_pair_t keys[] = { { "k", "1" }, { "k", "2" } }, valueless = { "k", NULL },
                                bad = { "k", "\x80" };
    refused(fy_safetensors_write(path, 3, twice, 0, NULL), FY_STATUS_INVALID_ARGUMENT,
            "two tensors are called 'a'");
    refused(fy_safetensors_write(path, 1, &away, 0, NULL), FY_STATUS_DEVICE_MISMATCH,
            "'a' is on sim:0");
    refused(fy_safetensors_write(path, 1, &away, 0, NULL), FY_STATUS_DEVICE_MISMATCH,
            "Download it first: 8 bytes");
    refused(fy_safetensors_write(path, 1, &taken, 0, NULL), FY_STATUS_INVALID_ARGUMENT,
            "'__metadata__', which is taken");
    refused(fy_safetensors_write(path, 1, &latin, 0, NULL), FY_STATUS_INVALID_ARGUMENT,
            "not UTF-8");
    refused(fy_safetensors_write(path, 1, &unnamed, 0, NULL), FY_STATUS_INVALID_ARGUMENT,
            "has no name");
    refused(fy_safetensors_write(path, 1, &nothing, 0, NULL), FY_STATUS_INVALID_ARGUMENT,
            "has no tensor");
    refused(fy_safetensors_write(path, 1, NULL, 0, NULL), FY_STATUS_INVALID_ARGUMENT,
            "entries is NULL");
    refused(fy_safetensors_write(path, 0, NULL, 2, keys), FY_STATUS_INVALID_ARGUMENT,
            "the key 'k'");
    refused(fy_safetensors_write(path, 0, NULL, 1, &valueless), FY_STATUS_INVALID_ARGUMENT,
            "NULL or not UTF-8");
    refused(fy_safetensors_write(path, 0, NULL, 1, &bad), FY_STATUS_INVALID_ARGUMENT,
            "NULL or not UTF-8");
    refused(fy_safetensors_write("/nowhere/at/all", 0, NULL, 0, NULL), FY_STATUS_IO,
            "cannot create /nowhere/at/all");
    assert_int_equal(read_file(path, before, sizeof before), 3);
    assert_memory_equal(before, "old", 3);
    unlink(path);
    fy_tensor_destroy(there);
    fy_tensor_destroy(x);
    fy_device_close(sim);
}
