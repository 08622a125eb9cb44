/* A small framework on Ferry, as a test of the seams: modules that learn their shapes from the
 * first batch, a registered fused op with its gradient, and a separate optimizer, allocator and
 * data source. It trains LeNet to the bits of `ferry train lenet`, and needs libferry only.
 * Usage: framework DIR WEIGHTS [device], by default sim:0. DIR has MNIST's training files;
 * WEIGHTS receives the parameters, sorted by name. Next: docs/training.md. */
#include <stdlib.h>
#include <string.h>

#include <ferry/ferry.h>

#include "examples/example.h"

enum { SIDE = 28, CLASSES = 10, SAMPLES = 64, BATCH = 16, EPOCHS = 2, MOST_PARAMS = 16 };
#define FAIL(code, ...) fy_error_set(FY_STATUS_##code, __FILE__, __LINE__, __VA_ARGS__)

/* ---- an allocator: counts, and could be any pool ---- */

typedef struct account {
    uint64_t live, peak;
} account_t;
typedef struct accounts {
    account_t device, pinned;
} accounts_t;

static void *take(account_t *account, uint64_t nbytes, uint64_t alignment)
{
    void *address = aligned_alloc(alignment, (nbytes + alignment - 1) / alignment * alignment);
    if (address) account->live += nbytes;
    if (account->peak < account->live) account->peak = account->live;
    return address;
}
static void give(account_t *account, void *address, uint64_t nbytes)
{
    account->live -= nbytes;
    free(address);
}
static void *take_device(void *user, uint64_t nbytes, uint64_t alignment)
{
    return take(&((accounts_t *)user)->device, nbytes, alignment);
}
static void give_device(void *user, void *address, uint64_t nbytes)
{
    give(&((accounts_t *)user)->device, address, nbytes);
}
static void *take_pinned(void *user, uint64_t nbytes, uint64_t alignment)
{
    return take(&((accounts_t *)user)->pinned, nbytes, alignment);
}
static void give_pinned(void *user, void *address, uint64_t nbytes)
{
    give(&((accounts_t *)user)->pinned, address, nbytes);
}

/* Ferry's figures are the allocator's, to the byte. */
static fy_status_t check_accounts(const fy_device_t *device, const accounts_t *accounts)
{
    fy_memory_stats_t own = FY_MEMORY_STATS_INIT, pinned = FY_MEMORY_STATS_INIT;
    FY_TRY(fy_memory_query(device, NULL, &own));
    FY_TRY(fy_memory_query_pinned(device, &pinned));
    if (own.reserved == accounts->device.live && pinned.reserved == accounts->pinned.live &&
        own.peak_reserved == accounts->device.peak)
        return FY_STATUS_OK;
    return FAIL(INTERNAL, "the allocator gave %" PRIu64 " bytes, Ferry reserved %" PRIu64,
                accounts->device.live, own.reserved);
}

/* ---- a fused op: relu, then the mean of windows of 2 x 2; and the op of its gradient ---- */

static fy_op_t relu_pool, relu_pool_back;

static fy_status_t halves(const fy_op_info_t *info, fy_launch_t *call)
{
    const fy_desc_t *x = &call->src[0];
    (void)info;
    if (x->rank != 4 || x->dims[1] < 2 || x->dims[2] < 2)
        return FAIL(SHAPE_MISMATCH, "frame.relu_pool takes [n, h, w, c], h and w from 2 on");
    call->dst[0] =
        (fy_desc_t){ .dtype = x->dtype,
                     .rank = 4,
                     .dims = { x->dims[0], x->dims[1] / 2, x->dims[2] / 2, x->dims[3] } };
    return FY_STATUS_OK;
}
static fy_status_t as_first(const fy_op_info_t *info, fy_launch_t *call)
{
    (void)info;
    call->dst[0] = call->src[0];
    call->dst[0].data = NULL;
    return FY_STATUS_OK;
}

