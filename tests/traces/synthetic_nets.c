/* Training and inference of the models of the experiments, as sequences of requests. Every op
 * allocates its result. Tensors that the backward pass needs are kept until it has read them.
 * Gradients of weights live until the optimizer's step. A convolution has scratch while it runs.
 * f32 throughout. */
#include <string.h>

#include "tests/traces/synthetic.h"

enum { LAYERS = 400 };

/* One op of a chain. */
typedef struct layer {
    /* bytes: its result; scratch while it runs; tensors that it keeps besides its input */
    uint64_t result, scratch, extra;
    uint64_t weights[2]; /* bytes; 0: none */
    /* adds the result of the layer so far back, which is kept until then; 0: none */
    int joins;
} layer_t;

typedef struct net {
    trace_t *trace;
    layer_t layers[LAYERS];
    int count;
    uint64_t n, h, w, c; /* the output of the last layer */
    uint64_t input;
    int states; /* optimizer state per weight */
} net_t;

static net_t begin(trace_t *trace, uint64_t n, uint64_t h, uint64_t w, uint64_t c, int states)
{
    net_t net = {
        .trace = trace, .n = n, .h = h, .w = w, .c = c, .input = 4 * n * h * w * c, .states = states
    };
    return net;
}

static layer_t *add(net_t *net)
{
    layer_t *layer = &net->layers[net->count++];
    *layer = (layer_t){ .result = 4 * net->n * net->h * net->w * net->c };
    return layer;
}

/* groups == channels: depthwise. Scratch: a packed copy of weights and a tile of rows. */
static void conv(net_t *net, uint64_t c, uint64_t k, uint64_t stride, uint64_t pad, int depthwise,
                 int bias)
{
    const uint64_t weights = 4 * c * k * k * (depthwise ? 1 : net->c),
                   row = 4 * net->w * net->c * k * k;
    net->h = (net->h + 2 * pad - k) / stride + 1;
    net->w = (net->w + 2 * pad - k) / stride + 1;
    net->c = c;
    layer_t *layer = add(net);
    layer->weights[0] = weights;
    layer->weights[1] = bias ? 4 * c : 0;
    layer->scratch = k > 1 && !depthwise ? weights + 8 * row : 0;
}

static void norm(net_t *net)
{
    layer_t *layer = add(net);
    layer->weights[0] = layer->weights[1] = 4 * net->c;
    layer->extra = 8 * net->c;
}

static void activate(net_t *net) { (void)add(net); }

static void conv_norm_activate(net_t *net, uint64_t c, uint64_t k, uint64_t stride, uint64_t pad,
                               int depthwise, int bias)
{
    conv(net, c, k, stride, pad, depthwise, bias);
    norm(net);
    activate(net);
}

static void pool(net_t *net, uint64_t k)
{
    net->h /= k;
    net->w /= k;
    layer_t *layer = add(net);
    layer->extra = layer->result; /* the positions of the largest elements */
}

static void linear(net_t *net, uint64_t c)
{
    const uint64_t in = net->h * net->w * net->c;
    net->h = net->w = 1;
    net->c = c;
    layer_t *layer = add(net);
    layer->weights[0] = 4 * in * c;
    layer->weights[1] = 4 * c;
}

static void join_from(net_t *net, int at)
{
    layer_t *layer = add(net);
    layer->joins = net->count - 1 - at;
}

/* ---- running ---- */

static uint32_t take(const net_t *net, uint64_t nbytes, uint32_t scope)
{
    return trace_take(net->trace, nbytes, scope);
}
static void give(const net_t *net, uint32_t block, uint32_t scope)
{
    trace_give(net->trace, block, scope);
}

static void make_weights(const net_t *net, uint32_t scope)
{
    for (int i = 0; i < net->count; i++)
        for (int k = 0; k < 2; k++)
            for (int copy = 0; copy < 1 + net->states && net->layers[i].weights[k]; copy++)
                (void)take(net, net->layers[i].weights[k], scope);
}

static void use_scratch(const net_t *net, const layer_t *layer, uint32_t scope)
{
    if (layer->scratch) give(net, take(net, layer->scratch, scope), scope);
}

