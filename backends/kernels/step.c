/* Steps of optimizers, in place. Learning rate and step number are read on the device; the number
 * advances when all elements are done. With loss scaling that found an infinite or NaN gradient,
 * nothing changes.
 * Formulas: opset/formulas/step.h. Next: step_trust.c (LARS, LAMB), scaling.c. */
#include "backends/kernels/step.h"

#include "backends/kernels/widen.h"
#include "opset/formulas/step_results.h"

/* f32 elements that one thread does in 20 us */
enum { SERIAL_SGD = 98304, SERIAL = 32768, LINE = 16 };

static double float_at(const fy_desc_t *scalar)
{
    return scalar->dtype == FY_DTYPE_F64 ? *(const double *)scalar->data
                                         : (double)*(const float *)scalar->data;
}

/* Is every operand row by row without gaps? The flag of the launch is not set when a step number,
 * which is one element, is updated, too. */
static int is_dense(const fy_desc_t *desc)
{
    int64_t stride = 1;
    for (int axis = desc->rank - 1; axis >= 0; axis--) {
        if (desc->dims[axis] != 1 && desc->strides[axis] != stride) return 0;
        stride *= desc->dims[axis];
    }
    return 1;
}

/* n elements from element i with one set of rates; 1, or more of a dense step */
static void run_some(const fy__host_step_t *step, const fy__rates_t *rates, int64_t i, int64_t n)
{
    char *param = fy__host_step_element(step, step->param, i),
         *grad = fy__host_step_element(step, step->grad, i);
    float wide[2][FY__STEP_CHUNK];
    void *p = fy__host_step_load(step, step->param, n, param, wide[0]);
    step->run(n, rates, p, fy__host_step_element(step, step->state[0], i),
              fy__host_step_element(step, step->state[1], i),
              fy__host_step_load(step, step->grad, n, grad, wide[1]));
    if (step->is_half) step->loops->cast[FY_DTYPE_F32][step->param->dtype](n, param, p);
    if (step->low)
        step->loops->cast[FY_DTYPE_F32][step->low->dtype](
            n, fy__host_step_element(step, step->low, i), p);
}

/* [begin, end) of a dense step with one set of rates. Elements are converted in chunks that stay
 * in the cache. */
static void run_range(const fy__host_step_t *step, const fy__rates_t *rates, int64_t begin,
                      int64_t end)
{
    const int64_t most = step->is_half || step->low ? FY__STEP_CHUNK : end - begin;
    for (; begin < end; begin += most)
        run_some(step, rates, begin, end - begin < most ? end - begin : most);
}

/* Part by part; a part whose first element does not ascend has one element at least, so that the
 * loop ends. */
static void run_piece(const void *context, int64_t i)
{
    const fy__host_step_t *step = (const fy__host_step_t *)context;
    const fy__parts_t *parts = &step->parts;
    int64_t begin = i * step->piece;
    const int64_t end = begin + step->piece < parts->nelem ? begin + step->piece : parts->nelem;
    while (begin < end) {
        const int64_t part = fy__part_of(parts, begin);
        int64_t next = fy__part_begin(parts, part + 1);
        if (next <= begin) next = begin + 1;
        if (next > end) next = end;
        const fy__rates_t rates = fy__host_step_rates(step, part);
        run_range(step, &rates, begin, next);
        begin = next;
    }
}

static void run_element(const void *context, int64_t i)
{
    const fy__host_step_t *step = (const fy__host_step_t *)context;
    const fy__rates_t rates = fy__host_step_rates(step, fy__part_of(&step->parts, i));
    run_some(step, &rates, i, 1);
}

