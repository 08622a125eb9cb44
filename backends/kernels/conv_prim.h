/* One convolution of oneDNN, ready to run any number of times, and the table that keeps them:
 * making one costs 0.2 to 7 ms, running it some microseconds. conv_dnnl.c makes and runs,
 * conv_table.c keeps. */
#ifndef FERRY_BACKENDS_KERNELS_CONV_PRIM_H_
#define FERRY_BACKENDS_KERNELS_CONV_PRIM_H_

#include "backends/kernels/conv.h"

typedef struct fy__conv_prim fy__conv_prim_t;

/* Makes the primitive for the number of threads that OpenMP has now. NULL: oneDNN has none or only
 * a reference loop, or there is no memory. */
fy__conv_prim_t *fy__conv_prim_make(const fy__conv_shape_t *shape);
void fy__conv_prim_free(fy__conv_prim_t *prim);
/* Scratch of a run, 64-byte aligned. Never 0, because 0 means that no run is planned. */
uint64_t fy__conv_prim_nbytes(const fy__conv_prim_t *prim);
/* Operands are dense f32; shape.op decides which of x, w, y is written; with w also bias. With
 * shape.accumulate dw is added to the old value; dx and the bias' gradient are not, so the caller
 * adds them. All scratch is `scratch`: oneDNN 2.6 with internal scratch gives wrong numbers when
 * two threads run one primitive. UNSUPPORTED without an error: oneDNN refused, and w, if it is
 * accumulated, is as before. */
fy_status_t fy__conv_prim_run(const fy_host_api_t *host, const fy__conv_prim_t *prim, void *x,
                              void *w, void *y, void *bias, void *scratch);

/* 1: the run takes no bias, whose gradient the caller computes. */
int fy__conv_prim_leaves_bias(const fy__conv_prim_t *prim);
/* oneDNN's name of the implementation, such as "jit:avx512_core"; lives as long as the
 * primitive. */
const char *fy__conv_prim_impl_name(const fy__conv_prim_t *prim);

/* The primitive for this shape and number of threads, made if it does not exist; NULL as above.
 * With to_run no other caller gets this primitive to run until it is released; a second one is made
 * for them. Without to_run the caller may only query size and name. Each take needs one give_back
 * with the same to_run. */
typedef struct fy__conv_entry fy__conv_entry_t;
fy__conv_entry_t *fy__conv_table_take(const fy__conv_shape_t *shape, int threads, int to_run);
void fy__conv_table_give_back(fy__conv_entry_t *entry, int to_run);
const fy__conv_prim_t *fy__conv_entry_prim(const fy__conv_entry_t *entry);

#endif
