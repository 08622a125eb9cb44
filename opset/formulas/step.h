/* One element of an optimizer's step, in f32 and f64. What is the same for all elements is worked
 * out in f64 first and rounded once.
 * g: the gradient; the parameter comes back, the state is updated in place. Formulas and their
 * names as PyTorch 1.13 documents them (torch.optim: SGD, Adam, AdamW, Adadelta, RMSprop), after
 * Sutskever et al. 2013, Kingma and Ba 2015, Loshchilov and Hutter 2019, Zeiler 2012, Tieleman and
 * Hinton 2012. */
#ifndef FERRY_OPSET_FORMULAS_STEP_H_
#define FERRY_OPSET_FORMULAS_STEP_H_

#include <math.h>

#include "opset/formulas/formula.h"

/* The numbers of one step, whatever the op; each formula says what it takes. */
typedef struct fy__rates {
    double lr, decay, keep1, add1, keep2, add2, eps, root, shrink;
    int nesterov;
} fy__rates_t;

/* `step`: how many there were before. In the first one the momentum is the gradient itself,
 * undampened. */
FY_FORMULA fy__rates_t fy__sgd_rates(double lr, double momentum, double dampening, double decay,
                                     int nesterov, int64_t step)
{
    const fy__rates_t r = { lr, decay, momentum, step > 0 ? 1 - dampening : 1, 0, 0, 0,
                            0,  0,     nesterov };
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
                            0 };
    return r;
}

FY_FORMULA fy__rates_t fy__adadelta_rates(double lr, double rho, double eps, double decay)
{
    const fy__rates_t r = { lr, decay, rho, 1 - rho, 0, 0, eps, 0, 0, 0 };
    return r;
}

FY_FORMULA fy__rates_t fy__rmsprop_rates(double lr, double alpha, double eps, double decay,
                                         double momentum)
{
    const fy__rates_t r = { lr, decay, alpha, 1 - alpha, momentum, 0, eps, 0, 0, 0 };
    return r;
}

/* MA(a, b, c): a * b + c, rounded twice everywhere. */
#define FY_STEPS(sfx, T, m, MA)                                                                   \
    FY_FORMULA T fy__sgd_##sfx(const fy__rates_t *r, T p, T g)                                    \
    {                                                                                             \
        return MA(-(T)r->lr, MA((T)r->decay, p, g), p);                                           \
    }                                                                                             \
    FY_FORMULA T fy__sgd_momentum_##sfx(const fy__rates_t *r, T p, T *momentum, T g)              \
    {                                                                                             \
        const T d = MA((T)r->decay, p, g), b = MA((T)r->keep1, *momentum, (T)r->add1 * d);        \
        *momentum = b;                                                                            \
        return MA(-(T)r->lr, r->nesterov ? MA((T)r->keep1, b, d) : b, p);                         \
    }                                                                                             \
    FY_FORMULA T fy__adam_##sfx(const fy__rates_t *r, T p, T *mean, T *square, T g)               \
    {                                                                                             \
        const T d = MA((T)r->decay, p, g), a = MA((T)r->keep1, *mean, (T)r->add1 * d);            \
        const T s = MA((T)r->keep2, *square, (T)r->add2 * d * d);                                 \
        *mean = a;                                                                                \
        *square = s;                                                                              \
        return MA((T)r->shrink, p, -(T)r->lr * (a / MA(sqrt##m(s), (T)r->root, (T)r->eps)));      \
    }                                                                                             \
    FY_FORMULA T fy__adadelta_##sfx(const fy__rates_t *r, T p, T *square, T *change, T g)         \
    {                                                                                             \
        const T d = MA((T)r->decay, p, g), s = MA((T)r->keep1, *square, (T)r->add1 * d * d);      \
        const T u = sqrt##m(*change + (T)r->eps) / sqrt##m(s + (T)r->eps) * d;                    \
        *square = s;                                                                              \
        *change = MA((T)r->keep1, *change, (T)r->add1 * u * u);                                   \
        return MA(-(T)r->lr, u, p);                                                               \
    }                                                                                             \
    FY_FORMULA T fy__rmsprop_##sfx(const fy__rates_t *r, T p, T *square, T g)                     \
    {                                                                                             \
        const T d = MA((T)r->decay, p, g), s = MA((T)r->keep1, *square, (T)r->add1 * d * d);      \
        *square = s;                                                                              \
        return MA(-(T)r->lr, d / (sqrt##m(s) + (T)r->eps), p);                                    \
    }                                                                                             \
    FY_FORMULA T fy__rmsprop_momentum_##sfx(const fy__rates_t *r, T p, T *square, T *change, T g) \
    {                                                                                             \
        const T d = MA((T)r->decay, p, g), s = MA((T)r->keep1, *square, (T)r->add1 * d * d);      \
        const T b = MA((T)r->keep2, *change, d / (sqrt##m(s) + (T)r->eps));                       \
        *square = s;                                                                              \
        *change = b;                                                                              \
        return MA(-(T)r->lr, b, p);                                                               \
    }

FY_STEPS(f32, float, f, FY_MUL_ADD_F32)
FY_STEPS(f64, double, , FY_MUL_ADD_F64)
#undef FY_STEPS

#endif
