/* The compiled kernels, as bytes of this plugin: one fatbin a module of args.h, made from
 * kernels/<module>.cu by cmake/cuda.cmake. */
#ifndef FERRY_BACKENDS_CUDA_FATBINS_H_
#define FERRY_BACKENDS_CUDA_FATBINS_H_

/* Of module `index` (fy__cuda_module). Static. */
const void *fy__cuda_fatbin(int index);

#endif
