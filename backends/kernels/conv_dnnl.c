/* Convolutions by oneDNN, version 3 or 2: making one, running it. The weights' format is oneDNN's
 * choice (in plain OHWI it falls to its reference loop, up to 3000 times slower), so they are
 * reordered on the way in, and their gradient on the way out. Images stay NHWC.
 * Not here: the differences between the two C APIs (conv_dnnl3.c, conv_dnnl2.c), keeping primitives
 * (conv_table.c). */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/kernels/conv_dnnl.h"
#include "backends/kernels/team.h"

struct fy__conv_prim {
    fy__conv_shape_t shape;
    dnnl_primitive_t conv, reorder; /* reorder NULL: the weights are used where they are */
    /* w: as the user has them; packed: as oneDNN wants them; bias NULL: there is none */
    fy__md_t x, w, packed, y, bias;
    fy__md_t conv_scratch, reorder_scratch;
    int reorder_threads;
    int leaves_bias; /* the caller computes the bias' gradient */
    char name[64];   /* of the implementation */
};

/* A reorder reads and writes, at about half the bandwidth of a copy. */
enum { REORDER_PASSES = 4 };

static dnnl_engine_t engine;
static void make_engine(void)
{
    if (!fy__dnnl_open() || fy__dnnl.engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        engine = NULL;
}

static uint64_t round64(uint64_t nbytes) { return (nbytes + 63) / 64 * 64; }

/* ---- making ---- */

static int describe(fy__conv_prim_t *prim, fy__md_t *any)
{
    const fy__conv_shape_t *s = &prim->shape;
    const int64_t cg = s->c / s->groups, og = s->o / s->groups;
    const dnnl_dims_t x = { s->n, s->c, s->h, s->w }, y = { s->n, s->o, s->oh, s->ow },
                      bias = { s->o };
    const dnnl_dims_t w = { og, cg, s->kh, s->kw },
                      w_strides = { s->kh * s->kw * cg, 1, s->kw * cg, cg };
    const dnnl_dims_t gw = { s->groups, og, cg, s->kh, s->kw },
                      gw_strides = { og * s->kh * s->kw * cg, s->kh * s->kw * cg, 1, s->kw * cg,
                                     cg };
    const int grouped = s->groups > 1;
    prim->x = fy__md_by_tag(4, x, dnnl_nhwc);
    prim->y = fy__md_by_tag(4, y, dnnl_nhwc);
    prim->bias = s->has_bias ? fy__md_by_tag(1, bias, dnnl_a) : NULL;
    prim->w =
        fy__md_by_strides(grouped ? 5 : 4, grouped ? gw : w, grouped ? gw_strides : w_strides);
    *any = fy__md_by_tag(grouped ? 5 : 4, grouped ? gw : w, dnnl_format_tag_any);
    return prim->x && prim->y && (prim->bias || !s->has_bias) && prim->w && *any;
}

const char *fy__conv_desc_name(const_dnnl_primitive_desc_t desc)
{
    const char *name = NULL;
    if (fy__dnnl.primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)&name) !=
            dnnl_success ||
        !name)
        return "ref";
    return name;
}

/* In: from the user's weights; out: from the gradient, added if the shape accumulates. */
static int make_reorder_here(fy__conv_prim_t *prim, dnnl_primitive_attr_t attr)
{
    const int out = prim->shape.op == FY_OP_CONV2D_BACKWARD_WEIGHT;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_post_ops_t post_ops = NULL;
    int ok = 1;
    if (fy__dnnl.memory_desc_equal(prim->w, prim->packed) && !(out && prim->shape.accumulate))
        return 1;
    if (out && prim->shape.accumulate)
        ok = fy__dnnl.post_ops_create(&post_ops) == dnnl_success &&
             fy__post_ops_sum(post_ops) == dnnl_success &&
             fy__dnnl.primitive_attr_set_post_ops(attr, post_ops) == dnnl_success;
    ok = ok && fy__dnnl.reorder_primitive_desc_create(&desc, out ? prim->packed : prim->w, engine,
                                                      out ? prim->w : prim->packed, engine,
                                                      attr) == dnnl_success;
    if (ok) {
        prim->reorder_scratch =
            fy__md_clone(fy__dnnl.primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0));
        ok = prim->reorder_scratch &&
             fy__dnnl.primitive_create(&prim->reorder, desc) == dnnl_success;
        fy__dnnl.primitive_desc_destroy(desc);
    }
    if (post_ops) fy__dnnl.post_ops_destroy(post_ops);
    return ok;
}

