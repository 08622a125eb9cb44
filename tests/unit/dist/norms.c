/* One rank of trainings with synchronised batch norms, against one process with whole batches,
 * which each rank runs for itself: test_norms.sh starts several by mpirun.
 *   norms CASE DEVICE
 * small: conv, norms with and without a residual, a norm of one value a channel; f32, f64, bf16.
 * resnet18: gradients and one update, in f64 and f32. train: fy_train_run in f64, on batches whose
 * shards differ. refuse: what fails, on all ranks alike.
 * drift: 20 updates of resnet18, printed beside those of one process with one weight, and with all
 * weights changed by 1e-7 (docs/results/); not part of `all`. */
#include <inttypes.h>

#include <ferry/autocast.h>
#include <ferry/dist_train.h>
#include <ferry/graph.h>
#include <ferry/train/train.h>

#include "tests/unit/dist/ranks.h"

#define RESNET "resnet18:channels=3,classes=10,size=" /* 32 in drift: docs/results/ */
enum { CLASSES = 10 };

/* Samples of all ranks in each step; lengths of shards differ. */
static const int64_t batches[] = { 8, 7, 5, 8, 6, 5, 8, 7 };
enum { STEPS = sizeof batches / sizeof *batches };

typedef struct side {
    fy_model_t *model;
    fy_ddp_t *ddp; /* NULL: one process */
    fy_tape_t *tape;
    fy_optimizer_t *optimizer;
    fy_model_info_t info;
} side_t;

static fy_layer_t *conv(int64_t in, int64_t out)
{
    fy_conv2d_options_t options = FY_CONV2D_OPTIONS_INIT;
    fy_layer_t *layer;
    options.padding_h = options.padding_w = 1;
    options.no_bias = 1;
    OK(fy_layer_conv2d(in, out, 3, 3, &options, &layer));
    return layer;
}

static fy_layer_t *norm(int64_t channels, fy_activation_t activation)
{
    fy_batch_norm_options_t options = FY_BATCH_NORM_OPTIONS_INIT;
    fy_layer_t *layer;
    options.activation = activation;
    OK(fy_layer_batch_norm(channels, &options, &layer));
    return layer;
}

static fy_layer_t *small(void)
{
    fy_layer_t *body, *block, *pool, *fc1, *fc2, *all;
    const fy_layer_child_t inner[] = { { "conv", conv(8, 8) }, { "norm", norm(8, 0) } };
    OK(fy_layer_sequential(2, inner, &body));
    OK(fy_layer_residual(body, NULL, FY_ACTIVATION_RELU, &block));
    OK(fy_layer_global_avg_pool2d(&pool));
    OK(fy_layer_linear(8, 16, NULL, &fc1));
    OK(fy_layer_linear(16, CLASSES, NULL, &fc2));
    const fy_layer_child_t children[] = {
        { "conv1", conv(3, 8) }, { "norm1", norm(8, FY_ACTIVATION_RELU) },
        { "block", block },      { "", pool },
        { "fc1", fc1 },          { "norm2", norm(16, FY_ACTIVATION_NONE) },
        { "fc2", fc2 }
    };
    OK(fy_layer_sequential(sizeof children / sizeof *children, children, &all));
    return all;
}

static side_t make_side(fy_group_t *g, const char *name, const fy_model_options_t *options)
{
    side_t side = { .info = FY_MODEL_INFO_INIT };
    fy_optimizer_options_t optimizer = FY_OPTIMIZER_OPTIONS_INIT;
    fy_ddp_options_t ddp = FY_DDP_OPTIONS_INIT;
    ddp.sync_batch_norm = 1;
    optimizer.lr = 0.05;
    optimizer.momentum = 0.9;
    if (name)
        OK(fy_model_open(device, name, options, &side.model));
    else
        OK(fy_model_create(device, small(), FY_DIMS(8, 8, 3), options, &side.model));
    OK(fy_model_query(side.model, &side.info));
    if (g) OK(fy_ddp_create(g, side.model, &ddp, &side.ddp));
    OK(fy_optimizer_create_model(&optimizer, side.model, &side.optimizer));
    OK(fy_tape_create(&side.tape));
    OK(fy_model_watch(side.model, side.tape));
    return side;
}

static void free_side(side_t *side)
{
    fy_tape_destroy(side->tape);
    fy_optimizer_destroy(side->optimizer);
    fy_ddp_destroy(side->ddp);
    fy_model_destroy(side->model);
}

