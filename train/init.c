/* Initial values of a parameter: bounds and spreads from its fans, drawn on its device.
 * Sources: He et al. 2015 (Kaiming), Glorot and Bengio 2010 (Xavier); the default is PyTorch's for
 * linear and conv2d. */
#include "layer.h"

#include <math.h>

fy_status_t fyt_init_check(const fy_init_t *init, const char *what)
{
    if ((unsigned)init->kind > FY_INIT_XAVIER_NORMAL)
        return FYT_FAIL(INVALID_ARGUMENT, "init of %s: there is no kind %d", what, (int)init->kind);
    const int has_value = init->kind == FY_INIT_CONSTANT || init->kind == FY_INIT_UNIFORM ||
                          init->kind == FY_INIT_NORMAL;
    if (has_value && !isfinite(init->value))
        return FYT_FAIL(INVALID_ARGUMENT, "init of %s: value is %g", what, init->value);
    if (has_value && init->kind != FY_INIT_CONSTANT && init->value < 0)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "init of %s: value is %g, and a bound or a spread is not negative", what,
                        init->value);
    return FY_STATUS_OK;
}

static fy_status_t draw_uniform(fy_tensor_t *dst, fy_tensor_t *rng, double bound)
{
    const fy_rand_attrs_t attrs = { -bound, bound };
    return bound > 0 ? fy_op_call(FY_OP_RAND, 0, NULL, &attrs, sizeof attrs, 2,
                                  (fy_tensor_t *[]){ dst, rng })
                     : fy_fill(dst, 0);
}

static fy_status_t draw_normal(fy_tensor_t *dst, fy_tensor_t *rng, double std)
{
    const fy_randn_attrs_t attrs = { 0, std };
    return fy_op_call(FY_OP_RANDN, 0, NULL, &attrs, sizeof attrs, 2, (fy_tensor_t *[]){ dst, rng });
}

fy_status_t fyt_init_fill(fy_tensor_t *dst, fy_tensor_t *rng, const fy_layer_param_t *param)
{
    /* A registered layer may not define fans; 1 keeps all of these finite. */
    const double in = param->fan_in > 0 ? (double)param->fan_in : 1,
                 out = param->fan_out > 0 ? (double)param->fan_out : 1;
    switch (param->init.kind) {
    case FY_INIT_DEFAULT: return draw_uniform(dst, rng, 1 / sqrt(in));
    case FY_INIT_CONSTANT: return fy_fill(dst, param->init.value);
    case FY_INIT_UNIFORM: return draw_uniform(dst, rng, param->init.value);
    case FY_INIT_NORMAL: return draw_normal(dst, rng, param->init.value);
    case FY_INIT_KAIMING_UNIFORM: return draw_uniform(dst, rng, sqrt(6 / in));
    case FY_INIT_KAIMING_NORMAL: return draw_normal(dst, rng, sqrt(2 / in));
    case FY_INIT_KAIMING_NORMAL_FAN_OUT: return draw_normal(dst, rng, sqrt(2 / out));
    case FY_INIT_XAVIER_UNIFORM: return draw_uniform(dst, rng, sqrt(6 / (in + out)));
    case FY_INIT_XAVIER_NORMAL: return draw_normal(dst, rng, sqrt(2 / (in + out)));
    }
    return FYT_FAIL(INTERNAL, "init: kind %d was let through", (int)param->init.kind);
}