/* Most weights are so small that one thread is faster than waking the others. */
static int make_reorder(fy__conv_prim_t *prim, dnnl_primitive_attr_t attr)
{
    const double nbytes = (double)fy__dnnl.memory_desc_get_size(prim->packed);
    const int threads = fy__threads_for_cost(0, REORDER_PASSES * nbytes),
              most = omp_get_max_threads();
    prim->reorder_threads = threads < most ? threads : most;
    const fy__team_t team = fy__team_begin(prim->reorder_threads);
    const int ok = make_reorder_here(prim, attr);
    fy__team_end(&team);
    return ok;
}

/* The AVX2 loop for weights adds dy up in memory, pixel by pixel: a separate sum is 2 to 10 times
 * as fast. */
static void leave_bias(fy__conv_prim_t *prim, const fy__conv_mds_t *mds, dnnl_primitive_attr_t attr,
                       dnnl_primitive_desc_t *desc)
{
    const fy__conv_mds_t rest = { .x = mds->x, .w = mds->w, .y = mds->y };
    dnnl_primitive_desc_t forward = NULL, other = NULL;
    if (strcmp(fy__conv_desc_name(*desc), "jit:avx2") != 0) return;
    forward = fy__conv_desc_make(engine, &prim->shape, FY_OP_CONV2D, &rest, NULL, attr);
    if (forward)
        other = fy__conv_desc_make(engine, &prim->shape, FY_OP_CONV2D_BACKWARD_WEIGHT, &rest,
                                   forward, attr);
    if (forward) fy__dnnl.primitive_desc_destroy(forward);
    if (!other) return;
    fy__dnnl.primitive_desc_destroy(*desc);
    *desc = other;
    prim->leaves_bias = 1;
}

static int make(fy__conv_prim_t *prim, dnnl_primitive_attr_t attr)
{
    const int64_t op = prim->shape.op;
    fy__md_t any = NULL;
    dnnl_primitive_desc_t forward = NULL, desc = NULL;
    int ok = describe(prim, &any);
    const fy__conv_mds_t mds = { .x = prim->x, .w = any, .y = prim->y, .bias = prim->bias };
    if (ok && op != FY_OP_CONV2D)
        ok = (forward = fy__conv_desc_make(engine, &prim->shape, FY_OP_CONV2D, &mds, NULL, attr)) !=
             NULL;
    if (ok) desc = fy__conv_desc_make(engine, &prim->shape, op, &mds, forward, attr);
    if (desc && op == FY_OP_CONV2D_BACKWARD_WEIGHT && mds.bias) leave_bias(prim, &mds, attr, &desc);
    ok = desc && strncmp(fy__conv_desc_name(desc), "ref", 3) != 0;
    if (ok) {
        const dnnl_query_t weights = op == FY_OP_CONV2D_BACKWARD_WEIGHT ? dnnl_query_diff_weights_md
                                                                        : dnnl_query_weights_md;
        (void)snprintf(prim->name, sizeof prim->name, "%s", fy__conv_desc_name(desc));
        prim->packed = fy__md_clone(fy__dnnl.primitive_desc_query_md(desc, weights, 0));
        prim->conv_scratch =
            fy__md_clone(fy__dnnl.primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0));
        ok = prim->packed && prim->conv_scratch &&
             fy__dnnl.primitive_create(&prim->conv, desc) == dnnl_success &&
             make_reorder(prim, attr);
    }
    if (desc) fy__dnnl.primitive_desc_destroy(desc);
    if (forward) fy__dnnl.primitive_desc_destroy(forward);
    fy__md_free(any);
    return ok;
}

fy__conv_prim_t *fy__conv_prim_make(const fy__conv_shape_t *shape)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    dnnl_primitive_attr_t attr = NULL;
    pthread_once(&once, make_engine);
    fy__conv_prim_t *prim = (fy__conv_prim_t *)calloc(1, sizeof *prim);
    if (!prim || !engine || fy__dnnl.primitive_attr_create(&attr) != dnnl_success) {
        free(prim);
        return NULL;
    }
    prim->shape = *shape;
    const int ok = fy__dnnl.primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) ==
                       dnnl_success &&
                   make(prim, attr);
    fy__dnnl.primitive_attr_destroy(attr);
    if (ok) return prim;
    fy__conv_prim_free(prim);
    return NULL;
}

void fy__conv_prim_free(fy__conv_prim_t *prim)
{
    if (!prim) return;
    if (prim->conv) fy__dnnl.primitive_destroy(prim->conv);
    if (prim->reorder) fy__dnnl.primitive_destroy(prim->reorder);
    fy__md_t mds[] = { prim->x,
                       prim->w,
                       prim->packed,
                       prim->y,
                       prim->bias,
                       prim->conv_scratch,
                       prim->reorder_scratch };
    for (size_t i = 0; i < sizeof mds / sizeof mds[0]; i++) fy__md_free(mds[i]);
    free(prim);
}

