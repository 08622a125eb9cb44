// Steps of optimizers, in place: a thread an element. What all elements share is computed by the
// first thread of each block; another launch moves the step number, when every block has read it.
// LARS and LAMB have two launches before: sums of squares of the runs of each part, a block a run
// (LAMB's also updates the states), and the trust ratios.
// With loss scaling that found an infinite or NaN gradient, no launch changes anything.
#include "backends/cuda/kernels/wide.cuh"

#include "opset/formulas/step.h"
#include "opset/formulas/step_results.h"

// The copy of the parameter in half precision, by constant indices; NULL: there is none.
__device__ inline const fy_operand *low_of(const fy_args &args)
{
    switch (fy__step_results(args.op, (int)args.ndst).low) {
    case 1: return &args.dst[1];
    case 2: return &args.dst[2];
    case 3: return &args.dst[3];
    case 4: return &args.dst[4];
    case 5: return &args.dst[5];
    default: return nullptr;
    }
}

template <typename T>
__device__ inline void store_low(const fy_args &args, const fy_operand *low, uint64_t n, T value)
{
    if (low != nullptr) store(*low, locate(*low, 0, low->rank, n, args.flags), value);
}

__device__ inline bool counts(const fy_args &args)
{
    return args.op == FY_OP_ADAM_STEP || args.op == FY_OP_SGD_MOMENTUM_STEP ||
           args.op == FY_OP_LAMB_STEP;
}

__device__ inline bool has_trust(const fy_args &args)
{
    return args.op == FY_OP_LARS_STEP || args.op == FY_OP_LAMB_STEP;
}

__device__ inline const fy_operand &trust_of(const fy_args &args)
{
    return args.op == FY_OP_LAMB_STEP ? args.dst[3] : args.dst[2];
}

__device__ inline double *trust_at(const fy_args &args, int64_t part, int64_t column)
{
    const fy_operand &trust = trust_of(args);
    return element<double>(trust, part * trust.strides[0] + column * trust.strides[1]);
}

__device__ inline fy__parts_t parts_of(const fy_args &args)
{
    fy__parts_t parts = { nullptr, 1, 0, 0, (int64_t)args.nelem };
    if (args.nsrc < 3) return parts;
    parts.data = (const double *)(uintptr_t)args.src[2].data;
    parts.nparts = args.src[2].dims[0];
    parts.row = args.src[2].strides[0];
    parts.column = args.src[2].strides[1];
    return parts;
}

// Of an op that counts: the last result, by constant indices, so that the arguments need no stack.
__device__ inline int64_t *number_of(const fy_args &args)
{
    if (args.op == FY_OP_LAMB_STEP) return element<int64_t>(args.dst[4], 0);
    return element<int64_t>(args.op == FY_OP_ADAM_STEP ? args.dst[3] : args.dst[2], 0);
}

__device__ inline double scaling_at(const fy_args &args, int place)
{
    return *element<double>(args.src[3], place * args.src[3].strides[0]);
}

__device__ inline bool is_skipped(const fy_args &args)
{
    return args.nsrc > 3 && scaling_at(args, FY__FOUND) != 0;
}

__device__ inline fy__rates_t rates_without_scaling(const fy_args &args)
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
    if (args.op == FY_OP_RMSPROP_STEP || args.op == FY_OP_RMSPROP_MOMENTUM_STEP ||
        args.op == FY_OP_RMSPROP_CENTERED_STEP) {
        const fy_rmsprop_attrs_t &a = args.attrs.rmsprop;
        return fy__rmsprop_rates(lr, a.alpha, a.eps, a.weight_decay, a.momentum);
    }
    if (args.op == FY_OP_LARS_STEP)
        return fy__lars_rates(lr, args.attrs.lars.momentum, args.attrs.lars.weight_decay);
    if (args.op == FY_OP_LAMB_STEP) {
        const fy_lamb_attrs_t &a = args.attrs.lamb;
        return fy__lamb_rates(lr, a.beta1, a.beta2, a.eps, a.weight_decay, number);
    }
    const fy_sgd_attrs_t &a = args.attrs.sgd;
    return fy__sgd_rates(lr, a.momentum, a.dampening, a.weight_decay, a.nesterov, number);
}

