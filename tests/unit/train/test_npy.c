/* .npy files: the bytes of NumPy, arrays in both orders, files that are refused, host memory that
 * fails at each allocation. Against NumPy itself: python/tests/test_files.py. */
#include <sys/stat.h>

#include <ferry/train/npz.h>
#include <ferry/train/safetensors.h>

#include "tests/support/sweep.h"
#include "tests/unit/train/fixture.h"
#include "train/npy.h"

static const char *path;

/* numpy.save of numpy.arange(6, dtype="<f4").reshape(2, 3), version 2.4. */
static const char golden_header[] =
    "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
    "                                                          \n";

/* A file of version 1.0 with this dict and `data_nbytes` zero bytes. */
static void save_header(const char *dict, size_t data_nbytes)
{
    char bytes[1024] = "\x93NUMPY\x01";
    const size_t length = strlen(dict);
    bytes[8] = (char)length;
    bytes[9] = (char)(length >> 8);
    memcpy(bytes + 10, dict, length);
    write_file("x.npy", bytes, 10 + length + data_nbytes);
}

TS_TEST(a_file_has_numpys_bytes)
{
    char bytes[256];
    float values[6] = { 0, 1, 2, 3, 4, 5 };
    fy_tensor_t *x = ts_host_f32(FY_DIMS(2, 3), values), *again;
    ts_ok(fy_npy_write(path, x));
    assert_int_equal(read_file(path, bytes, sizeof bytes), 128 + sizeof values);
    assert_int_equal(sizeof golden_header - 1, 128);
    assert_memory_equal(bytes, golden_header, 128);
    assert_memory_equal(bytes + 128, values, sizeof values);
    ts_ok(fy_npy_read(path, &again));
    ts_expect_f32(again, values, 6);
}

TS_TEST(every_dtype_and_shape_comes_back)
{
    static const int64_t dims[] = { 2, 3, 1, 0, 4, 1, 1, 2 };
    for (int dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        for (int rank = 0; rank <= 8; rank++) {
            fy_tensor_t *x, *y;
            void *to, *from;
            ts_ok(fy_tensor_create(fy_device_host(), (fy_dtype_t)dtype, rank, dims, &x));
            ts_ok(fy_tensor_map(x, FY_ACCESS_WRITE, &to));
            memset(to, 1, ts_info(x).nbytes);
            if (dtype == FY_DTYPE_BF16) {
                ts_fails_with(fy_npy_write(path, x), UNSUPPORTED, "fy_cast");
                continue;
            }
            ts_ok(fy_npy_write(path, x));
            ts_ok(fy_npy_read(path, &y));
            const fy_tensor_info_t a = ts_info(x), b = ts_info(y);
            assert_true(a.dtype == b.dtype && a.rank == b.rank && a.nbytes == b.nbytes);
            assert_memory_equal(a.dims, b.dims, sizeof a.dims[0] * (size_t)rank);
            ts_ok(fy_tensor_map(y, FY_ACCESS_READ, &from));
            assert_memory_equal(to, from, a.nbytes);
        }
    }
}

/* A transposed view is written without a copy, in Fortran order; other views are copied. */
TS_TEST(views_are_written_as_numpy_does)
{
    char bytes[256];
    float values[6] = { 0, 1, 2, 3, 4, 5 };
    fy_tensor_t *x = ts_host_f32(FY_DIMS(2, 3), values), *turned, *part, *again;
    ts_ok(fy_transpose(x, NULL, &turned));
    ts_ok(fy_npy_write(path, turned));
    assert_int_equal(read_file(path, bytes, sizeof bytes), 128 + sizeof values);
    assert_non_null(strstr(bytes + 10, "'fortran_order': True, 'shape': (3, 2), }"));
    assert_memory_equal(bytes + 128, values, sizeof values);
    ts_ok(fy_npy_read(path, &again));
    assert_true(ts_info(again).strides[0] == 1 && ts_info(again).strides[1] == 3);
    ts_expect_f32(again, (float[]){ 0, 3, 1, 4, 2, 5 }, 6);

    ts_ok(fy_slice(x, 1, 1, 3, &part));
    ts_ok(fy_npy_write(path, part));
    ts_ok(fy_npy_read(path, &again));
    ts_expect_f32(again, (float[]){ 1, 2, 4, 5 }, 4);
}