/* The four elements of x [n, h, w, c] under element i of y [n, h / 2, w / 2, c]. */
static void window(const fy_desc_t *x, const fy_desc_t *y, uint64_t i, uint64_t *at)
{
    const uint64_t c = (uint64_t)y->dims[3], w = (uint64_t)y->dims[2], h = (uint64_t)y->dims[1],
                   row = (uint64_t)x->dims[2] * c;
    const uint64_t line = i / c / w;
    at[0] = (line / h * (uint64_t)x->dims[1] + line % h * 2) * row + i / c % w * 2 * c + i % c;
    at[1] = at[0] + c;
    at[2] = at[0] + row;
    at[3] = at[2] + c;
}
static fy_status_t run_relu_pool(const fy_launch_t *launch, void *stream)
{
    const float *x = launch->src[0].data;
    float *y = launch->dst[0].data;
    uint64_t at[4];
    (void)stream;
    for (uint64_t i = 0; i < launch->nelem; i++) {
        float sum = 0;
        window(&launch->src[0], &launch->dst[0], i, at);
        for (int k = 0; k < 4; k++) sum += x[at[k]] > 0 ? x[at[k]] : 0;
        y[i] = sum / 4;
    }
    return FY_STATUS_OK;
}
/* dx is dy / 4 where x > 0; a last odd row or column is 0. */
static fy_status_t run_relu_pool_back(const fy_launch_t *launch, void *stream)
{
    const float *x = launch->src[0].data, *dy = launch->src[1].data;
    float *dx = launch->dst[0].data;
    const fy_desc_t *y = &launch->src[1];
    const int64_t n = y->dims[0] * y->dims[1] * y->dims[2] * y->dims[3];
    uint64_t at[4];
    (void)stream;
    memset(dx, 0, launch->nelem * sizeof *dx);
    for (uint64_t i = 0; i < (uint64_t)n; i++) {
        window(&launch->src[0], y, i, at);
        for (int k = 0; k < 4; k++) dx[at[k]] = x[at[k]] > 0 ? dy[i] / 4 : 0;
    }
    return FY_STATUS_OK;
}
static int is_dense(const fy_desc_t *desc)
{
    int64_t stride = 1;
    for (int axis = desc->rank - 1; axis >= 0; stride *= desc->dims[axis--])
        if (desc->dims[axis] > 1 && desc->strides[axis] != stride) return 0;
    return 1;
}
static fy_status_t takes_dense(const fy_launch_t *launch)
{
    int dense = is_dense(&launch->dst[0]);
    for (int i = 0; i < launch->nsrc; i++) dense &= is_dense(&launch->src[i]);
    return dense ? FY_STATUS_OK : FAIL(UNSUPPORTED, "dense operands only");
}
static fy_status_t back_relu_pool(const fy_op_backward_t *call, fy_tensor_t **src_grad)
{
    fy_tensor_t *const sources[] = { call->src[0], call->dst_grad[0] };
    return fy_op_call(relu_pool_back, 2, sources, NULL, 0, 1, &src_grad[0]);
}

static fy_status_t register_op(const char *name, int nsrc, fy_shape_rule_fn shape,
                               fy_kernel_fn kernel, fy_backward_fn backward, fy_op_t *out_op)
{
    const fy_op_kernel_t row = { "host", kernel, takes_dense };
    fy_op_info_t info = FY_OP_INFO_INIT;
    fy_op_def_t def = FY_OP_DEF_INIT;
    info.name = name;
    info.summary = "relu and 2 x 2 average pooling";
    info.nsrc_min = info.nsrc_max = nsrc;
    info.ndst = 1;
    info.dtypes = FY_DTYPE_BIT(FY_DTYPE_F32);
    def.info = &info;
    def.shape = shape;
    def.nkernels = 1;
    def.kernels = &row;
    def.backward = backward;
    def.saved_srcs = backward ? 1 : 0;
    return fy_op_register(&def, out_op);
}

/* ---- lazy modules: parameters are made when the first batch shows their shapes ---- */

typedef struct param {
    char name[16];
    fy_tensor_t *value;
} param_t;
typedef struct net {
    fy_device_t *device;
    fy_tensor_t *rng;
    fy_tape_t *tape;
    param_t params[MOST_PARAMS];
    int nparams;
} net_t;

static fy_tensor_t *find(net_t *net, const char *name)
{
    for (int i = 0; i < net->nparams; i++)
        if (strcmp(net->params[i].name, name) == 0) return net->params[i].value;
    return NULL;
}

/* `layer`.`part`: drawn with this spread, or zeros, when it is first used. */
static fy_status_t param(net_t *net, const char *layer, const char *part, double spread, int rank,
                         const int64_t *dims, fy_tensor_t **out_value)
{
    char name[16];
    snprintf(name, sizeof name, "%s.%s", layer, part);
    if ((*out_value = find(net, name))) return FY_STATUS_OK;
    if (spread > 0)
        FY_TRY(fy_randn(net->rng, FY_DTYPE_F32, rank, dims, 0, spread, out_value));
    else
        FY_TRY(fy_zeros(net->device, FY_DTYPE_F32, rank, dims, out_value));
    fy_tensor_keep(*out_value);
    strcpy(net->params[net->nparams].name, name);
    net->params[net->nparams++].value = *out_value;
    return fy_tape_watch(net->tape, *out_value, NULL);
}