__device__ inline fy__rates_t rates_of(const fy_args &args)
{
    fy__rates_t rates = rates_without_scaling(args);
    if (args.nsrc > 3) rates.unscale = 1 / scaling_at(args, FY__DIVISOR);
    return rates;
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
        case FY_OP_RMSPROP_CENTERED_STEP:                                                       \
            return fy__rmsprop_centered_##sfx(rates, p, state1, state2, g);                     \
        case FY_OP_LARS_STEP: return fy__lars_##sfx(rates, p, state1, g);                       \
        case FY_OP_LAMB_STEP: return fy__lamb_##sfx(rates, p, *state1, *state2);                \
        default: return fy__adadelta_##sfx(rates, p, state1, state2, g);                        \
        }                                                                                       \
    }                                                                                           \
    __device__ inline void lamb_state(const fy__rates_t *rates, T *mean, T *square, T g)        \
    {                                                                                           \
        fy__lamb_state_##sfx(rates, mean, square, g);                                           \
    }                                                                                           \
    __device__ inline T lamb_update(const fy__rates_t *rates, T p, T mean, T square)            \
    {                                                                                           \
        return fy__lamb_update_##sfx(rates, p, mean, square);                                   \
    }
APPLY(f32, float)
APPLY(f64, double)

// The rates of the part that has element `i`, kept while elements up to `end` are asked for.
struct part_rates {
    fy__rates_t rates;
    int64_t begin = 0, end = 0;

    __device__ inline void find(const fy_args &args, const fy__rates_t *all,
                                const fy__parts_t &parts, int64_t i)
    {
        if (i >= begin && i < end) return;
        const int64_t part = fy__part_of(&parts, i);
        const double trust = has_trust(args) ? *trust_at(args, part, 0) : 1;
        rates = fy__rates_of_part(all, fy__part_factor(&parts, part, 1) * trust,
                                  fy__part_factor(&parts, part, 2));
        begin = i;
        end = fy__part_begin(&parts, part + 1);
    }
};

// W elements of one parameter block, by 16-byte accesses.
template <typename T, int NSTATES, bool PARTS>
__device__ inline void step_wide(const fy_args &args, const fy__rates_t *rates, uint64_t groups)
{
    constexpr int W = 16 / sizeof(T);
    const fy_operand &grad = args.src[0], &param = args.dst[0];
    const fy_operand *const operands[4] = { &grad, &param, &args.dst[NSTATES > 0],
                                            &args.dst[NSTATES] };
    const fy__parts_t parts = parts_of(args);
    const bool keeps_state = PARTS && args.op == FY_OP_LAMB_STEP;
    const fy_operand *const low = PARTS ? low_of(args) : nullptr;
    part_rates own;
    for (uint64_t group = first_thread(); group < groups; group += all_threads()) {
        int64_t at[4];
        T g[W], p[W], state[2][W];
        locate_group<W>(args, param, operands, group, at);
        load_or_repeat<W>(grad, at[0], g);
        load_wide<W>(param, at[1], p);
        if (NSTATES > 0) load_wide<W>(*operands[2], at[2], state[0]);
        if (NSTATES > 1) load_wide<W>(*operands[3], at[3], state[1]);
        for (int i = 0; i < W; i++) {
            if (PARTS) own.find(args, rates, parts, (int64_t)group * W + i);
            p[i] =
                apply(args.op, PARTS ? &own.rates : rates, p[i], &state[0][i], &state[1][i], g[i]);
        }
        store_result<W>(param, at[1], p);
        for (int i = 0; PARTS && i < W; i++) store_low(args, low, group * W + i, p[i]);
        if (NSTATES > 0 && !keeps_state) store_result<W>(*operands[2], at[2], state[0]);
        if (NSTATES > 1 && !keeps_state) store_result<W>(*operands[3], at[3], state[1]);
    }
}

// Where element n is, in the parameter, its states and the gradient.
template <int NSTATES>
__device__ inline void locate_step(const fy_args &args, uint64_t n, int64_t (&at)[NSTATES + 1],
                                   int64_t &at_grad)
{
    const fy_operand &grad = args.src[0], &param = args.dst[0];
    uint64_t linear = n;
    at_grad = 0;
    for (int k = 0; k <= NSTATES; k++) at[k] = 0;
    for (int axis = param.rank - 1; axis >= 0; axis--) {
        const int64_t i =
            (int64_t)(axis > 0 ? split(linear, param.dims[axis], args.flags) : linear);
        at_grad += i * grad.strides[axis];
        for (int k = 0; k <= NSTATES; k++) at[k] += i * args.dst[k].strides[axis];
    }
}

