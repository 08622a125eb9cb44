/* The numbers and names of the ops, and the defaults of some attribute structs.
 * Written by scripts/opset.sh from opset/ops.def and opset/attrs.def: do not edit. */
#ifndef FERRY_OP_LIST_H_
#define FERRY_OP_LIST_H_

/* clang-format off */
/* X(ENUM, name), in the order of the numbers, which are part of the ABI. */
#define FY_OP_LIST(X) \
    X(FILL, fill) \
    X(ARANGE, arange) \
    X(RAND, rand) \
    X(RANDN, randn) \
    X(RANDPERM, randperm) \
    X(NEG, neg) \
    X(ABS, abs) \
    X(EXP, exp) \
    X(LOG, log) \
    X(SQRT, sqrt) \
    X(TANH, tanh) \
    X(SIGMOID, sigmoid) \
    X(RELU, relu) \
    X(AFFINE, affine) \
    X(CAST, cast) \
    X(COPY, copy) \
    X(AXPY, axpy) \
    X(ADD, add) \
    X(SUB, sub) \
    X(MUL, mul) \
    X(DIV, div) \
    X(MAXIMUM, maximum) \
    X(MINIMUM, minimum) \
    X(POW, pow) \
    X(EQ, eq) \
    X(NE, ne) \
    X(LT, lt) \
    X(LE, le) \
    X(GT, gt) \
    X(GE, ge) \
    X(WHERE, where) \
    X(SUM, sum) \
    X(MEAN, mean) \
    X(MAX, max) \
    X(MIN, min) \
    X(ARGMAX, argmax) \
    X(MATMUL, matmul) \
    X(SOFTMAX, softmax) \
    X(LOG_SOFTMAX, log_softmax) \
    X(MSE_LOSS, mse_loss) \
    X(GATHER, gather) \
    X(CONCAT, concat) \
    X(CONV2D, conv2d) \
    X(CONV2D_BACKWARD_INPUT, conv2d_backward_input) \
    X(CONV2D_BACKWARD_WEIGHT, conv2d_backward_weight) \
    X(MAX_POOL2D, max_pool2d) \
    X(MAX_POOL2D_BACKWARD, max_pool2d_backward) \
    X(AVG_POOL2D, avg_pool2d) \
    X(AVG_POOL2D_BACKWARD, avg_pool2d_backward) \
    X(RELU6, relu6) \
    X(HARDSIGMOID, hardsigmoid) \
    X(HARDSWISH, hardswish) \
    X(SILU, silu) \
    X(GELU, gelu) \
    X(ERF, erf) \
    X(RELU_BACKWARD, relu_backward) \
    X(RELU6_BACKWARD, relu6_backward) \
    X(HARDSIGMOID_BACKWARD, hardsigmoid_backward) \
    X(HARDSWISH_BACKWARD, hardswish_backward) \
    X(SILU_BACKWARD, silu_backward) \
    X(GELU_BACKWARD, gelu_backward) \
    X(NLL_LOSS, nll_loss) \
    X(CROSS_ENTROPY, cross_entropy) \
    X(NLL_LOSS_BACKWARD, nll_loss_backward) \
    X(CROSS_ENTROPY_BACKWARD, cross_entropy_backward) \
    X(CONV2D_BACKWARD_PARAMS, conv2d_backward_params) \
    X(LINEAR, linear) \
    X(LINEAR_BACKWARD_PARAMS, linear_backward_params) \
    X(NORM, norm) \
    X(CLAMP, clamp) \
    X(CLIP_BY_NORM, clip_by_norm) \
    X(SGD_STEP, sgd_step) \
    X(SGD_MOMENTUM_STEP, sgd_momentum_step) \
    X(ADAM_STEP, adam_step) \
    X(ADADELTA_STEP, adadelta_step) \
    X(DROPOUT, dropout) \
    X(DROPOUT_BACKWARD, dropout_backward) \
    X(DROPOUT2D, dropout2d) \
    X(DROPOUT2D_BACKWARD, dropout2d_backward) \
    X(TANH_BACKWARD, tanh_backward) \
    X(SIGMOID_BACKWARD, sigmoid_backward) \
    X(SOFTMAX_BACKWARD, softmax_backward) \
    X(LOG_SOFTMAX_BACKWARD, log_softmax_backward) \
    X(MSE_LOSS_BACKWARD, mse_loss_backward) \
    X(ONE_HOT, one_hot) \
    X(TAN, tan)

