/* fy_class_loss_mean by portable loops, for the fake driver (fake_launch.c). */
#include "opset/formulas/index.h"
#include "tests/support/fake_cuda/fake.h"

fy_status_t fake_mean_of_losses(const fy__cuda_args_t *args, fy_desc_t *dst, const fy_desc_t *src)
{
    const fy_cast_attrs_t to_loss = { dst[0].dtype }, to_f64 = { FY_DTYPE_F64 };
    const int64_t ignored = args->op == FY_OP_NLL_LOSS_BACKWARD
                                ? args->attrs.class_loss_backward.ignore_index
                                : args->attrs.class_loss.ignore_index;
    double total = 0, divisor = 0, w = 1;
    fy_desc_t weight = { .data = &w, .dtype = FY_DTYPE_F64 };
    for (uint64_t row = 0; row < args->count; row++) {
        const int64_t at = fy__offset_of((int64_t)row, src[0].rank, src[0].dims, src[0].strides);
        int64_t target = src[0].dtype == FY_DTYPE_I32 ? ((const int32_t *)src[0].data)[at]
                                                      : ((const int64_t *)src[0].data)[at];
        if (args->ndst > 1) total += ((const double *)dst[1].data)[row];
        if (target == ignored) continue;
        if (args->nsrc > 1) {
            if (target >= src[1].dims[0]) target = src[1].dims[0] - 1;
            if (target < 0) target = 0;
            const int64_t nbytes = (int64_t)fy_dtype_size((fy_dtype_t)src[1].dtype);
            fy_desc_t one = { .dtype = src[1].dtype };
            one.data = (char *)src[1].data + target * src[1].strides[0] * nbytes;
            FY_TRY(fake_run_op(FY_OP_CAST, &weight, 1, &one, &to_f64));
        }
        divisor += w;
    }
    double value = args->ndst > 1 ? total / divisor : divisor;
    fy_desc_t result = { .data = &value, .dtype = FY_DTYPE_F64 };
    return fake_run_op(FY_OP_CAST, &dst[0], 1, &result, &to_loss);
}
