/* The separate epilogue of a linear product in the fake (fy_linear_finish_*), composed of the
 * portable kernels. See fake_launch.c. */
#include <stdlib.h>

#include "tests/support/fake_cuda/fake.h"

fy_status_t fake_finish_linear(const fy__cuda_args_t *args, fy_desc_t *dst, fy_desc_t *src)
{
    static const fy_op_t ops[] = { FY_OP_COPY, FY_OP_RELU, FY_OP_TANH, FY_OP_SIGMOID, FY_OP_GELU };
    static const int32_t activations[] = { FY_ACTIVATION_NONE, FY_ACTIVATION_RELU,
                                           FY_ACTIVATION_TANH, FY_ACTIVATION_SIGMOID,
                                           FY_ACTIVATION_GELU };
    const fy_cast_attrs_t to_wide = { src[0].dtype }, to_dst = { dst->dtype };
    fy_desc_t sum = fake_temporary(&src[0], src[0].dtype),
              wide[2] = { src[0], fake_temporary(&src[0], src[0].dtype) },
              before = fake_temporary(dst, src[0].dtype);
    fy_status_t status = fake_run_op(FY_OP_COPY, &sum, 1, wide, NULL);
    if (args->nsrc == 2 && status == FY_STATUS_OK)
        status = fake_run_op(FY_OP_CAST, &wide[1], 1, &src[1], &to_wide);
    if (args->nsrc == 2 && status == FY_STATUS_OK)
        status = fake_run_op(FY_OP_ADD, &sum, 2, wide, NULL);
    for (int i = 1; i < 5; i++)
        if (activations[i] == args->attrs.linear.activation && status == FY_STATUS_OK)
            status = fake_run_op(ops[i], &sum, 1, &sum, NULL);
    if (args->accumulate && status == FY_STATUS_OK) {
        fy_desc_t both[2] = { sum, before };
        status = fake_run_op(FY_OP_CAST, &before, 1, dst, &to_wide);
        if (status == FY_STATUS_OK) status = fake_run_op(FY_OP_ADD, &sum, 2, both, NULL);
    }
    if (status == FY_STATUS_OK) status = fake_run_op(FY_OP_CAST, dst, 1, &sum, &to_dst);
    free(sum.data);
    free(wide[1].data);
    free(before.data);
    return status;
}
