/* What the kernel files share: the functions that run one family of ops each, and helpers.
 * Every family function gets a launch whose op it knows and whose main dtype the table in
 * dispatch.c allows; it writes nothing before it can no longer fail. Scratch is launch->workspace
 * or the stack, never malloc. */
#ifndef FERRY_BACKENDS_KERNELS_FAMILY_H_
#define FERRY_BACKENDS_KERNELS_FAMILY_H_

#include <ferry/backend.h>

#include "backends/kernels/loops.h"
#include "backends/kernels/threads.h"

typedef fy_status_t (*fy__family_fn)(const fy_host_api_t *host, const fy__loops_t *loops,
                                     const fy_launch_t *launch);

/* What one element of an elementwise op takes: the column `maths` of opset/ops.def. */
enum fy__maths {
    FY__MATHS_cheap,
    FY__MATHS_exp,
    FY__MATHS_tanh,
    FY__MATHS_pow,
    FY__MATHS_erf,
    FY__MATHS_COUNT
};
/* Scratch that the family uses for a launch, at most `limit` bytes. */
typedef uint64_t (*fy__workspace_fn)(const fy_launch_t *launch, uint64_t limit);
/* 16 bytes: a tiny add finds its row by a shift. */
typedef struct fy__kernel_row {
    fy__family_fn run;
    uint32_t dtypes; /* of the first source, or of dst[0] if there is none */
    uint8_t index;   /* unary, scaled, binary, ...: fy__unary, ... */
    uint8_t maths;   /* those: fy__maths */
} fy__kernel_row_t;
extern const fy__kernel_row_t fy__kernel_rows[FY_OP_BUILTIN_COUNT]; /* dispatch.c */

/* The families of opset/ops.def, by its column `host kernel`. */
#define KERNEL(family)                                                                \
    fy_status_t fy__run_##family(const fy_host_api_t *host, const fy__loops_t *loops, \
                                 const fy_launch_t *launch);
#define SCRATCH_KERNEL(family) \
    KERNEL(family)             \
    uint64_t fy__##family##_workspace(const fy_launch_t *launch, uint64_t limit);
#define ROW(number, ENUM, name, flags, set, attrs, shape, cost, back, host, ...) OPEN host
#include "opset/ops.def"

/* packed.c: the two launches that are no ops */
fy_status_t fy__run_packed(const fy_launch_t *launch);

/* ---- helpers ---- */

/* Bytes of one element as a power of two: sizes are 1 << k. */
static inline int fy__log2_size(int32_t dtype)
{
    static const uint8_t k[FY_DTYPE_COUNT] = { 2, 3, 1, 1, 2, 3, 0, 0 };
    return k[dtype];
}

/* The compute type of f16 and bf16; other dtypes are computed in themselves. */
static inline int32_t fy__compute_dtype(int32_t dtype)
{
    return dtype == FY_DTYPE_F16 || dtype == FY_DTYPE_BF16 ? FY_DTYPE_F32 : dtype;
}

static inline int fy__is_float(int32_t dtype) { return dtype <= FY_DTYPE_BF16; }

/* Converts `serial` from f32 (fy__threads_for) to `dtype`: eight bytes take twice the time, half
 * precision is converted both ways. */
static inline int64_t fy__serial_of(int32_t dtype, int64_t serial)
{
    if (dtype == FY_DTYPE_F16 || dtype == FY_DTYPE_BF16) return serial < 16384 ? serial : 16384;
    return dtype == FY_DTYPE_F64 || dtype == FY_DTYPE_I64 ? serial / 2 : serial;
}

/* f32 elements of an elementwise op that one thread does in 20 us. elementwise.c */
int64_t fy__elementwise_serial(fy_op_t op);
/* ---- dropout.c, for chains ---- */
enum { FY__DROPOUT_SERIAL = 8192 }; /* as fy__elementwise_serial */
/* Seed and counter of a draw. `before` not NULL: it gets them, and the state advances by a draw of
 * n elements. */
void fy__dropout_state(const fy_desc_t *state, const fy_desc_t *before, int64_t n,
                       int64_t out_state[2]);
/* Dropout of elements first .. first + n - 1 of a tensor, which lie side by side. */
void fy__dropout_block(const fy__loops_t *loops, int32_t dtype, const int64_t state[2], double p,
                       int64_t first, int64_t n, char *dst, const char *src);

static inline int64_t fy__desc_nelem(const fy_desc_t *desc)
{
    int64_t n = 1;
    for (int i = 0; i < desc->rank; i++) n *= desc->dims[i];
    return n;
}

/* Row-major without gaps; the stride of an axis of length 1 does not count. */
static inline int fy__desc_is_dense(const fy_desc_t *desc)
{
    int64_t stride = 1;
    for (int axis = desc->rank - 1; axis >= 0; axis--) {
        if (desc->dims[axis] != 1 && desc->strides[axis] != stride) return 0;
        stride *= desc->dims[axis];
    }
    return 1;
}

/* fn(context, i) for 0 <= i < n, spread evenly over `threads` (fy__threads_for); on the caller
 * alone if that is 1. */
typedef void (*fy__each_fn)(const void *context, int64_t i);
void fy__for_each(int64_t n, int threads, fy__each_fn fn, const void *context); /* dispatch.c */
/* The loop table for this machine. */
const fy__loops_t *fy__loops_get(void); /* dispatch.c */

#endif
