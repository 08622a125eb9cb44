// Steps of optimizers, in place: a thread an element. What all elements share is worked out by the
// first thread of each block; the step number
// is moved by a launch of its own, when every block has read it.
#include "backends/cuda/kernels/wide.cuh"

#include "opset/formulas/step.h"

__device__ inline bool counts(const fy_args &args)
{
    return args.op == FY_OP_ADAM_STEP || args.op == FY_OP_SGD_MOMENTUM_STEP;
}

// Of an op that counts: behind the parameter and its states.
__device__ inline int64_t *number_of(const fy_args &args)
{
    return element<int64_t>(args.op == FY_OP_ADAM_STEP ? args.dst[3] : args.dst[2], 0);
}

__device__ inline fy__rates_t rates_of(const fy_args &args)
{
    const double lr = load<double>(args.src[1], 0);
    const int64_t number = counts(args) ? *number_of(args) : 0;
    if (args.op == FY_OP_ADAM_STEP) {
        const fy_adam_attrs_t &a = args.attrs.adam;
        return fy__adam_rates(lr, a.beta1, a.beta2, a.eps, a.weight_decay, a.decoupled, number);
    }
    if (args.op == FY_OP_ADADELTA_STEP)
        return fy__adadelta_rates(lr, args.attrs.adadelta.rho, args.attrs.adadelta.eps,
                                  args.attrs.adadelta.weight_decay);
    if (args.op == FY_OP_RMSPROP_STEP || args.op == FY_OP_RMSPROP_MOMENTUM_STEP) {
        const fy_rmsprop_attrs_t &a = args.attrs.rmsprop;
        return fy__rmsprop_rates(lr, a.alpha, a.eps, a.weight_decay, a.momentum);
    }
    const fy_sgd_attrs_t &a = args.attrs.sgd;
    return fy__sgd_rates(lr, a.momentum, a.dampening, a.weight_decay, a.nesterov, number);
}

#define APPLY(sfx, T)                                                                           \
    __device__ inline T apply(uint32_t op, const fy__rates_t *rates, T p, T *state1, T *state2, \
                              T g)                                                              \
    {                                                                                           \
        switch (op) {                                                                           \
        case FY_OP_SGD_STEP: return fy__sgd_##sfx(rates, p, g);                                 \
        case FY_OP_SGD_MOMENTUM_STEP: return fy__sgd_momentum_##sfx(rates, p, state1, g);       \
        case FY_OP_ADAM_STEP: return fy__adam_##sfx(rates, p, state1, state2, g);               \
        case FY_OP_RMSPROP_STEP: return fy__rmsprop_##sfx(rates, p, state1, g);                 \
        case FY_OP_RMSPROP_MOMENTUM_STEP:                                                       \
            return fy__rmsprop_momentum_##sfx(rates, p, state1, state2, g);                     \
        default: return fy__adadelta_##sfx(rates, p, state1, state2, g);                        \
        }                                                                                       \
    }
APPLY(f32, float)
APPLY(f64, double)

// W elements of one parameter block, by 16-byte accesses.
template <typename T, int NSTATES>
__device__ inline void step_wide(const fy_args &args, const fy__rates_t *rates, uint64_t groups)
{
    constexpr int W = 16 / sizeof(T);
    const fy_operand &grad = args.src[0], &param = args.dst[0];
    const fy_operand *const operands[4] = { &grad, &param, &args.dst[NSTATES > 0],
                                            &args.dst[NSTATES] };
    for (uint64_t group = first_thread(); group < groups; group += all_threads()) {
        int64_t at[4];
        T g[W], p[W], state[2][W];
        locate_group<W>(args, param, operands, group, at);
        load_or_repeat<W>(grad, at[0], g);
        load_wide<W>(param, at[1], p);
        if (NSTATES > 0) load_wide<W>(*operands[2], at[2], state[0]);
        if (NSTATES > 1) load_wide<W>(*operands[3], at[3], state[1]);
        for (int i = 0; i < W; i++)
            p[i] = apply(args.op, rates, p[i], &state[0][i], &state[1][i], g[i]);
        store_result<W>(param, at[1], p);
        if (NSTATES > 0) store_result<W>(*operands[2], at[2], state[0]);
        if (NSTATES > 1) store_result<W>(*operands[3], at[3], state[1]);
    }
}

// All of it; what lies behind the groups, one by one.
template <typename T, int NSTATES>
__device__ inline void step_all(const fy_args &args, const fy__rates_t *rates)
{
    const fy_operand &grad = args.src[0], &param = args.dst[0];
    const uint64_t groups = args.wide ? args.nelem / args.wide : 0;
    if (groups > 0) step_wide<T, NSTATES>(args, rates, groups);
    for (uint64_t n = groups * args.wide + first_thread(); n < args.nelem; n += all_threads()) {
        int64_t at[NSTATES + 1] = { 0 }, at_grad = 0;
        uint64_t linear = n;
        for (int axis = param.rank - 1; axis >= 0; axis--) {
            const int64_t i =
                (int64_t)(axis > 0 ? split(linear, param.dims[axis], args.flags) : linear);
            at_grad += i * grad.strides[axis];
            for (int k = 0; k <= NSTATES; k++) at[k] += i * args.dst[k].strides[axis];
        }
        T state[2];
        for (int k = 0; k < NSTATES; k++) state[k] = load<T>(args.dst[k + 1], at[k + 1]);
        const T updated = apply(args.op, rates, load<T>(param, at[0]), &state[0], &state[1],
                                load<T>(grad, at_grad));
        store(param, at[0], updated);
        for (int k = 0; k < NSTATES; k++) store(args.dst[k + 1], at[k + 1], state[k]);
    }
}

template <typename T> __device__ inline void step(const fy_args &args, fy__rates_t *rates)
{
    if (threadIdx.x == 0) *rates = rates_of(args);
    __syncthreads();
    switch (args.op) {
    case FY_OP_SGD_STEP: step_all<T, 0>(args, rates); break;
    case FY_OP_RMSPROP_STEP:
    case FY_OP_SGD_MOMENTUM_STEP: step_all<T, 1>(args, rates); break;
    default: step_all<T, 2>(args, rates); break;
    }
}

FY_KERNEL fy_step_f32(FY_ARGS args)
{
    __shared__ fy__rates_t rates;
    step<float>(args, &rates);
}
FY_KERNEL fy_step_f64(FY_ARGS args)
{
    __shared__ fy__rates_t rates;
    step<double>(args, &rates);
}
FY_KERNEL fy_step_advance(FY_ARGS args)
{
    if (first_thread() == 0) ++*number_of(args);
}
FY_KERNEL fy_step_flat_f32(FY_FLAT flat)
{
    __shared__ fy__rates_t rates;
    with_flat(flat, [&](const fy_args &args) { step<float>(args, &rates); });
}
FY_KERNEL fy_step_flat_f64(FY_FLAT flat)
{
    __shared__ fy__rates_t rates;
    with_flat(flat, [&](const fy_args &args) { step<double>(args, &rates); });
}
FY_KERNEL fy_step_flat_advance(FY_FLAT flat)
{
    with_flat(flat, [](const fy_args &args) {
        if (first_thread() == 0) ++*number_of(args);
    });
}

FY_KERNEL_EXISTS(fy_step_f32)
FY_KERNEL_EXISTS(fy_step_f64)
FY_KERNEL_EXISTS(fy_step_advance)
FY_KERNEL_EXISTS(fy_step_flat_f32)
FY_KERNEL_EXISTS(fy_step_flat_f64)
FY_KERNEL_EXISTS(fy_step_flat_advance)
