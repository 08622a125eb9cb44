/* Convolutions of the fake: the assumptions of the kernels for dense operands, and weight gradients
 * in slices. No launch record of op.h describes a slice, so each one runs as a gradient over its
 * images. See fake_launch.c. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/fake_cuda/fake.h"

static int is_dense(const fy__cuda_operand_t *operand)
{
    int64_t stride = 1;
    for (int axis = operand->rank - 1; axis >= 0; axis--) {
        if (operand->dims[axis] != 1 && operand->strides[axis] != stride) return 0;
        stride *= operand->dims[axis];
    }
    return stride > 0 && stride < (int64_t)1 << 30;
}

int fake_conv_fits(const char *kernel, const fy__cuda_args_t *args)
{
    const int32_t dtype = args->src[0].dtype, wide = dtype == FY_DTYPE_F64;
    const int sliced = args->dst[0].rank == 5, groups = args->attrs.conv2d.groups;
    const int64_t x = args->op == FY_OP_CONV2D                   ? args->src[0].dims[3]
                      : args->op == FY_OP_CONV2D_BACKWARD_WEIGHT ? args->src[1].dims[3]
                                                                 : args->dst[0].dims[3];
    const int64_t y = args->op == FY_OP_CONV2D ? args->dst[0].dims[3] : args->src[0].dims[3];
    if (sliced && (args->op != FY_OP_CONV2D_BACKWARD_WEIGHT || args->accumulate ||
                   args->dst[0].dims[0] > args->src[0].dims[0]))
        return 0;
    if (args->dst[0].dtype != (sliced ? (wide ? FY_DTYPE_F64 : FY_DTYPE_F32) : dtype)) return 0;
    if (strncmp(kernel, "fy_conv2d_f", 11) == 0) return !sliced;
    for (int i = 0; i < 2; i++)
        if (!is_dense(&args->src[i])) return 0;
    if (!is_dense(&args->dst[0]) || (args->flags & FY__CUDA_SMALL) == 0) return 0;
    if (strstr(kernel, "_gemm_") != NULL)
        return dtype == (strstr(kernel, "f64") != NULL ? FY_DTYPE_F64 : FY_DTYPE_F32);
    if (strstr(kernel, "_tensor_") != NULL)
        return dtype == (strstr(kernel, "_bf16") != NULL ? FY_DTYPE_BF16 : FY_DTYPE_F16);
    return strstr(kernel, "_depthwise_") != NULL && x == groups && y == groups;
}

/* The images from `first` on. */
static fy_desc_t images(const fy_desc_t *desc, int64_t first, int64_t n, uint64_t element_nbytes)
{
    fy_desc_t part = *desc;
    part.data = (char *)desc->data + (uint64_t)(first * desc->strides[0]) * element_nbytes;
    part.dims[0] = n;
    return part;
}

fy_status_t fake_conv_slices(const fy__cuda_args_t *args, const fy_desc_t *dst,
                             const fy_desc_t *src)
{
    const fy_cast_attrs_t to_partial = { dst->dtype };
    const uint64_t size = dst->dtype == FY_DTYPE_F64 ? 8 : 4;
    fy_desc_t wide[2], one = *dst;
    fy_status_t status = FY_STATUS_OK;
    for (int i = 0; i < 2; i++) {
        wide[i] = fake_temporary(&src[i], dst->dtype);
        (void)fake_run_op(FY_OP_CAST, &wide[i], 1, &src[i], &to_partial);
    }
    one.rank = 4;
    memmove(one.dims, dst->dims + 1, 4 * sizeof *one.dims);
    memmove(one.strides, dst->strides + 1, 4 * sizeof *one.strides);
    const int64_t slices = dst->dims[0], n = src[0].dims[0];
    for (int64_t i = 0; i < slices && status == FY_STATUS_OK; i++) {
        const int64_t begin = n * i / slices, end = n * (i + 1) / slices;
        fy_desc_t part[2] = { images(&wide[0], begin, end - begin, size),
                              images(&wide[1], begin, end - begin, size) };
        one.data = (char *)dst->data + (uint64_t)(i * dst->strides[0]) * size;
        status = fake_run_op(FY_OP_CONV2D_BACKWARD_WEIGHT, &one, 2, part, &args->attrs);
    }
    for (int i = 0; i < 2; i++) free(wide[i].data);
    return status;
}