/* FY_OP_ADD, ...: the numbers of the built-in ops. */
enum {
    FY_OP_FILL = 0,
    FY_OP_ARANGE = 1,
    FY_OP_RAND = 2,
    FY_OP_RANDN = 3,
    FY_OP_RANDPERM = 4,
    FY_OP_NEG = 5,
    FY_OP_ABS = 6,
    FY_OP_EXP = 7,
    FY_OP_LOG = 8,
    FY_OP_SQRT = 9,
    FY_OP_TANH = 10,
    FY_OP_SIGMOID = 11,
    FY_OP_RELU = 12,
    FY_OP_AFFINE = 13,
    FY_OP_CAST = 14,
    FY_OP_COPY = 15,
    FY_OP_AXPY = 16,
    FY_OP_ADD = 17,
    FY_OP_SUB = 18,
    FY_OP_MUL = 19,
    FY_OP_DIV = 20,
    FY_OP_MAXIMUM = 21,
    FY_OP_MINIMUM = 22,
    FY_OP_POW = 23,
    FY_OP_EQ = 24,
    FY_OP_NE = 25,
    FY_OP_LT = 26,
    FY_OP_LE = 27,
    FY_OP_GT = 28,
    FY_OP_GE = 29,
    FY_OP_WHERE = 30,
    FY_OP_SUM = 31,
    FY_OP_MEAN = 32,
    FY_OP_MAX = 33,
    FY_OP_MIN = 34,
    FY_OP_ARGMAX = 35,
    FY_OP_MATMUL = 36,
    FY_OP_SOFTMAX = 37,
    FY_OP_LOG_SOFTMAX = 38,
    FY_OP_MSE_LOSS = 39,
    FY_OP_GATHER = 40,
    FY_OP_CONCAT = 41,
    FY_OP_CONV2D = 42,
    FY_OP_CONV2D_BACKWARD_INPUT = 43,
    FY_OP_CONV2D_BACKWARD_WEIGHT = 44,
    FY_OP_MAX_POOL2D = 45,
    FY_OP_MAX_POOL2D_BACKWARD = 46,
    FY_OP_AVG_POOL2D = 47,
    FY_OP_AVG_POOL2D_BACKWARD = 48,
    FY_OP_RELU6 = 49,
    FY_OP_HARDSIGMOID = 50,
    FY_OP_HARDSWISH = 51,
    FY_OP_SILU = 52,
    FY_OP_GELU = 53,
    FY_OP_ERF = 54,
    FY_OP_RELU_BACKWARD = 55,
    FY_OP_RELU6_BACKWARD = 56,
    FY_OP_HARDSIGMOID_BACKWARD = 57,
    FY_OP_HARDSWISH_BACKWARD = 58,
    FY_OP_SILU_BACKWARD = 59,
    FY_OP_GELU_BACKWARD = 60,
    FY_OP_NLL_LOSS = 61,
    FY_OP_CROSS_ENTROPY = 62,
    FY_OP_NLL_LOSS_BACKWARD = 63,
    FY_OP_CROSS_ENTROPY_BACKWARD = 64,
    FY_OP_CONV2D_BACKWARD_PARAMS = 65,
    FY_OP_LINEAR = 66,
    FY_OP_LINEAR_BACKWARD_PARAMS = 67,
    FY_OP_NORM = 68,
    FY_OP_CLAMP = 69,
    FY_OP_CLIP_BY_NORM = 70,
    FY_OP_SGD_STEP = 71,
    FY_OP_SGD_MOMENTUM_STEP = 72,
    FY_OP_ADAM_STEP = 73,
    FY_OP_ADADELTA_STEP = 74,
    FY_OP_DROPOUT = 75,
    FY_OP_DROPOUT_BACKWARD = 76,
    FY_OP_DROPOUT2D = 77,
    FY_OP_DROPOUT2D_BACKWARD = 78,
    FY_OP_TANH_BACKWARD = 79,
    FY_OP_SIGMOID_BACKWARD = 80,
    FY_OP_SOFTMAX_BACKWARD = 81,
    FY_OP_LOG_SOFTMAX_BACKWARD = 82,
    FY_OP_MSE_LOSS_BACKWARD = 83,
    FY_OP_ONE_HOT = 84,
    FY_OP_TAN = 85,
    FY_OP_BUILTIN_COUNT = 86
};

#define FY_CONV2D_ATTRS_INIT \
    { 1, 1, 0, 0, 1, 1, 1, 0 }
#define FY_ADAM_ATTRS_INIT \
    { 0.9, 0.999, 1e-8, 0, 0 }
#define FY_ADADELTA_ATTRS_INIT \
    { 0.9, 1e-6, 0 }
/* clang-format on */

#endif