static void train_step(const net_t *net)
{
    uint32_t result[LAYERS], extra[LAYERS], gradient[LAYERS][2];
    const uint32_t forward = trace_scope(net->trace, "train/step/forward"),
                   backward = trace_scope(net->trace, "train/step/backward"),
                   optimizer = trace_scope(net->trace, "train/step/optimizer");
    const uint32_t input = take(net, net->input, forward), labels = take(net, 8 * net->n, forward);
    for (int i = 0; i < net->count; i++) {
        const layer_t *layer = &net->layers[i];
        result[i] = take(net, layer->result, forward);
        if (layer->extra) extra[i] = take(net, layer->extra, forward);
        use_scratch(net, layer, forward);
    }
    const uint32_t loss = take(net, 4, forward);
    uint32_t down = take(net, net->layers[net->count - 1].result, backward), branch[LAYERS];
    uint8_t has_branch[LAYERS] = { 0 };
    for (int i = net->count; i-- > 0;) {
        const layer_t *layer = &net->layers[i];
        if (has_branch[i]) { /* two gradients are added */
            const uint32_t sum = take(net, layer->result, backward);
            give(net, down, backward);
            give(net, branch[i], backward);
            down = sum;
        }
        if (layer->joins && i - layer->joins >= 0) {
            branch[i - layer->joins] = take(net, net->layers[i - layer->joins].result, backward);
            has_branch[i - layer->joins] = 1;
        }
        for (int k = 0; k < 2; k++)
            if (layer->weights[k]) gradient[i][k] = take(net, layer->weights[k], backward);
        use_scratch(net, layer, backward);
        if (i) { /* the data need no gradient */
            const uint32_t next = take(net, net->layers[i - 1].result, backward);
            give(net, down, backward);
            down = next;
        }
        give(net, result[i], backward);
        if (layer->extra) give(net, extra[i], backward);
    }
    give(net, down, backward);
    for (int i = 0; i < net->count; i++)
        for (int k = 0; k < 2; k++)
            if (net->layers[i].weights[k]) give(net, gradient[i][k], optimizer);
    give(net, loss, optimizer);
    give(net, input, optimizer);
    give(net, labels, optimizer);
}

static void train(const net_t *net, int steps)
{
    make_weights(net, trace_scope(net->trace, "train/weights"));
    while (steps-- > 0) train_step(net);
}

static void infer(const net_t *net)
{
    const uint32_t scope = trace_scope(net->trace, "serve/batch");
    uint32_t last = take(net, net->input, scope), kept[LAYERS];
    int until[LAYERS] = { 0 }; /* a result that a later layer adds is kept */
    for (int i = 0; i < net->count; i++)
        if (net->layers[i].joins && i - net->layers[i].joins >= 0)
            until[i - net->layers[i].joins] = i;
    for (int i = 0; i < net->count; i++) {
        const uint32_t result = take(net, net->layers[i].result, scope);
        use_scratch(net, &net->layers[i], scope);
        if (!i || !until[i - 1]) give(net, last, scope);
        if (i && until[i - 1]) kept[i - 1] = last;
        if (net->layers[i].joins && i - net->layers[i].joins >= 0)
            give(net, kept[i - net->layers[i].joins], scope);
        last = result;
    }
    give(net, last, scope);
}

/* ---- models ---- */

void fill_lenet(trace_t *trace)
{
    net_t net = begin(trace, 256, 28, 28, 1, 0);
    conv(&net, 20, 3, 1, 0, 0, 1);
    activate(&net);
    pool(&net, 2);
    conv(&net, 50, 5, 1, 0, 0, 1);
    activate(&net);
    pool(&net, 2);
    linear(&net, 128);
    activate(&net);
    linear(&net, 10);
    activate(&net);
    train(&net, 6);
}

void fill_mnist(trace_t *trace)
{
    net_t net = begin(trace, 64, 28, 28, 1, 2);
    conv(&net, 32, 3, 1, 0, 0, 1);
    activate(&net);
    conv(&net, 64, 3, 1, 0, 0, 1);
    activate(&net);
    pool(&net, 2);
    pool(&net, 1); /* dropout and its mask */
    linear(&net, 128);
    activate(&net);
    pool(&net, 1);
    linear(&net, 10);
    activate(&net);
    train(&net, 6);
}

static void resnet18(net_t *net)
{
    conv_norm_activate(net, 64, 3, 1, 1, 0, 1);
    for (int stage = 0; stage < 4; stage++)
        for (int block = 0; block < 2; block++) {
            const uint64_t c = 64u << stage, stride = stage && !block ? 2 : 1;
            const int from = net->count - 1;
            conv_norm_activate(net, c, 3, stride, 1, 0, 1);
            conv(net, c, 3, 1, 1, 0, 1);
            norm(net);
            /* otherwise the 1x1 convolution of the shortcut counts as one more layer */
            if (stride == 1)
                join_from(net, from);
            else
                conv(net, c, 1, 1, 0, 0, 1);
            activate(net);
        }
    pool(net, net->h);
    linear(net, 10);
    activate(net);
}