static fy_status_t conv(net_t *net, const char *name, int64_t out, int64_t kernel, fy_tensor_t *x,
                        fy_tensor_t **out_y)
{
    fy_tensor_t *w, *b;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(x, &info));
    FY_TRY(param(net, name, "weight", 0.01, FY_DIMS(out, kernel, kernel, info.dims[3]), &w));
    FY_TRY(param(net, name, "bias", 0, FY_DIMS(out), &b));
    FY_TRY(fy_conv2d(x, w, b, NULL, &x));
    return fy_op_call(relu_pool, 1, &x, NULL, 0, 1, out_y);
}
static fy_status_t linear(net_t *net, const char *name, int64_t out, fy_activation_t activation,
                          fy_tensor_t *x, fy_tensor_t **out_y)
{
    fy_tensor_t *w, *b;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(x, &info));
    FY_TRY(param(net, name, "weight", 0.01, FY_DIMS(out, info.dims[1]), &w));
    FY_TRY(param(net, name, "bias", 0, FY_DIMS(out), &b));
    return fy_linear(x, w, b, activation, out_y);
}
static fy_status_t forward(net_t *net, fy_tensor_t *x, fy_tensor_t **out_y)
{
    fy_tensor_t *y1 = NULL, *y2 = NULL, *flat, *hidden;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(conv(net, "conv1", 20, 3, x, &y1));
    FY_TRY(conv(net, "conv2", 50, 5, y1, &y2));
    FY_TRY(fy_tensor_query(y2, &info));
    FY_TRY(
        fy_reshape(y2, FY_DIMS(info.dims[0], info.dims[1] * info.dims[2] * info.dims[3]), &flat));
    FY_TRY(linear(net, "fc1", 128, FY_ACTIVATION_RELU, flat, &hidden));
    return linear(net, "fc2", CLASSES, FY_ACTIVATION_NONE, hidden, out_y);
}

/* ---- the data source: MNIST's files, uploaded once, gathered in a random order ---- */

static fy_status_t read_file(const char *folder, const char *name, long begin, size_t nbytes,
                             unsigned char *to)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    const int is_read = file && fseek(file, begin, SEEK_SET) == 0 &&
                        fread(to, 1, nbytes, file) == nbytes;
    if (file) fclose(file);
    return is_read ? FY_STATUS_OK : FAIL(IO, "%s has no %zu bytes of data", path, nbytes);
}

static fy_status_t open_data(fy_device_t *device, const char *folder, fy_tensor_t **out_x,
                             fy_tensor_t **out_y)
{
    static unsigned char pixels[SAMPLES * SIDE * SIDE], labels[SAMPLES];
    static int32_t classes[SAMPLES];
    fy_tensor_t *host;
    FY_TRY(read_file(folder, "train-images-idx3-ubyte", 16, sizeof pixels, pixels));
    FY_TRY(read_file(folder, "train-labels-idx1-ubyte", 8, sizeof labels, labels));
    for (int i = 0; i < SAMPLES; i++) classes[i] = labels[i];
    FY_TRY(fy_tensor_wrap(fy_device_host(), FY_DTYPE_U8, FY_DIMS(SAMPLES, SIDE, SIDE, 1), pixels,
                          NULL, NULL, &host));
    FY_TRY(fy_tensor_upload(host, device, NULL, out_x));
    FY_TRY(fy_cast(*out_x, FY_DTYPE_F32, out_x));
    FY_TRY(fy_affine(*out_x, 1.0 / 255, 0, out_x));
    FY_TRY(fy_tensor_wrap(fy_device_host(), FY_DTYPE_I32, FY_DIMS(SAMPLES), classes, NULL, NULL,
                          &host));
    return fy_tensor_upload(host, device, NULL, out_y);
}

/* ---- training ---- */

