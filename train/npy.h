/* Internals of .npy and .npz files: the header, read, checked and written. Shared by the files
 * npy*.c, npz*.c and their tests. Not public. See npy_header.c. */
#ifndef FERRY_TRAIN_NPY_INTERNAL_H_
#define FERRY_TRAIN_NPY_INTERNAL_H_

#include <ferry/train/npy.h>
#include <ferry/train/npz.h>

/* Longest text of a header; NumPy writes less than 400 bytes for 8 axes. */
#define FYT_NPY_MOST_NBYTES (1u << 16)

typedef struct fyt_npy {
    fy_dtype_t dtype;
    int is_fortran;
    int rank;
    int64_t dims[FY_MAX_RANK];
    uint64_t nbytes; /* of the data */
} fyt_npy_t;

/* Reads the `nbytes` of a header's text (a dict of Python); `path` is for errors. Fails:
 * CORRUPT_DATA, UNSUPPORTED. */
fy_status_t fyt_npy_read_header(const char *path, const char *text, size_t nbytes,
                                fyt_npy_t *out_npy);
/* Writes everything before the data to `text`, which has space for FYT_NPY_HEADER_ROOM bytes.
 * Fails: UNSUPPORTED (the dtype). */
#define FYT_NPY_HEADER_ROOM 512
fy_status_t fyt_npy_write_header(const fyt_npy_t *npy, char *text, size_t *out_nbytes);

/* Reads a whole file in memory; `what` is for errors. Fails as fy_npy_read. */
fy_status_t fyt_npy_read_memory(const char *what, const void *bytes, uint64_t nbytes,
                                fy_tensor_t **out_tensor);

/* The bytes of a file: header, then data. The caller destroys `own`, which may be NULL, after their
 * last use. */
typedef struct fyt_npy_bytes {
    char header[FYT_NPY_HEADER_ROOM];
    size_t header_nbytes;
    void *data;
    uint64_t nbytes; /* of the data */
    fy_tensor_t *own;
} fyt_npy_bytes_t;
/* Fails as fy_npy_write; `call` is for errors. */
fy_status_t fyt_npy_prepare(const char *call, fy_tensor_t *tensor, fyt_npy_bytes_t *out_bytes);
/* The index of the first byte of a bool that is neither 0 nor 1; `nbytes` if there is none, or for
 * another dtype. */
uint64_t fyt_find_wrong_bool(fy_dtype_t dtype, const void *data, uint64_t nbytes);
/* Fails: BAD_VALUE (`data` of bools has a byte that is neither 0 nor 1). */
fy_status_t fyt_check_bools(const char *call, fy_dtype_t dtype, const void *data, uint64_t nbytes);

/* ---- npz.c, npz_write.c: numbers of the ZIP format. Source: PKWARE's APPNOTE 6.3 ---- */

enum {
    FYT_ZIP_LOCAL = 30, /* bytes of the fixed parts */
    FYT_ZIP_CENTRAL = 46,
    FYT_ZIP_END = 22,
    FYT_ZIP_END64 = 56,
    FYT_ZIP_LOCATOR = 20,
    FYT_ZIP_UTF8 = 0x800, /* flag: the name is UTF-8 */
    FYT_ZIP64 = 1         /* kind of an extra field with 8-byte sizes */
};
#define FYT_ZIP_LOCAL_MAGIC   0x04034b50u
#define FYT_ZIP_CENTRAL_MAGIC 0x02014b50u
#define FYT_ZIP_END_MAGIC     0x06054b50u
#define FYT_ZIP_END64_MAGIC   0x06064b50u
#define FYT_ZIP_LOCATOR_MAGIC 0x07064b50u

/* Sorts `names`; returns one that occurs twice, or NULL. */
const char *fyt_npz_find_twice(const char **names, size_t count);

#endif
