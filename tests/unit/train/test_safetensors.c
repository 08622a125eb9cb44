/* Safetensors: a file derived by hand from the format is read correctly and written byte for byte.
 * Also every dtype, strides, names with escapes, metadata, refusals of calls. Not here: malformed
 * files (test_safetensors_rejects.c), failing disks (test_safetensors_faults.c), the reference
 * implementation (test_safetensors_reference.sh). */
#include <math.h>

#include "tests/unit/train/fixture.h"

#define DATA "tests/unit/train/data/"

static fy_tensor_t *host(fy_dtype_t dtype, int rank, const int64_t *dims, const void *data,
                         size_t nbytes)
{
    fy_tensor_t *tensor;
    void *to;
    ts_ok(fy_tensor_create(fy_device_host(), dtype, rank, dims, &tensor));
    ts_ok(fy_tensor_map(tensor, FY_ACCESS_WRITE, &to));
    if (nbytes) memcpy(to, data, nbytes);
    return tensor;
}

static const void *mapped(fy_tensor_t *tensor)
{
    void *data;
    ts_ok(fy_tensor_map(tensor, FY_ACCESS_READ, &data));
    return data;
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
    ts_ok(fy_safetensors_open(DATA "golden.safetensors", &file));
    assert_int_equal(fy_safetensors_count(file), 5);
    for (size_t i = 0; i < 5; i++) {
        fy_safetensors_info_t info = FY_SAFETENSORS_INFO_INIT;
        size_t index;
        ts_ok(fy_safetensors_at(file, i, &info));
        assert_string_equal(info.name, want[i].name);
        assert_int_equal(info.dtype, want[i].dtype);
        assert_int_equal(info.rank, want[i].rank);
        for (int d = 0; d < info.rank; d++) assert_int_equal(info.dims[d], want[i].dims[d]);
        assert_int_equal(info.offset, want[i].offset);
        assert_int_equal(info.nbytes, want[i].nbytes);
        ts_ok(fy_safetensors_find(file, want[i].name, &index));
        assert_int_equal(index, i);
    }
    assert_string_equal(fy_safetensors_metadata(file, "made"), "hand");
    assert_null(fy_safetensors_metadata(file, "mad"));
    fy_tensor_t *tensor[5];
    for (size_t i = 0; i < 5; i++) ts_ok(fy_safetensors_read(file, i, &tensor[i]));
    fy_safetensors_close(file);
    assert_int_equal(*(const int64_t *)mapped(tensor[0]), -2);
    assert_memory_equal(mapped(tensor[1]), a, sizeof a);
    assert_int_equal(*(const uint16_t *)mapped(tensor[2]), 0x3e00);
    assert_memory_equal(mapped(tensor[4]), ((unsigned char[]){ 1, 0, 1 }), 3);
}

/* As the reference reader, and at any place of the header. */
TS_TEST(test_metadata_may_be_null)
{
    static const char *const headers[] = {
        "{\"__metadata__\":null}",
        "{\"__metadata__\": null ,\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"__metadata__\":null}",
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        unsigned char bytes[256] = { (unsigned char)strlen(headers[i]) };
        fy_safetensors_t *file;
        memcpy(bytes + 8, headers[i], strlen(headers[i]));
        write_file("null", bytes, 8 + strlen(headers[i]));
        ts_ok(fy_safetensors_open(in_folder("null"), &file));
        assert_int_equal(fy_safetensors_count(file), i > 0);
        assert_null(fy_safetensors_metadata(file, "made"));
        fy_safetensors_close(file);
    }
}