int fy__conv_prim_leaves_bias(const fy__conv_prim_t *prim) { return prim->leaves_bias; }

const char *fy__conv_prim_impl_name(const fy__conv_prim_t *prim) { return prim->name; }

/* ---- running ---- */

/* The packed weights come first, then scratch: the two primitives run one after the other and share
 * it. */
static uint64_t packed_nbytes(const fy__conv_prim_t *prim)
{
    return prim->reorder ? round64(fy__dnnl.memory_desc_get_size(prim->packed)) : 0;
}

uint64_t fy__conv_prim_nbytes(const fy__conv_prim_t *prim)
{
    const uint64_t conv = fy__dnnl.memory_desc_get_size(prim->conv_scratch),
                   reorder = prim->reorder ? fy__dnnl.memory_desc_get_size(prim->reorder_scratch)
                                           : 0;
    return packed_nbytes(prim) + round64(conv > reorder ? conv : reorder) + 64;
}

enum { MOST_ARGS = 5 };
typedef struct args {
    dnnl_exec_arg_t list[MOST_ARGS];
    int n, failed;
} args_t;

static void add_arg(args_t *args, int arg, fy__const_md_t desc, void *data)
{
    dnnl_memory_t memory = NULL;
    if (fy__dnnl.memory_create(&memory, desc, engine, data) != dnnl_success) {
        args->failed = 1;
        return;
    }
    args->list[args->n++] = (dnnl_exec_arg_t){ arg, memory };
}

/* Memory objects are made for each run: setting the address of a shared one is not safe between
 * threads. */
static dnnl_status_t execute(dnnl_primitive_t primitive, dnnl_stream_t stream, args_t *args)
{
    const dnnl_status_t status =
        args->failed ? dnnl_out_of_memory
                     : fy__dnnl.primitive_execute(primitive, stream, args->n, args->list);
    for (int i = 0; i < args->n; i++) fy__dnnl.memory_destroy(args->list[i].memory);
    return status;
}

static dnnl_status_t reorder(const fy__conv_prim_t *prim, dnnl_stream_t stream, void *w,
                             void *packed, void *scratch)
{
    const int out = prim->shape.op == FY_OP_CONV2D_BACKWARD_WEIGHT;
    args_t args = { .n = 0 };
    add_arg(&args, DNNL_ARG_FROM, out ? prim->packed : prim->w, out ? packed : w);
    add_arg(&args, DNNL_ARG_TO, out ? prim->w : prim->packed, out ? w : packed);
    add_arg(&args, DNNL_ARG_SCRATCHPAD, prim->reorder_scratch, scratch);
    const fy__team_t team = fy__team_begin(prim->reorder_threads);
    const dnnl_status_t status = execute(prim->reorder, stream, &args);
    fy__team_end(&team);
    return status;
}

fy_status_t fy__conv_prim_run(const fy_host_api_t *host, const fy__conv_prim_t *prim, void *x,
                              void *w, void *y, void *bias, void *scratch)
{
    const int64_t op = prim->shape.op;
    char *packed = prim->reorder ? (char *)scratch : (char *)w,
         *rest = (char *)scratch + packed_nbytes(prim);
    const int weight = op == FY_OP_CONV2D_BACKWARD_WEIGHT,
              input = op == FY_OP_CONV2D_BACKWARD_INPUT;
    dnnl_stream_t stream = NULL;
    args_t args = { .n = 0 };
    dnnl_status_t status = fy__dnnl.stream_create(&stream, engine, dnnl_stream_default_flags);
    if (status == dnnl_success && prim->reorder && !weight)
        status = reorder(prim, stream, w, packed, rest);
    if (status == dnnl_success) {
        add_arg(&args, input ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, prim->x, x);
        add_arg(&args, weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, prim->packed, packed);
        add_arg(&args, op == FY_OP_CONV2D ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, prim->y, y);
        if (bias) add_arg(&args, weight ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS, prim->bias, bias);
        add_arg(&args, DNNL_ARG_SCRATCHPAD, prim->conv_scratch, rest);
        status = execute(prim->conv, stream, &args);
    }
    if (status == dnnl_success && prim->reorder && weight)
        status = reorder(prim, stream, w, packed, rest);
    if (stream) fy__dnnl.stream_destroy(stream);
    if (status == dnnl_success) return FY_STATUS_OK;
    if (status != dnnl_out_of_memory) return FY_STATUS_UNSUPPORTED;
    return host->fail(FY_STATUS_OUT_OF_MEMORY, __FILE__, __LINE__,
                      "oneDNN has no memory for a convolution that it had planned");
}
