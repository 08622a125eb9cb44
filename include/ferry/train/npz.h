/* NumPy's .npz archives: several named arrays in one ZIP file. Written files equal those of
 * numpy.savez byte for byte; those of numpy.savez_compressed are read too. Host tensors only:
 * upload and download explicitly. Sources of the format: numpy.savez, PKWARE's APPNOTE 6.3 (zip64
 * included), RFC 1951. */
#ifndef FERRY_TRAIN_NPZ_H_
#define FERRY_TRAIN_NPZ_H_

#include <ferry/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fy_npz fy_npz_t;

/* Reads and checks the directory; the arrays stay in the file. Regular files only.
 * Fails: IO, OUT_OF_MEMORY, UNSUPPORTED (encryption, data descriptors, other compression, a member
 * that is not NAME.npy), CORRUPT_DATA (members that overlap or leave holes, sizes past the file or
 * that compression cannot reach, duplicate names, bytes after the archive, headers that
 * disagree). */
FY_API_STATUS fy_npz_open(const char *path, fy_npz_t **out_file);
/* NULL is ignored. */
FY_API void fy_npz_close(fy_npz_t *file);
FY_API size_t fy_npz_count(const fy_npz_t *file); /* of its arrays */
/* The name of an array, without ".npy", in the order of the archive; NULL if `index` is out of
 * range. Valid until the file is closed. */
FY_API const char *fy_npz_name(const fy_npz_t *file, size_t index);
/* Reads an array into a new host tensor, as fy_npy_read does, and checks its CRC-32. Needs its
 * bytes twice meanwhile. Several threads may read one file.
 * Fails: INVALID_ARGUMENT (out of range), IO, CORRUPT_DATA, UNSUPPORTED, OUT_OF_MEMORY. */
FY_API_STATUS fy_npz_read(const fy_npz_t *file, size_t index, fy_tensor_t **out_tensor);

typedef struct fy_npz_entry {
    const char *name;    /* without ".npy"; ASCII or UTF-8, not empty */
    fy_tensor_t *tensor; /* on the host; any strides */
} fy_npz_entry_t;
/* Writes the arrays in this order, not compressed. `path` is replaced completely or stays, as
 * fy_safetensors_write says. At most 65,535 arrays.
 * Fails: INVALID_ARGUMENT (a bad or duplicate name), and as fy_npy_write. */
FY_API_STATUS fy_npz_write(const char *path, size_t count, const fy_npz_entry_t *entries);

#ifdef __cplusplus
}
#endif
#endif
