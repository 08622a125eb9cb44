/* Safetensors files for reading: open, query, read. The whole header is checked before any of it is
 * used (safetensors_header.c). Data is read with pread: if another process truncates a mapped file,
 * the reader is killed; and a mapping is paged in one fault at a time.
 * Not here: writing (safetensors_write.c). See include/ferry/train/safetensors.h. */
#include "train/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ferry/device.h>

#include "runtime/base/c_locale.h"
#include "runtime/base/input.h"
#include "train/abi.h"
#include "train/fail.h"
#include "train/npy.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the format's numbers and data are little-endian, and are read as they lie");

enum { PIECE = 1 << 16 };

struct fy_safetensors {
    char *path; /* for errors */
    int fd;
    uint64_t data_begin; /* in the file */
    fyt_header_t header;
};

/* Like fyt_read_at, for a text: a text with a zero byte, such as a hole of a file, is not read to
 * its end. */
static fy_status_t read_text(const char *path, int fd, char *text, size_t nbytes, uint64_t offset)
{
    for (size_t at = 0; at < nbytes;) {
        const size_t count = nbytes - at < PIECE ? nbytes - at : PIECE;
        FY_TRY(fyt_read_at(path, fd, text + at, count, offset + at));
        const char *zero = memchr(text + at, 0, count);
        if (zero)
            return FYT_FAIL(CORRUPT_DATA,
                            "%s is not a safetensors file: byte %llu, in its header, is zero", path,
                            (unsigned long long)(offset + (uint64_t)(zero - text)));
        at += count;
    }
    return FY_STATUS_OK;
}

/* Nothing is allocated before the lengths agree with the file's real length. */
static fy_status_t read_header(fy_safetensors_t *file)
{
    struct stat facts;
    uint64_t length;
    char first;
    if (fstat(file->fd, &facts))
        return FYT_FAIL(IO, "cannot look at %s: %s", file->path, fy__strerror(errno));
    if (!S_ISREG(facts.st_mode))
        return FYT_FAIL(IO, "%s is no regular file but %s: a safetensors file must have a size",
                        file->path, fy__input_kind(facts.st_mode));
    const uint64_t nbytes = (uint64_t)facts.st_size;
    if (nbytes < sizeof length)
        return FYT_FAIL(
            CORRUPT_DATA,
            "%s is not a safetensors file: it has %llu bytes, and begins with a length of 8",
            file->path, (unsigned long long)nbytes);
    FY_TRY(fyt_read_at(file->path, file->fd, &length, sizeof length, 0));
    if (length > FYT_HEADER_MOST_NBYTES || length > nbytes - sizeof length || length < 2)
        return FYT_FAIL(CORRUPT_DATA,
                        "%s is not a whole safetensors file: its header has %llu bytes by its own "
                        "word; it can have 2 to %llu",
                        file->path, (unsigned long long)length,
                        (unsigned long long)(nbytes - sizeof length < FYT_HEADER_MOST_NBYTES
                                                 ? nbytes - sizeof length
                                                 : FYT_HEADER_MOST_NBYTES));
    FY_TRY(fyt_read_at(file->path, file->fd, &first, 1, sizeof length));
    if (first != '{')
        return FYT_FAIL(
            CORRUPT_DATA,
            "%s is not a safetensors file: its header has byte 0x%02x where it begins with '{'",
            file->path, (unsigned char)first);
    char *text = malloc((size_t)length + 1);
    if (!text)
        return FYT_FAIL(OUT_OF_MEMORY, "no host memory for the %llu bytes of the header of %s",
                        (unsigned long long)length, file->path);
    const fy_status_t status = read_text(file->path, file->fd, text, (size_t)length, sizeof length);
    if (status != FY_STATUS_OK) {
        free(text);
        return status;
    }
    file->data_begin = sizeof length + length;
    return fyt_header_read(file->path, text, (size_t)length, nbytes - file->data_begin,
                           &file->header);
}

fy_status_t fy_safetensors_open(const char *path, fy_safetensors_t **out_file)
{
    FY_TRY(FYT_CLEAR_OUT("safetensors_open", out_file));
    if (!path) return FYT_FAIL(INVALID_ARGUMENT, "safetensors_open: path is NULL");
    fy_safetensors_t *file = calloc(1, sizeof *file);
    char *own = strdup(path);
    if (!file || !own) {
        free(file);
        free(own);
        return FYT_FAIL(OUT_OF_MEMORY, "safetensors_open: no host memory to open %s", path);
    }
    file->path = own;
    /* Not blocking: a pipe without a writer is opened and refused without waiting for one. */
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const fy_status_t status = file->fd < 0
                                   ? FYT_FAIL(IO, "cannot open %s: %s", path, fy__strerror(errno))
                                   : read_header(file);
    if (status != FY_STATUS_OK) {
        fy_safetensors_close(file);
        return status;
    }
    *out_file = file;
    return FY_STATUS_OK;
}

void fy_safetensors_close(fy_safetensors_t *file)
{
    if (!file) return;
    if (file->fd >= 0) close(file->fd);
    fyt_header_free(&file->header);
    free(file->path);
    free(file);
}

size_t fy_safetensors_count(const fy_safetensors_t *file) { return file ? file->header.count : 0; }

static fy_status_t check_index(const char *call, const fy_safetensors_t *file, size_t index)
{
    if (!file) return FYT_FAIL(INVALID_ARGUMENT, "%s: file is NULL", call);
    if (index >= file->header.count)
        return FYT_FAIL(INVALID_ARGUMENT, "%s: tensor %zu of %s, which has %zu", call, index,
                        file->path, file->header.count);
    return FY_STATUS_OK;
}

