/* conv2d and its gradients: the choice among plain loops, loops for few channels, and oneDNN.
 * oneDNN runs dense f32 of some size, to which dense f16 and bf16 are converted; if it has only a
 * reference loop (0.1 GFLOP/s), the plain loops run instead. Scratch is a copy of the weights in
 * oneDNN's order and oneDNN's own.
 * Packed weights are not cached over calls: in training every step has new weights, and packing
 * costs a copy of them (docs/decisions/0022). With autotune=on of the host, times choose
 * (conv_tune.h). Not here: any loop. */
#include "backends/kernels/conv_tune.h"
#include "backends/kernels/last_product.h"
#include "backends/kernels/onednn.h"
#include "backends/kernels/slow_path.h"
#include "backends/kernels/rows.h"

enum { SMALL_MACS = 8192 }; /* below this, starting a primitive costs more than the loop */

static void make_conv(fy__conv_t *conv, const fy_launch_t *launch)
{
    /* those of a gradient begin alike */
    const fy_conv2d_attrs_t *attrs = (const fy_conv2d_attrs_t *)launch->attrs;
    const int sums = launch->op == FY_OP_CONV2D_BACKWARD_PARAMS,
              is_weight = sums || launch->op == FY_OP_CONV2D_BACKWARD_WEIGHT;
    if (launch->op == FY_OP_CONV2D)
        *conv = (fy__conv_t){ .x = &launch->src[0],
                              .w = &launch->src[1],
                              .y = launch->dst,
                              .bias = launch->nsrc > 2 ? &launch->src[2] : NULL,
                              .relu = attrs->activation == FY_ACTIVATION_RELU };
    else
        *conv = (fy__conv_t){ .x = is_weight ? &launch->src[1] : launch->dst,
                              .w = is_weight ? launch->dst : &launch->src[1],
                              .y = &launch->src[0],
                              .bias = sums ? &launch->dst[1] : NULL,
                              .accumulate_bias = (launch->accumulate & 2u) != 0 };
    conv->shape = (fy__conv_shape_t){ .op = is_weight ? FY_OP_CONV2D_BACKWARD_WEIGHT : launch->op,
                                      .half = fy__is_half(conv->x->dtype) ? conv->x->dtype : 0,
                                      .n = conv->x->dims[0],
                                      .h = conv->x->dims[1],
                                      .w = conv->x->dims[2],
                                      .c = conv->x->dims[3],
                                      .oh = conv->y->dims[1],
                                      .ow = conv->y->dims[2],
                                      .o = conv->y->dims[3],
                                      .kh = conv->w->dims[1],
                                      .kw = conv->w->dims[2],
                                      .groups = attrs->groups,
                                      .stride_h = attrs->stride_h,
                                      .stride_w = attrs->stride_w,
                                      .padding_h = attrs->padding_h,
                                      .padding_w = attrs->padding_w,
                                      .dilation_h = attrs->dilation_h,
                                      .dilation_w = attrs->dilation_w,
                                      .has_bias = conv->bias != NULL,
                                      .accumulate = launch->accumulate & 1u };
}

/* No dimension is so large that this product overflows: the tensors exist. A double will do. */
static double macs_of(const fy__conv_shape_t *s)
{
    return (double)s->n * (double)s->oh * (double)s->ow * (double)s->o * (double)s->kh *
           (double)s->kw * ((double)s->c / (double)s->groups);
}

/* Of some size: what oneDNN is here for. */
static int is_large(const fy__conv_t *conv)
{
    const fy__conv_shape_t *s = &conv->shape;
    return macs_of(s) >= SMALL_MACS && s->h > 0 && s->w > 0;
}

static int is_half(const fy__conv_t *conv) { return fy__is_half(conv->x->dtype); }

static int is_for_dnnl(const fy__conv_t *conv)
{
    return (conv->x->dtype == FY_DTYPE_F32 || is_half(conv)) && is_large(conv);
}

static int is_all_dense(const fy__conv_t *conv)
{
    return fy__desc_is_dense(conv->x) && fy__desc_is_dense(conv->w) && fy__desc_is_dense(conv->y) &&
           (!conv->bias || fy__desc_is_dense(conv->bias));
}