/* The golden file is the length of the header, 320, the header, and the tensors' bytes, without
 * gaps. In it, tensors are not in the order in which they are written here. */
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
    const char *path = in_folder("x");
    const size_t n = read_file(DATA "golden.safetensors", golden, sizeof golden);
    assert_int_equal(n, 8 + sizeof header - 1 + 29);
    assert_memory_equal(golden, "\x40\1\0\0\0\0\0", 8);
    assert_memory_equal(golden + 8, header, sizeof header - 1);
    fy_tensor_t *tb = host(FY_DTYPE_I64, FY_DIMS(1), &b, 8),
                *ta = host(FY_DTYPE_F32, FY_DIMS(2, 2), a, 16),
                *tt = host(FY_DTYPE_F32, FY_DIMS(2, 2), turned, 16),
                *ts = host(FY_DTYPE_F16, 0, NULL, &s, 2),
                *tn = host(FY_DTYPE_U8, FY_DIMS(0, 3), NULL, 0),
                *tf = host(FY_DTYPE_BOOL, FY_DIMS(3), "\1\0\1", 3), *view;
    ts_ok(fy_transpose(tt, NULL, &view));
    const fy_safetensors_entry_t entries[] = {
        { "flag", tf }, { "none", tn }, { "a\"\xc3\xbc", ta }, { "s", ts }, { "b", tb }
    };
    const fy_safetensors_entry_t strided[] = {
        { "b", tb }, { "a\"\xc3\xbc", view }, { "s", ts }, { "none", tn }, { "flag", tf }
    };
    const fy_safetensors_pair_t pair = { "made", "hand" };
    ts_ok(fy_safetensors_write(path, 5, entries, 1, &pair));
    assert_int_equal(read_file(path, written, sizeof written), n);
    assert_memory_equal(written, golden, n);
    ts_ok(fy_safetensors_write(path, 5, strided, 1,
                               &pair)); /* overwrites the file; one tensor has strides */
    assert_int_equal(read_file(path, written, sizeof written), n);
    assert_memory_equal(written, golden, n);
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
    const char *path = in_folder("x");
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = i & 1;
    for (int d = 0; d < FY_DTYPE_COUNT; d++) {
        tensors[d] = host((fy_dtype_t)d, FY_DIMS(1, 2, 3), bytes, 6 * fy_dtype_size((fy_dtype_t)d));
        entries[d] = (fy_safetensors_entry_t){ names[d], tensors[d] };
    }
    ts_ok(fy_safetensors_write(path, FY_DTYPE_COUNT, entries, 3, pairs));
    fy_safetensors_t *file;
    ts_ok(fy_safetensors_open(path, &file));
    assert_int_equal(fy_safetensors_count(file), FY_DTYPE_COUNT);
    for (int i = 0; i < 3; i++)
        assert_string_equal(fy_safetensors_metadata(file, pairs[i].key), pairs[i].value);
    size_t last = 8;
    /* so that each starts at a multiple of its element size */
    for (size_t i = 0; i < FY_DTYPE_COUNT; i++) {
        fy_safetensors_info_t info = FY_SAFETENSORS_INFO_INIT;
        ts_ok(fy_safetensors_at(file, i, &info));
        assert_true(fy_dtype_size(info.dtype) <= last);
        last = fy_dtype_size(info.dtype);
    }
    for (int d = 0; d < FY_DTYPE_COUNT; d++) {
        size_t index;
        fy_tensor_t *back, *into = host((fy_dtype_t)d, FY_DIMS(1, 2, 3), NULL, 0);
        ts_ok(fy_safetensors_find(file, names[d], &index));
        ts_ok(fy_safetensors_read(file, index, &back));
        assert_memory_equal(mapped(back), bytes, 6 * fy_dtype_size((fy_dtype_t)d));
        ts_ok(fy_safetensors_read_into(file, index, into));
        assert_memory_equal(mapped(into), bytes, 6 * fy_dtype_size((fy_dtype_t)d));
    }
    fy_safetensors_close(file);
}

TS_TEST(test_an_empty_file_of_tensors)
{
    unsigned char bytes[64];
    const char *path = in_folder("x");
    fy_safetensors_t *file;
    const fy_safetensors_pair_t pair = { "a", "b" };
    ts_ok(fy_safetensors_write(path, 0, NULL, 0, NULL));
    assert_int_equal(read_file(path, bytes, sizeof bytes), 16);
    assert_memory_equal(bytes, "\10\0\0\0\0\0\0\0{}      ", 16);
    ts_ok(fy_safetensors_open(path, &file));
    assert_int_equal(fy_safetensors_count(file), 0);
    fy_safetensors_close(file);
    ts_ok(fy_safetensors_write(path, 0, NULL, 1, &pair));
    ts_ok(fy_safetensors_open(path, &file));
    assert_string_equal(fy_safetensors_metadata(file, "a"), "b");
    fy_safetensors_close(file);
    fy_safetensors_close(NULL);
    assert_int_equal(fy_safetensors_count(NULL), 0);
}

