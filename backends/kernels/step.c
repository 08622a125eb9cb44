/* Steps of optimizers, in place. Learning rate and step number are read on the device; the number
 * advances when all elements are done.
 * Formulas: opset/formulas/step.h. */
#include "opset/formulas/index.h"
#include "backends/kernels/family.h"

/* f32 elements that one thread does in 20 us */
enum { SERIAL_SGD = 98304, SERIAL = 32768, LINE = 16 };

typedef struct step {
    fy__step_fn run;
    fy__rates_t rates;
    /* states that there are not: the parameter, which no formula touches there */
    const fy_desc_t *param, *grad, *state[2];
    int64_t nelem, piece; /* elements; of a thread */
    int shift;
} step_t;

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

static void run_piece(const void *context, int64_t i)
{
    const step_t *step = (const step_t *)context;
    const int64_t begin = i * step->piece,
                  end = begin + step->piece < step->nelem ? begin + step->piece : step->nelem;
    const int64_t at = begin * ((int64_t)1 << step->shift);
    if (begin >= end) return;
    step->run(end - begin, &step->rates, (char *)step->param->data + at,
              (char *)step->state[0]->data + at, (char *)step->state[1]->data + at,
              (const char *)step->grad->data + at);
}

static char *element(const step_t *step, const fy_desc_t *desc, int64_t i)
{
    return (char *)desc->data +
           fy__offset_of(i, desc->rank, desc->dims, desc->strides) * ((int64_t)1 << step->shift);
}

static void run_element(const void *context, int64_t i)
{
    const step_t *step = (const step_t *)context;
    step->run(1, &step->rates, element(step, step->param, i), element(step, step->state[0], i),
              element(step, step->state[1], i), element(step, step->grad, i));
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
    if (launch->op == FY_OP_RMSPROP_STEP || launch->op == FY_OP_RMSPROP_MOMENTUM_STEP) {
        const fy_rmsprop_attrs_t *a = (const fy_rmsprop_attrs_t *)launch->attrs;
        return fy__rmsprop_rates(lr, a->alpha, a->eps, a->weight_decay, a->momentum);
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
    default: return FY__STEP_SGD;
    }
}

fy_status_t fy__run_step(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch)
{
    const int counts = launch->op == FY_OP_ADAM_STEP || launch->op == FY_OP_SGD_MOMENTUM_STEP,
              nalike = launch->ndst - counts;
    int64_t *number = counts ? (int64_t *)launch->dst[nalike].data : NULL;
    step_t step = { .run = loops->step[step_of(launch->op)][launch->dst->dtype],
                    .rates = rates_of(launch, number ? *number : 0),
                    .param = launch->dst,
                    .grad = launch->src,
                    .nelem = (int64_t)launch->nelem,
                    .shift = fy__log2_size(launch->dst->dtype) };
    int dense = is_dense(step.grad) && is_dense(step.param);
    (void)host;
    for (int i = 0; i < 2; i++) {
        step.state[i] = i + 1 < nalike ? &launch->dst[i + 1] : launch->dst;
        dense = dense && is_dense(step.state[i]);
    }
    const int threads = fy__threads_for(
        step.nelem,
        fy__serial_of(launch->dst->dtype, launch->op == FY_OP_SGD_STEP ? SERIAL_SGD : SERIAL));
    step.piece = ((step.nelem + threads - 1) / threads + LINE - 1) / LINE * LINE;
    if (dense)
        fy__for_each(threads, threads, run_piece, &step);
    else
        fy__for_each(step.nelem, threads, run_element, &step);
    if (number) ++*number;
    return FY_STATUS_OK;
}
