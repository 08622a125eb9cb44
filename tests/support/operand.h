/* Operands: a tensor of given values in any layout on any device, inside a larger buffer whose
 * other bytes are checked.
 * The buffer is uploaded whole; views (slice, reshape, transpose, broadcast) make the layout.
 * Afterwards the whole buffer is downloaded, and every byte that is not an element must be
 * unchanged. Guard bytes are 0xFF: NaN as a float, -1 as an index, so reading one shows too.
 * All handles belong to the current scope. */
#ifndef FERRY_TESTS_SUPPORT_OPERAND_H_
#define FERRY_TESTS_SUPPORT_OPERAND_H_

#include <ferry/ferry.h>

#include "tests/support/value.h"

typedef enum ts_layout {
    TS_CONTIGUOUS, /* dense, aligned, guard words around */
    TS_TRANSPOSED, /* axes reversed in memory */
    TS_STEPPED,    /* every second element, the first axis in the middle of a longer one */
    TS_BROADCAST,  /* stride 0 along one axis */
    TS_OFFSET,     /* dense, but it starts three elements past an aligned address */
    TS_LAYOUT_COUNT
} ts_layout_t;
const char *ts_layout_name(ts_layout_t layout);

typedef struct ts_operand {
    fy_tensor_t *view;
    fy_tensor_t *base; /* the whole buffer, rank 1 */
    fy_dtype_t dtype;
    ts_layout_t
        layout; /* the real layout: TS_CONTIGUOUS if the rank is too small for the requested one */
    int rank;
    int64_t dims[FY_MAX_RANK], strides[FY_MAX_RANK], offset; /* elements, in the buffer */
    uint64_t nelem, buffer_nelem;
    unsigned char *image; /* the buffer as it was uploaded */
} ts_operand_t;

/* The axis along which a TS_BROADCAST operand of these dims repeats, -1 if none can: fill its
 * values with this repeat_axis. */
int ts_broadcast_axis(int rank, const int64_t *dims);
/* Returns whether `layout` differs from TS_CONTIGUOUS for these dims. */
bool ts_layout_applies(ts_layout_t layout, int rank, const int64_t *dims);
/* Puts `values` on `device` in `layout`. Fails the test if Ferry refuses any step, or if the view's
 * facts are wrong. */
void ts_operand_make(ts_operand_t *operand, fy_device_t *device, const ts_array_t *values,
                     ts_layout_t layout);
/* Downloads the whole buffer. Fails the test if a byte outside the elements changed. Decodes the
 * elements into `out` if it is not NULL (allocated here). Fails the test if `unchanged` and an
 * element changed. `what` starts the failure's text. */
void ts_operand_check(const ts_operand_t *operand, bool unchanged, ts_array_t *out,
                      const char *what);
/* Frees the image; the scope owns the handles. */
void ts_operand_free(ts_operand_t *operand);
/* Checks a tensor that Ferry made: its facts must be dtype, dims, dense, on `device`. Its values
 * are returned in `out` (allocated here). */
void ts_result_read(const fy_tensor_t *tensor, fy_device_t *device, ts_array_t *out,
                    const char *what);

#endif