/* The whole batch of a step, and the part of it that `side` computes. */
static void make_batch(const side_t *side, int step, int64_t batch, int size, fy_dtype_t dtype,
                       fy_tensor_t **out_x, fy_tensor_t **out_labels)
{
    fy_tensor_t *x, *labels;
    void *data;
    uint32_t state = 12345u + 7919u * (uint32_t)step;
    OK(fy_tensor_create(fy_device_host(), FY_DTYPE_F32, FY_DIMS(batch, size, size, 3), &x));
    OK(fy_tensor_create(fy_device_host(), FY_DTYPE_I64, FY_DIMS(batch), &labels));
    OK(fy_tensor_map(x, FY_ACCESS_WRITE, &data));
    for (int64_t i = 0; i < batch * size * size * 3; i++) {
        state = state * 1664525u + 1013904223u;
        ((float *)data)[i] = (float)(state >> 8) * 0x1p-23f - 0.7f;
    }
    OK(fy_tensor_map(labels, FY_ACCESS_WRITE, &data));
    for (int64_t i = 0; i < batch; i++) ((int64_t *)data)[i] = (i * 7 + step) % CLASSES;
    if (device != fy_device_host()) {
        OK(fy_tensor_upload(x, device, NULL, &x));
        OK(fy_tensor_upload(labels, device, NULL, &labels));
    }
    OK(fy_cast(x, dtype, out_x));
    *out_labels = labels;
    if (!side->ddp) return;
    const int64_t begin = batch * group.rank / group.size,
                  end = batch * (group.rank + 1) / group.size;
    OK(fy_slice(*out_x, 0, begin, end, out_x));
    OK(fy_slice(*out_labels, 0, begin, end, out_labels));
}

/* The gradients of a batch of `batch` samples. */
static void pass(side_t *side, int step, int64_t batch, int size, fy_dtype_t precision)
{
    fy_tensor_info_t values = FY_TENSOR_INFO_INIT;
    fy_tensor_t *x, *labels, *y, *loss;
    const fy_scope_t scope = fy_scope_begin("pass");
    OK(fy_tensor_query(side->info.values, &values));
    make_batch(side, step, batch, size, values.dtype, &x, &labels);
    if (precision) OK(fy_autocast_set(precision));
    OK(fy_tape_begin(side->tape));
    OK(fy_model_forward(side->model, x, &y));
    OK(fy_cross_entropy(y, labels, FY_REDUCTION_SUM, &loss));
    OK(fy_affine(loss, 1.0 / (double)batch, 0, &loss));
    if (side->ddp) {
        OK(fy_ddp_backward(side->ddp, side->tape, loss, NULL));
        OK(fy_ddp_reduce(side->ddp));
    } else {
        OK(fy_model_backward(side->model, side->tape, loss, NULL));
    }
    fy_scope_end(scope, 0, NULL);
}

typedef struct testing {
    const char *name, *model; /* model NULL: small */
    fy_dtype_t dtype, precision;
    int size, steps;
    double grads, values, buffers; /* the most that they may differ: of the last step */
    int recompute;
} testing_t;

/* f32 is rounded to 6e-8. A relu whose input is as near to 0 has another sign on other ranks, which
 * changes gradients by some 1e-2, and later updates more. So f32 has one step, with a close bound
 * for statistics alone; f64 has them all. */
static const testing_t cases[] = {
    { "small", NULL, FY_DTYPE_F32, 0, 8, 1, 5e-2, 5e-3, 1e-6, 0 },
    { "small", NULL, FY_DTYPE_F64, 0, 8, STEPS, 1e-12, 1e-13, 1e-13, 0 },
    { "small", NULL, FY_DTYPE_F32, 0, 8, 1, 5e-2, 5e-3, 1e-6, 2 },
    { "small", NULL, FY_DTYPE_F64, 0, 8, STEPS, 1e-12, 1e-13, 1e-13, 2 },
    { "small", NULL, FY_DTYPE_F32, FY_DTYPE_BF16, 8, 1, 5e-2, 5e-3, 5e-3, 0 },
    { "resnet18", RESNET "16", FY_DTYPE_F64, 0, 16, 1, 1e-12, 1e-13, 1e-13, 0 },
    { "resnet18", RESNET "16", FY_DTYPE_F32, 0, 16, 1, 5e-2, 5e-3, 1e-5, 0 }
};

