/* What a launch costs: flops and bytes. Bytes are those that must cross the device's memory bus:
 * each operand once, a broadcast one its own elements only, and dst once more where it is read too.
 * The dense path is on the budget of a tiny add.
 * Not here: time. Next: backends/sim turns both into nanoseconds. */
#include "ops/cost.h"

#include "opset/formulas/step_results.h"
#include "runtime/base/dtype.h"
#include "runtime/base/fail.h"

static uint64_t mul(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t count(const fy_desc_t *desc)
{
    uint64_t nelem = 1;
    for (int i = 0; i < desc->rank; i++) nelem = mul(nelem, (uint64_t)desc->dims[i]);
    return nelem;
}

uint64_t fy__cost_unique_nbytes(const fy_desc_t *desc)
{
    uint64_t nelem = 1;
    for (int i = 0; i < desc->rank; i++) {
        if (desc->strides[i] != 0 || desc->dims[i] == 0)
            nelem = mul(nelem, (uint64_t)desc->dims[i]);
    }
    return mul(nelem, fy__dtype_sizes[desc->dtype]);
}

/* Each operand once; a dst that is accumulated into twice, and one more flop for each of its
 * elements. */
static __attribute__((noinline)) void set_general(fy_launch_t *launch, uint64_t flops)
{
    uint64_t nbytes = 0;
    for (int i = 0; i < launch->nsrc; i++)
        nbytes = fy__cost_add(nbytes, fy__cost_unique_nbytes(&launch->src[i]));
    for (int i = 0; i < launch->ndst; i++) {
        uint64_t written = fy__cost_unique_nbytes(&launch->dst[i]);
        nbytes = fy__cost_add(nbytes, launch->accumulate & (1u << i) ? mul(written, 2) : written);
    }
    launch->flops = launch->accumulate ? fy__cost_add(flops, launch->nelem) : flops;
    launch->nbytes = nbytes;
}

static inline void set(fy_launch_t *launch, uint64_t flops)
{
    if (FY_UNLIKELY(launch->flags != FY_LAUNCH_DENSE || launch->ndst != 1 || launch->accumulate)) {
        set_general(launch, flops);
        return;
    }
    uint64_t per_element = fy__dtype_sizes[launch->dst[0].dtype];
    for (int i = 0; i < launch->nsrc; i++) per_element += fy__dtype_sizes[launch->src[i].dtype];
    launch->flops = flops;
    launch->nbytes = mul(launch->nelem, per_element);
}

void fy__cost_elementwise(fy_launch_t *launch) { set(launch, launch->nelem); }

void fy__cost_elementwise2(fy_launch_t *launch) { set(launch, mul(launch->nelem, 2)); }

void fy__cost_transcendental(fy_launch_t *launch)
{
    set(launch, mul(launch->nelem, FY__FLOPS_TRANSCENDENTAL));
}

void fy__cost_random(fy_launch_t *launch) { set(launch, mul(launch->nelem, FY__FLOPS_RANDOM)); }

void fy__cost_move(fy_launch_t *launch) { set(launch, 0); }

void fy__cost_axpy(fy_launch_t *launch)
{
    set(launch, mul(launch->nelem, 2));
    launch->nbytes = fy__cost_add(launch->nbytes, fy__cost_unique_nbytes(&launch->dst[0]));
}

void fy__cost_reduce(fy_launch_t *launch) { set(launch, count(&launch->src[0])); }

void fy__cost_matmul(fy_launch_t *launch)
{
    const fy_matmul_attrs_t *attrs = launch->attrs;
    const fy_desc_t *a = &launch->src[0];
    int64_t inner = a->dims[attrs->transpose_a ? a->rank - 2 : a->rank - 1];
    set(launch, mul(mul(launch->nelem, 2), (uint64_t)inner));
}

/* 2 flops for each weight behind each element of y, padding not taken off; gradients alike. */
void fy__cost_conv2d(fy_launch_t *launch)
{
    const fy_desc_t *y = launch->op == FY_OP_CONV2D ? &launch->dst[0] : &launch->src[0];
    const bool sums = launch->op == FY_OP_CONV2D_BACKWARD_PARAMS,
               weight = sums || launch->op == FY_OP_CONV2D_BACKWARD_WEIGHT;
    const fy_desc_t *w = weight ? &launch->dst[0] : &launch->src[1];
    uint64_t behind_one = 1;
    for (int axis = 1; axis < 4; axis++) behind_one = mul(behind_one, (uint64_t)w->dims[axis]);
    uint64_t flops = mul(mul(count(y), 2), behind_one);
    if (launch->nsrc == 3) flops = fy__cost_add(flops, launch->nelem);
    if (launch->op == FY_OP_CONV2D && ((const fy_conv2d_attrs_t *)launch->attrs)->activation)
        flops = fy__cost_add(flops, launch->nelem);
    set(launch, sums ? fy__cost_add(flops, count(y)) : flops);
}

/* The attributes of a gradient begin alike. */
static uint64_t window_nelem(const fy_launch_t *launch)
{
    const fy_pool2d_attrs_t *attrs = launch->attrs;
    return mul((uint64_t)attrs->kernel_h, (uint64_t)attrs->kernel_w);
}

void fy__cost_pool2d(fy_launch_t *launch) { set(launch, mul(launch->nelem, window_nelem(launch))); }

void fy__cost_pool2d_backward(fy_launch_t *launch)
{
    set(launch, mul(count(&launch->src[0]), window_nelem(launch)));
}

/* Four pixels for each pixel of the result, or of dy; pooling: each pixel once. */
void fy__cost_resample2d(fy_launch_t *launch)
{
    const uint64_t src = count(&launch->src[0]), dst = launch->nelem;
    if (launch->op == FY_OP_RESIZE2D)
        set(launch, mul(dst, 8));
    else if (launch->op == FY_OP_RESIZE2D_BACKWARD)
        set(launch, mul(src, 8));
    else
        set(launch, mul(src > dst ? src : dst, 2));
}

/* Max, subtract, exp, add, divide. */
void fy__cost_softmax(fy_launch_t *launch)
{
    set(launch, mul(launch->nelem, 4 + FY__FLOPS_TRANSCENDENTAL));
}

/* Subtract, square, add. */
void fy__cost_mse_loss(fy_launch_t *launch) { set(launch, mul(count(&launch->src[0]), 3)); }

/* 1 flop a row, of which one element is read. */
void fy__cost_nll_loss(fy_launch_t *launch)
{
    const uint64_t rows = count(&launch->src[1]);
    uint64_t nbytes = mul(rows, fy__dtype_sizes[launch->src[0].dtype]);
    for (unsigned i = 1; i < launch->nsrc; i++)
        nbytes = fy__cost_add(nbytes, fy__cost_unique_nbytes(&launch->src[i]));
    nbytes = fy__cost_add(nbytes, fy__cost_unique_nbytes(&launch->dst[0]));
    launch->flops = rows;
    launch->nbytes = nbytes;
}

void fy__cost_cross_entropy(fy_launch_t *launch)
{
    set(launch, mul(count(&launch->src[0]), 4 + FY__FLOPS_TRANSCENDENTAL));
}

/* The rows that it reads, not the whole table. */
void fy__cost_gather(fy_launch_t *launch)
{
    uint64_t rows = mul(launch->nelem, fy__dtype_sizes[launch->dst[0].dtype]);
    launch->flops = 0;
    launch->nbytes = fy__cost_add(mul(rows, 2), fy__cost_unique_nbytes(&launch->src[1]));
}

void fy__cost_index_add(fy_launch_t *launch)
{
    const uint64_t nelem = count(&launch->src[0]),
                   rows = mul(nelem, fy__dtype_sizes[launch->dst[0].dtype]);
    const bool assigns = launch->op != FY_OP_INDEX_ADD && !launch->accumulate;
    launch->flops = mul(nelem, 2);
    launch->nbytes = fy__cost_add(mul(rows, 3), fy__cost_unique_nbytes(&launch->src[1]));
    if (assigns)
        launch->nbytes = fy__cost_add(launch->nbytes, fy__cost_unique_nbytes(&launch->dst[0]));
}

void fy__cost_linear(fy_launch_t *launch)
{
    const fy_linear_attrs_t *attrs = launch->attrs;
    const fy_desc_t *x = &launch->src[0];
    const uint64_t behind_one = mul(2, (uint64_t)x->dims[x->rank - 1]) + (launch->nsrc == 3) +
                                (attrs->activation != FY_ACTIVATION_NONE);
    set(launch, mul(launch->nelem, behind_one));
}

void fy__cost_linear_backward_params(fy_launch_t *launch)
{
    const fy_desc_t *dy = &launch->src[0], *x = &launch->src[1];
    set(launch, mul(count(dy), fy__cost_add(mul(2, (uint64_t)x->dims[1]), 1)));
}

void fy__cost_norm(fy_launch_t *launch)
{
    set(launch, mul(launch->nelem, 8));
    for (int i = 3; i < launch->ndst; i++) /* running statistics */
        launch->nbytes = fy__cost_add(launch->nbytes, fy__cost_unique_nbytes(&launch->dst[i]));
}

/* Of each pair of a row and a key that attends by position: two products of D forward, five back,
 * and a softmax. A mask's values are not known here. */
void fy__cost_attention(fy_launch_t *launch)
{
    const bool back = launch->op == FY_OP_SCALED_DOT_PRODUCT_ATTENTION_BACKWARD;
    const fy_attention_attrs_t *attrs = launch->attrs;
    const fy_desc_t *q = &launch->src[back], *k = q + 1;
    const uint64_t rows = (uint64_t)q->dims[1], keys = (uint64_t)k->dims[1],
                   own = rows < keys ? rows : keys, width = (uint64_t)q->dims[3];
    uint64_t pairs = mul(rows, keys);
    if (attrs->is_causal) pairs = fy__cost_add(mul(own, own + 1) / 2, mul(rows - own, keys));
    pairs = mul(pairs, mul((uint64_t)q->dims[0], (uint64_t)q->dims[2]));
    set_general(launch,
                mul(pairs, fy__cost_add(mul(back ? 10 : 4, width), 4 + FY__FLOPS_TRANSCENDENTAL)));
}

/* Additions, multiplications, divisions and roots of one element. */
static uint64_t step_flops(fy_op_t op)
{
    switch (op) {
    case FY_OP_SGD_STEP: return 4;
    case FY_OP_SGD_MOMENTUM_STEP: return 7;
    case FY_OP_RMSPROP_STEP: return 11;
    case FY_OP_LARS_STEP: return 11;
    case FY_OP_LAMB_STEP: return 31;
    default: return 14;
    }
}

void fy__cost_step(fy_launch_t *launch)
{
    set_general(launch, mul(launch->nelem, step_flops(launch->op)));
    const int low = fy__step_results(launch->op, launch->ndst).low; /* is not read */
    for (int i = 0; i < launch->ndst; i++)
        if (i != low)
            launch->nbytes = fy__cost_add(launch->nbytes, fy__cost_unique_nbytes(&launch->dst[i]));
}
