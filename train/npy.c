/* Reads and writes .npy files. Not here: the header (npy_header.c), how a file is replaced
 * (runtime/base/replace.c). See include/ferry/train/npy.h. */
#include "train/npy.h"

#include <inttypes.h>
#include <string.h>

#include <ferry/device.h>
#include <ferry/ops.h>

#include "runtime/base/input.h"
#include "train/fail.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "data is read and written without a conversion");

/* ---- reading ---- */

/* A file, or bytes in memory (a member of an archive, npz.c); each read takes the next bytes. */
typedef struct source {
    const char *path;
    uint64_t nbytes;
    fy__input_t *input;          /* NULL: */
    const unsigned char *memory; /* of nbytes */
    uint64_t at;
} source_t;

static fy_status_t read_all(source_t *source, void *to, size_t nbytes)
{
    fy__input_t *input = source->input;
    if (!input && nbytes > source->nbytes - source->at)
        return FYT_FAIL(CORRUPT_DATA, "%s ends %" PRIu64 " bytes too early", source->path,
                        nbytes - (source->nbytes - source->at));
    if (!input) {
        memcpy(to, source->memory + source->at, nbytes);
        source->at += nbytes;
        return FY_STATUS_OK;
    }
    for (size_t at = 0, n; at < nbytes; at += n) {
        if (fy__input_read(input, (char *)to + at, nbytes - at, &n))
            return FYT_FAIL(IO, "%s", input->problem);
        if (!n)
            return FYT_FAIL(CORRUPT_DATA, "%s ends %zu bytes too early", input->path, nbytes - at);
    }
    return FY_STATUS_OK;
}

/* Everything before the data; *out_nbytes of it. */
static fy_status_t read_header(source_t *source, fyt_npy_t *out_npy, uint64_t *out_nbytes)
{
    unsigned char prefix[12];
    char text[FYT_NPY_MOST_NBYTES];
    if (source->nbytes == FY__INPUT_UNKNOWN)
        return FYT_FAIL(IO, "%s is a pipe: an .npy file must have a size", source->path);
    if (source->nbytes < sizeof prefix)
        return FYT_FAIL(CORRUPT_DATA, "%s is no .npy file: it has %" PRIu64 " bytes", source->path,
                        source->nbytes);
    FY_TRY(read_all(source, prefix, 10));
    if (memcmp(prefix, "\x93NUMPY", 6) != 0)
        return FYT_FAIL(
            CORRUPT_DATA, "%s is no .npy file: it does not begin with the byte 0x93 and 'NUMPY'%s",
            source->path, memcmp(prefix, "PK", 2) ? "" : " (it may be an .npz archive)");
    if (prefix[6] < 1 || prefix[6] > 3 || prefix[7])
        return FYT_FAIL(UNSUPPORTED,
                        "%s has version %u.%u of the format; 1.0, 2.0 and 3.0 are read",
                        source->path, prefix[6], prefix[7]);
    uint64_t begin = 10, length = prefix[8] | (uint64_t)prefix[9] << 8;
    if (prefix[6] > 1) { /* a length of four bytes */
        FY_TRY(read_all(source, prefix + 10, 2));
        length |= (uint64_t)prefix[10] << 16 | (uint64_t)prefix[11] << 24;
        begin = 12;
    }
    if (length > sizeof text || length > source->nbytes - begin)
        return FYT_FAIL(CORRUPT_DATA,
                        "%s: its header has %" PRIu64 " bytes; the file has %" PRIu64
                        ", and %zu are read at most",
                        source->path, length, source->nbytes, sizeof text);
    FY_TRY(read_all(source, text, (size_t)length));
    *out_nbytes = begin + length;
    return fyt_npy_read_header(source->path, text, (size_t)length, out_npy);
}

uint64_t fyt_find_wrong_bool(fy_dtype_t dtype, const void *data, uint64_t nbytes)
{
    const unsigned char *bytes = data;
    uint64_t i = dtype == FY_DTYPE_BOOL ? 0 : nbytes;
    while (i < nbytes && bytes[i] <= 1) i++;
    return i;
}

static fy_status_t check_bools(const char *path, const fyt_npy_t *npy, const unsigned char *data)
{
    const uint64_t i = fyt_find_wrong_bool(npy->dtype, data, npy->nbytes);
    if (i == npy->nbytes) return FY_STATUS_OK;
    return FYT_FAIL(CORRUPT_DATA, "%s: element %" PRIu64 " [bool] is the byte %d, not 0 or 1", path,
                    i, data[i]);
}

/* A dense tensor of the bytes in the order of the file; of reversed dims, if that is Fortran's. */
static fy_status_t read_bytes(source_t *source, const fyt_npy_t *npy, fy_tensor_t **out_tensor)
{
    int64_t dims[FY_MAX_RANK];
    void *data;
    for (int i = 0; i < npy->rank; i++)
        dims[i] = npy->dims[npy->is_fortran ? npy->rank - 1 - i : i];
    FY_TRY(fy_tensor_create(fy_device_host(), npy->dtype, npy->rank, dims, out_tensor));
    FY_TRY(fy_tensor_map(*out_tensor, FY_ACCESS_WRITE, &data));
    FY_TRY(read_all(source, data, (size_t)npy->nbytes));
    return check_bools(source->path, npy, data);
}