// All of it; what lies behind the groups, one by one.
template <typename T, int NSTATES, bool PARTS>
__device__ inline void step_all(const fy_args &args, const fy__rates_t *rates)
{
    const fy_operand &grad = args.src[0], &param = args.dst[0];
    const uint64_t groups = args.wide ? args.nelem / args.wide : 0;
    const fy__parts_t parts = parts_of(args);
    const fy_operand *const low = PARTS ? low_of(args) : nullptr;
    part_rates own;
    if (groups > 0) step_wide<T, NSTATES, PARTS>(args, rates, groups);
    for (uint64_t n = groups * args.wide + first_thread(); n < args.nelem; n += all_threads()) {
        int64_t at[NSTATES + 1], at_grad;
        locate_step<NSTATES>(args, n, at, at_grad);
        T state[2];
        for (int k = 0; k < NSTATES; k++) state[k] = load<T>(args.dst[k + 1], at[k + 1]);
        if (PARTS) own.find(args, rates, parts, (int64_t)n);
        const T updated = apply(args.op, PARTS ? &own.rates : rates, load<T>(param, at[0]),
                                &state[0], &state[1], load<T>(grad, at_grad));
        store(param, at[0], updated);
        if (PARTS) store_low(args, low, n, updated);
        for (int k = 0; k < NSTATES; k++) store(args.dst[k + 1], at[k + 1], state[k]);
    }
}

template <typename T, bool PARTS>
__device__ inline void step_by_states(const fy_args &args, const fy__rates_t *rates)
{
    switch (args.op) {
    case FY_OP_SGD_STEP: step_all<T, 0, PARTS>(args, rates); break;
    case FY_OP_RMSPROP_STEP:
    case FY_OP_LARS_STEP:
    case FY_OP_SGD_MOMENTUM_STEP: step_all<T, 1, PARTS>(args, rates); break;
    default: step_all<T, 2, PARTS>(args, rates); break;
    }
}

template <typename T, bool PARTS>
__device__ inline void step(const fy_args &args, fy__rates_t *rates)
{
    if (PARTS && is_skipped(args)) return;
    if (threadIdx.x == 0) *rates = rates_of(args);
    __syncthreads();
    step_by_states<T, PARTS>(args, rates);
}

// ---- trust ratios ----

// The squares of run `run` of a part: of the parameter, and of the gradient (LARS) or the update.
template <typename T, int NSTATES>
__device__ inline void sum_run(const fy_args &args, const fy__rates_t *rates,
                               const fy__parts_t &parts, int64_t part, int64_t run, int64_t nruns,
                               double *scratch)
{
    int64_t first, end;
    double sums[2] = { 0, 0 };
    const fy__rates_t own = fy__rates_of_part(rates, 1, fy__part_factor(&parts, part, 2));
    fy__part_run(&parts, part, nruns, run, &first, &end);
    for (int64_t n = first + threadIdx.x; n < end; n += blockDim.x) {
        int64_t at[NSTATES + 1], at_grad;
        locate_step<NSTATES>(args, (uint64_t)n, at, at_grad);
        const T p = load<T>(args.dst[0], at[0]);
        T u = load<T>(args.src[0], at_grad);
        if (NSTATES == 2) {
            T mean = load<T>(args.dst[1], at[1]), square = load<T>(args.dst[NSTATES], at[NSTATES]);
            lamb_state(&own, &mean, &square, u);
            store(args.dst[1], at[1], mean);
            store(args.dst[NSTATES], at[NSTATES], square);
            u = lamb_update(&own, p, mean, square);
        }
        sums[0] += (double)p * p;
        sums[1] += (double)u * u;
    }
    if (NSTATES == 1) sums[1] *= rates->unscale * rates->unscale; // LARS: of the gradient
    for (int k = 0; k < 2; k++) {
        sums[k] = group_reduce(args, sums[k], scratch, [](double a, double b) { return a + b; });
        if (threadIdx.x == 0) *trust_at(args, part, 1 + 2 * run + k) = sums[k];
    }
}

template <typename T>
__device__ inline void sum_runs(const fy_args &args, fy__rates_t *rates, double *scratch)
{
    const fy__parts_t parts = parts_of(args);
    const int64_t nruns = (trust_of(args).dims[1] - 1) / 2;
    if (is_skipped(args)) return;
    if (threadIdx.x == 0) *rates = rates_of(args);
    __syncthreads();
    for (int64_t i = blockIdx.x; i < parts.nparts * nruns; i += gridDim.x) {
        if (args.op == FY_OP_LAMB_STEP)
            sum_run<T, 2>(args, rates, parts, i / nruns, i % nruns, nruns, scratch);
        else
            sum_run<T, 1>(args, rates, parts, i / nruns, i % nruns, nruns, scratch);
    }
}