static fy_status_t step(net_t *net, fy_tensor_t *x, fy_tensor_t *y, double lr, double *out_loss)
{
    fy_tensor_t *scores, *loss, *gradient;
    fy_download_t *reply;
    /* A watch that begins while the tape records is for that record only. */
    if (!net->nparams) FY_TRY(forward(net, x, &scores));
    FY_TRY(fy_tape_begin(net->tape));
    FY_TRY(forward(net, x, &scores));
    FY_TRY(fy_cross_entropy(scores, y, FY_REDUCTION_MEAN, &loss));
    FY_TRY(fy_tape_backward(net->tape, loss, NULL));
    for (int i = 0; i < net->nparams; i++) { /* the optimizer */
        FY_TRY(fy_tape_grad(net->tape, net->params[i].value, &gradient));
        FY_TRY(fy_axpy(net->params[i].value, -lr, gradient));
    }
    FY_TRY(fy_tensor_download(loss, NULL, &reply));
    return fy_download_wait_f64(reply, FY_FOREVER, out_loss);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const param_t *)a)->name, ((const param_t *)b)->name);
}
static fy_status_t save(net_t *net, const char *path)
{
    FILE *file = fopen(path, "wb");
    fy_status_t status = file ? FY_STATUS_OK : FAIL(IO, "cannot write %s", path);
    qsort(net->params, (size_t)net->nparams, sizeof net->params[0], by_name);
    for (int i = 0; status == FY_STATUS_OK && i < net->nparams; i++) {
        fy_download_t *download;
        fy_tensor_t *host;
        fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
        void *data;
        status = fy_tensor_download(net->params[i].value, NULL, &download);
        if (status == FY_STATUS_OK) status = fy_download_wait(download, FY_FOREVER, &host);
        if (status == FY_STATUS_OK) status = fy_tensor_query(host, &info);
        if (status == FY_STATUS_OK) status = fy_tensor_map(host, FY_ACCESS_READ, &data);
        if (status == FY_STATUS_OK && fwrite(data, 1, info.nbytes, file) != info.nbytes)
            status = FAIL(IO, "cannot write %s", path);
    }
    if (file && fclose(file)) status = FAIL(IO, "cannot write %s", path);
    return status;
}

static fy_status_t train(net_t *net, const char *folder, const char *weights,
                         const accounts_t *accounts)
{
    fy_tensor_t *x, *y, *orders, *order, *part, *some_x, *some_y;
    FY_TRY(register_op("frame.relu_pool_back", 2, as_first, run_relu_pool_back, NULL,
                       &relu_pool_back));
    FY_TRY(register_op("frame.relu_pool", 1, halves, run_relu_pool, back_relu_pool, &relu_pool));
    FY_TRY(open_data(net->device, folder, &x, &y));
    FY_TRY(fy_rng_create(net->device, 1, &net->rng)); /* as --seed 1: initial values */
    FY_TRY(fy_rng_create(net->device, 1, &orders));   /* and the order of the data */
    FY_TRY(fy_tape_create(&net->tape));
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        FY_TRY(fy_randperm(orders, SAMPLES, &order));
        for (int at = 0; at < SAMPLES; at += BATCH) {
            double loss;
            const fy_scope_t scope = fy_scope_begin("step");
            FY_TRY(fy_slice(order, 0, at, at + BATCH, &part));
            FY_TRY(fy_gather(x, part, &some_x));
            FY_TRY(fy_gather(y, part, &some_y));
            FY_TRY(step(net, some_x, some_y, 0.2, &loss));
            fy_scope_end(scope, 0, NULL);
            FY_TRY(check_accounts(net->device, accounts));
            printf("epoch %d, sample %d: loss %.9g\n", epoch, at, loss);
        }
    }
    return save(net, weights);
}

int main(int argc, char **argv)
{
    accounts_t accounts = { 0 };
    net_t net = { 0 };
    fy_device_options_t options = FY_DEVICE_OPTIONS_INIT;
    options.user = &accounts;
    options.alloc_device = take_device;
    options.free_device = give_device;
    options.alloc_pinned = take_pinned;
    options.free_pinned = give_pinned;
    if (argc < 3) {
        fprintf(stderr, "usage: %s DIR WEIGHTS [device]\n", argv[0]);
        return 2;
    }
    const fy_scope_t scope = fy_scope_begin("framework");
    fy_status_t status = fy_device_open_with(argc > 3 ? argv[3] : "sim:0", &options, &net.device);
    if (status == FY_STATUS_OK) status = train(&net, argv[1], argv[2], &accounts);
    fy_scope_end(scope, 0, NULL);
    for (int i = 0; i < net.nparams; i++) fy_tensor_destroy(net.params[i].value);
    fy_device_close(net.device);
    if (status == FY_STATUS_OK && accounts.device.live + accounts.pinned.live)
        status = FAIL(INTERNAL, "the allocator has bytes that were not freed");
    printf("from the allocator: %" PRIu64 " bytes of device memory, %" PRIu64 " page-locked\n",
           accounts.device.peak, accounts.pinned.peak);
    return example_finish(argv[0], status);
}
