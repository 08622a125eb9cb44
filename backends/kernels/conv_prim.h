/* One convolution of oneDNN, ready to run any number of times, and the table that keeps them: making one costs 0.2 to 7 ms,
 * running it some microseconds. conv_dnnl.c makes and runs, conv_table.c keeps. */
#ifndef FERRY_BACKENDS_KERNELS_CONV_PRIM_H_
#define FERRY_BACKENDS_KERNELS_CONV_PRIM_H_

#include "backends/kernels/conv.h"

typedef struct fy__conv_prim fy__conv_prim_t;

/* NULL: there is none, or only a reference loop, or no memory. For the OpenMP team that is announced now. */
fy__conv_prim_t *fy__conv_prim_make(const fy__conv_shape_t *shape);
void fy__conv_prim_free(fy__conv_prim_t *prim);
/* Scratch that a run needs; a run's scratch is 64-byte aligned. Never 0, so that "none" can be told from "not planned". */
uint64_t fy__conv_prim_nbytes(const fy__conv_prim_t *prim);
/* Operands are dense f32; one of x, w, y is written, as shape.op says, with w also bias. shape.accumulate: dw is added to what is there; dx
 * and the bias' gradient are not, that is the caller's. All scratch is `scratch` (oneDNN 2.6 with scratch of its own gives wrong numbers when two threads run one primitive). */
fy_status_t fy__conv_prim_run(const fy_host_api_t *host, const fy__conv_prim_t *prim, void *x, void *w, void *y, void *bias, void *scratch);

/* oneDNN's name of the implementation, such as "jit:avx512_core"; lives as long as the primitive. */
const char *fy__conv_prim_impl_name(const fy__conv_prim_t *prim);

/* The primitive for this shape and team; made if need be. NULL as above. to_run: no other caller runs it until it is released; a second
 * primitive is made for that. Without to_run the caller may only query its size and name. Each take needs one give_back with the same to_run. */
typedef struct fy__conv_entry fy__conv_entry_t;
fy__conv_entry_t *fy__conv_table_take(const fy__conv_shape_t *shape, int threads, int to_run);
void fy__conv_table_give_back(fy__conv_entry_t *entry, int to_run);
const fy__conv_prim_t *fy__conv_entry_prim(const fy__conv_entry_t *entry);

#endif
