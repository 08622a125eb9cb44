/* Loss scaling of an optimizer: a loss times the scale keeps small gradients in the range of half
 * precision. All of it is on the device, so that a recorded step can contain it.
 * Source: Micikevicius et al. 2018, in the form of torch.amp.GradScaler.
 * Not here: the ops (ferry/ops.h), the steps (optimizer.c). */
#include "train/optimizer_scaling.h"

#include <math.h>
#include <stdbool.h>

#include <ferry/tensor.h>
#include <ferry/transfer.h>

#include "train/fail.h"

enum { SCALE, DIVISOR, FOUND, GOOD, SKIPPED, LENGTH };

fy_status_t fyt_scaling_check(const char *kind, const fy_loss_scaling_options_t *options)
{
    const double scale = options->init_scale, growth = options->growth_factor;
    const bool is_scale = scale >= 0x1p-126 && scale < 0x1p128;
    const bool is_update = growth > 1 && isfinite(growth) && options->backoff_factor > 0 &&
                           options->backoff_factor < 1 && options->growth_interval > 0;
    if (is_scale && is_update) return FY_STATUS_OK;
    return FYT_FAIL(
        INVALID_ARGUMENT,
        "optimizer %s: loss scaling has init_scale %g (normal in f32), growth_factor %g "
        "(above 1), backoff_factor %g (between 0 and 1), growth_interval %lld (1 or "
        "more)",
        kind, options->init_scale, options->growth_factor, options->backoff_factor,
        (long long)options->growth_interval);
}

static fy_status_t scalar_at(fy_tensor_t *state, int64_t place, fy_tensor_t **out_scalar)
{
    fy_tensor_t *slice;
    FY_TRY(fy_slice(state, 0, place, place + 1, &slice));
    FY_TRY(fy_reshape(slice, 0, NULL, out_scalar));
    fy_tensor_keep(*out_scalar);
    return FY_STATUS_OK;
}

fy_status_t fyt_scaling_make(const fy_loss_scaling_options_t *options, fy_device_t *device,
                             fyt_scaling_t *scaling)
{
    scaling->attrs = (fy_update_scaling_attrs_t){ options->growth_factor, options->backoff_factor,
                                                  options->growth_interval };
    FY_TRY(fy_zeros(device, FY_DTYPE_F64, 1, (const int64_t[]){ LENGTH }, &scaling->state));
    fy_tensor_keep(scaling->state);
    fy_tensor_set_name(scaling->state, "loss_scaling");
    FY_TRY(scalar_at(scaling->state, SCALE, &scaling->scale));
    FY_TRY(scalar_at(scaling->state, DIVISOR, &scaling->divisor));
    FY_TRY(scalar_at(scaling->state, FOUND, &scaling->found));
    FY_TRY(scalar_at(scaling->state, SKIPPED, &scaling->skipped));
    FY_TRY(fy_fill(scaling->scale, options->init_scale));
    return fy_fill(scaling->divisor, options->init_scale);
}

void fyt_scaling_destroy(fyt_scaling_t *scaling)
{
    fy_tensor_destroy(scaling->scale);
    fy_tensor_destroy(scaling->divisor);
    fy_tensor_destroy(scaling->found);
    fy_tensor_destroy(scaling->skipped);
    fy_tensor_destroy(scaling->state);
}

fy_status_t fyt_scaling_make_parts(fy_device_t *device, fy_tensor_t **out_parts)
{
    fy_tensor_t *factors;
    FY_TRY(fy_zeros(device, FY_DTYPE_F64, 2, (const int64_t[]){ 1, 3 }, out_parts));
    fy_tensor_keep(*out_parts);
    fy_tensor_set_name(*out_parts, "parts");
    FY_TRY(fy_slice(*out_parts, 1, 1, 3, &factors));
    return fy_fill(factors, 1);
}

fy_status_t fyt_scaling_rearm(fyt_scaling_t *scaling)
{
    if (!scaling->is_checked) return FY_STATUS_OK;
    FY_TRY(fy_copy(scaling->divisor, scaling->scale));
    FY_TRY(fy_fill(scaling->found, 0));
    scaling->is_checked = 0;
    return FY_STATUS_OK;
}

fy_status_t fyt_scaling_read(const fyt_scaling_t *scaling, const fy_tensor_t *scalar,
                             double *out_number)
{
    fy_download_t *download;
    if (!scaling->state) return FY_STATUS_OK;
    FY_TRY(fy_tensor_download(scalar, NULL, &download));
    return fy_download_wait_f64(download, FY_FOREVER, out_number);
}

fy_status_t fyt_scaling_divide(const fyt_scaling_t *scaling, fy_tensor_t *grad)
{
    fy_tensor_info_t info = { .struct_size = sizeof info };
    fy_tensor_t *divisor;
    FY_TRY(fy_tensor_query(grad, &info));
    FY_TRY(fy_cast(scaling->divisor, info.dtype, &divisor));
    fy_tensor_t *src[2] = { grad, divisor };
    return fy_op_call(FY_OP_DIV, 2, src, NULL, 0, 1, &grad);
}