TS_TEST(headers_as_python_may_write_them)
{
    static const char *const dicts[] = {
        "{'shape': (2,), 'fortran_order': False, 'descr': '<f4'}",
        "{\"descr\": \"=f4\",\"fortran_order\":False,\"shape\":(2,),}",
        "  { 'descr' : 'f4' , 'fortran_order' : True ,\n 'shape' : ( 2 , ) , }  \n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2L,), }",
    };
    for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++) {
        fy_tensor_t *x;
        save_header(dicts[i], 8);
        ts_ok(fy_npy_read(path, &x));
        ts_expect_f32(x, (float[]){ 0, 0 }, 2);
    }
}

TS_TEST(damaged_headers_are_refused)
{
    static const struct {
        const char *dict, *says;
        fy_status_t want; /* 0: CORRUPT_DATA */
    } rows[] = {
        { "", "'{'" },
        { "{'descr': '<f4'", "'}'" },
        { "{'descr': '<f4', 'shape': (2,)}", "no key 'fortran_order'" },
        { "{'descr': '<f4', 'descr': '<f4'}", "'descr' twice" },
        { "{'descr': '<f4', 'extra': 1}", "'extra', which is not" },
        { "{'descr': '<f4", "quote" },
        { "{'de\\x73cr': '<f4'}", "part of a key" },
        { "{'descr' '<f4'}", "':'" },
        { "{'descr': '<f4', 'fortran_order': 0}", "True or False" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': 2}", "'('" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2)}", "one axis" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "dimension" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2.5,)}", "',' or ')'" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (02,)}", "without zeros" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "2^63" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "2^63" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", "8 axes",
          FY_STATUS_UNSUPPORTED },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", "behind the dict" },
        { "{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}", "big-endian",
          FY_STATUS_UNSUPPORTED },
        { "{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", "'<c8'",
          FY_STATUS_UNSUPPORTED },
        { "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "'|O'", FY_STATUS_UNSUPPORTED },
        { "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", "structures",
          FY_STATUS_UNSUPPORTED },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "needs 12" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "needs 4" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fy_tensor_t *x = (fy_tensor_t *)&rows;
        save_header(rows[i].dict, 8);
        row_fails(i, fy_npy_read(path, &x), rows[i].want ? rows[i].want : FY_STATUS_CORRUPT_DATA,
                  rows[i].says);
        assert_null(x);
    }
}

TS_TEST(other_files_are_refused)
{
    static const char bools[] =
        "\x93NUMPY\x01\x00\x37\x00{'descr': '|b1', 'fortran_order': False, 'shape': (1,)}\2";
    static const struct {
        const char *bytes;
        size_t nbytes;
        const char *says;
        fy_status_t want; /* 0: CORRUPT_DATA */
    } rows[] = {
        { "", 0, "0 bytes" },
        { "PK\3\4 of an archive", 17, "npz" },
        { "\x93NUMPZ\1\0\0\0\0\0", 12, "does not begin" },
        { "\x93NUMPY\4\0\0\0\0\0", 12, "version 4.0", FY_STATUS_UNSUPPORTED },
        { "\x93NUMPY\1\0\xff\xff\0\0", 12, "65535 bytes" },
        { "\x93NUMPY\2\0\xff\xff\xff\xff", 12, "4294967295 bytes" },
        { bools, sizeof bools - 1, "the byte 2" },
    };
    fy_tensor_t *x;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_file("x.npy", rows[i].bytes, rows[i].nbytes);
        x = (fy_tensor_t *)&rows;
        row_fails(i, fy_npy_read(path, &x), rows[i].want ? rows[i].want : FY_STATUS_CORRUPT_DATA,
                  rows[i].says);
        assert_null(x);
    }
    ts_fails(fy_npy_read(folder, &x), IO);
    ts_fails(fy_npy_read("/nowhere/x.npy", &x), IO);
    ts_fails(fy_npy_read(NULL, &x), INVALID_ARGUMENT);
    ts_fails(fy_npy_read(path, NULL), INVALID_ARGUMENT);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    ts_fails(fy_npy_read(path, &x), IO);
    assert_int_equal(unlink(path), 0);
}