void fill_resnet18(trace_t *trace)
{
    net_t net = begin(trace, 32, 96, 96, 3, 1);
    resnet18(&net);
    train(&net, 6);
}

void fill_resnet18_inference(trace_t *trace)
{
    dice_t dice = { 18 };
    net_t net = begin(trace, 1, 96, 96, 3, 0);
    resnet18(&net);
    make_weights(&net, trace_scope(trace, "serve/weights"));
    for (int i = 0; i < 40; i++) {
        net = begin(trace, dice_roll(&dice, 1, 64), 96, 96, 3, 0);
        resnet18(&net);
        infer(&net);
    }
}

/* A row of the model's table; squeeze: channels inside squeeze-and-excitation, 0 without. */
static void bneck(net_t *net, uint64_t expand, uint64_t out, uint64_t k, uint64_t stride,
                  uint64_t squeeze)
{
    const int from = net->count - 1;
    const int joins = stride == 1 && net->c == out;
    if (expand != net->c) conv_norm_activate(net, expand, 1, 1, 0, 0, 0);
    conv_norm_activate(net, expand, k, stride, (k - 1) / 2, 1, 0);
    if (squeeze) { /* mean, two 1x1 convolutions, and the product with the input */
        const uint64_t h = net->h, w = net->w;
        net->h = net->w = 1;
        activate(net);
        conv(net, squeeze, 1, 1, 0, 0, 1);
        activate(net);
        conv(net, expand, 1, 1, 0, 0, 1);
        activate(net);
        net->h = h;
        net->w = w;
        activate(net);
    }
    conv(net, out, 1, 1, 0, 0, 0);
    norm(net);
    if (joins) join_from(net, from);
}

void fill_mobilenet(trace_t *trace)
{
    net_t net = begin(trace, 16, 224, 224, 3, 2);
    conv_norm_activate(&net, 16, 3, 2, 1, 0, 0);
    bneck(&net, 16, 16, 3, 1, 0);
    bneck(&net, 64, 24, 3, 2, 0);
    bneck(&net, 72, 24, 3, 1, 0);
    bneck(&net, 72, 40, 5, 2, 24);
    bneck(&net, 120, 40, 5, 1, 32);
    bneck(&net, 120, 40, 5, 1, 32);
    bneck(&net, 240, 80, 3, 2, 0);
    bneck(&net, 200, 80, 3, 1, 0);
    bneck(&net, 184, 80, 3, 1, 0);
    bneck(&net, 184, 80, 3, 1, 0);
    bneck(&net, 480, 112, 3, 1, 120);
    bneck(&net, 672, 112, 3, 1, 168);
    bneck(&net, 672, 160, 5, 2, 168);
    bneck(&net, 960, 160, 5, 1, 240);
    bneck(&net, 960, 160, 5, 1, 240);
    conv_norm_activate(&net, 960, 1, 1, 0, 0, 0);
    pool(&net, net.h);
    linear(&net, 1280);
    activate(&net);
    pool(&net, 1);
    linear(&net, 10);
    activate(&net);
    train(&net, 4);
}

/* Rows of tokens: h is the length. A projection works on each token. */
static void project(net_t *net, uint64_t c)
{
    const uint64_t in = net->c;
    net->c = c;
    layer_t *layer = add(net);
    layer->weights[0] = 4 * in * c;
    layer->weights[1] = 4 * c;
}

static void encoder(net_t *net)
{
    const uint64_t length = net->h, d = net->c;
    const int from = net->count - 1;
    norm(net);
    project(net, 3 * d);
    net->c = 8 * length; /* scores of eight heads */
    activate(net);
    activate(net); /* softmax */
    net->c = d;
    activate(net);
    project(net, d);
    join_from(net, from);
    const int middle = net->count - 1;
    norm(net);
    project(net, 4 * d);
    activate(net);
    project(net, d);
    join_from(net, middle);
}

static void transformer(net_t *net)
{
    project(net, 512);
    for (int i = 0; i < 6; i++) encoder(net);
    norm(net);
    project(net, 1000);
}

void fill_transformer(trace_t *trace)
{
    dice_t dice = { 5 };
    net_t net = begin(trace, 16, 64, 1, 128, 2);
    transformer(&net);
    make_weights(&net, trace_scope(trace, "train/weights"));
    for (int i = 0; i < 16; i++) {
        net = begin(trace, 16, dice_roll(&dice, 64, 512), 1, 128, 2);
        transformer(&net);
        train_step(&net);
    }
}