static int may_use_dnnl(const fy__conv_t *conv) { return is_for_dnnl(conv) && is_all_dense(conv); }

static int fits_dnnl(const fy__conv_t *conv, uint64_t limit)
{
    uint64_t nbytes;
    return is_half(conv) ? fy__conv_half_nbytes(conv, FY__TUNE_FIXED, limit) != 0
                         : fy__conv_dnnl_plan(conv, limit, &nbytes);
}

/* Logs the fallback to plain loops, once for each shape. */
static void note_slow_path(const fy_host_api_t *host, const fy__conv_t *conv, uint64_t nbytes)
{
    if (!is_for_dnnl(conv) || !fy__slow_path_is_new(host, &conv->shape)) return;
    const char *reason = fy__onednn_has_none();
    if (!is_all_dense(conv))
        reason = "an operand is strided; fy_copy into a new tensor makes a dense one";
    else if (fits_dnnl(conv, nbytes))
        reason = "oneDNN refused to run it";
    else if (fits_dnnl(conv, UINT64_MAX))
        reason = "oneDNN needs more scratch than the device may take (option workspace=)";
    fy__slow_path_log(host, &conv->shape, reason);
}

/* Dense f32, by one of the kernels but the plain loops: its scratch (0: there is none). */
static uint64_t fast_nbytes(const fy__conv_t *conv, uint64_t limit)
{
    uint64_t nbytes;
    if (fy__conv_depthwise_fits(fy__loops_get(), conv))
        return fy__conv_depthwise_nbytes(fy__loops_get(), conv, limit);
    if (fy__conv_few_fits(fy__loops_get(), conv)) return fy__conv_few_nbytes(conv, limit);
    return fy__conv_dnnl_plan(conv, limit, &nbytes) ? nbytes : 0;
}

/* And the run. UNSUPPORTED without an error: nothing was written. */
static fy_status_t fast_run(const fy_host_api_t *host, const fy__loops_t *loops,
                            const fy__conv_t *conv, void *scratch, uint64_t nbytes)
{
    if (fy__conv_depthwise_fits(loops, conv) &&
        fy__conv_depthwise_run(loops, conv, scratch, nbytes)) {
        fy__product_by("depthwise loops");
        return FY_STATUS_OK;
    }
    if (fy__conv_few_fits(loops, conv) && fy__conv_few_run(loops, conv, scratch, nbytes)) {
        fy__product_by("loops for few channels");
        return FY_STATUS_OK;
    }
    return fy__conv_dnnl_run(host, loops, conv, scratch, nbytes);
}

/* By the kernels above, else by plain loops. */
static fy_status_t run_fixed(const fy_host_api_t *host, const fy__loops_t *loops,
                             const fy__conv_t *conv, void *scratch, uint64_t nbytes)
{
    if (may_use_dnnl(conv)) {
        const fy_status_t status =
            is_half(conv) ? fy__conv_half_run(host, loops, conv, FY__TUNE_FIXED, scratch, nbytes)
                          : fast_run(host, loops, conv, scratch, nbytes);
        if (status != FY_STATUS_UNSUPPORTED) return status;
    }
    note_slow_path(host, conv, nbytes);
    fy__product_by("plain loops");
    fy__conv_plain(loops, conv);
    return FY_STATUS_OK;
}

/* ---- timed choices (conv_tune.h) ---- */

/* Above so many multiply-adds the plain loops are not tried: f64 sums, no blocks. */
enum { PLAIN_MACS = 1 << 20 };

static int may_tune(const fy__conv_t *conv)
{
    return fy__conv_tune_is_entered() && may_use_dnnl(conv);
}

uint64_t fy__conv_way_nbytes(const fy__conv_t *conv, int way, uint64_t limit, int *out_fits)
{
    fy__conv_t own = *conv;
    uint64_t nbytes = 0;
    *out_fits = way == FY__TUNE_PLAIN;
    if (way == FY__TUNE_FIXED) {
        nbytes = fast_nbytes(conv, limit);
        /* loops for few channels may need none */
        *out_fits = nbytes > 0 ||
                    (conv->shape.op == FY_OP_CONV2D && fy__conv_few_fits(fy__loops_get(), conv));
    } else if (way == FY__TUNE_PRODUCT) {
        nbytes = fy__conv_product_nbytes(conv);
        *out_fits = fy__conv_product_fits(conv) && nbytes <= limit;
    } else if (way >= FY__TUNE_DNNL) {
        own.shape.choice = way - FY__TUNE_DNNL + 1;
        *out_fits = fy__conv_dnnl_plan(&own, limit, &nbytes);
    }
    return *out_fits ? nbytes : 0;
}

