/* NumPy's .npy files: one array each ("NEP 1 - a simple file format for NumPy arrays", and
 * numpy.lib.format for versions 2 and 3). Written files equal those of numpy.save byte for byte.
 * Host tensors only: upload and download explicitly. Archives of several arrays:
 * npz.h. */
#ifndef FERRY_TRAIN_NPY_H_
#define FERRY_TRAIN_NPY_H_

#include <ferry/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reads a file into a new host tensor. An array in Fortran order becomes a transposed view of its
 * bytes, as in NumPy. Only regular files; nothing is allocated before the sizes agree.
 * Fails: IO, OUT_OF_MEMORY, UNSUPPORTED (an element type that Ferry does not have, such as a
 * structure, another byte order, more than 8 axes), CORRUPT_DATA (a damaged header, fewer or more
 * bytes than the shape needs, a bool that is not 0 or 1). */
FY_API_STATUS fy_npy_read(const char *path, fy_tensor_t **out_tensor);

/* Writes a host tensor of any strides; the transposed view of a dense tensor is written in Fortran
 * order, as numpy.save does. `path` is replaced completely or stays, as fy_safetensors_write says.
 * Fails: DEVICE_MISMATCH (download it first), UNSUPPORTED (bf16, which NumPy does not have: convert
 * it to f32), BAD_VALUE (a bool that is not 0 or 1), IO, OUT_OF_MEMORY. */
FY_API_STATUS fy_npy_write(const char *path, fy_tensor_t *tensor);

#ifdef __cplusplus
}
#endif
#endif
