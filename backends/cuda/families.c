/* The rows: every op of FY_OP_LIST once, in its order. The dtypes are the op table's (docs/ops.md);
 * what is not taken needs a reason in its row, and tests/unit/cuda/test_coverage.c walks the table
 * against these rows. A new op has no row until somebody writes one: it is refused. */
#include "backends/cuda/families.h"

#include "backends/cuda/matmul.h"

/* clang-format off */
#define BIT(name) FY_DTYPE_BIT(FY_DTYPE_##name)
#define ANY       ((1u << FY_DTYPE_COUNT) - 1)
#define NUMBER    (ANY & ~BIT(BOOL))
#define REAL      (BIT(F32) | BIT(F64))
#define FLOAT     (REAL | BIT(F16) | BIT(BF16))
#define INDEX     (BIT(I32) | BIT(I64))

#define PACK(NAME, taken, packs)                 [FY_OP_##NAME] = { .dtypes = taken, .pack = fy__cuda_pack_##packs }
#define SEVERAL(NAME, taken, packs)              [FY_OP_##NAME] = { .dtypes = taken, .pack_several = fy__cuda_pack_##packs }
#define RUN(NAME, taken, runs)                   [FY_OP_##NAME] = { .dtypes = taken, .run = fy__cuda_run_##runs }
#define RUN_WITH_SCRATCH(NAME, taken, runs, ...) [FY_OP_##NAME] = { .dtypes = taken, .run = fy__cuda_run_##runs, .workspace = fy__cuda_##runs##_workspace, __VA_ARGS__ }