/* Plain loops read f16 and bf16 where they are. */
static uint64_t way_nbytes(const fy__conv_t *conv, int way, uint64_t limit)
{
    int fits;
    if (is_half(conv)) return way == FY__TUNE_PLAIN ? 0 : fy__conv_half_nbytes(conv, way, limit);
    return fy__conv_way_nbytes(conv, way, limit, &fits);
}

/* The most of all ways until one is kept. */
static uint64_t tuned_nbytes(const fy__conv_t *conv, uint64_t limit)
{
    const int kept = fy__conv_tune_way(&conv->shape);
    uint64_t most = 0;
    for (int way = 0; way < FY__TUNE_WAYS; way++) {
        const uint64_t nbytes = kept < 0 || way == kept ? way_nbytes(conv, way, limit) : 0;
        if (nbytes > most) most = nbytes;
    }
    return most;
}

fy_status_t fy__conv_way_run(const fy_host_api_t *host, const fy__loops_t *loops,
                             const fy__conv_t *conv, int way, void *scratch, uint64_t nbytes)
{
    fy__conv_t own = *conv;
    if (way == FY__TUNE_FIXED) return fast_run(host, loops, conv, scratch, nbytes);
    if (way == FY__TUNE_PRODUCT) return fy__conv_product_run(host, conv, scratch, nbytes);
    if (way == FY__TUNE_PLAIN) {
        fy__product_by("plain loops");
        fy__conv_plain(loops, conv);
        return FY_STATUS_OK;
    }
    own.shape.choice = way - FY__TUNE_DNNL + 1;
    return fy__conv_dnnl_run(host, loops, &own, scratch, nbytes);
}

static fy_status_t run_way(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy__conv_t *conv, int way, void *scratch, uint64_t nbytes)
{
    if (way == FY__TUNE_FIXED) return run_fixed(host, loops, conv, scratch, nbytes);
    if (is_half(conv) && way != FY__TUNE_PLAIN)
        return fy__conv_half_run(host, loops, conv, way, scratch, nbytes);
    return fy__conv_way_run(host, loops, conv, way, scratch, nbytes);
}

/* A way that cannot run has written nothing, and the fixed rule's runs in its place. */
static fy_status_t run_tuned(const fy_host_api_t *host, const fy__loops_t *loops,
                             const fy__conv_t *conv, void *scratch, uint64_t nbytes)
{
    uint32_t ways = (1u << FY__TUNE_WAYS) - 1;
    if (macs_of(&conv->shape) > PLAIN_MACS) ways &= ~(1u << FY__TUNE_PLAIN);
    const fy__tune_ticket_t ticket = fy__conv_tune_begin(&conv->shape, ways);
    fy_status_t status = run_way(host, loops, conv, ticket.way, scratch, nbytes);
    fy__conv_tune_end(&ticket, status == FY_STATUS_OK);
    if (status == FY_STATUS_UNSUPPORTED) status = run_fixed(host, loops, conv, scratch, nbytes);
    return status;
}

/* ---- the family's two functions ---- */

uint64_t fy__conv2d_workspace(const fy_launch_t *launch, uint64_t limit)
{
    fy__conv_t conv;
    make_conv(&conv, launch);
    if (!may_use_dnnl(&conv)) return 0;
    if (may_tune(&conv)) return tuned_nbytes(&conv, limit);
    return way_nbytes(&conv, FY__TUNE_FIXED, limit);
}

fy_status_t fy__run_conv2d(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch)
{
    fy__conv_t conv;
    /* weights of no channels still have a bias */
    if (launch->nelem == 0 && launch->ndst == 1) return FY_STATUS_OK;
    make_conv(&conv, launch);
    return (may_tune(&conv) ? run_tuned : run_fixed)(host, loops, &conv, launch->workspace,
                                                     launch->workspace_nbytes);
}
