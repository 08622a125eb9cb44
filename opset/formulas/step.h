/* One element of an optimizer's step, in f32 and f64. What is the same for all elements is worked
 * out in f64 first and rounded once.
 * g: the gradient; the parameter comes back, the state is updated in place. Formulas and their
 * names as PyTorch 1.13 documents them (torch.optim: SGD, Adam, AdamW, Adadelta, RMSprop), after
 * Sutskever et al. 2013, Kingma and Ba 2015, Loshchilov and Hutter 2019, Zeiler 2012, Tieleman and
 * Hinton 2012. LARS: You, Gitman and Ginsburg 2017; LAMB: You et al. 2020. */
#ifndef FERRY_OPSET_FORMULAS_STEP_H_
#define FERRY_OPSET_FORMULAS_STEP_H_

#include <math.h>

#include "opset/formulas/formula.h"

/* The numbers of one step, whatever the op; each formula says what it takes. */
typedef struct fy__rates {
    double lr, decay, keep1, add1, keep2, add2, eps, root, shrink;
    int nesterov;
    double correct; /* LAMB: of the mean */
    double unscale; /* the gradient is multiplied by it first */
} fy__rates_t;

/* Loss scaling, f64 [5]: the places of the values. found is not 0: a gradient has an infinite or
 * NaN element, and a step does nothing. good: steps in a row without one; skipped: all with one.
 * Steps divide by divisor, which is the scale, or 1 when the gradients are divided already. */
enum { FY__SCALE, FY__DIVISOR, FY__FOUND, FY__GOOD, FY__SKIPPED, FY__SCALING_LENGTH };

/* The scale stays normal in f32, the dtype of losses. Source: Micikevicius et al. 2018, with the
 * numbers of torch.amp.GradScaler. */
FY_FORMULA void fy__update_scaling(double *scaling, int64_t stride, double growth, double backoff,
                                   int64_t interval)
{
    double *scale = &scaling[FY__SCALE * stride], *good = &scaling[FY__GOOD * stride],
           *found = &scaling[FY__FOUND * stride];
    double next = *scale;
    if (*found != 0)
        next *= backoff, *good = 0, ++scaling[FY__SKIPPED * stride];
    else if (++*good >= (double)interval)
        next *= growth, *good = 0;
    if (next >= 0x1p-126 && next < 0x1p128) *scale = next;
    scaling[FY__DIVISOR * stride] = *scale;
    *found = 0;
}

/* ---- parts: rows (first element, factor of lr, factor of weight decay) ---- */

/* data NULL: one part. Strides in elements. First elements that do not ascend give some part, and
 * no element outside the parameter. */
typedef struct fy__parts {
    const double *data;
    int64_t nparts, row, column, nelem;
} fy__parts_t;

FY_FORMULA int64_t fy__part_begin(const fy__parts_t *parts, int64_t part)
{
    if (part <= 0) return 0;
    if (part >= parts->nparts) return parts->nelem;
    const double first = parts->data[part * parts->row];
    if (!(first > 0)) return 0;
    return first < (double)parts->nelem ? (int64_t)first : parts->nelem;
}

