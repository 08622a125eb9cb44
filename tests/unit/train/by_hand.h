/* Steps of optimizers in f64, as their formulas say. Not a test. */
#ifndef FERRY_TESTS_UNIT_TRAIN_BY_HAND_H_
#define FERRY_TESTS_UNIT_TRAIN_BY_HAND_H_

#include <math.h>
#include <stdlib.h>

#include <ferry/train/optimizer.h>

/* The ratio of LARS and LAMB is of a whole tensor. */
static inline int has_trust(const fy_optimizer_options_t *o)
{
    return o->kind == FY_OPTIMIZER_LARS || o->kind == FY_OPTIMIZER_LAMB;
}

/* The update of Adam and LAMB without weight decay; a, b: the element's states. */
static inline double adam_by_hand(const fy_optimizer_options_t *o, double g, double *a, double *b,
                                  int t)
{
    *a = o->beta1 * *a + (1 - o->beta1) * g;
    *b = o->beta2 * *b + (1 - o->beta2) * g * g;
    return *a / (1 - pow(o->beta1, t + 1)) / (sqrt(*b / (1 - pow(o->beta2, t + 1))) + o->eps);
}

/* The parameter p after step t of its gradient g. */
static inline double element_by_hand(const fy_optimizer_options_t *o, double p, double g, double *a,
                                     double *b, int t)
{
    if (o->kind == FY_OPTIMIZER_ADAMW)
        p *= 1 - o->lr * o->weight_decay;
    else
        g += o->weight_decay * p;
    if (o->kind == FY_OPTIMIZER_SGD) {
        if (o->momentum == 0) return p - o->lr * g;
        *a = t ? o->momentum * *a + (1 - o->dampening) * g : g;
        return p - o->lr * (o->nesterov ? g + o->momentum * *a : *a);
    }
    if (o->kind == FY_OPTIMIZER_ADADELTA) {
        *a = o->rho * *a + (1 - o->rho) * g * g;
        const double u = sqrt(*b + o->eps) / sqrt(*a + o->eps) * g;
        *b = o->rho * *b + (1 - o->rho) * u * u;
        return p - o->lr * u;
    }
    if (o->kind == FY_OPTIMIZER_RMSPROP) {
        *a = o->rho * *a + (1 - o->rho) * g * g;
        if (o->centered) {
            *b = o->rho * *b + (1 - o->rho) * g;
            return p - o->lr * g / (sqrt(*a - *b * *b) + o->eps);
        }
        *b = o->momentum * *b + g / (sqrt(*a) + o->eps);
        return p - o->lr * *b;
    }
    return p - o->lr * adam_by_hand(o, g, a, b, t);
}

/* Step t of the n elements of a parameter: values p, gradients g, states a and b. */
static inline void step_by_hand(const fy_optimizer_options_t *o, size_t n, double *p,
                                const double *g, double *a, double *b, int t)
{
    const int is_lars = o->kind == FY_OPTIMIZER_LARS;
    double w = 0, u = 0, *update = calloc(n + 1, sizeof *update);
    for (size_t i = 0; i < n && has_trust(o); i++) {
        update[i] = is_lars ? g[i]
                            : adam_by_hand(o, g[i], &a[i], &b[i], t) + o->weight_decay * p[i];
        w += p[i] * p[i];
        u += update[i] * update[i];
    }
    w = sqrt(w), u = sqrt(u);
    double trust = is_lars ? 0.001 * w / (u + o->weight_decay * w + o->eps) : w / u;
    if (w == 0 || u == 0 || o->weight_decay == 0) trust = 1; /* 0: the group has no decay */
    for (size_t i = 0; i < n; i++) {
        if (is_lars) {
            a[i] = o->momentum * a[i] + o->lr * trust * (g[i] + o->weight_decay * p[i]);
            p[i] -= a[i];
        } else if (has_trust(o)) {
            p[i] -= o->lr * trust * update[i];
        } else {
            p[i] = element_by_hand(o, p[i], g[i], &a[i], &b[i], t);
        }
    }
    free(update);
}

#endif
