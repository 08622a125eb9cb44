/* The names of operands; see operand.h. A result that a typed call makes has no name. */
#include "ops/operand.h"

#include <stdio.h>

enum { SRCS = 3, DSTS = 4 };

static const struct {
    const char *src[SRCS], *dst[DSTS];
} k_names[FY_OP_BUILTIN_COUNT] = {
    [FY_OP_RAND] = { .dst = { NULL, "rng" } },
    [FY_OP_RANDN] = { .dst = { NULL, "rng" } },
    [FY_OP_RANDPERM] = { .dst = { NULL, "rng" } },
    [FY_OP_AXPY] = { .src = { "x" }, .dst = { "y" } },
    [FY_OP_WHERE] = { .src = { "cond", "a", "b" } },
    [FY_OP_MSE_LOSS] = { .src = { "pred", "target" } },
    [FY_OP_GATHER] = { .src = { "table", "indices" } },
    [FY_OP_CONV2D] = { .src = { "x", "w", "bias" } },
    [FY_OP_CONV2D_BACKWARD_INPUT] = { .src = { "dy", "w" } },
    [FY_OP_CONV2D_BACKWARD_WEIGHT] = { .src = { "dy", "x" } },
    [FY_OP_CONV2D_BACKWARD_PARAMS] = { .src = { "dy", "x" }, .dst = { "dw", "db" } },
    [FY_OP_MAX_POOL2D_BACKWARD] = { .src = { "dy", "x" } },
    [FY_OP_AVG_POOL2D_BACKWARD] = { .src = { "dy", "x" } },
    [FY_OP_RELU_BACKWARD] = { .src = { "dy", "x" } },
    [FY_OP_RELU6_BACKWARD] = { .src = { "dy", "x" } },
    [FY_OP_HARDSIGMOID_BACKWARD] = { .src = { "dy", "x" } },
    [FY_OP_HARDSWISH_BACKWARD] = { .src = { "dy", "x" } },
    [FY_OP_SILU_BACKWARD] = { .src = { "dy", "x" } },
    [FY_OP_GELU_BACKWARD] = { .src = { "dy", "x" } },
    [FY_OP_TANH_BACKWARD] = { .src = { "dy", "y" } },
    [FY_OP_SIGMOID_BACKWARD] = { .src = { "dy", "y" } },
    [FY_OP_SOFTMAX_BACKWARD] = { .src = { "dy", "y" } },
    [FY_OP_LOG_SOFTMAX_BACKWARD] = { .src = { "dy", "y" } },
    [FY_OP_MSE_LOSS_BACKWARD] = { .src = { "dy", "pred", "target" } },
    [FY_OP_NLL_LOSS] = { .src = { "log_probs", "targets" } },
    [FY_OP_CROSS_ENTROPY] = { .src = { "logits", "targets" } },
    [FY_OP_NLL_LOSS_BACKWARD] = { .src = { "dy", "targets" } },
    [FY_OP_CROSS_ENTROPY_BACKWARD] = { .src = { "dy", "logits", "targets" } },
    [FY_OP_LINEAR] = { .src = { "x", "w", "bias" } },
    [FY_OP_LINEAR_BACKWARD_PARAMS] = { .src = { "dy", "x" }, .dst = { "dw", "db" } },
    [FY_OP_CLIP_BY_NORM] = { .src = { "norm" } },
    [FY_OP_SGD_STEP] = { .src = { "grad", "lr" }, .dst = { "param" } },
    [FY_OP_SGD_MOMENTUM_STEP] = { .src = { "grad", "lr" },
                                  .dst = { "param", "momentum", "step_number" } },
    [FY_OP_ADAM_STEP] = { .src = { "grad", "lr" },
                          .dst = { "param", "exp_avg", "exp_avg_sq", "step_number" } },
    [FY_OP_ADADELTA_STEP] = { .src = { "grad", "lr" },
                              .dst = { "param", "square_avg", "acc_delta" } },
    [FY_OP_DROPOUT] = { .dst = { NULL, "rng", "state" } },
    [FY_OP_DROPOUT_BACKWARD] = { .src = { "dy", "state" } },
    [FY_OP_DROPOUT2D] = { .dst = { NULL, "rng", "state" } },
    [FY_OP_DROPOUT2D_BACKWARD] = { .src = { "dy", "state" } },
    [FY_OP_ONE_HOT] = { .src = { "indices" } },
};

const char *fy__operand_name(const char *op, bool is_dst, size_t index)
{
    const fy_op_info_t *info = fy_op_find(op);
    if (!info || info->op >= FY_OP_BUILTIN_COUNT || index >= (size_t)(is_dst ? DSTS : SRCS))
        return NULL;
    return is_dst ? k_names[info->op].dst[index] : k_names[info->op].src[index];
}

const char *fy__operand_format(const char *op, bool is_dst, size_t index, char *buf)
{
    const char *name = fy__operand_name(op, is_dst, index), *role = is_dst ? "dst" : "src";
    if (name)
        snprintf(buf, FY__OPERAND_TEXT_NBYTES, "%s (%s%zu)", name, role, index);
    else
        snprintf(buf, FY__OPERAND_TEXT_NBYTES, "%s%zu", role, index);
    return buf;
}
