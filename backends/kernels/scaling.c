/* Loss scaling: whether a gradient has an element that is infinite or NaN, and the next scale.
 * Formulas: opset/formulas/step.h. Not here: the steps that read the result (step.c). */
#include "opset/formulas/index.h"
#include "backends/kernels/rows.h"

enum { SERIAL = 262144 }; /* f32 elements that one thread reads in 20 us */

typedef struct check {
    const fy_desc_t *x;
    int64_t nelem, piece;
    int is_dense;
    int *found; /* set by any thread */
} check_t;

/* The exponent of such an element has every bit set. */
#define FIND(name, T, EXPONENT)                                                             \
    static int name(int64_t n, const void *x)                                               \
    {                                                                                       \
        const T *bits = (const T *)x;                                                       \
        T found = 0;                                                                        \
        for (int64_t i = 0; i < n; i++) found |= (T)((bits[i] & (EXPONENT)) == (EXPONENT)); \
        return found != 0;                                                                  \
    }
FIND(find_f32, uint32_t, 0x7f800000u)
FIND(find_f64, uint64_t, 0x7ff0000000000000u)
FIND(find_f16, uint16_t, 0x7c00u)
FIND(find_bf16, uint16_t, 0x7f80u)

static int find(int32_t dtype, int64_t n, const void *x)
{
    switch (dtype) {
    case FY_DTYPE_F64: return find_f64(n, x);
    case FY_DTYPE_F16: return find_f16(n, x);
    case FY_DTYPE_BF16: return find_bf16(n, x);
    default: return find_f32(n, x);
    }
}

static void check_piece(const void *context, int64_t i)
{
    const check_t *check = (const check_t *)context;
    const fy_desc_t *x = check->x;
    const int shift = fy__log2_size(x->dtype);
    const int64_t begin = i * check->piece,
                  end = begin + check->piece < check->nelem ? begin + check->piece : check->nelem;
    int found = 0;
    if (check->is_dense && begin < end)
        found = find(x->dtype, end - begin, (const char *)x->data + begin * ((int64_t)1 << shift));
    for (int64_t k = begin; !check->is_dense && !found && k < end; k++)
        found = find(x->dtype, 1,
                     (const char *)x->data +
                         fy__offset_of(k, x->rank, x->dims, x->strides) * ((int64_t)1 << shift));
    if (found) __atomic_store_n(check->found, 1, __ATOMIC_RELAXED);
}

fy_status_t fy__run_check_finite(const fy_host_api_t *host, const fy__loops_t *loops,
                                 const fy_launch_t *launch)
{
    const fy_desc_t *x = &launch->src[0], *scaling = &launch->dst[0];
    int found = 0;
    check_t check = { .x = x, .nelem = 1, .is_dense = 1, .found = &found };
    (void)host;
    (void)loops;
    for (int axis = x->rank - 1; axis >= 0; axis--) {
        if (x->dims[axis] != 1 && x->strides[axis] != check.nelem) check.is_dense = 0;
        check.nelem *= x->dims[axis];
    }
    const int threads = fy__threads_for(check.nelem, fy__serial_of(x->dtype, SERIAL));
    check.piece = (check.nelem + threads - 1) / threads;
    fy__for_each(threads, threads, check_piece, &check);
    if (found) ((double *)scaling->data)[FY__FOUND * scaling->strides[0]] = 1;
    return FY_STATUS_OK;
}

fy_status_t fy__run_update_scaling(const fy_host_api_t *host, const fy__loops_t *loops,
                                   const fy_launch_t *launch)
{
    const fy_update_scaling_attrs_t *attrs = (const fy_update_scaling_attrs_t *)launch->attrs;
    (void)host;
    (void)loops;
    fy__update_scaling((double *)launch->dst[0].data, launch->dst[0].strides[0],
                       attrs->growth_factor, attrs->backoff_factor, attrs->growth_interval);
    return FY_STATUS_OK;
}
