/* dtypes inside the library: sizes without a call, and one element read as a double. Bulk
 * conversion is a kernel (cast). */
#ifndef FERRY_RUNTIME_BASE_DTYPE_H_
#define FERRY_RUNTIME_BASE_DTYPE_H_

#include <ferry/types.h>

extern const uint8_t fy__dtype_sizes[FY_DTYPE_COUNT];
/* `element` need not be aligned. */
double fy__dtype_read_f64(fy_dtype_t dtype, const void *element);

#endif
