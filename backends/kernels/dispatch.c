/* From an op to the family that runs it: one table, one test of the dtype, one indirect call. Also
 * picks the loop table for this machine.
 * Not here: any loop, the number of threads (threads.c). The way of a tiny add: fy__kernels_launch
 * -> fy__run_binary -> add_f32. */
#include <pthread.h>
#include <stdatomic.h>

#include "backends/kernels/family.h"
#include "backends/kernels/kernels.h"
#include "backends/kernels/team.h"

enum {
    FLOAT = FY_DTYPE_BIT(FY_DTYPE_F32) | FY_DTYPE_BIT(FY_DTYPE_F64) | FY_DTYPE_BIT(FY_DTYPE_F16) |
            FY_DTYPE_BIT(FY_DTYPE_BF16),
    NUMBER = FLOAT | FY_DTYPE_BIT(FY_DTYPE_I32) | FY_DTYPE_BIT(FY_DTYPE_I64) |
             FY_DTYPE_BIT(FY_DTYPE_U8),
    ANY = NUMBER | FY_DTYPE_BIT(FY_DTYPE_BOOL),
    REAL = FY_DTYPE_BIT(FY_DTYPE_F32) | FY_DTYPE_BIT(FY_DTYPE_F64),
    INDEX = FY_DTYPE_BIT(FY_DTYPE_I64)
};

typedef struct row {
    fy__family_fn run;
    uint32_t dtypes; /* of the first source, or of dst[0] if there is none */
} row_t;