/* The last part that begins at element i or before it. */
FY_FORMULA int64_t fy__part_of(const fy__parts_t *parts, int64_t i)
{
    int64_t low = 0, high = parts->nparts;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (fy__part_begin(parts, middle) <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* column 1: the factor of lr, 2: of weight decay */
FY_FORMULA double fy__part_factor(const fy__parts_t *parts, int64_t part, int column)
{
    return parts->data ? parts->data[part * parts->row + column * parts->column] : 1;
}

/* Run `run` of `nruns` of a part: [*out_first, *out_end), all but the last ones of one length. */
FY_FORMULA void fy__part_run(const fy__parts_t *parts, int64_t part, int64_t nruns, int64_t run,
                             int64_t *out_first, int64_t *out_end)
{
    const int64_t begin = fy__part_begin(parts, part), next = fy__part_begin(parts, part + 1),
                  end = next > begin ? next : begin;
    const int64_t each = ((end - begin + nruns - 1) / nruns + 15) / 16 * 16;
    *out_first = run * each < end - begin ? begin + run * each : end;
    *out_end = end - *out_first < each ? end : *out_first + each;
}

/* AdamW's shrink is 1 - lr decay, Adam's 1. */
FY_FORMULA fy__rates_t fy__rates_of_part(const fy__rates_t *rates, double lr, double decay)
{
    fy__rates_t r = *rates;
    r.lr *= lr;
    r.decay *= decay;
    r.shrink = 1 - (1 - r.shrink) * lr * decay;
    return r;
}

/* From the squared norms of the parameter and of the update. */
FY_FORMULA double fy__lars_trust(double coefficient, double eps, double decay, double param,
                                 double grad)
{
    if (!(param > 0) || !(grad > 0)) return 1;
    return coefficient * sqrt(param) / (sqrt(grad) + decay * sqrt(param) + eps);
}

FY_FORMULA double fy__lamb_trust(double param, double update)
{
    return param > 0 && update > 0 ? sqrt(param) / sqrt(update) : 1;
}

/* ---- rates ---- */

/* `step`: how many there were before. In the first one the momentum is the gradient itself,
 * undampened. */
FY_FORMULA fy__rates_t fy__sgd_rates(double lr, double momentum, double dampening, double decay,
                                     int nesterov, int64_t step)
{
    const fy__rates_t r = { lr,       decay, momentum, step > 0 ? 1 - dampening : 1, 0, 0, 0, 0, 0,
                            nesterov, 0,     1 };
    return r;
}

/* The bias corrections, 1 - beta^t for t = step + 1, go to lr and to the square root. */
FY_FORMULA fy__rates_t fy__adam_rates(double lr, double beta1, double beta2, double eps,
                                      double decay, int decoupled, int64_t step)
{
    const double t = (double)step + 1;
    const fy__rates_t r = { lr / (1 - pow(beta1, t)),
                            decoupled ? 0 : decay,
                            beta1,
                            1 - beta1,
                            beta2,
                            1 - beta2,
                            eps,
                            1 / sqrt(1 - pow(beta2, t)),
                            decoupled ? 1 - lr * decay : 1,
                            0,
                            0,
                            1 };
    return r;
}

FY_FORMULA fy__rates_t fy__adadelta_rates(double lr, double rho, double eps, double decay)
{
    const fy__rates_t r = { lr, decay, rho, 1 - rho, 0, 0, eps, 0, 0, 0, 0, 1 };
    return r;
}

FY_FORMULA fy__rates_t fy__rmsprop_rates(double lr, double alpha, double eps, double decay,
                                         double momentum)
{
    const fy__rates_t r = { lr, decay, alpha, 1 - alpha, momentum, 0, eps, 0, 0, 0, 0, 1 };
    return r;
}

FY_FORMULA fy__rates_t fy__lars_rates(double lr, double momentum, double decay)
{
    const fy__rates_t r = { lr, decay, momentum, 0, 0, 0, 0, 0, 0, 0, 0, 1 };
    return r;
}

FY_FORMULA fy__rates_t fy__lamb_rates(double lr, double beta1, double beta2, double eps,
                                      double decay, int64_t step)
{
    const double t = (double)step + 1;
    const fy__rates_t r = { lr,
                            decay,
                            beta1,
                            1 - beta1,
                            beta2,
                            1 - beta2,
                            eps,
                            1 / sqrt(1 - pow(beta2, t)),
                            1,
                            0,
                            1 / (1 - pow(beta1, t)),
                            1 };
    return r;
}

/* MA(a, b, c): a * b + c, rounded twice everywhere. */
#define FY_STEPS(sfx, T, m, MA)                                                                   \
    FY_FORMULA T fy__sgd_##sfx(const fy__rates_t *r, T p, T g)                                    \
    {                                                                                             \
        return MA(-(T)r->lr, MA((T)r->decay, p, (T)r->unscale * g), p);                           \
    }                                                                                             \
    FY_FORMULA T fy__sgd_momentum_##sfx(const fy__rates_t *r, T p, T *momentum, T g)              \
    {                                                                                             \
        const T d = MA((T)r->decay, p, (T)r->unscale * g),                                        \
                b = MA((T)r->keep1, *momentum, (T)r->add1 * d);                                   \
        *momentum = b;                                                                            \
        return MA(-(T)r->lr, r->nesterov ? MA((T)r->keep1, b, d) : b, p);                         \
    }                                                                                             \
    FY_FORMULA T fy__adam_##sfx(const fy__rates_t *r, T p, T *mean, T *square, T g)               \
    {                                                                                             \
        const T d = MA((T)r->decay, p, (T)r->unscale * g),                                        \
                a = MA((T)r->keep1, *mean, (T)r->add1 * d);                                       \
        const T s = MA((T)r->keep2, *square, (T)r->add2 * d * d);                                 \
        *mean = a;                                                                                \
        *square = s;                                                                              \
        return MA((T)r->shrink, p, -(T)r->lr * (a / MA(sqrt##m(s), (T)r->root, (T)r->eps)));      \
    }                                                                                             \
    FY_FORMULA T fy__adadelta_##sfx(const fy__rates_t *r, T p, T *square, T *change, T g)         \
    {                                                                                             \
        const T d = MA((T)r->decay, p, (T)r->unscale * g),                                        \
                s = MA((T)r->keep1, *square, (T)r->add1 * d * d);                                 \
        const T u = sqrt##m(*change + (T)r->eps) / sqrt##m(s + (T)r->eps) * d;                    \
        *square = s;                                                                              \
        *change = MA((T)r->keep1, *change, (T)r->add1 * u * u);                                   \
        return MA(-(T)r->lr, u, p);                                                               \
    }                                                                                             \
    FY_FORMULA T fy__rmsprop_##sfx(const fy__rates_t *r, T p, T *square, T g)                     \
    {                                                                                             \
        const T d = MA((T)r->decay, p, (T)r->unscale * g),                                        \
                s = MA((T)r->keep1, *square, (T)r->add1 * d * d);                                 \
        *square = s;                                                                              \
        return MA(-(T)r->lr, d / (sqrt##m(s) + (T)r->eps), p);                                    \
    }                                                                                             \
    FY_FORMULA T fy__rmsprop_momentum_##sfx(const fy__rates_t *r, T p, T *square, T *change, T g) \
    {                                                                                             \
        const T d = MA((T)r->decay, p, (T)r->unscale * g),                                        \
                s = MA((T)r->keep1, *square, (T)r->add1 * d * d);                                 \
        const T b = MA((T)r->keep2, *change, d / (sqrt##m(s) + (T)r->eps));                       \
        *square = s;                                                                              \
        *change = b;                                                                              \
        return MA(-(T)r->lr, b, p);                                                               \
    }                                                                                             \
    /* the estimate is not below 0 by rounding */                                                 \
    FY_FORMULA T fy__rmsprop_centered_##sfx(const fy__rates_t *r, T p, T *square, T *mean, T g)   \
    {                                                                                             \
        const T d = MA((T)r->decay, p, (T)r->unscale * g),                                        \
                s = MA((T)r->keep1, *square, (T)r->add1 * d * d);                                 \
        const T a = MA((T)r->keep1, *mean, (T)r->add1 * d), v = MA(-a, a, s);                     \
        *square = s;                                                                              \
        *mean = a;                                                                                \
        return MA(-(T)r->lr, d / (sqrt##m(v > 0 ? v : 0) + (T)r->eps), p);                        \
    }                                                                                             \
    FY_FORMULA T fy__lars_##sfx(const fy__rates_t *r, T p, T *momentum, T g)                      \
    {                                                                                             \
        const T d = MA((T)r->decay, p, (T)r->unscale * g),                                        \
                b = MA((T)r->keep1, *momentum, (T)r->lr * d);                                     \
        *momentum = b;                                                                            \
        return p - b;                                                                             \
    }                                                                                             \
    /* the states, before any parameter changes */                                                \
    FY_FORMULA void fy__lamb_state_##sfx(const fy__rates_t *r, T *mean, T *square, T g)           \
    {                                                                                             \
        g = (T)r->unscale * g;                                                                    \
        *mean = MA((T)r->keep1, *mean, (T)r->add1 * g);                                           \
        *square = MA((T)r->keep2, *square, (T)r->add2 * g * g);                                   \
    }                                                                                             \
    FY_FORMULA T fy__lamb_update_##sfx(const fy__rates_t *r, T p, T mean, T square)               \
    {                                                                                             \
        const T u = (T)r->correct * mean / MA(sqrt##m(square), (T)r->root, (T)r->eps);            \
        return MA((T)r->decay, p, u);                                                             \
    }                                                                                             \
    FY_FORMULA T fy__lamb_##sfx(const fy__rates_t *r, T p, T mean, T square)                      \
    {                                                                                             \
        return MA(-(T)r->lr, fy__lamb_update_##sfx(r, p, mean, square), p);                       \
    }

FY_STEPS(f32, float, f, FY_MUL_ADD_F32)
FY_STEPS(f64, double, , FY_MUL_ADD_F64)
#undef FY_STEPS

#endif