static fy_status_t read_array(source_t *source, fy_tensor_t **out_tensor)
{
    fyt_npy_t npy;
    uint64_t begin;
    fy_tensor_t *tensor = NULL, *view = NULL;
    FY_TRY(read_header(source, &npy, &begin));
    if (npy.nbytes != source->nbytes - begin)
        return FYT_FAIL(CORRUPT_DATA, "%s has %" PRIu64 " bytes of data; its shape needs %" PRIu64,
                        source->path, source->nbytes - begin, npy.nbytes);
    fy_status_t status = read_bytes(source, &npy, &tensor);
    if (status == FY_STATUS_OK && npy.is_fortran) {
        status = fy_transpose(tensor, NULL, &view);
        fy_tensor_destroy(tensor);
        tensor = view;
    }
    if (status == FY_STATUS_OK)
        *out_tensor = tensor;
    else
        fy_tensor_destroy(tensor);
    return status;
}

fy_status_t fy_npy_read(const char *path, fy_tensor_t **out_tensor)
{
    fy__input_t input;
    FY_TRY(FYT_CLEAR_OUT("npy_read", out_tensor));
    if (!path) return FYT_FAIL(INVALID_ARGUMENT, "npy_read: path is NULL");
    if (fy__input_open(&input, path)) return FYT_FAIL(IO, "%s", input.problem);
    source_t source = { .path = path, .nbytes = input.nbytes, .input = &input };
    const fy_status_t status = read_array(&source, out_tensor);
    fy__input_close(&input);
    return status;
}

fy_status_t fyt_npy_read_memory(const char *what, const void *bytes, uint64_t nbytes,
                                fy_tensor_t **out_tensor)
{
    source_t source = { .path = what, .nbytes = nbytes, .memory = bytes };
    *out_tensor = NULL;
    return read_array(&source, out_tensor);
}

/* ---- writing ---- */

/* The tensor whose dense bytes are the file's: itself, its transposed view, or a dense copy, the
 * latter two for the caller to destroy as *out_own. */
static fy_status_t find_bytes(fy_tensor_t *tensor, const fy_tensor_info_t *info, int *out_fortran,
                              fy_tensor_t **out_own, fy_tensor_t **out_bytes)
{
    fy_tensor_info_t turned = FY_TENSOR_INFO_INIT;
    *out_bytes = tensor;
    if (info->is_contiguous) return FY_STATUS_OK;
    FY_TRY(fy_transpose(tensor, NULL, out_own));
    *out_bytes = *out_own;
    FY_TRY(fy_tensor_query(*out_own, &turned));
    if ((*out_fortran = turned.is_contiguous)) return FY_STATUS_OK;
    fy_tensor_destroy(*out_own);
    *out_own = NULL;
    FY_TRY(fy_tensor_create(fy_device_host(), info->dtype, info->rank, info->dims, out_own));
    *out_bytes = *out_own;
    return fy_copy(*out_own, tensor);
}

static fy_status_t write_file(const char *path, const char *header, size_t header_nbytes,
                              const void *data, uint64_t nbytes)
{
    fy__replace_t file;
    FY_TRY(fyt_replace_begin(&file, path));
    fy_status_t status = fyt_replace_write(&file, header, header_nbytes);
    if (status == FY_STATUS_OK) status = fyt_replace_write(&file, data, (size_t)nbytes);
    if (status == FY_STATUS_OK) return fyt_replace_commit(&file);
    fy__replace_abort(&file);
    return status;
}

fy_status_t fyt_check_bools(const char *call, fy_dtype_t dtype, const void *data, uint64_t nbytes)
{
    const uint64_t wrong = fyt_find_wrong_bool(dtype, data, nbytes);
    if (wrong == nbytes) return FY_STATUS_OK;
    return FYT_FAIL(BAD_VALUE,
                    "%s: byte %" PRIu64
                    " of the data [bool] is %d, not 0 or 1\n  Such a file would "
                    "be refused by its readers: write 0 or 1 into the memory",
                    call, wrong, ((const unsigned char *)data)[wrong]);
}

fy_status_t fyt_npy_prepare(const char *call, fy_tensor_t *tensor, fyt_npy_bytes_t *out_bytes)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    fy_tensor_t *bytes;
    *out_bytes = (fyt_npy_bytes_t){ 0 };
    FY_TRY(fy_tensor_query(tensor, &info));
    if (info.device != fy_device_host())
        return FYT_FAIL(DEVICE_MISMATCH,
                        "%s: the tensor is on %s\n  Ferry moves nothing by itself. Download "
                        "it first: %" PRIu64 " bytes",
                        call, fy_device_name(info.device), info.nbytes);
    fyt_npy_t npy = { .dtype = info.dtype, .rank = info.rank, .nbytes = info.nbytes };
    memcpy(npy.dims, info.dims, sizeof npy.dims);
    fy_status_t status = find_bytes(tensor, &info, &npy.is_fortran, &out_bytes->own, &bytes);
    if (status == FY_STATUS_OK)
        status = fyt_npy_write_header(&npy, out_bytes->header, &out_bytes->header_nbytes);
    if (status == FY_STATUS_OK) status = fy_tensor_map(bytes, FY_ACCESS_READ, &out_bytes->data);
    out_bytes->nbytes = npy.nbytes;
    if (status == FY_STATUS_OK)
        status = fyt_check_bools(call, info.dtype, out_bytes->data, npy.nbytes);
    if (status != FY_STATUS_OK) {
        fy_tensor_destroy(out_bytes->own);
        out_bytes->own = NULL;
    }
    return status;
}

fy_status_t fy_npy_write(const char *path, fy_tensor_t *tensor)
{
    fyt_npy_bytes_t bytes;
    if (!path || !tensor)
        return FYT_FAIL(INVALID_ARGUMENT, "npy_write: %s is NULL", path ? "tensor" : "path");
    FY_TRY(fyt_npy_prepare("npy_write", tensor, &bytes));
    const fy_status_t status =
        write_file(path, bytes.header, bytes.header_nbytes, bytes.data, bytes.nbytes);
    fy_tensor_destroy(bytes.own);
    return status;
}