static const row_t rows[FY_OP_BUILTIN_COUNT] = {
    [FY_OP_FILL] = { fy__run_fill, ANY },
    [FY_OP_ARANGE] = { fy__run_generate, NUMBER },
    [FY_OP_RAND] = { fy__run_generate, FLOAT },
    [FY_OP_RANDN] = { fy__run_generate, FLOAT },
    [FY_OP_RANDPERM] = { fy__run_generate, INDEX },
    [FY_OP_NEG] = { fy__run_unary, NUMBER },
    [FY_OP_ABS] = { fy__run_unary, NUMBER },
    [FY_OP_EXP] = { fy__run_unary, FLOAT },
    [FY_OP_LOG] = { fy__run_unary, FLOAT },
    [FY_OP_SQRT] = { fy__run_unary, FLOAT },
    [FY_OP_TANH] = { fy__run_unary, FLOAT },
    [FY_OP_SIGMOID] = { fy__run_unary, FLOAT },
    [FY_OP_RELU] = { fy__run_unary, FLOAT },
    [FY_OP_AFFINE] = { fy__run_affine, FLOAT },
    [FY_OP_CAST] = { fy__run_cast, ANY },
    [FY_OP_COPY] = { fy__run_copy, ANY },
    [FY_OP_AXPY] = { fy__run_axpy, FLOAT },
    [FY_OP_ADD] = { fy__run_binary, NUMBER },
    [FY_OP_SUB] = { fy__run_binary, NUMBER },
    [FY_OP_MUL] = { fy__run_binary, NUMBER },
    [FY_OP_DIV] = { fy__run_binary, FLOAT },
    [FY_OP_MAXIMUM] = { fy__run_binary, NUMBER },
    [FY_OP_MINIMUM] = { fy__run_binary, NUMBER },
    [FY_OP_POW] = { fy__run_binary, FLOAT },
    [FY_OP_EQ] = { fy__run_compare, ANY },
    [FY_OP_NE] = { fy__run_compare, ANY },
    [FY_OP_LT] = { fy__run_compare, ANY },
    [FY_OP_LE] = { fy__run_compare, ANY },
    [FY_OP_GT] = { fy__run_compare, ANY },
    [FY_OP_GE] = { fy__run_compare, ANY },
    [FY_OP_WHERE] = { fy__run_where, FY_DTYPE_BIT(FY_DTYPE_BOOL) },
    [FY_OP_SUM] = { fy__run_sum, ANY },
    [FY_OP_MEAN] = { fy__run_sum, FLOAT },
    [FY_OP_MAX] = { fy__run_extreme, NUMBER },
    [FY_OP_MIN] = { fy__run_extreme, NUMBER },
    [FY_OP_ARGMAX] = { fy__run_argmax, NUMBER },
    [FY_OP_MATMUL] = { fy__run_matmul, FLOAT },
    [FY_OP_SOFTMAX] = { fy__run_softmax, FLOAT },
    [FY_OP_LOG_SOFTMAX] = { fy__run_softmax, FLOAT },
    [FY_OP_MSE_LOSS] = { fy__run_mse_loss, FLOAT },
    [FY_OP_GATHER] = { fy__run_gather, ANY },
    [FY_OP_CONCAT] = { fy__run_concat, ANY },
    [FY_OP_CONV2D] = { fy__run_conv2d, FLOAT },
    [FY_OP_CONV2D_BACKWARD_INPUT] = { fy__run_conv2d, FLOAT },
    [FY_OP_CONV2D_BACKWARD_WEIGHT] = { fy__run_conv2d, FLOAT },
    [FY_OP_CONV2D_BACKWARD_PARAMS] = { fy__run_conv2d, FLOAT },
    [FY_OP_MAX_POOL2D] = { fy__run_pool2d, FLOAT },
    [FY_OP_MAX_POOL2D_BACKWARD] = { fy__run_pool2d, FLOAT },
    [FY_OP_AVG_POOL2D] = { fy__run_pool2d, FLOAT },
    [FY_OP_AVG_POOL2D_BACKWARD] = { fy__run_pool2d, FLOAT },
    [FY_OP_RELU6] = { fy__run_activation, FLOAT },
    [FY_OP_HARDSIGMOID] = { fy__run_activation, FLOAT },
    [FY_OP_HARDSWISH] = { fy__run_activation, FLOAT },
    [FY_OP_SILU] = { fy__run_activation, FLOAT },
    [FY_OP_GELU] = { fy__run_activation, FLOAT },
    [FY_OP_ERF] = { fy__run_activation, FLOAT },
    [FY_OP_RELU_BACKWARD] = { fy__run_activation, FLOAT },
    [FY_OP_RELU6_BACKWARD] = { fy__run_activation, FLOAT },
    [FY_OP_HARDSIGMOID_BACKWARD] = { fy__run_activation, FLOAT },
    [FY_OP_HARDSWISH_BACKWARD] = { fy__run_activation, FLOAT },
    [FY_OP_SILU_BACKWARD] = { fy__run_activation, FLOAT },
    [FY_OP_GELU_BACKWARD] = { fy__run_activation, FLOAT },
    [FY_OP_NLL_LOSS] = { fy__run_class_loss, FLOAT },
    [FY_OP_CROSS_ENTROPY] = { fy__run_class_loss, FLOAT },
    [FY_OP_NLL_LOSS_BACKWARD] = { fy__run_class_loss_backward, FLOAT },
    [FY_OP_CROSS_ENTROPY_BACKWARD] = { fy__run_class_loss_backward, FLOAT },
    [FY_OP_LINEAR] = { fy__run_linear, FLOAT },
    [FY_OP_LINEAR_BACKWARD_PARAMS] = { fy__run_linear_backward_params, FLOAT },
    [FY_OP_NORM] = { fy__run_sum, FLOAT },
    [FY_OP_CLAMP] = { fy__run_clamp, FLOAT },
    [FY_OP_CLIP_BY_NORM] = { fy__run_clip, FLOAT },
    [FY_OP_SGD_STEP] = { fy__run_step, REAL },
    [FY_OP_SGD_MOMENTUM_STEP] = { fy__run_step, REAL },
    [FY_OP_ADAM_STEP] = { fy__run_step, REAL },
    [FY_OP_ADADELTA_STEP] = { fy__run_step, REAL },
    [FY_OP_TANH_BACKWARD] = { fy__run_activation, FLOAT },
    [FY_OP_SIGMOID_BACKWARD] = { fy__run_activation, FLOAT },
    [FY_OP_SOFTMAX_BACKWARD] = { fy__run_softmax_backward, FLOAT },
    [FY_OP_LOG_SOFTMAX_BACKWARD] = { fy__run_softmax_backward, FLOAT },
    [FY_OP_MSE_LOSS_BACKWARD] = { fy__run_mse_loss_backward, FLOAT },
    [FY_OP_ONE_HOT] = { fy__run_one_hot, FY_DTYPE_BIT(FY_DTYPE_I32) | FY_DTYPE_BIT(FY_DTYPE_I64) },
    [FY_OP_DROPOUT] = { fy__run_dropout, FLOAT },
    [FY_OP_DROPOUT_BACKWARD] = { fy__run_dropout, FLOAT },
    [FY_OP_DROPOUT2D] = { fy__run_dropout, FLOAT },
    [FY_OP_DROPOUT2D_BACKWARD] = { fy__run_dropout, FLOAT },
};