fy_status_t fy_safetensors_at(const fy_safetensors_t *file, size_t index,
                              fy_safetensors_info_t *out_info)
{
    FY_TRY(check_index("safetensors_at", file, index));
    FY_TRY(FY__CHECK_OUT(safetensors_info, "safetensors_at", out_info));
    FY__WRITE(out_info, &file->header.tensors[index]);
    return FY_STATUS_OK;
}

fy_status_t fy_safetensors_find(const fy_safetensors_t *file, const char *name, size_t *out_index)
{
    if (!file || !name || !out_index)
        return FYT_FAIL(INVALID_ARGUMENT, "safetensors_find: %s is NULL",
                        !file   ? "file"
                        : !name ? "name"
                                : "out_index");
    *out_index = 0;
    size_t low = 0, high = file->header.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2, index = file->header.by_name[middle];
        const int order = strcmp(name, file->header.tensors[index].name);
        if (order == 0) {
            *out_index = index;
            return FY_STATUS_OK;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return FYT_FAIL(INVALID_ARGUMENT, "%s has no tensor '%.64s' among its %zu", file->path, name,
                    file->header.count);
}

const char *fy_safetensors_metadata(const fy_safetensors_t *file, const char *key)
{
    if (!file || !key) return NULL;
    for (size_t i = 0; i < file->header.npairs; i++)
        if (strcmp(file->header.pairs[i].key, key) == 0) return file->header.pairs[i].value;
    return NULL;
}

/* A BOOL of the format is a byte 0 or 1, like Ferry's, but a file can contain others. */
static fy_status_t check_values(const fy_safetensors_t *file, const fy_safetensors_info_t *info,
                                const unsigned char *data)
{
    const uint64_t i = fyt_find_wrong_bool(info->dtype, data, info->nbytes);
    if (i == info->nbytes) return FY_STATUS_OK;
    return FYT_FAIL(CORRUPT_DATA,
                    "%s: element %llu of tensor '%.64s' [bool] is the byte %d, not 0 or 1",
                    file->path, (unsigned long long)i, info->name, data[i]);
}

static fy_status_t read_data(const fy_safetensors_t *file, const fy_safetensors_info_t *info,
                             fy_tensor_t *dst)
{
    void *data;
    FY_TRY(fy_tensor_map(dst, FY_ACCESS_WRITE, &data));
    FY_TRY(fyt_read_at(file->path, file->fd, data, (size_t)info->nbytes,
                       file->data_begin + info->offset));
    return check_values(file, info, data);
}

static fy_status_t check_dtype(const char *call, const fy_safetensors_t *file,
                               const fy_safetensors_info_t *info)
{
    if (info->is_supported) return FY_STATUS_OK;
    return FYT_FAIL(UNSUPPORTED,
                    "%s: tensor '%.64s' of %s has dtype %s, which Ferry does not have: convert it "
                    "to F32, F16, BF16 or another dtype of Ferry",
                    call, info->name, file->path, info->file_dtype);
}

fy_status_t fy_safetensors_read(const fy_safetensors_t *file, size_t index,
                                fy_tensor_t **out_tensor)
{
    FY_TRY(FYT_CLEAR_OUT("safetensors_read", out_tensor));
    FY_TRY(check_index("safetensors_read", file, index));
    const fy_safetensors_info_t *info = &file->header.tensors[index];
    fy_tensor_t *tensor;
    FY_TRY(check_dtype("safetensors_read", file, info));
    FY_TRY(fy_tensor_create(fy_device_host(), info->dtype, info->rank, info->dims, &tensor));
    const fy_status_t status = read_data(file, info, tensor);
    if (status != FY_STATUS_OK) {
        fy_tensor_destroy(tensor);
        return status;
    }
    fy_tensor_set_name(tensor, info->name);
    *out_tensor = tensor;
    return FY_STATUS_OK;
}

fy_status_t fy_safetensors_read_into(const fy_safetensors_t *file, size_t index, fy_tensor_t *dst)
{
    FY_TRY(check_index("safetensors_read_into", file, index));
    if (!dst) return FYT_FAIL(INVALID_ARGUMENT, "safetensors_read_into: dst is NULL");
    const fy_safetensors_info_t *info = &file->header.tensors[index];
    fy_tensor_info_t to = FY_TENSOR_INFO_INIT;
    FY_TRY(check_dtype("safetensors_read_into", file, info));
    FY_TRY(fy_tensor_query(dst, &to));
    if (to.dtype != info->dtype)
        return FYT_FAIL(DTYPE_MISMATCH,
                        "safetensors_read_into: tensor '%.64s' of %s is %s, dst is %s", info->name,
                        file->path, fy_dtype_name(info->dtype), fy_dtype_name(to.dtype));
    int same = to.rank == info->rank;
    for (int i = 0; same && i < to.rank; i++) same = to.dims[i] == info->dims[i];
    if (!same)
        return FYT_FAIL(SHAPE_MISMATCH,
                        "safetensors_read_into: tensor '%.64s' of %s has another shape than dst "
                        "(%d axes and %llu bytes; %d and %llu)",
                        info->name, file->path, info->rank, (unsigned long long)info->nbytes,
                        to.rank, (unsigned long long)to.nbytes);
    if (!to.is_contiguous)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "safetensors_read_into: dst is not dense: read into a dense one and copy");
    return read_data(file, info, dst);
}