TS_TEST(test_reading_refuses)
{
    fy_safetensors_t *file;
    fy_safetensors_info_t info = FY_SAFETENSORS_INFO_INIT;
    fy_tensor_t *tensor = (fy_tensor_t *)1;
    size_t index = 9;
    ts_fails_with(fy_safetensors_open(NULL, &file), INVALID_ARGUMENT, "path is NULL");
    ts_ok(fy_safetensors_open(DATA "golden.safetensors", &file));
    ts_fails_with(fy_safetensors_at(file, 5, &info), INVALID_ARGUMENT, "tensor 5 of");
    ts_fails_with(fy_safetensors_find(file, "c", &index), INVALID_ARGUMENT,
                  "no tensor 'c' among its 5");
    ts_fails_with(fy_safetensors_read(file, 5, &tensor), INVALID_ARGUMENT, "which has 5");
    assert_null(tensor);
    fy_tensor_t *f64 = host(FY_DTYPE_F64, FY_DIMS(2, 2), NULL, 0),
                *flat = host(FY_DTYPE_F32, FY_DIMS(4), NULL, 0),
                *square = host(FY_DTYPE_F32, FY_DIMS(2, 2), NULL, 0), *turned;
    ts_ok(fy_transpose(square, NULL, &turned));
    ts_fails_with(fy_safetensors_read_into(file, 1, f64), DTYPE_MISMATCH, "is f32, dst is f64");
    ts_fails_with(fy_safetensors_read_into(file, 1, flat), SHAPE_MISMATCH, "another shape");
    ts_fails_with(fy_safetensors_read_into(file, 1, turned), INVALID_ARGUMENT, "not dense");
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
    unsigned char bytes[8 + sizeof header - 1 + sizeof data];
    memcpy(bytes, &nbytes, 8);
    memcpy(bytes + 8, header, nbytes);
    memcpy(bytes + 8 + nbytes, data, sizeof data);
    const char *path = write_file("x", bytes, sizeof bytes);
    fy_safetensors_t *file;
    fy_tensor_t *tensor, *dst;
    void *value;
    ts_ok(fy_safetensors_open(path, &file));
    assert_int_equal(fy_safetensors_count(file), 3);
    for (size_t i = 0; i < 3; i++) {
        fy_safetensors_info_t info = FY_SAFETENSORS_INFO_INIT;
        ts_ok(fy_safetensors_at(file, i, &info));
        assert_int_equal(info.is_supported, !unknown[i].dtype);
        if (info.is_supported) continue;
        assert_string_equal(info.file_dtype, unknown[i].dtype);
        assert_int_equal(info.nbytes, unknown[i].nbytes);
        assert_int_equal((int)info.dtype, -1);
        ts_fails_with(fy_safetensors_read(file, i, &tensor), UNSUPPORTED, unknown[i].dtype);
        assert_null(tensor);
        ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_U8, FY_DIMS(4), &dst));
        ts_fails_with(fy_safetensors_read_into(file, i, dst), UNSUPPORTED, "does not have");
    }
    ts_ok(fy_safetensors_read(file, 1, &tensor));
    ts_ok(fy_tensor_map(tensor, FY_ACCESS_READ, &value));
    assert_true(*(const float *)value == 1.5f);
    fy_safetensors_close(file);
}

/* A byte that is not a valid BOOL, and a file that is truncated while it is open. */
TS_TEST(test_data_is_checked)
{
    unsigned char golden[1024];
    fy_safetensors_t *file;
    fy_tensor_t *tensor;
    const size_t n = read_file(DATA "golden.safetensors", golden, sizeof golden);
    golden[n - 2] = 2;
    const char *path = write_file("x", golden, n);
    ts_ok(fy_safetensors_open(path, &file));
    ts_fails_with(fy_safetensors_read(file, 4, &tensor), CORRUPT_DATA,
                  "element 1 of tensor 'flag' [bool] is the byte 2");
    assert_null(tensor);
    assert_int_equal(truncate(path, (off_t)(n - 1)), 0);
    ts_fails_with(fy_safetensors_read(file, 4, &tensor), IO, "shortened since it was opened");
    fy_safetensors_close(file);
}

TS_TEST(test_writing_refuses)
{
    const char *path = write_file("x", "old", 3);
    unsigned char before[8];
    fy_device_t *sim;
    fy_tensor_t *x = host(FY_DTYPE_F32, FY_DIMS(2), "12345678", 8), *there;
    ts_ok(fy_device_open("sim:0", &sim));
    ts_ok(fy_tensor_upload(x, sim, NULL, &there));
    const fy_safetensors_entry_t twice[] = { { "a", x }, { "b", x }, { "a", x } },
                                 away = { "a", there }, taken = { "__metadata__", x },
                                 latin = { "_\xfc", x }, unnamed = { NULL, x },
                                 nothing = { "a", NULL };
    const fy_safetensors_pair_t keys[] = { { "k", "1" }, { "k", "2" } }, valueless = { "k", NULL },
                                bad = { "k", "\x80" };
    const struct {
        size_t count;
        const fy_safetensors_entry_t *entries;
        size_t npairs;
        const fy_safetensors_pair_t *pairs;
        const char *says;
    } rows[] = {
        { 3, twice, 0, NULL, "two tensors are called 'a'" },
        { 1, &taken, 0, NULL, "'__metadata__', which is taken" },
        { 1, &latin, 0, NULL, "not UTF-8" },
        { 1, &unnamed, 0, NULL, "has no name" },
        { 1, &nothing, 0, NULL, "has no tensor" },
        { 1, NULL, 0, NULL, "entries is NULL" },
        { 0, NULL, 2, keys, "the key 'k'" },
        { 0, NULL, 1, &valueless, "NULL or not UTF-8" },
        { 0, NULL, 1, &bad, "NULL or not UTF-8" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        row_fails(i,
                  fy_safetensors_write(path, rows[i].count, rows[i].entries, rows[i].npairs,
                                       rows[i].pairs),
                  FY_STATUS_INVALID_ARGUMENT, rows[i].says);
    ts_fails_with(fy_safetensors_write(path, 1, &away, 0, NULL), DEVICE_MISMATCH, "'a' is on sim:0",
                  "Download it first: 8 bytes");
    ts_fails_with(fy_safetensors_write("/nowhere/at/all", 0, NULL, 0, NULL), IO,
                  "cannot create /nowhere/at/all");
    assert_int_equal(read_file(path, before, sizeof before), 3);
    assert_memory_equal(before, "old", 3);
    fy_device_close(sim);
}

TS_SUITE(.begin = make_folder, .end = drop_folder, .set_up = begin_scope, .tear_down = end_scope);
