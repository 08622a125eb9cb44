/* Definitions of ops that tests register. */
#ifndef FERRY_TESTS_SUPPORT_OWN_OP_H_
#define FERRY_TESTS_SUPPORT_OWN_OP_H_

#include <ferry/ferry.h>

typedef struct ts_own_op {
    fy_op_def_t def;
    fy_op_info_t info;
    fy_op_kernel_t kernel;
} ts_own_op_t;

/* An elementwise op of f32 with one result, 1 .. nsrc_max sources and a kernel for the host. Change
 * fields of `own` before fy_op_register(&own->def, ...), which copies them. */
static inline void ts_own_op(ts_own_op_t *own, const char *name, uint16_t nsrc_max,
                             fy_kernel_fn kernel)
{
    *own = (ts_own_op_t){ .def = { .struct_size = sizeof own->def, .nkernels = 1 },
                          .info = { .struct_size = sizeof own->info,
                                    .name = name,
                                    .nsrc_min = 1,
                                    .nsrc_max = nsrc_max,
                                    .ndst = 1,
                                    .flags = FY_OP_ELEMENTWISE,
                                    .dtypes = FY_DTYPE_BIT(FY_DTYPE_F32) },
                          .kernel = { "host", kernel, NULL } };
    own->def.info = &own->info;
    own->def.kernels = &own->kernel;
}

#endif