static const fy__cuda_family_t families[FY_OP_BUILTIN_COUNT] = {
    PACK(FILL, ANY, generate), PACK(ARANGE, NUMBER, generate), RUN(RAND, FLOAT, random), RUN(RANDN, FLOAT, random), RUN(RANDPERM, BIT(I64), random),
    PACK(NEG, NUMBER, elementwise), PACK(ABS, NUMBER, elementwise), PACK(EXP, FLOAT, elementwise), PACK(LOG, FLOAT, elementwise),
    PACK(SQRT, FLOAT, elementwise), PACK(TANH, FLOAT, elementwise), PACK(SIGMOID, FLOAT, elementwise), PACK(RELU, FLOAT, elementwise),
    PACK(AFFINE, FLOAT, elementwise), PACK(CAST, ANY, elementwise), RUN(COPY, ANY, copy), PACK(AXPY, FLOAT, elementwise),
    PACK(ADD, NUMBER, elementwise), PACK(SUB, NUMBER, elementwise), PACK(MUL, NUMBER, elementwise), PACK(DIV, FLOAT, elementwise),
    PACK(MAXIMUM, NUMBER, elementwise), PACK(MINIMUM, NUMBER, elementwise), PACK(POW, FLOAT, elementwise),
    PACK(EQ, ANY, elementwise), PACK(NE, ANY, elementwise), PACK(LT, ANY, elementwise), PACK(LE, ANY, elementwise),
    PACK(GT, ANY, elementwise), PACK(GE, ANY, elementwise),
    [FY_OP_WHERE] = { .dtypes = ANY, .main = 1, .pack = fy__cuda_pack_elementwise },
    SEVERAL(SUM, ANY, reduce), SEVERAL(MEAN, FLOAT, reduce), SEVERAL(MAX, NUMBER, reduce), SEVERAL(MIN, NUMBER, reduce),
    SEVERAL(ARGMAX, NUMBER, argmax),
    RUN_WITH_SCRATCH(MATMUL, FLOAT, matmul, .uses_lt = 1),
    SEVERAL(SOFTMAX, FLOAT, softmax), SEVERAL(LOG_SOFTMAX, FLOAT, softmax), SEVERAL(MSE_LOSS, FLOAT, reduce),
    PACK(GATHER, ANY, gather), RUN(CONCAT, ANY, concat),
    RUN_WITH_SCRATCH(CONV2D, FLOAT, conv2d), RUN_WITH_SCRATCH(CONV2D_BACKWARD_INPUT, FLOAT, conv2d), RUN_WITH_SCRATCH(CONV2D_BACKWARD_WEIGHT, FLOAT, conv2d),
    PACK(MAX_POOL2D, FLOAT, pool2d), PACK(MAX_POOL2D_BACKWARD, FLOAT, pool2d), PACK(AVG_POOL2D, FLOAT, pool2d), PACK(AVG_POOL2D_BACKWARD, FLOAT, pool2d),
    PACK(RELU6, FLOAT, elementwise), PACK(HARDSIGMOID, FLOAT, elementwise), PACK(HARDSWISH, FLOAT, elementwise),
    PACK(SILU, FLOAT, elementwise), PACK(GELU, FLOAT, elementwise), PACK(ERF, FLOAT, elementwise),
    PACK(RELU_BACKWARD, FLOAT, elementwise), PACK(RELU6_BACKWARD, FLOAT, elementwise), PACK(HARDSIGMOID_BACKWARD, FLOAT, elementwise),
    PACK(HARDSWISH_BACKWARD, FLOAT, elementwise), PACK(SILU_BACKWARD, FLOAT, elementwise), PACK(GELU_BACKWARD, FLOAT, elementwise),
    SEVERAL(NLL_LOSS, FLOAT, class_loss), SEVERAL(CROSS_ENTROPY, FLOAT, class_loss),
    PACK(NLL_LOSS_BACKWARD, FLOAT, class_loss_backward), PACK(CROSS_ENTROPY_BACKWARD, FLOAT, class_loss_backward),
    RUN_WITH_SCRATCH(CONV2D_BACKWARD_PARAMS, FLOAT, conv2d, .when_empty = 1),
    RUN_WITH_SCRATCH(LINEAR, FLOAT, linear, .uses_lt = 1),
    RUN_WITH_SCRATCH(LINEAR_BACKWARD_PARAMS, FLOAT, linear_params, .uses_lt = 1, .when_empty = 1),
    SEVERAL(NORM, FLOAT, reduce), PACK(CLAMP, FLOAT, elementwise), PACK(CLIP_BY_NORM, FLOAT, elementwise),
    RUN(SGD_STEP, REAL, step), [FY_OP_SGD_MOMENTUM_STEP] = { .dtypes = REAL, .run = fy__cuda_run_step, .when_empty = 1 },
    [FY_OP_ADAM_STEP] = { .dtypes = REAL, .run = fy__cuda_run_step, .when_empty = 1 }, RUN(ADADELTA_STEP, REAL, step),
    [FY_OP_DROPOUT] = { .dtypes = FLOAT, .run = fy__cuda_run_dropout, .when_empty = 1 }, RUN(DROPOUT_BACKWARD, FLOAT, dropout),
    [FY_OP_DROPOUT2D] = { .dtypes = FLOAT, .run = fy__cuda_run_dropout, .when_empty = 1 }, RUN(DROPOUT2D_BACKWARD, FLOAT, dropout),
    PACK(TANH_BACKWARD, FLOAT, elementwise), PACK(SIGMOID_BACKWARD, FLOAT, elementwise),
    SEVERAL(SOFTMAX_BACKWARD, FLOAT, softmax), SEVERAL(LOG_SOFTMAX_BACKWARD, FLOAT, softmax), PACK(MSE_LOSS_BACKWARD, FLOAT, mse_loss_backward),
    PACK(ONE_HOT, INDEX, one_hot),
};
/* clang-format on */

const fy__cuda_family_t *fy__cuda_family_of(uint32_t op)
{
    static const fy__cuda_family_t packed = { .dtypes = ANY, .pack = fy__cuda_pack_packed },
                                   none = { .why = "it is newer than this plugin" };
    if (op == FY_LAUNCH_SCATTER || op == FY_LAUNCH_GATHER) return &packed;
    if (op >= FY_OP_BUILTIN_COUNT) return &none;
    return families[op].dtypes != 0 || families[op].why != NULL ? &families[op] : &none;
}

int32_t fy__cuda_main_dtype(const fy__cuda_family_t *family, const fy_launch_t *launch)
{
    if (launch->nsrc == 0) return launch->dst[0].dtype;
    return launch->src[family->main < launch->nsrc ? family->main : 0].dtype;
}

const char *fy__cuda_op_name(uint32_t op)
{
    static const char *const names[] = {
#define X(name, text) #text,
        FY_OP_LIST(X)
#undef X
    };
    return op < FY_OP_BUILTIN_COUNT ? names[op] : "a packed transfer";
}