TS_TEST(bad_writes_are_refused)
{
    fy_device_t *device;
    fy_tensor_t *x = ts_host_f32(FY_DIMS(2), (float[]){ 1, 2 }), *there;
    ts_fails(fy_npy_write(NULL, x), INVALID_ARGUMENT);
    ts_fails(fy_npy_write(path, NULL), INVALID_ARGUMENT);
    ts_fails(fy_npy_write("/nowhere/x.npy", x), IO);
    ts_fails(fy_npy_write("/dev/full", x), IO);
    ts_ok(fy_device_open("sim:0", &device));
    ts_ok(fy_tensor_upload(x, device, NULL, &there));
    ts_fails_with(fy_npy_write(path, there), DEVICE_MISMATCH, "8 bytes");
    fy_device_close(device);
    assert_int_equal(access(path, F_OK), -1);
}

/* Versions 2.0 and 3.0 have a length of four bytes. */
/* Bytes that were written into the memory of a bool: no file that its readers refuse. */
TS_TEST(undefined_bools_are_not_written)
{
    fy_tensor_t *x;
    unsigned char *bytes;
    char old[8];
    ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_BOOL, FY_DIMS(3, 4), &x));
    ts_ok(fy_tensor_map(x, FY_ACCESS_WRITE, (void **)&bytes));
    bytes[6] = 255;
    for (int turned = 0; turned < 2; turned++) {
        const fy_npz_entry_t entry = { "x", x };
        const fy_safetensors_entry_t tensor = { "x", x };
        write_file("x.npy", "old", 3);
        ts_fails_with(fy_npy_write(path, x), BAD_VALUE, "npy_write", "is 255, not 0 or 1");
        ts_fails_with(fy_npz_write(path, 1, &entry), BAD_VALUE, "npz_write", "is 255");
        ts_fails_with(fy_safetensors_write(path, 1, &tensor, 0, NULL), BAD_VALUE,
                      "safetensors_write", "is 255");
        assert_int_equal(read_file(path, old, sizeof old), 3);
        ts_ok(fy_transpose(x, NULL, &x));
    }
    bytes[6] = 1;
    ts_ok(fy_npy_write(path, x));
}

TS_TEST(later_versions_are_read)
{
    static const char dict[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
    for (char version = 2; version <= 3; version++) {
        char bytes[128] = "\x93NUMPY";
        fy_tensor_t *x;
        bytes[6] = version;
        bytes[8] = sizeof dict - 1;
        memcpy(bytes + 12, dict, sizeof dict - 1);
        write_file("x.npy", bytes, 12 + sizeof dict - 1 + 8);
        ts_ok(fy_npy_read(path, &x));
    }
}

static fy_status_t program(fy_device_t *device)
{
    static const float values[] = { 1, 2, 3, 4, 5, 6 };
    fy_tensor_t *x, *part, *again;
    (void)device;
    const fy_scope_t scope = fy_scope_begin("npy");
    const int64_t dims[] = { 2, 3 };
    void *data;
    fy_status_t status = fy_tensor_create(fy_device_host(), FY_DTYPE_F32, 2, dims, &x);
    if (status == FY_STATUS_OK) status = fy_tensor_map(x, FY_ACCESS_WRITE, &data);
    if (status == FY_STATUS_OK) memcpy(data, values, sizeof values);
    if (status == FY_STATUS_OK) status = fy_slice(x, 1, 0, 2, &part);
    if (status == FY_STATUS_OK) status = fy_npy_write(path, part);
    if (status == FY_STATUS_OK) status = fy_npy_read(path, &again);
    fy_scope_end(scope, 0, NULL);
    return status;
}

TS_TEST(host_memory_fails_at_each_place) { ts_sweep_host_memory("host", 4000, program); }

static int begin(void **state)
{
    if (make_folder(state)) return -1;
    path = in_folder("x.npy");
    return 0;
}

/* Fails if a temporary file was left. */
static int end(void **state)
{
    unlink(path);
    return drop_empty_folder(state);
}

TS_SUITE(.begin = begin, .end = end, .set_up = begin_scope, .tear_down = end_scope);
