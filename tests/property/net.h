/* The oracle of test_trainings.c: a network of linear layers in f64, parameter by parameter, and
 * the settings of a training. Formulas: ferry/ops.h. */
#ifndef FERRY_TESTS_PROPERTY_NET_H_
#define FERRY_TESTS_PROPERTY_NET_H_

#include <math.h>

#include "tests/support/harness.h"
#include "tests/support/value.h"

enum {
    NLAYERS = 3,
    WIDEST = 6,
    MOST_ROWS = 40,
    MOST_PARAMS = NLAYERS * WIDEST * (WIDEST + 1),
    NSTEPS = 40,
    ALIGNMENT = 16
};

/* What a shrunken training can do without: bits behind those of the steps. */
typedef enum setting {
    SCALING = NSTEPS,
    ADAM,
    MOMENTUM,
    DECAY,
    NORM,
    VALUE,
    LAYER_2,
    LAYER_3,
    BIAS,
    BAD,
    EPOCH_2,
    DROP_LAST,
    GRAPH,
    STREAMED,
    ACCUMULATE,
    SETTINGS_END
} setting_t;
typedef struct net {
    int nlayers;
    bool has_bias;
    int64_t width[NLAYERS + 1];
    int64_t nparams, place[MOST_PARAMS], room; /* place: in the block */
    double value[MOST_PARAMS], grad[MOST_PARAMS], first[MOST_PARAMS], second[MOST_PARAMS];
    double scale, divisor;
    bool is_checked, is_found, has_grads;
    int64_t good, steps, skipped;
} net_t;

static inline void set_places(net_t *net)
{
    net->nparams = net->room = 0;
    for (int l = 0; l < net->nlayers; l++)
        for (int part = 0; part < 1 + net->has_bias; part++) {
            const int64_t n = net->width[l + 1] * (part ? 1 : net->width[l]);
            for (int64_t i = 0; i < n; i++) net->place[net->nparams++] = net->room + i;
            net->room += (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        }
}

/* Adds `share` times the gradient of the mean squared error to net->grad; returns the loss. */
static inline double differentiate(net_t *net, int64_t rows, const double *x, const double *y,
                                   double share)
{
    const int64_t outs = net->width[net->nlayers];
    double loss = 0;
    for (int64_t r = 0; r < rows; r++) {
        double a[NLAYERS + 1][WIDEST], d[NLAYERS + 1][WIDEST] = { { 0 } };
        memcpy(a[0], x + r * net->width[0], (size_t)net->width[0] * sizeof *x);
        const double *w = net->value;
        for (int l = 0; l < net->nlayers; l++) {
            const int64_t in = net->width[l], out = net->width[l + 1];
            for (int64_t o = 0; o < out; o++) {
                double sum = net->has_bias ? w[out * in + o] : 0;
                for (int64_t i = 0; i < in; i++) sum += w[o * in + i] * a[l][i];
                a[l + 1][o] = l + 1 < net->nlayers ? tanh(sum) : sum;
            }
            w += out * in + (net->has_bias ? out : 0);
        }
        for (int64_t o = 0; o < outs; o++) {
            const double error = a[net->nlayers][o] - y[r * outs + o];
            loss += error * error / (double)(rows * outs);
            d[net->nlayers][o] = share * 2 * error / (double)(rows * outs);
        }
        double *g = net->grad + net->nparams;
        for (int l = net->nlayers; l-- > 0;) {
            const int64_t in = net->width[l], out = net->width[l + 1];
            w -= out * in + (net->has_bias ? out : 0);
            g -= out * in + (net->has_bias ? out : 0);
            for (int64_t o = 0; o < out; o++) {
                double dy = d[l + 1][o];
                if (l + 1 < net->nlayers) dy *= 1 - a[l + 1][o] * a[l + 1][o];
                if (net->has_bias) g[out * in + o] += dy;
                for (int64_t i = 0; i < in; i++) {
                    g[o * in + i] += dy * a[l][i];
                    d[l][i] += dy * w[o * in + i];
                }
            }
        }
    }
    return loss;
}

static inline void multiply(net_t *net, double factor)
{
    for (int64_t i = 0; i < net->nparams; i++) net->grad[i] *= factor;
}

static inline void clip_norm(net_t *net, double most)
{
    double sum = 0;
    for (int64_t i = 0; i < net->nparams; i++) sum += net->grad[i] * net->grad[i];
    const double factor = most / (sqrt(sum) + 1e-6);
    multiply(net, factor > 1 ? 1 : factor);
}

static inline void clip_value(net_t *net, double most)
{
    for (int64_t i = 0; i < net->nparams; i++) {
        if (net->grad[i] > most) net->grad[i] = most;
        if (net->grad[i] < -most) net->grad[i] = -most;
    }
}

static inline bool has_bad_grads(const net_t *net)
{
    bool is_bad = false;
    for (int64_t i = 0; i < net->nparams; i++) is_bad |= !isfinite(net->grad[i]);
    return is_bad;
}

static inline void unscale(net_t *net)
{
    if (net->is_checked) return;
    net->is_found = has_bad_grads(net);
    multiply(net, 1 / net->divisor);
    net->divisor = 1;
    net->is_checked = true;
}

enum { GROWTH_INTERVAL = 3 };
static const double k_lr = 0.05, k_decay = 0.1, k_momentum = 0.9, k_eps = 1e-3, k_norm = 0.5,
                    k_value = 0.3, k_scale = 8;

static inline void update(net_t *net, uint64_t settings)
{
    double grad[MOST_PARAMS];
    memcpy(grad, net->grad, sizeof grad);
    net->steps++;
    if (settings >> SCALING & 1) {
        const bool is_bad = net->is_checked ? net->is_found : has_bad_grads(net);
        const double divisor = net->divisor;
        if (is_bad) {
            net->skipped++;
            net->scale /= 2;
            net->good = 0;
        } else if (++net->good == GROWTH_INTERVAL) {
            net->scale *= 2;
            net->good = 0;
        }
        net->divisor = net->scale;
        net->is_checked = false;
        if (is_bad) return;
        for (int64_t i = 0; i < net->nparams; i++) grad[i] /= divisor;
    }
    const double t = (double)(net->steps - net->skipped);
    for (int64_t i = 0; i < net->nparams; i++) {
        double g = grad[i] + (settings >> DECAY & 1 ? k_decay * net->value[i] : 0);
        if (settings >> ADAM & 1) {
            net->first[i] = 0.9 * net->first[i] + 0.1 * g;
            net->second[i] = 0.999 * net->second[i] + 0.001 * g * g;
            g = net->first[i] / (1 - pow(0.9, t)) /
                (sqrt(net->second[i] / (1 - pow(0.999, t))) + k_eps);
        } else if (settings >> MOMENTUM & 1) {
            g = net->first[i] = k_momentum * net->first[i] + g;
        }
        net->value[i] -= k_lr * g;
    }
}

#endif