static void check_case(fy_group_t *g, const testing_t *c)
{
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    options.dtype = c->dtype;
    side_t one = make_side(NULL, c->model, &options);
    options.recompute = c->recompute;
    options.recompute_cheap = c->recompute != 0;
    options.seed = group.rank + 1; /* other values, until they are rank 0's */
    side_t many = make_side(g, c->model, &options);
    const fy_scope_t scope = fy_scope_begin(c->name);
    for (int step = 0; step < c->steps; step++) {
        const int64_t batch = c->model ? 8 : batches[step];
        pass(&one, step, batch, c->size, c->precision);
        pass(&many, step, batch, c->size, c->precision);
        OK(fy_optimizer_step(one.optimizer));
        OK(fy_optimizer_step(many.optimizer));
    }
    check_replicas(g, many.info.values);
    check_replicas(g, many.info.buffers); /* before fy_ddp_share_buffers */
    const double grads = difference(many.info.grads, one.info.grads),
                 values = difference(many.info.values, one.info.values),
                 buffers = difference(many.info.buffers, one.info.buffers);
    if (group.rank == 0)
        printf("%s %s%s%s: gradients %.3g, parameters %.3g, running statistics %.3g\n", c->name,
               fy_dtype_name(c->dtype), c->precision ? " bf16" : "",
               c->recompute ? " recomputed" : "", grads, values, buffers);
    HOLDS(grads <= c->grads && values <= c->values && buffers <= c->buffers);
    fy_scope_end(scope, 0, NULL);
    free_side(&one);
    free_side(&many);
}

/* ---- whole trainings ---- */

static fy_status_t widened_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                                 int64_t *out_dims, uint64_t *out_macs)
{
    (void)user;
    *out_rank = rank;
    *out_macs = 0;
    memcpy(out_dims, dims, (size_t)rank * sizeof *dims);
    return FY_STATUS_OK;
}

static fy_status_t widen(void *user, const fy_pass_t *now, fy_tensor_t *const *params,
                         fy_tensor_t *x, fy_tensor_t **out_y)
{
    (void)user, (void)now, (void)params;
    return fy_cast(x, FY_DTYPE_F64, out_y);
}

/* Batches of a loader are f32. */
static fy_layer_t *widened(fy_layer_t *layer)
{
    fy_layer_def_t def = FY_LAYER_DEF_INIT;
    fy_layer_t *first, *both;
    def.type = "widen";
    def.shape = widened_shape;
    def.forward = widen;
    OK(fy_layer_create(&def, NULL, &first));
    const fy_layer_child_t children[] = { { "", first }, { "net", layer } };
    OK(fy_layer_sequential(2, children, &both));
    return both;
}

typedef struct training {
    fy_model_t *model;
    fy_model_info_t info;
    fy_train_result_t result;
} training_t;

/* g NULL: one process, with the whole of each batch. */
static training_t train(fy_group_t *g, const fy_dataset_t *set)
{
    training_t t = { .info = FY_MODEL_INFO_INIT, .result = FY_TRAIN_RESULT_INIT };
    fy_model_options_t model = FY_MODEL_OPTIONS_INIT;
    fy_optimizer_options_t sgd = FY_OPTIMIZER_OPTIONS_INIT;
    fy_loader_options_t loader = FY_LOADER_OPTIONS_INIT;
    fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
    fy_ddp_options_t sync = FY_DDP_OPTIONS_INIT;
    fy_train_replicas_t replicas = FY_TRAIN_REPLICAS_INIT;
    fy_optimizer_t *optimizer;
    fy_loader_t *batches_of, *tests_of;
    fy_ddp_t *ddp = NULL;
    model.dtype = FY_DTYPE_F64;
    sgd.lr = 0.05;
    sgd.momentum = 0.9;
    sync.sync_batch_norm = 1;
    loader.batch = 16; /* 16, 16 and 8 of 40 */
    loader.scale = 1.0 / 255;
    loader.resize = 8; /* which needs resident 0 */
    loader.resident = 0;
    loader.rank = g ? group.rank : 0;
    loader.ranks = g ? group.size : 0;
    options.epochs = 2;
    OK(fy_loader_create(device, set, &loader, &batches_of));
    loader.shuffle = 0;
    OK(fy_loader_create(device, set, &loader, &tests_of));
    OK(fy_model_create(device, widened(small()), FY_DIMS(8, 8, 3), &model, &t.model));
    OK(fy_model_query(t.model, &t.info));
    OK(fy_optimizer_create_model(&sgd, t.model, &optimizer));
    if (g) OK(fy_ddp_create(g, t.model, &sync, &ddp));
    if (g) OK(fy_ddp_replicas(ddp, &replicas));
    if (g) options.replicas = &replicas;
    OK(fy_train_run(t.model, optimizer, batches_of, tests_of, &options, &t.result));
    fy_ddp_destroy(ddp);
    fy_optimizer_destroy(optimizer);
    fy_loader_destroy(batches_of);
    fy_loader_destroy(tests_of);
    return t;
}

