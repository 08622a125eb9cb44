/* Steps of optimizers, in place. Learning rate and step number are read on the device; the number
 * advances when all elements are done. With loss scaling that found an infinite or NaN gradient,
 * nothing changes.
 * Formulas: opset/formulas/step.h. Next: scaling.c. */
#include "opset/formulas/index.h"
#include "backends/kernels/rows.h"
#include "opset/formulas/step_results.h"

/* f32 elements that one thread does in 20 us */
enum { SERIAL_SGD = 98304, SERIAL = 32768, LINE = 16 };
enum { CHUNK = 512 }; /* elements that are converted at once */

typedef struct host_step {
    const fy__loops_t *loops;
    fy__step_fn run;
    fy__rates_t rates; /* of parts with factors of 1 */
    fy__parts_t parts;
    /* a state that does not exist is the parameter: no formula reads it there */
    const fy_desc_t *param, *grad, *state[2];
    const fy_desc_t *trust; /* LARS, LAMB; else NULL */
    const fy_desc_t *low;   /* a copy of the parameter in half precision; NULL: none */
    int64_t piece;          /* elements of a thread */
    int is_dense;
    int is_half; /* parameter and gradient, which are computed with in f32 */
} host_step_t;

static char *element_at(const host_step_t *step, const fy_desc_t *desc, int64_t i)
{
    const int64_t at = step->is_dense ? i : fy__offset_of(i, desc->rank, desc->dims, desc->strides);
    return (char *)desc->data + at * ((int64_t)1 << fy__log2_size(desc->dtype));
}

static double *trust_at(const host_step_t *step, int64_t part, int64_t column)
{
    return (double *)step->trust->data + part * step->trust->strides[0] +
           column * step->trust->strides[1];
}

/* n dense elements of the parameter or the gradient to compute with: in place, or in `wide`. */
static void *load(const host_step_t *step, const fy_desc_t *desc, int64_t n, void *from,
                  float *wide)
{
    if (!step->is_half) return from;
    step->loops->cast[desc->dtype][FY_DTYPE_F32](n, wide, from);
    return wide;
}

/* A part's rates, with its trust ratio. */
static fy__rates_t part_rates(const host_step_t *step, int64_t part)
{
    if (!step->parts.data && !step->trust) return step->rates;
    const double lr = fy__part_factor(&step->parts, part, 1),
                 trust = step->trust ? *trust_at(step, part, 0) : 1;
    return fy__rates_of_part(&step->rates, lr * trust, fy__part_factor(&step->parts, part, 2));
}

static double float_at(const fy_desc_t *scalar)
{
    return scalar->dtype == FY_DTYPE_F64 ? *(const double *)scalar->data
                                         : (double)*(const float *)scalar->data;
}

/* n elements from element i with one set of rates; 1, or more of a dense step */
static void run_some(const host_step_t *step, const fy__rates_t *rates, int64_t i, int64_t n)
{
    char *param = element_at(step, step->param, i), *grad = element_at(step, step->grad, i);
    float wide[2][CHUNK];
    void *p = load(step, step->param, n, param, wide[0]);
    step->run(n, rates, p, element_at(step, step->state[0], i), element_at(step, step->state[1], i),
              load(step, step->grad, n, grad, wide[1]));
    if (step->is_half) step->loops->cast[FY_DTYPE_F32][step->param->dtype](n, param, p);
    if (step->low)
        step->loops->cast[FY_DTYPE_F32][step->low->dtype](n, element_at(step, step->low, i), p);
}

/* [begin, end) of a dense step with one set of rates. Elements are converted in chunks that stay
 * in the cache. */
static void run_range(const host_step_t *step, const fy__rates_t *rates, int64_t begin, int64_t end)
{
    const int64_t most = step->is_half || step->low ? CHUNK : end - begin;
    for (; begin < end; begin += most)
        run_some(step, rates, begin, end - begin < most ? end - begin : most);
}

/* Part by part; a part whose first element does not ascend has one element at least, so that the
 * loop ends. */
static void run_piece(const void *context, int64_t i)
{
    const host_step_t *step = (const host_step_t *)context;
    const fy__parts_t *parts = &step->parts;
    int64_t begin = i * step->piece;
    const int64_t end = begin + step->piece < parts->nelem ? begin + step->piece : parts->nelem;
    while (begin < end) {
        const int64_t part = fy__part_of(parts, begin);
        int64_t next = fy__part_begin(parts, part + 1);
        if (next <= begin) next = begin + 1;
        if (next > end) next = end;
        const fy__rates_t rates = part_rates(step, part);
        run_range(step, &rates, begin, next);
        begin = next;
    }
}

static void run_element(const void *context, int64_t i)
{
    const host_step_t *step = (const host_step_t *)context;
    const fy__rates_t rates = part_rates(step, fy__part_of(&step->parts, i));
    run_some(step, &rates, i, 1);
}

