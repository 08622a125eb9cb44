/* The facts about oneDNN that files without its header need. The build has one of two files behind
 * this header, behind fy__gemm_f32 (gemm.h) and behind the primitives (conv_prim.h): dnnl.c,
 * describe_dnnl.c, gemm_onednn.c and conv_dnnl.c, or, with -DFERRY_DNNL=OFF, without_onednn.c. */
#ifndef FERRY_BACKENDS_KERNELS_ONEDNN_H_
#define FERRY_BACKENDS_KERNELS_ONEDNN_H_

#include "backends/kernels/kernels.h"

/* Facts for `ferry info`: version, threads, instructions; or that this build has none. */
void fy__onednn_describe(fy_fact_fn say, void *user);
/* Why oneDNN has no primitive for a convolution: static text. */
const char *fy__onednn_has_none(void);

#endif