static void check_training(fy_group_t *g)
{
    fy_dataset_t *set;
    OK(fy_dataset_synthetic_images(40, 1, &set));
    training_t one = train(NULL, set), many = train(g, set);
    const double values = difference(many.info.values, one.info.values),
                 buffers = difference(many.info.buffers, one.info.buffers),
                 tests = fabs(many.result.test_loss / one.result.test_loss - 1),
                 losses = fabs(many.result.train_loss / one.result.train_loss - 1);
    check_replicas(g, many.info.values);
    check_replicas(g, many.info.buffers);
    if (group.rank == 0)
        printf("train f64: parameters %.3g, running statistics %.3g, losses %.3g %.3g\n", values,
               buffers, losses, tests);
    HOLDS(values <= 1e-13 && buffers <= 1e-13 && tests <= 1e-13);
    HOLDS(losses <= 1e-6); /* the trainer sums them in f32 */
    fy_model_destroy(one.model);
    fy_model_destroy(many.model);
    fy_dataset_destroy(set);
}

/* ---- refusals ---- */

static void check_refusals(fy_group_t *g)
{
    side_t many = make_side(g, NULL, NULL);
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    fy_ddp_options_t options = FY_DDP_OPTIONS_INIT;
    fy_tensor_t *before, *x, *labels, *y;
    fy_graph_t *graph = NULL;
    fy_ddp_t *other;
    if (group.size == 1) return free_side(&many);
    OK(fy_tensor_query(many.info.buffers, &info));
    OK(fy_affine(many.info.buffers, 1, 0, &before));

    /* fewer samples than ranks: all ranks fail, and the group goes on */
    make_batch(&many, 0, group.size - 1, 8, FY_DTYPE_F32, &x, &labels);
    HOLDS(fy_model_forward(many.model, x, &y) == FY_STATUS_SHAPE_MISMATCH && !y);
    HOLDS(strstr(fy_error_get()->text, "rank 0 has no samples of this batch"));
    HOLDS(memcmp(fetch(before), fetch(many.info.buffers), info.nbytes) == 0);

    /* a graph is recorded */
    make_batch(&many, 0, 8, 8, FY_DTYPE_F32, &x, &labels);
    OK(fy_graph_begin(device));
    HOLDS(fy_model_forward(many.model, x, &y) == FY_STATUS_UNSUPPORTED && !y);
    HOLDS(strstr(fy_error_get()->text, "a graph, which cannot exchange statistics"));
    HOLDS(fy_graph_end(&graph) == FY_STATUS_UNSUPPORTED);
    HOLDS(memcmp(fetch(before), fetch(many.info.buffers), info.nbytes) == 0);
    pass(&many, 0, 8, 8, 0);

    /* ranks with other options */
    fy_ddp_destroy(many.ddp);
    many.ddp = NULL;
    options.sync_batch_norm = group.rank == 1;
    HOLDS(fy_ddp_create(g, many.model, &options, &other) == FY_STATUS_INVALID_ARGUMENT && !other);
    HOLDS(strstr(fy_error_get()->text, "rank 1: sync_batch_norm 1"));

    /* without the group's norms the forward calls no other rank */
    OK(fy_group_query(g, &group));
    const uint64_t calls = group.calls;
    OK(fy_model_forward(many.model, x, &y));
    OK(fy_group_query(g, &group));
    HOLDS(group.calls == calls);
    free_side(&many);
}