/* ---- trust ratios of LARS and LAMB, before the parameter changes: each part is cut into the runs
 * that `trust` has columns for; a thread sums the squares of a run; the runs are added in their
 * order. The bits depend on the runs, not on threads. ---- */

typedef struct trust {
    const host_step_t *step;
    const fy_launch_t *launch;
    int64_t nruns;
} trust_t;

/* [first, first + n) of a dense step, or one element: adds the squares of the parameter and of the
 * gradient (LARS) or the update (LAMB). */
static void add_squares(const trust_t *trust, const fy__rates_t *rates, int64_t first, int64_t n,
                        fy__sum_t sums[2])
{
    const host_step_t *step = trust->step;
    const int32_t dtype = step->is_half ? FY_DTYPE_F32 : step->param->dtype;
    const fy__sum_row_fn add = step->loops->square_row[dtype];
    double update[CHUNK]; /* or floats */
    float wide[2][CHUNK];
    void *param = load(step, step->param, n, element_at(step, step->param, first), wide[0]),
         *grad = load(step, step->grad, n, element_at(step, step->grad, first), wide[1]);
    char *mean = element_at(step, step->state[0], first),
         *square = element_at(step, step->state[1], first);
    add(n, param, &sums[0]);
    if (trust->launch->op == FY_OP_LARS_STEP) {
        add(n, grad, &sums[1]); /* not unscaled */
        return;
    }
    step->loops->step[FY__STEP_LAMB_STATE][dtype](n, rates, NULL, mean, square, grad);
    step->loops->step[FY__STEP_LAMB_UPDATE][dtype](n, rates, update, mean, square, param);
    add(n, update, &sums[1]);
}

static void sum_run(const void *context, int64_t i)
{
    const trust_t *trust = (const trust_t *)context;
    const host_step_t *step = trust->step;
    const int64_t part = i / trust->nruns, run = i % trust->nruns;
    const int64_t most = step->is_dense ? CHUNK : 1;
    const fy__rates_t rates =
        fy__rates_of_part(&step->rates, 1, fy__part_factor(&step->parts, part, 2));
    fy__sum_t sums[2] = { { .f = 0 }, { .f = 0 } };
    int64_t first, end;
    fy__part_run(&step->parts, part, trust->nruns, run, &first, &end);
    for (; first < end; first += most)
        add_squares(trust, &rates, first, end - first < most ? end - first : most, sums);
    if (trust->launch->op == FY_OP_LARS_STEP) sums[1].f *= rates.unscale * rates.unscale;
    *trust_at(step, part, 1 + 2 * run) = sums[0].f;
    *trust_at(step, part, 2 + 2 * run) = sums[1].f;
}

static double ratio_of(const trust_t *trust, int64_t part)
{
    const host_step_t *step = trust->step;
    const double decay = fy__part_factor(&step->parts, part, 2);
    double param = 0, update = 0;
    for (int64_t run = 0; run < trust->nruns; run++) {
        param += *trust_at(step, part, 1 + 2 * run);
        update += *trust_at(step, part, 2 + 2 * run);
    }
    if (decay == 0) return 1;
    if (trust->launch->op == FY_OP_LAMB_STEP) return fy__lamb_trust(param, update);
    const fy_lars_attrs_t *a = (const fy_lars_attrs_t *)trust->launch->attrs;
    return fy__lars_trust(a->trust_coefficient, a->eps, a->weight_decay * decay, param, update);
}

/* Writes the trust ratios and their sums; LAMB: updates the states. */
static void set_trust(const host_step_t *step, const fy_launch_t *launch, int threads)
{
    const trust_t trust = { step, launch, (step->trust->dims[1] - 1) / 2 };
    fy__for_each(step->parts.nparts * trust.nruns, threads, sum_run, &trust);
    for (int64_t part = 0; part < step->parts.nparts; part++)
        *trust_at(step, part, 0) = ratio_of(&trust, part);
}

/* ---- the launch ---- */

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
    host_step_t step = { .loops = loops,
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
    step.is_dense = fy__desc_is_dense(step.grad) && fy__desc_is_dense(step.param);
    for (int i = 0; i < 2; i++) {
        step.state[i] = i + 1 < results.nalike ? &launch->dst[i + 1] : launch->dst;
        step.is_dense = step.is_dense && fy__desc_is_dense(step.state[i]);
    }
    const int threads = fy__threads_for(
        step.parts.nelem, fy__serial_of(dtype, launch->op == FY_OP_SGD_STEP ? SERIAL_SGD : SERIAL));
    if (step.trust) set_trust(&step, launch, threads);
    step.is_dense = step.is_dense && (!step.low || fy__desc_is_dense(step.low));
    step.piece = ((step.parts.nelem + threads - 1) / threads + LINE - 1) / LINE * LINE;
    if (step.is_dense)
        fy__for_each(threads, threads, run_piece, &step);
    else
        fy__for_each(step.parts.nelem, threads, run_element, &step);
    if (number) ++*number;
    return FY_STATUS_OK;
}
