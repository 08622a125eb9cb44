/* Convolutions by oneDNN, C API of version 2. The weights' format is oneDNN's choice (in plain OHWI it falls to its reference loop, up to
 * 3000 times slower), so they are reordered on the way in, and their gradient on the way out. Images stay NHWC.
 * Not here: keeping primitives (conv_table.c). conv_dnnl3.c is this file for version 3. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <oneapi/dnnl/dnnl.h>

#include "backends/kernels/conv_prim.h"

struct fy__conv_prim {
    fy__conv_shape_t shape;
    dnnl_primitive_t conv, reorder;           /* reorder NULL: the weights are used where they lie */
    dnnl_memory_desc_t x, w, packed, y, bias; /* w: as the user has them; packed: as oneDNN wants them */
    dnnl_memory_desc_t conv_scratch, reorder_scratch;
};

static dnnl_engine_t engine;
static void make_engine(void)
{
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) engine = NULL;
}

static uint64_t round64(uint64_t nbytes) { return (nbytes + 63) / 64 * 64; }

/* ---- making ---- */

static int describe(fy__conv_prim_t *prim, dnnl_memory_desc_t *any)
{
    const fy__conv_shape_t *s = &prim->shape;
    const int64_t cg = s->c / s->groups, og = s->o / s->groups;
    const dnnl_dims_t x = { s->n, s->c, s->h, s->w }, y = { s->n, s->o, s->oh, s->ow }, bias = { s->o };
    const dnnl_dims_t w = { og, cg, s->kh, s->kw }, w_strides = { s->kh * s->kw * cg, 1, s->kw * cg, cg };
    const dnnl_dims_t gw = { s->groups, og, cg, s->kh, s->kw },
                      gw_strides = { og * s->kh * s->kw * cg, s->kh * s->kw * cg, 1, s->kw * cg, cg };
    const int grouped = s->groups > 1;
    return dnnl_memory_desc_init_by_tag(&prim->x, 4, x, dnnl_f32, dnnl_nhwc) == dnnl_success &&
           dnnl_memory_desc_init_by_tag(&prim->y, 4, y, dnnl_f32, dnnl_nhwc) == dnnl_success &&
           dnnl_memory_desc_init_by_tag(&prim->bias, 1, bias, dnnl_f32, dnnl_a) == dnnl_success &&
           dnnl_memory_desc_init_by_tag(any, grouped ? 5 : 4, grouped ? gw : w, dnnl_f32, dnnl_format_tag_any) == dnnl_success &&
           dnnl_memory_desc_init_by_strides(&prim->w, grouped ? 5 : 4, grouped ? gw : w, dnnl_f32, grouped ? gw_strides : w_strides) ==
               dnnl_success;
}

/* The descriptor of the forward pass, which the gradients want as a hint, or of the gradient itself. */
static dnnl_primitive_desc_t describe_conv(const fy__conv_prim_t *prim, int64_t op, const dnnl_memory_desc_t *any,
                                           const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
    const fy__conv_shape_t *s = &prim->shape;
    const dnnl_dims_t strides = { s->stride_h, s->stride_w }, dilates = { s->dilation_h - 1, s->dilation_w - 1 };
    const dnnl_dims_t padding = { s->padding_h, s->padding_w };
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t out = NULL;
    dnnl_status_t status;
    if (op == FY_OP_CONV2D)
        status = dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_training, direct, &prim->x, any,
                                                            s->has_bias ? &prim->bias : NULL, &prim->y, strides, dilates, padding, padding);
    else if (op == FY_OP_CONV2D_BACKWARD_INPUT)
        status =
            dnnl_dilated_convolution_backward_data_desc_init(&desc, direct, &prim->x, any, &prim->y, strides, dilates, padding, padding);
    else
        status = dnnl_dilated_convolution_backward_weights_desc_init(&desc, direct, &prim->x, any, s->has_bias ? &prim->bias : NULL,
                                                                     &prim->y, strides, dilates, padding, padding);
    if (status != dnnl_success || dnnl_primitive_desc_create(&out, &desc, attr, engine, hint) != dnnl_success) return NULL;
    return out;
}

static int is_reference(const_dnnl_primitive_desc_t desc)
{
    const char *name = NULL;
    if (dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)&name) != dnnl_success || !name) return 1;
    return strncmp(name, "ref", 3) == 0;
}

/* In: from the user's weights; out: from the gradient, added if so asked. */
static int make_reorder(fy__conv_prim_t *prim, dnnl_primitive_attr_t attr)
{
    const int out = prim->shape.op == FY_OP_CONV2D_BACKWARD_WEIGHT;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_post_ops_t post_ops = NULL;
    int ok = 1;
    if (dnnl_memory_desc_equal(&prim->w, &prim->packed) && !(out && prim->shape.accumulate)) return 1;
    if (out && prim->shape.accumulate)
        ok = dnnl_post_ops_create(&post_ops) == dnnl_success && dnnl_post_ops_append_sum(post_ops, 1.0f) == dnnl_success &&
             dnnl_primitive_attr_set_post_ops(attr, post_ops) == dnnl_success;
    ok = ok && dnnl_reorder_primitive_desc_create(&desc, out ? &prim->packed : &prim->w, engine, out ? &prim->w : &prim->packed, engine,
                                                  attr) == dnnl_success;
    if (ok) {
        prim->reorder_scratch = *dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
        ok = dnnl_primitive_create(&prim->reorder, desc) == dnnl_success;
        dnnl_primitive_desc_destroy(desc);
    }
    if (post_ops) dnnl_post_ops_destroy(post_ops);
    return ok;
}