static fy__rates_t rates_of(const fy_launch_t *launch, int64_t number)
{
    const double lr = float_at(&launch->src[1]);
    if (launch->op == FY_OP_ADAM_STEP) {
        const fy_adam_attrs_t *a = (const fy_adam_attrs_t *)launch->attrs;
        return fy__adam_rates(lr, a->beta1, a->beta2, a->eps, a->weight_decay, a->decoupled,
                              number);
    }
    if (launch->op == FY_OP_ADADELTA_STEP) {
        const fy_adadelta_attrs_t *a = (const fy_adadelta_attrs_t *)launch->attrs;
        return fy__adadelta_rates(lr, a->rho, a->eps, a->weight_decay);
    }
    if (launch->op == FY_OP_RMSPROP_STEP || launch->op == FY_OP_RMSPROP_MOMENTUM_STEP ||
        launch->op == FY_OP_RMSPROP_CENTERED_STEP) {
        const fy_rmsprop_attrs_t *a = (const fy_rmsprop_attrs_t *)launch->attrs;
        return fy__rmsprop_rates(lr, a->alpha, a->eps, a->weight_decay, a->momentum);
    }
    if (launch->op == FY_OP_LARS_STEP) {
        const fy_lars_attrs_t *a = (const fy_lars_attrs_t *)launch->attrs;
        return fy__lars_rates(lr, a->momentum, a->weight_decay);
    }
    if (launch->op == FY_OP_LAMB_STEP) {
        const fy_lamb_attrs_t *a = (const fy_lamb_attrs_t *)launch->attrs;
        return fy__lamb_rates(lr, a->beta1, a->beta2, a->eps, a->weight_decay, number);
    }
    const fy_sgd_attrs_t *a = (const fy_sgd_attrs_t *)launch->attrs;
    return fy__sgd_rates(lr, a->momentum, a->dampening, a->weight_decay, a->nesterov, number);
}

static enum fy__step step_of(fy_op_t op)
{
    switch (op) {
    case FY_OP_SGD_MOMENTUM_STEP: return FY__STEP_SGD_MOMENTUM;
    case FY_OP_ADAM_STEP: return FY__STEP_ADAM;
    case FY_OP_ADADELTA_STEP: return FY__STEP_ADADELTA;
    case FY_OP_RMSPROP_STEP: return FY__STEP_RMSPROP;
    case FY_OP_RMSPROP_MOMENTUM_STEP: return FY__STEP_RMSPROP_MOMENTUM;
    case FY_OP_RMSPROP_CENTERED_STEP: return FY__STEP_RMSPROP_CENTERED;
    case FY_OP_LARS_STEP: return FY__STEP_LARS;
    case FY_OP_LAMB_STEP: return FY__STEP_LAMB;
    default: return FY__STEP_SGD;
    }
}

static const double *scaling_at(const fy_launch_t *launch, int place)
{
    return (const double *)launch->src[3].data + place * launch->src[3].strides[0];
}

static fy__parts_t parts_of(const fy_launch_t *launch)
{
    fy__parts_t parts = { .nparts = 1, .nelem = (int64_t)launch->nelem };
    if (launch->nsrc < 3) return parts;
    parts.data = (const double *)launch->src[2].data;
    parts.nparts = launch->src[2].dims[0];
    parts.row = launch->src[2].strides[0];
    parts.column = launch->src[2].strides[1];
    return parts;
}

fy_status_t fy__run_step(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch)
{
    const fy__step_results_t results = fy__step_results(launch->op, launch->ndst);
    const int is_half = fy__is_half(launch->dst->dtype);
    const int32_t dtype = is_half ? FY_DTYPE_F32 : launch->dst->dtype;
    int64_t *number = results.number < 0 ? NULL : (int64_t *)launch->dst[results.number].data;
    if (launch->nsrc > 3 && *scaling_at(launch, FY__FOUND) != 0) return FY_STATUS_OK;
    fy__host_step_t step = { .loops = loops,
                             .run = loops->step[step_of(launch->op)][dtype],
                             .rates = rates_of(launch, number ? *number : 0),
                             .parts = parts_of(launch),
                             .param = launch->dst,
                             .grad = launch->src,
                             .trust = results.trust < 0 ? NULL : &launch->dst[results.trust],
                             .low = results.low < 0 ? NULL : &launch->dst[results.low],
                             .is_half = is_half };
    (void)host;
    if (launch->nsrc > 3) step.rates.unscale = 1 / *scaling_at(launch, FY__DIVISOR);
    step.is_dense = is_dense(step.grad) && is_dense(step.param);
    for (int i = 0; i < 2; i++) {
        step.state[i] = i + 1 < results.nalike ? &launch->dst[i + 1] : launch->dst;
        step.is_dense = step.is_dense && is_dense(step.state[i]);
    }
    const int threads = fy__threads_for(
        step.parts.nelem, fy__serial_of(dtype, launch->op == FY_OP_SGD_STEP ? SERIAL_SGD : SERIAL));
    if (step.trust) fy__host_step_trust(&step, launch, threads);
    step.is_dense = step.is_dense && (!step.low || is_dense(step.low));
    step.piece = ((step.parts.nelem + threads - 1) / threads + LINE - 1) / LINE * LINE;
    if (step.is_dense)
        fy__for_each(threads, threads, run_piece, &step);
    else
        fy__for_each(step.parts.nelem, threads, run_element, &step);
    if (number) ++*number;
    return FY_STATUS_OK;
}