static const char *const names[FY_OP_BUILTIN_COUNT] = {
#define X(name, text) [FY_OP_##name] = #text,
    FY_OP_LIST(X)
#undef X
};
static const char *const dtype_names[FY_DTYPE_COUNT] = {
#define X(name, text, nbytes, is_float) [FY_DTYPE_##name] = text,
    FY_DTYPE_LIST(X)
#undef X
};

/* ---- the loop table of this machine ---- */

static const fy__loops_t *_Atomic chosen_loops;

static __attribute__((noinline)) const fy__loops_t *choose_loops(void)
{
    static _Atomic int watches_fork;
    const fy__loops_t *loops = &fy__loops_base;
#if FY__LOOPS_X86
    if (__builtin_cpu_supports("x86-64-v4")) {
        loops = &fy__loops_avx512;
    } else if (__builtin_cpu_supports("x86-64-v3")) {
        loops = &fy__loops_avx2;
    }
#endif
    if (!atomic_exchange(&watches_fork, 1))
        (void)pthread_atfork(NULL, NULL, fy__threads_stay_serial);
    atomic_store_explicit(&chosen_loops, loops, memory_order_release);
    return loops;
}

static inline const fy__loops_t *get_loops(void)
{
    const fy__loops_t *loops = atomic_load_explicit(&chosen_loops, memory_order_acquire);
    return __builtin_expect(loops != NULL, 1) ? loops : choose_loops();
}

const fy__loops_t *fy__loops_get(void) { return get_loops(); }

/* ---- threads ---- */

int fy__team_limit;

void fy__for_each(int64_t n, int threads, fy__each_fn fn, const void *context)
{
    if (threads == 1 || n < 2) {
        for (int64_t i = 0; i < n; i++) fn(context, i);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) fn(context, i);
}

/* ---- the three calls of kernels.h ---- */

static inline int has_kernel(const fy_launch_t *launch)
{
    const fy_desc_t *main = launch->nsrc ? launch->src : launch->dst;
    return launch->op < FY_OP_BUILTIN_COUNT && (uint32_t)main->dtype < FY_DTYPE_COUNT &&
           (rows[launch->op].dtypes >> main->dtype & 1u) != 0;
}

static inline int is_packed(const fy_launch_t *launch)
{
    return launch->op == FY_LAUNCH_SCATTER || launch->op == FY_LAUNCH_GATHER;
}

int fy__kernels_supports(const fy_launch_t *launch)
{
    return launch->kernel != NULL || has_kernel(launch) || is_packed(launch);
}

static __attribute__((noinline)) fy_status_t run_other(const fy_host_api_t *host,
                                                       const fy_launch_t *launch)
{
    if (is_packed(launch)) return fy__run_packed(launch);
    const int32_t dtype = (launch->nsrc ? launch->src : launch->dst)->dtype;
    if (launch->op >= FY_OP_BUILTIN_COUNT) {
        return host->fail(FY_STATUS_UNSUPPORTED, __FILE__, __LINE__,
                          "op %u has no kernel on the host", (unsigned)launch->op);
    }
    return host->fail(FY_STATUS_UNSUPPORTED, __FILE__, __LINE__, "%s has no %s kernel on the host",
                      names[launch->op],
                      (uint32_t)dtype < FY_DTYPE_COUNT ? dtype_names[dtype] : "?");
}

fy_status_t fy__kernels_launch(const fy_host_api_t *host, const fy_launch_t *launch)
{
    if (__builtin_expect(launch->kernel != NULL, 0)) return launch->kernel(launch, NULL);
    if (__builtin_expect(!has_kernel(launch), 0)) return run_other(host, launch);
    return rows[launch->op].run(host, get_loops(), launch);
}

uint64_t fy__kernels_workspace(const fy_launch_t *launch, uint64_t limit)
{
    if (!has_kernel(launch)) return 0;
    switch (launch->op) {
    case FY_OP_MATMUL: return fy__matmul_workspace(launch, limit);
    case FY_OP_LINEAR: return fy__linear_workspace(launch, limit);
    case FY_OP_LINEAR_BACKWARD_PARAMS: return fy__linear_backward_params_workspace(launch, limit);
    case FY_OP_CONV2D:
    case FY_OP_CONV2D_BACKWARD_INPUT:
    case FY_OP_CONV2D_BACKWARD_WEIGHT:
    case FY_OP_CONV2D_BACKWARD_PARAMS: return fy__conv2d_workspace(launch, limit);
    default: return 0;
    }
}