static int make(fy__conv_prim_t *prim, dnnl_primitive_attr_t attr)
{
    const int64_t op = prim->shape.op;
    dnnl_memory_desc_t any;
    dnnl_primitive_desc_t forward = NULL, desc;
    if (!describe(prim, &any)) return 0;
    if (op != FY_OP_CONV2D && !(forward = describe_conv(prim, FY_OP_CONV2D, &any, NULL, attr))) return 0;
    desc = describe_conv(prim, op, &any, forward, attr);
    int ok = desc && !is_reference(desc);
    if (ok) {
        prim->packed =
            *dnnl_primitive_desc_query_md(desc, op == FY_OP_CONV2D_BACKWARD_WEIGHT ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
        prim->conv_scratch = *dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
        ok = dnnl_primitive_create(&prim->conv, desc) == dnnl_success && make_reorder(prim, attr);
    }
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (forward) dnnl_primitive_desc_destroy(forward);
    return ok;
}

fy__conv_prim_t *fy__conv_prim_make(const fy__conv_shape_t *shape)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    dnnl_primitive_attr_t attr = NULL;
    pthread_once(&once, make_engine);
    fy__conv_prim_t *prim = (fy__conv_prim_t *)calloc(1, sizeof *prim);
    if (!prim || !engine || dnnl_primitive_attr_create(&attr) != dnnl_success) {
        free(prim);
        return NULL;
    }
    prim->shape = *shape;
    const int ok = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success && make(prim, attr);
    dnnl_primitive_attr_destroy(attr);
    if (ok) return prim;
    fy__conv_prim_free(prim);
    return NULL;
}

void fy__conv_prim_free(fy__conv_prim_t *prim)
{
    if (!prim) return;
    if (prim->conv) dnnl_primitive_destroy(prim->conv);
    if (prim->reorder) dnnl_primitive_destroy(prim->reorder);
    free(prim);
}

/* ---- running ---- */

/* The packed weights come first, then scratch: the two primitives run one after the other and share it. */
static uint64_t packed_nbytes(const fy__conv_prim_t *prim) { return prim->reorder ? round64(dnnl_memory_desc_get_size(&prim->packed)) : 0; }

uint64_t fy__conv_prim_nbytes(const fy__conv_prim_t *prim)
{
    const uint64_t conv = dnnl_memory_desc_get_size(&prim->conv_scratch),
                   reorder = prim->reorder ? dnnl_memory_desc_get_size(&prim->reorder_scratch) : 0;
    return packed_nbytes(prim) + round64(conv > reorder ? conv : reorder) + 64;
}

enum { MOST_ARGS = 5 };
typedef struct args {
    dnnl_exec_arg_t list[MOST_ARGS];
    int n, failed;
} args_t;

static void add_arg(args_t *args, int arg, const dnnl_memory_desc_t *desc, void *data)
{
    dnnl_memory_t memory = NULL;
    if (dnnl_memory_create(&memory, desc, engine, data) != dnnl_success) {
        args->failed = 1;
        return;
    }
    args->list[args->n++] = (dnnl_exec_arg_t){ arg, memory };
}

/* Memory objects are made for each run: setting the address of a shared one is not safe between threads. */
static dnnl_status_t execute(dnnl_primitive_t primitive, dnnl_stream_t stream, args_t *args)
{
    const dnnl_status_t status = args->failed ? dnnl_out_of_memory : dnnl_primitive_execute(primitive, stream, args->n, args->list);
    for (int i = 0; i < args->n; i++) dnnl_memory_destroy(args->list[i].memory);
    return status;
}

static dnnl_status_t reorder(const fy__conv_prim_t *prim, dnnl_stream_t stream, void *w, void *packed, void *scratch)
{
    const int out = prim->shape.op == FY_OP_CONV2D_BACKWARD_WEIGHT;
    args_t args = { .n = 0 };
    add_arg(&args, DNNL_ARG_FROM, out ? &prim->packed : &prim->w, out ? packed : w);
    add_arg(&args, DNNL_ARG_TO, out ? &prim->w : &prim->packed, out ? w : packed);
    add_arg(&args, DNNL_ARG_SCRATCHPAD, &prim->reorder_scratch, scratch);
    return execute(prim->reorder, stream, &args);
}

fy_status_t fy__conv_prim_run(const fy_host_api_t *host, const fy__conv_prim_t *prim, void *x, void *w, void *y, void *bias, void *scratch)
{
    const int64_t op = prim->shape.op;
    char *packed = prim->reorder ? (char *)scratch : (char *)w, *rest = (char *)scratch + packed_nbytes(prim);
    const int weight = op == FY_OP_CONV2D_BACKWARD_WEIGHT, input = op == FY_OP_CONV2D_BACKWARD_INPUT;
    dnnl_stream_t stream = NULL;
    args_t args = { .n = 0 };
    dnnl_status_t status = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    if (status == dnnl_success && prim->reorder && !weight) status = reorder(prim, stream, w, packed, rest);
    if (status == dnnl_success) {
        add_arg(&args, input ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, &prim->x, x);
        add_arg(&args, weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, &prim->packed, packed);
        add_arg(&args, op == FY_OP_CONV2D ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, &prim->y, y);
        if (bias) add_arg(&args, weight ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS, &prim->bias, bias);
        add_arg(&args, DNNL_ARG_SCRATCHPAD, &prim->conv_scratch, rest);
        status = execute(prim->conv, stream, &args);
    }
    if (status == dnnl_success && prim->reorder && weight) status = reorder(prim, stream, w, packed, rest);
    if (stream) dnnl_stream_destroy(stream);
    if (status == dnnl_success) return FY_STATUS_OK;
    return host->fail(status == dnnl_out_of_memory ? FY_STATUS_OUT_OF_MEMORY : FY_STATUS_INTERNAL, __FILE__, __LINE__,
                      "oneDNN refused a convolution that it had planned (status %d)", (int)status);
}