/* Calls and bytes of a step: a gather and a sum for each of the 3 norms. */
static void check_ledger(fy_group_t *g)
{
    side_t many = make_side(g, NULL, NULL);
    fy_ledger_totals_t before = FY_LEDGER_TOTALS_INIT, after = FY_LEDGER_TOTALS_INIT;
    fy_tensor_t *x, *labels, *y, *loss;
    make_batch(&many, 0, 8, 8, FY_DTYPE_F32, &x, &labels);
    OK(fy_tape_begin(many.tape));
    OK(fy_ledger_query(NULL, &before));
    OK(fy_model_forward(many.model, x, &y));
    OK(fy_ledger_query(NULL, &after));
    const uint64_t gathered = (uint64_t)group.size * (3 + 2 * (8 + 8 + 16)) * sizeof(double);
    if (group.size > 1) {
        HOLDS(after.collective.count - before.collective.count == 3);
        HOLDS(after.collective.nbytes - before.collective.nbytes == gathered);
    }
    OK(fy_cross_entropy(y, labels, FY_REDUCTION_MEAN, &loss));
    OK(fy_model_backward(many.model, many.tape, loss, NULL));
    OK(fy_ledger_query(NULL, &before));
    if (group.size > 1) {
        HOLDS(before.collective.count - after.collective.count == 3);
        HOLDS(before.collective.nbytes - after.collective.nbytes ==
              2 * (8 + 8 + 16) * sizeof(float));
    }
    free_side(&many);
}

/* ---- drift ---- */

/* Changes `count` weights by at most 1e-7 of each. */
static void perturb(side_t *side, int64_t count)
{
    fy_tensor_t *part, *rng, *factors, *change;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    OK(fy_slice(side->info.values, 0, 0, count, &part));
    OK(fy_tensor_query(part, &info));
    OK(fy_full(device, info.dtype, FY_DIMS(count), 1, &factors));
    if (count > 1) {
        OK(fy_rng_create(device, 5, &rng));
        OK(fy_rand(rng, info.dtype, FY_DIMS(count), -1, 1, &factors));
    }
    OK(fy_mul(part, factors, &change));
    OK(fy_axpy(part, 1e-7, change));
}

static void drift(fy_group_t *g, fy_dtype_t dtype)
{
    enum { UPDATES = 20 };
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    options.dtype = dtype;
    side_t one = make_side(NULL, RESNET "32", &options),
           weight = make_side(NULL, RESNET "32", &options),
           weights = make_side(NULL, RESNET "32", &options),
           many = make_side(g, RESNET "32", &options);
    side_t *const sides[] = { &many, &weight, &weights, &one };
    perturb(&weight, 1);
    perturb(&weights, length_of(weights.info.values));
    if (group.rank == 0)
        printf("| updates, %s | %d ranks | one weight changed | all weights changed |\n",
               fy_dtype_name(dtype), group.size);
    for (int step = 0; step <= UPDATES; step++) {
        const fy_scope_t scope = fy_scope_begin("drift");
        if (group.rank == 0 && (step < 3 || step % 5 == 0)) {
            printf("| %d |", step);
            for (int i = 0; i < 3; i++)
                printf(" %.2g |", difference(sides[i]->info.values, one.info.values));
            printf("\n");
            fflush(stdout);
        }
        for (int i = 0; i < 4 && step < UPDATES; i++) {
            pass(sides[i], step, 8, 32, 0);
            OK(fy_optimizer_step(sides[i]->optimizer));
        }
        fy_scope_end(scope, 0, NULL);
    }
    for (int i = 0; i < 4; i++) free_side(sides[i]);
}

int main(int argc, char **argv)
{
    fy_scope_t scope;
    fy_group_t *g = begin_rank(NULL, argc > 2 ? argv[2] : "host", &scope);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (argc < 2 || strcmp(argv[1], "all") == 0 || strcmp(argv[1], cases[i].name) == 0)
            check_case(g, &cases[i]);
    if (argc < 2 || strcmp(argv[1], "all") == 0 || strcmp(argv[1], "train") == 0) check_training(g);
    if (argc < 2 || strcmp(argv[1], "all") == 0 || strcmp(argv[1], "refuse") == 0) {
        check_refusals(g);
        check_ledger(g);
    }
    if (argc > 1 && strcmp(argv[1], "drift") == 0) {
        drift(g, FY_DTYPE_F32);
        drift(g, FY_DTYPE_F64);
    }
    end_rank(g, scope);
    return 0;
}
