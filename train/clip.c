/* Clipping of gradients, in place and on the device: the host reads no value, so a recorded step
 * can contain it.
 * Source: Pascanu, Mikolov, Bengio 2013, in the form of torch.nn.utils.clip_grad_norm_. */
#include <ferry/scope.h>
#include <ferry/tensor.h>
#include <ferry/train/optimizer.h>

#include <math.h>
#include <stdlib.h>

#include "train/fail.h"
#include "train/optimizer.h"

static fy_status_t check_list(const char *call, size_t count, fy_tensor_t *const *grads)
{
    if (count == 0 || !grads)
        return FYT_FAIL(INVALID_ARGUMENT, "%s: %s", call, count ? "grads is NULL" : "count is 0");
    for (size_t i = 0; i < count; i++)
        if (!grads[i]) return FYT_FAIL(INVALID_ARGUMENT, "%s: grads[%zu] is NULL", call, i);
    for (size_t i = 0; i < count; i++)
        FY_TRY(fyt_optimizer_check_in_place(call, "grads", i, grads[i]));
    return FY_STATUS_OK;
}

/* The norm of all gradients is the norm of their norms. `norms` has space for `count`. */
static fy_status_t norm_of_all(size_t count, fy_tensor_t *const *grads, fy_tensor_t **norms,
                               fy_tensor_t **out_norm)
{
    if (count == 1) return fy_norm(grads[0], 0, NULL, 0, out_norm);
    fy_tensor_t *all;
    for (size_t i = 0; i < count; i++) {
        fy_tensor_t *norm;
        FY_TRY(fy_norm(grads[i], 0, NULL, 0, &norm));
        FY_TRY(fy_unsqueeze(norm, 0, &norms[i]));
    }
    FY_TRY(fy_concat(count, norms, 0, &all));
    return fy_norm(all, 0, NULL, 0, out_norm);
}

/* In f32, or in f64 if one of them is f64: the norm of f16 gradients need not fit into f16. Others
 * are the gradients themselves. */
static fy_status_t widen(size_t count, fy_tensor_t *const *grads, fy_tensor_t **wide)
{
    fy_dtype_t dtype = FY_DTYPE_F32;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    for (size_t i = 0; i < count; i++) {
        FY_TRY(fy_tensor_query(grads[i], &info));
        if (info.dtype == FY_DTYPE_F64) dtype = FY_DTYPE_F64;
    }
    for (size_t i = 0; i < count; i++) {
        FY_TRY(fy_tensor_query(grads[i], &info));
        const int is_half = info.dtype == FY_DTYPE_F16 || info.dtype == FY_DTYPE_BF16;
        wide[i] = grads[i];
        if (is_half || (info.dtype == FY_DTYPE_F32 && dtype != FY_DTYPE_F32))
            FY_TRY(fy_cast(grads[i], dtype, &wide[i]));
    }
    return FY_STATUS_OK;
}

static fy_status_t narrow(fy_tensor_t *wide, fy_tensor_t *grad)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    if (wide == grad) return FY_STATUS_OK;
    FY_TRY(fy_tensor_query(grad, &info));
    const fy_cast_attrs_t attrs = { info.dtype };
    return fy_op_call(FY_OP_CAST, 1, &wide, &attrs, sizeof attrs, 1, &grad);
}

fy_status_t fy_grads_clip_norm(size_t count, fy_tensor_t *const *grads, double max_norm,
                               fy_tensor_t **out_norm)
{
    if (out_norm) *out_norm = NULL;
    FY_TRY(check_list("grads_clip_norm", count, grads));
    if (!(max_norm > 0))
        return FYT_FAIL(INVALID_ARGUMENT, "grads_clip_norm: max_norm is %g; it must be above 0",
                        max_norm);
    FY_TRY(fyt_optimizer_check_overlap("grads_clip_norm", count, NULL, grads));
    fy_tensor_t **handles = calloc(2 * count, sizeof *handles), *norm = NULL;
    if (!handles)
        return FYT_FAIL(OUT_OF_MEMORY, "grads_clip_norm: no host memory for %zu handles", count);
    fy_scope_t scope = fy_scope_begin("clip");
    fy_tensor_t **wide = handles + count;
    fy_status_t status = widen(count, grads, wide);
    if (status == FY_STATUS_OK) status = norm_of_all(count, wide, handles, &norm);
    for (size_t i = 0; status == FY_STATUS_OK && i < count; i++) {
        status = fy_clip_by_norm(wide[i], norm, max_norm);
        if (status == FY_STATUS_OK) status = narrow(wide[i], grads[i]);
    }
    const int gives = status == FY_STATUS_OK && out_norm;
    if (gives) *out_norm = norm;
    fy_scope_end(scope, gives ? 1 : 0, &norm);
    free(handles);
    return status;
}

fy_status_t fy_grads_clip_value(size_t count, fy_tensor_t *const *grads, double max)
{
    const fy_clamp_attrs_t attrs = { -max, max };
    FY_TRY(check_list("grads_clip_value", count, grads));
    if (!(max >= 0))
        return FYT_FAIL(INVALID_ARGUMENT, "grads_clip_value: max is %g; it must be 0 or more", max);
    for (size_t i = 0; i < count; i++) {
        fy_tensor_t *in_place = grads[i];
        FY_TRY(fy_op_call(FY_OP_CLAMP, 1, &in_place, &attrs, sizeof attrs, 1, &in_place));
    }
    return FY_STATUS_OK;
}