FY_KERNEL fy_step_sums_f32(FY_ARGS args)
{
    __shared__ fy__rates_t rates;
    __shared__ double scratch[FY__CUDA_BLOCK / 32];
    sum_runs<float>(args, &rates, scratch);
}
FY_KERNEL fy_step_sums_f64(FY_ARGS args)
{
    __shared__ fy__rates_t rates;
    __shared__ double scratch[FY__CUDA_BLOCK / 32];
    sum_runs<double>(args, &rates, scratch);
}
FY_KERNEL fy_step_trust(FY_ARGS args)
{
    const fy__parts_t parts = parts_of(args);
    const int64_t nruns = (trust_of(args).dims[1] - 1) / 2;
    if (is_skipped(args)) return;
    for (int64_t part = (int64_t)first_thread(); part < parts.nparts;
         part += (int64_t)all_threads()) {
        const double decay = fy__part_factor(&parts, part, 2);
        double param = 0, update = 0, ratio = 1;
        for (int64_t run = 0; run < nruns; run++) {
            param += *trust_at(args, part, 1 + 2 * run);
            update += *trust_at(args, part, 2 + 2 * run);
        }
        if (decay != 0)
            ratio = args.op == FY_OP_LAMB_STEP
                        ? fy__lamb_trust(param, update)
                        : fy__lars_trust(args.attrs.lars.trust_coefficient, args.attrs.lars.eps,
                                         args.attrs.lars.weight_decay * decay, param, update);
        *trust_at(args, part, 0) = ratio;
    }
}

using one_rates = fy__rates_t[1];
FY_SHARED_KERNEL(fy_step_f32, one_rates, step<float, false>)
FY_SHARED_KERNEL(fy_step_f64, one_rates, step<double, false>)
FY_SHARED_KERNEL(fy_step_parts_f32, one_rates, step<float, true>)
FY_SHARED_KERNEL(fy_step_parts_f64, one_rates, step<double, true>)
FY_KERNEL fy_step_advance(FY_ARGS args)
{
    if (first_thread() == 0 && !is_skipped(args)) ++*number_of(args);
}
FY_KERNEL fy_step_flat_f32(FY_FLAT flat)
{
    __shared__ fy__rates_t rates;
    with_flat(flat, [&](const fy_args &args) { step<float, false>(args, &rates); });
}
FY_KERNEL fy_step_flat_f64(FY_FLAT flat)
{
    __shared__ fy__rates_t rates;
    with_flat(flat, [&](const fy_args &args) { step<double, false>(args, &rates); });
}
FY_KERNEL fy_step_flat_advance(FY_FLAT flat)
{
    with_flat(flat, [](const fy_args &args) {
        if (first_thread() == 0) ++*number_of(args);
    });
}

// ---- loss scaling ----

// Threads that find an element write the same value: volatile, as several blocks do.
template <typename T> __device__ inline void check_finite(const fy_args &args)
{
    const fy_operand &x = args.src[0];
    const fy_operand *const operands[1] = { &x };
    bool found = false;
    by_width(T(), args, [&](auto width) {
        constexpr int W = decltype(width)::n;
        uint64_t done = 0;
        if constexpr (W > 1) {
            done = args.nelem / W * W;
            for (uint64_t group = first_thread(); group < done / W; group += all_threads()) {
                int64_t at[1];
                T values[W];
                locate_group<W>(args, x, operands, group, at);
                load_group<W>(x, at[0], values);
                for (int i = 0; i < W; i++) found |= !(values[i] - values[i] == 0);
            }
        }
        for (uint64_t n = done + first_thread(); n < args.nelem; n += all_threads()) {
            const T value = load<T>(x, locate(x, 0, x.rank, n, args.flags));
            found |= !(value - value == 0);
        }
    });
    if (!found) return;
    *(volatile double *)element<double>(args.dst[0], FY__FOUND * args.dst[0].strides[0]) = 1;
}

FY_KERNEL fy_check_finite_f32(FY_ARGS args) { check_finite<float>(args); }
FY_KERNEL fy_check_finite_f64(FY_ARGS args) { check_finite<double>(args); }
FY_KERNEL fy_update_scaling(FY_ARGS args)
{
    const fy_update_scaling_attrs_t &a = args.attrs.update_scaling;
    if (first_thread() == 0)
        fy__update_scaling(element<double>(args.dst[0], 0), args.dst[0].strides[0], a.growth_factor,
                           a.backoff_factor, a.growth_interval);
}

#define FY_MODULE_step ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
