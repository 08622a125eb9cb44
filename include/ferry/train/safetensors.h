/* Safetensors files: a JSON header, then named tensors (the format's own description:
 * "Safetensors", Hugging Face). Written files equal those of the reference writer byte for byte.
 * Read files are checked: shapes, offsets and the file's real length must agree. Host tensors only:
 * upload and download explicitly. */
#ifndef FERRY_TRAIN_SAFETENSORS_H_
#define FERRY_TRAIN_SAFETENSORS_H_

#include <ferry/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* an open file; owned by the caller, never by a scope */
typedef struct fy_safetensors fy_safetensors_t;

typedef struct fy_safetensors_info {
    size_t struct_size;
    const char *name; /* valid until the file is closed */
    fy_dtype_t dtype;
    int rank;
    int64_t dims[FY_MAX_RANK];
    uint64_t nbytes, offset; /* from the beginning of the data */
    /* The dtype in the file: "F32", "F8_E4M3"; static. */
    const char *file_dtype;
    /* 0: Ferry has no such dtype. `dtype` is then (fy_dtype_t)-1, and only the data's size and
     * offset are known: fy_safetensors_read fails with UNSUPPORTED. */
    int is_supported;
} fy_safetensors_info_t;
#define FY_SAFETENSORS_INFO_INIT FY_ZEROED_(safetensors_info)

/* Reads and checks the header; the data stays in the file. A tensor of a dtype that Ferry does not
 * have (F8, I8, U32, ...) does not keep the file from opening; only reading that tensor fails.
 * Fails: IO, OUT_OF_MEMORY, UNSUPPORTED (a rank above 8), CORRUPT_DATA (a header longer than
 * 100,000,000 bytes or than the file, duplicate names, unknown or missing keys, numbers that are no
 * whole number, overlaps, holes, bytes after the last tensor, sizes that overflow, dtypes that are
 * not of the format, nesting, invalid UTF-8, names with a zero byte). */
FY_API_STATUS fy_safetensors_open(const char *path, fy_safetensors_t **out_file);
/* NULL is ignored. */
FY_API void fy_safetensors_close(fy_safetensors_t *file);
FY_API size_t fy_safetensors_count(const fy_safetensors_t *file); /* of its tensors */
/* In the order of their data. Fails: INVALID_ARGUMENT (out of range). */
FY_API_STATUS fy_safetensors_at(const fy_safetensors_t *file, size_t index,
                                fy_safetensors_info_t *out_info);
/* Fails: INVALID_ARGUMENT (no such name). */
FY_API_STATUS fy_safetensors_find(const fy_safetensors_t *file, const char *name,
                                  size_t *out_index);
/* The text under `key` in __metadata__; NULL if there is none. Valid until the file is closed. */
FY_API const char *fy_safetensors_metadata(const fy_safetensors_t *file, const char *key);
/* A new host tensor, named as in the file. Fails: IO (also: the file has been shortened since),
 * CORRUPT_DATA (a BOOL that is not 0 or 1), UNSUPPORTED (its dtype), OUT_OF_MEMORY,
 * INVALID_ARGUMENT. */
FY_API_STATUS fy_safetensors_read(const fy_safetensors_t *file, size_t index,
                                  fy_tensor_t **out_tensor);
/* Into a dense host tensor of that dtype and shape. Fails: as above, DTYPE_MISMATCH,
 * SHAPE_MISMATCH; after IO its contents are undefined. */
FY_API_STATUS fy_safetensors_read_into(const fy_safetensors_t *file, size_t index,
                                       fy_tensor_t *dst);

typedef struct fy_safetensors_entry {
    const char *name;
    const fy_tensor_t *tensor; /* on the host; any strides */
} fy_safetensors_entry_t;
typedef struct fy_safetensors_pair {
    const char *key, *value; /* UTF-8 */
} fy_safetensors_pair_t;
/* Writes a temporary file "PATH.PID-N.tmp", syncs it, renames it to `path` and syncs the folder.
 * After a crash the old file or the new one exists, complete. A process that is killed may leave
 * the temporary file; nothing reads it. Tensors are sorted by element size, largest first (of one
 * size I64, F64 · F32, I32 · BF16, F16 · U8, BOOL), then by name; pairs by key.
 * Fails: DEVICE_MISMATCH (download it first), INVALID_ARGUMENT (duplicate names, "__metadata__",
 * not UTF-8), BAD_VALUE (a bool that is not 0 or 1), IO (no temporary file is left),
 * OUT_OF_MEMORY. */
FY_API_STATUS fy_safetensors_write(const char *path, size_t count,
                                   const fy_safetensors_entry_t *entries, size_t npairs,
                                   const fy_safetensors_pair_t *pairs);

#ifdef __cplusplus
}
#endif
#endif
