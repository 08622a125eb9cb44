/* Kernels of the fake: the launch record is rebuilt from the arguments and run by the portable
 * kernels. A kernel without such a launch (partial sums, draws that do not advance the counter) is
 * composed of several. The arguments are checked against the assumptions of each kernel. */
#include <stdlib.h>
#include <string.h>

#include "opset/formulas/half.h"
#include "opset/formulas/random.h"
#include "opset/formulas/step.h"
#include "opset/formulas/step_results.h"
#include "tests/support/fake_cuda/fake.h"

static char last_kernel[48];
static uint64_t last_threads, longest_args;

const char *fake_cuda_last_kernel(void) { return last_kernel; }
uint64_t fake_cuda_last_threads(void) { return last_threads; }
uint64_t fake_cuda_longest_args(void)
{
    fake_lock();
    const uint64_t nbytes = longest_args;
    longest_args = 0;
    fake_unlock();
    return nbytes;
}

static fy_status_t ignore_failure(fy_status_t status, const char *file, int line,
                                  const char *format, ...)
{
    (void)file, (void)line, (void)format;
    return status;
}
/* The portable kernels' log lines about plain loops do not apply to a card: they are dropped. */
static void ignore_log(fy_log_level_t level, const char *format, ...) { (void)level, (void)format; }
static void ignore_bytes(fy_copy_kind_t kind, uint64_t nbytes) { (void)kind, (void)nbytes; }
static const fy_host_api_t host = { sizeof(fy_host_api_t), FY_BACKEND_ABI, ignore_failure,
                                    ignore_log, ignore_bytes };

/* ---- rebuilding ---- */

double fake_read(fy_dtype_t dtype, const void *data, int64_t i)
{
    return fy__dtype_read_f64(dtype, (const char *)data + i * (int64_t)fy_dtype_size(dtype));
}
void fake_write(fy_dtype_t dtype, void *data, int64_t i, double x)
{
    switch (dtype) {
    case FY_DTYPE_F64: ((double *)data)[i] = x; return;
    case FY_DTYPE_F16: ((uint16_t *)data)[i] = fy__f16_from_f32((float)x); return;
    case FY_DTYPE_BF16: ((uint16_t *)data)[i] = fy__bf16_from_f32((float)x); return;
    default: ((float *)data)[i] = (float)x;
    }
}

/* Every element of the operand must be in memory that the device may use. 0: it is not. */
int fake_rebuild(int device, const fy__cuda_operand_t *operand, fy_desc_t *out)
{
    const uint64_t size = fy_dtype_size((fy_dtype_t)operand->dtype);
    int64_t low = 0, high = 0;
    if (size == 0 || operand->rank < 0 || operand->rank > FY_MAX_RANK) return 0;
    memset(out, 0, sizeof *out);
    out->dtype = operand->dtype;
    out->rank = operand->rank;
    int empty = 0;
    for (int axis = 0; axis < operand->rank; axis++) {
        int64_t span = (operand->dims[axis] - 1) * operand->strides[axis];
        empty |= operand->dims[axis] == 0;
        if (operand->dims[axis] < 0) return 0;
        if (span < 0) low += span;
        if (span > 0) high += span;
        out->dims[axis] = operand->dims[axis];
        out->strides[axis] = operand->strides[axis];
    }
    if (operand->data % size != 0) return 0;
    /* Returns the same address if it is accessible. A flat step without elements has the dims of
     * its step number, which it reads. */
    if (empty) {
        out->data = fake_translate(device, operand->data, size);
        if (out->data == NULL) out->data = (void *)(uintptr_t)64;
        return 1;
    }
    char *first = fake_translate(device, operand->data + (uint64_t)low * size,
                                 (uint64_t)(high - low + 1) * size);
    out->data = first == NULL ? NULL : first - low * (int64_t)size;
    return first != NULL;
}

static int64_t nelem_of(const fy_desc_t *desc)
{
    int64_t n = 1;
    for (int axis = 0; axis < desc->rank; axis++) n *= desc->dims[axis];
    return n;
}

fy_status_t fake_run_launch(fy_launch_t *launch)
{
    uint64_t nbytes = fy__kernels_workspace(launch, 64 << 20);
    void *workspace = nbytes > 0 ? aligned_alloc(64, (nbytes + 63) / 64 * 64) : NULL;
    launch->workspace = workspace;
    launch->workspace_nbytes = nbytes;
    fy_status_t status = fy__kernels_launch(&host, launch);
    free(workspace);
    return status;
}

static fy_status_t run_op(fy_op_t op, fy_desc_t *dst, unsigned nsrc, fy_desc_t *src,
                          const void *attrs, uint32_t accumulate)
{
    fy_launch_t launch = { .struct_size = sizeof launch,
                           .op = op,
                           .nsrc = (uint16_t)nsrc,
                           .ndst = 1,
                           .accumulate = accumulate,
                           .dst = dst,
                           .src = src,
                           .attrs = attrs,
                           .nelem = (uint64_t)nelem_of(dst) };
    return fake_run_launch(&launch);
}

fy_desc_t fake_temporary(const fy_desc_t *like, int32_t dtype)
{
    fy_desc_t desc = *like;
    int64_t stride = 1;
    for (int axis = desc.rank - 1; axis >= 0; axis--) {
        desc.strides[axis] = stride;
        stride *= desc.dims[axis] > 0 ? desc.dims[axis] : 1;
    }
    desc.dtype = dtype;
    desc.data = aligned_alloc(64, ((uint64_t)stride * 8 + 63) / 64 * 64);
    return desc;
}

fy_status_t fake_run_op(fy_op_t op, fy_desc_t *dst, unsigned nsrc, const fy_desc_t *src,
                        const void *attrs)
{
    fy_desc_t own[FY__CUDA_MAX_SRC];
    memcpy(own, src, nsrc * sizeof *own);
    return run_op(op, dst, nsrc, own, attrs, 0);
}

/* ---- reductions that are no op's launch: partial results in f64, a mean over more than src,
 * squared errors ---- */

static fy_status_t run_wide(const fy__cuda_args_t *args, fy_desc_t *dst, fy_desc_t *src)
{
    fy_cast_attrs_t to_f64 = { FY_DTYPE_F64 }, to_dst = { dst->dtype };
    fy_desc_t wide[2], sum = fake_temporary(dst, FY_DTYPE_F64),
                       result = fake_temporary(dst, dst->dtype);
    uint64_t n = (uint64_t)nelem_of(&src[0]) / args->nelem;
    fy_affine_attrs_t scale = { 1, 0 };
    for (unsigned i = 0; i < args->nsrc; i++) {
        wide[i] = fake_temporary(&src[i], FY_DTYPE_F64);
        (void)run_op(FY_OP_CAST, &wide[i], 1, &src[i], &to_f64, 0);
    }
    if (args->op == FY_OP_MSE_LOSS) {
        (void)run_op(FY_OP_SUB, &wide[0], 2, wide, NULL, 0);
        wide[1].data = memcpy(wide[1].data, wide[0].data, (size_t)nelem_of(&wide[0]) * 8);
        (void)run_op(FY_OP_MUL, &wide[0], 2, wide, NULL, 0);
    }
    if (args->op == FY_OP_NORM) {
        fy_desc_t twice[2] = { wide[0], wide[0] };
        (void)run_op(FY_OP_MUL, &wide[0], 2, twice, NULL, 0);
    }
    fy_status_t status = run_op(args->op == FY_OP_PROD ? FY_OP_PROD : FY_OP_SUM, &sum, 1, wide,
                                &args->attrs.reduce, 0);
    if (args->op == FY_OP_NORM && status == FY_STATUS_OK)
        status = run_op(FY_OP_SQRT, &sum, 1, &sum, NULL, 0);
    if (args->op == FY_OP_MEAN || args->op == FY_OP_MSE_LOSS)
        scale.scale = 1.0 / (double)(args->count != FY__CUDA_NO_COUNT ? args->count : n);
    if (status == FY_STATUS_OK) status = run_op(FY_OP_AFFINE, &sum, 1, &sum, &scale, 0);
    if (status == FY_STATUS_OK) status = run_op(FY_OP_CAST, &result, 1, &sum, &to_dst, 0);
    if (status == FY_STATUS_OK)
        status = run_op(FY_OP_COPY, dst, 1, &result, NULL, args->accumulate);
    for (unsigned i = 0; i < args->nsrc; i++) free(wide[i].data);
    free(sum.data);
    free(result.data);
    return status;
}

static int is_float(int32_t dtype)
{
    return dtype == FY_DTYPE_F32 || dtype == FY_DTYPE_F64 || dtype == FY_DTYPE_F16 ||
           dtype == FY_DTYPE_BF16;
}

static int is_plain_reduction(const fy__cuda_args_t *args)
{
    const int32_t src = args->src[0].dtype, dst = args->dst[0].dtype;
    if (args->count != FY__CUDA_NO_COUNT || args->op == FY_OP_MSE_LOSS) return 0;
    return !is_float(src) || src == dst || args->op == FY_OP_ANY || args->op == FY_OP_ALL;
}

/* ---- assumptions of each kernel ---- */

static int starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static int class_fits(const char *kernel, int32_t dtype)
{
    size_t n = strlen(kernel);
    int single = dtype == FY_DTYPE_F32 || dtype == FY_DTYPE_F16 || dtype == FY_DTYPE_BF16;
    if (n > 4 && strcmp(kernel + n - 4, "_f32") == 0) return single;
    if (n > 4 && strcmp(kernel + n - 4, "_f64") == 0) return dtype == FY_DTYPE_F64;
    if (n > 4 && strcmp(kernel + n - 4, "_int") == 0) return !is_float(dtype);
    if (n > 6 && strcmp(kernel + n - 6, "_float") == 0) return is_float(dtype);
    return 1;
}

/* Rows in pieces: kernels that make partial results, and kernels that join them. */
static int is_in_pieces(const char *kernel)
{
    return starts_with(kernel, "fy_softmax_parts_f") || starts_with(kernel, "fy_softmax_join_f");
}

static int family_fits(const char *kernel, uint32_t op)
{
    if (op >= FY_OP_RAND && op <= FY_OP_RANDPERM) return starts_with(kernel, "fy_random");
    if (op >= FY_OP_RESIZE2D && op <= FY_OP_ADAPTIVE_AVG_POOL2D_BACKWARD)
        return starts_with(kernel, "fy_resample2d_f");
    if (op >= FY_OP_TAKE_ALONG_AXIS && op <= FY_OP_TOPK) /* kernels have the names of ops */
        return starts_with(kernel, op == FY_OP_TOPK ? "fy_topk" : "fy_take_along_axis");
    switch (op) {
    case FY_OP_FILL:
    case FY_OP_ARANGE: return starts_with(kernel, "fy_generate");
    case FY_OP_CAST: return starts_with(kernel, "fy_cast");
    case FY_OP_COPY:
        return starts_with(kernel, "fy_copy") || strcmp(kernel, "fy_transpose") == 0 ||
               starts_with(kernel, "fy_elementwise");
    case FY_OP_WHERE: return starts_with(kernel, "fy_copy");
    case FY_OP_SUM:
    case FY_OP_MEAN:
    case FY_OP_MAX:
    case FY_OP_MIN:
    case FY_OP_PROD:
    case FY_OP_ANY:
    case FY_OP_ALL:
    case FY_OP_NORM:
    case FY_OP_MSE_LOSS: return starts_with(kernel, "fy_reduce");
    case FY_OP_ARGMAX:
    case FY_OP_ARGMIN: return starts_with(kernel, "fy_argmax");
    case FY_OP_CUMSUM: return starts_with(kernel, "fy_cumsum");
    case FY_OP_MATMUL:
    case FY_OP_LINEAR:
        return starts_with(kernel, "fy_matmul") ||
               (op == FY_OP_LINEAR && starts_with(kernel, "fy_linear_finish"));
    case FY_OP_SGD_STEP:
    case FY_OP_SGD_MOMENTUM_STEP:
    case FY_OP_ADAM_STEP:
    case FY_OP_ADADELTA_STEP:
    case FY_OP_RMSPROP_CENTERED_STEP:
    case FY_OP_RMSPROP_STEP ... FY_OP_LAMB_STEP: return starts_with(kernel, "fy_step");
    case FY_OP_CHECK_FINITE: return starts_with(kernel, "fy_check_finite_f");
    case FY_OP_UPDATE_SCALING: return strcmp(kernel, "fy_update_scaling") == 0;
    case FY_OP_SOFTMAX:
    case FY_OP_LOG_SOFTMAX: return starts_with(kernel, "fy_softmax_f") || is_in_pieces(kernel);
    case FY_OP_GATHER: return strcmp(kernel, "fy_gather") == 0;
    case FY_OP_GATHER_BACKWARD:
    case FY_OP_INDEX_ADD: return starts_with(kernel, "fy_index_add_f");
    case FY_OP_CONV2D:
    case FY_OP_CONV2D_BACKWARD_INPUT:
    case FY_OP_CONV2D_BACKWARD_WEIGHT: return starts_with(kernel, "fy_conv2d");
    case FY_OP_MAX_POOL2D:
    case FY_OP_MAX_POOL2D_BACKWARD:
    case FY_OP_AVG_POOL2D ... FY_OP_AVG_POOL2D_BACKWARD: return starts_with(kernel, "fy_pool2d");
    case FY_OP_SOFTMAX_BACKWARD:
    case FY_OP_LOG_SOFTMAX_BACKWARD:
        return starts_with(kernel, "fy_softmax_backward_f") || is_in_pieces(kernel);
    case FY_OP_MSE_LOSS_BACKWARD: return starts_with(kernel, "fy_mse_loss_backward_f");
    case FY_OP_ONE_HOT: return strcmp(kernel, "fy_one_hot") == 0;
    case FY_OP_DROPOUT:
    case FY_OP_DROPOUT2D: return strcmp(kernel, "fy_dropout_begin") == 0;
    case FY_OP_DROPOUT_BACKWARD:
    case FY_OP_DROPOUT2D_BACKWARD: return strcmp(kernel, "fy_dropout") == 0;
    case FY_OP_BATCH_NORM:
    case FY_OP_BATCH_NORM_BACKWARD:
    case FY_OP_BATCH_NORM_INFERENCE: return starts_with(kernel, "fy_batch_norm");
    case FY_OP_LAYER_NORM ... FY_OP_RMS_NORM_BACKWARD: return starts_with(kernel, "fy_row_norm");
    case FY_OP_SCALED_DOT_PRODUCT_ATTENTION:
    case FY_OP_SCALED_DOT_PRODUCT_ATTENTION_BACKWARD: return starts_with(kernel, "fy_attention_");
    case FY_OP_NLL_LOSS:
    case FY_OP_CROSS_ENTROPY:
    case FY_OP_NLL_LOSS_BACKWARD:
    case FY_OP_CROSS_ENTROPY_BACKWARD: return starts_with(kernel, "fy_class_loss_");
    case FY_LAUNCH_SCATTER:
    case FY_LAUNCH_GATHER: return strcmp(kernel, "fy_packed") == 0;
    default: return op < FY_OP_BUILTIN_COUNT && starts_with(kernel, "fy_elementwise");
    }
}

static int is_flat_kernel(const char *kernel)
{
#define X(module, name) \
    if (strcmp(kernel, #name) == 0) return 1;
    FY__CUDA_FLAT_KERNEL_LIST(X)
#undef X
    return 0;
}

/* Attention on tensor cores: halves, rows of heads at multiples of 16 bytes. */
static int attention_fits(const char *kernel, const fy__cuda_args_t *args)
{
    const int32_t dtype = strstr(kernel, "_bf16") != NULL ? FY_DTYPE_BF16 : FY_DTYPE_F16;
    const int64_t most = strstr(kernel, "128_") != NULL ? 128 : 64, width = args->dst[0].dims[3];
    if (width % 8 != 0 || width > most) return 0;
    const int is_gradient = args->op == FY_OP_SCALED_DOT_PRODUCT_ATTENTION_BACKWARD;
    if (is_gradient != (strstr(kernel, "gradient") != NULL)) return 0;
    const int nsrc = is_gradient ? 5 : 3, ndst = is_gradient ? 3 : 1;
    for (int i = 0; i < nsrc + ndst; i++) {
        const fy__cuda_operand_t *o = i < nsrc ? &args->src[i] : &args->dst[i - nsrc];
        if (o->dtype != dtype || o->data % 16 != 0 || o->strides[3] != 1) return 0;
        for (int axis = 0; axis < 3; axis++)
            if (o->dims[axis] > 1 && o->strides[axis] % 8 != 0) return 0;
    }
    return 1;
}

static int assumptions_hold(const char *kernel, const fy__cuda_args_t *args)
{
    if (args->struct_size != sizeof *args || !family_fits(kernel, args->op)) return 0;
    /* the first source of this one has the targets */
    if (!starts_with(kernel, "fy_class_loss_mean") &&
        !class_fits(kernel, args->nsrc > 0 ? args->src[0].dtype : args->dst[0].dtype))
        return 0;
    const int by_channels = starts_with(kernel, "fy_batch_norm") ||
                            starts_with(kernel, "fy_row_norm_parts") ||
                            starts_with(kernel, "fy_row_norm_join");
    if (args->lanes != 1 && args->lanes != 32 && args->lanes != FY__CUDA_BLOCK &&
        !(by_channels && args->lanes < 32 && (args->lanes & (args->lanes - 1)) == 0))
        return 0;
    uint64_t largest = args->nelem, n = 1;
    for (unsigned i = 0;
         i < args->nsrc && !starts_with(kernel, "fy_gather") && !starts_with(kernel, "fy_matmul");
         i++, n = 1) {
        for (int axis = 0; axis < args->src[i].rank; axis++) n *= (uint64_t)args->src[i].dims[axis];
        if (starts_with(kernel, "fy_reduce") || starts_with(kernel, "fy_argmax")) n /= args->nelem;
        if (n > largest) largest = n;
    }
    if ((args->flags & FY__CUDA_SMALL) != 0 && largest > INT32_MAX) return 0;
    if (starts_with(kernel, "fy_reduce") && !fake_axes_fit(args)) return 0;
    if (strcmp(kernel, "fy_transpose") == 0)
        if (args->dst[0].rank < 2 || args->dst[0].strides[args->dst[0].rank - 1] != 1 ||
            args->src[0].strides[args->dst[0].rank - 2] != 1)
            return 0;
    if (starts_with(kernel, "fy_pool2d_tiles") && !fake_tiles_fit(args)) return 0;
    if (starts_with(kernel, "fy_conv2d") && !fake_conv_fits(kernel, args)) return 0;
    if (starts_with(kernel, "fy_argmax") || starts_with(kernel, "fy_softmax") ||
        starts_with(kernel, "fy_cumsum"))
        if (args->attrs.axis.axis != args->src[0].rank - 1) return 0;
    if (starts_with(kernel, "fy_attention_tensor") && !attention_fits(kernel, args)) return 0;
    if (starts_with(kernel, "fy_elementwise_flat_half"))
        return args->src[0].dtype == FY_DTYPE_F16 || args->src[0].dtype == FY_DTYPE_BF16;
    if (starts_with(kernel, "fy_elementwise") && !is_flat_kernel(kernel))
        if (starts_with(kernel, "fy_elementwise_wide") !=
            (args->wide != 0 && (args->flags & FY__CUDA_ALIGNED) != 0))
            return 0;
    return 1;
}

/* ---- one launch ---- */

typedef struct launched {
    char kernel[48];
    unsigned grid, block_x, block_y;
    fy__cuda_args_t args; /* for a flat kernel: the meaning of `flat` */
    fy__cuda_flat_t flat;
    fy__cuda_chain_t chain; /* only this, if its struct_size is not 0 */
} launched_t;

static fy_status_t interpret(const char *kernel, const fy__cuda_args_t *args, uint32_t *fault,
                             fy_desc_t *dst, fy_desc_t *src)
{
    fy_launch_t launch = { .struct_size = sizeof launch,
                           .op = args->op,
                           .nsrc = (uint16_t)args->nsrc,
                           .ndst = (uint16_t)args->ndst,
                           .accumulate = args->accumulate,
                           .dst = dst,
                           .src = src,
                           .attrs = &args->attrs,
                           .attrs_nbytes = sizeof args->attrs,
                           .nelem = args->nelem,
                           .fault = fault };
    const int number = fy__step_results(args->op, (int)args->ndst).number; /* of a step only */
    int64_t state[2];
    if (strcmp(kernel, "fy_random_advance") == 0) {
        uint64_t step = args->op == FY_OP_RANDPERM
                            ? 1
                            : fy__rng_blocks(args->nelem, dst[0].dtype == FY_DTYPE_F64);
        int64_t *counter = (int64_t *)dst[1].data + 1;
        *counter = (int64_t)((uint64_t)*counter + step);
        return FY_STATUS_OK;
    }
    if (strcmp(kernel, "fy_dropout_begin") == 0) {
        int64_t *rng = dst[0].data, *before = dst[1].data;
        before[0] = rng[0];
        before[dst[1].strides[0]] = rng[dst[0].strides[0]];
        rng[dst[0].strides[0]] =
            (int64_t)((uint64_t)rng[dst[0].strides[0]] + fy__dropout_blocks(args->nelem));
        return FY_STATUS_OK;
    }
    if (strcmp(kernel, "fy_random") == 0) { /* reads the state and does not change it */
        dst[1].data = memcpy(state, dst[1].data, sizeof state);
        return fake_run_launch(&launch);
    }
    if (strcmp(kernel, "fy_step_advance") == 0 || strcmp(kernel, "fy_step_flat_advance") == 0) {
        const double *found = args->nsrc > 3 ? src[3].data : NULL;
        *(int64_t *)dst[number].data += !found || found[FY__FOUND * src[3].strides[0]] == 0;
        return FY_STATUS_OK;
    }
    /* the step itself does the whole work */
    if (starts_with(kernel, "fy_step_sums") || strcmp(kernel, "fy_step_trust") == 0)
        return FY_STATUS_OK;
    /* leaves the step number */
    if (starts_with(kernel, "fy_step") && number >= 0)
        dst[number].data = memcpy(state, dst[number].data, sizeof *state);
    if (starts_with(kernel, "fy_linear_finish")) return fake_finish_linear(args, dst, src);
    if (starts_with(kernel, "fy_class_loss_mean")) return fake_mean_of_losses(args, dst, src);
    if (starts_with(kernel, "fy_softmax_parts") ||
        (strcmp(kernel, "fy_argmax") == 0 && args->count != FY__CUDA_NO_COUNT)) {
        /* NaN, or no index: here the joining launch does the whole work */
        memset(dst[0].data, 0xff, args->nelem * sizeof(double));
        return FY_STATUS_OK;
    }
    /* here batch_norm's last launch does the whole work, and layer_norm's first one */
    if (strstr(kernel, "_norm_parts") || strstr(kernel, "_norm_join")) return FY_STATUS_OK;
    if (starts_with(kernel, "fy_batch_norm_apply") && args->op != FY_OP_BATCH_NORM_INFERENCE)
        launch.nsrc--;
    if (is_in_pieces(kernel) || strcmp(kernel, "fy_argmax_join") == 0) launch.nsrc--;
    if (args->op == FY_OP_LINEAR) { /* w was passed transposed, and with the batch axes of dst */
        const int r = src[1].rank - 2;
        const fy_desc_t w = src[1];
        src[1].rank = 2;
        for (int i = 0; i < 2; i++) {
            src[1].dims[i] = w.dims[r + 1 - i];
            src[1].strides[i] = w.strides[r + 1 - i];
        }
    }
    if (args->op == FY_OP_CONV2D_BACKWARD_WEIGHT && dst[0].rank == 5)
        return fake_conv_slices(args, dst, src);
    if (starts_with(kernel, "fy_reduce") && !is_plain_reduction(args))
        return run_wide(args, dst, src);
    return fake_run_launch(&launch);
}

int fake_kernels_are_ptx(void)
{
    const char *kernels = getenv("FAKE_CUDA_KERNELS");
    return kernels != NULL && strcmp(kernels, "ptx") == 0;
}

/* The table of a packed run has device addresses: a copy with the host addresses, or NULL if one is
 * foreign. */
static fy_packed_entry_t *translate_table(int device, const fy__cuda_args_t *args,
                                          const fy_desc_t *dst, const fy_desc_t *src)
{
    const fy_packed_t *packed = &args->attrs.packed;
    const fy_desc_t *run = args->op == FY_LAUNCH_GATHER ? dst : src;
    const uint64_t table_nbytes = (uint64_t)packed->count * sizeof(fy_packed_entry_t);
    if (packed->table_offset % 8 != 0 ||
        packed->table_offset + table_nbytes > (uint64_t)src->dims[0])
        return NULL;
    fy_packed_entry_t *table = malloc(table_nbytes + 1);
    memcpy(table, (const char *)src->data + packed->table_offset, table_nbytes);
    for (uint32_t i = 0; i < packed->count; i++) {
        void *piece = fake_translate(device, table[i].address, table[i].nbytes);
        if (piece == NULL || table[i].offset % 16 != 0 ||
            table[i].offset + table[i].nbytes > (uint64_t)run->dims[0]) {
            free(table);
            return NULL;
        }
        table[i].address = (uint64_t)(uintptr_t)piece;
    }
    return table;
}

static CUresult run_kernel(int device, const launched_t *work)
{
    const char *kernel = work->kernel;
    fy_desc_t dst[FY__CUDA_MAX_DST], src[FY__CUDA_MAX_SRC];
    uint32_t *fault = NULL;
    fy__cuda_args_t own = work->args, *args = &own;
    fy_packed_entry_t *table = NULL;
    if (!assumptions_hold(kernel, args)) return CUDA_ERROR_INVALID_VALUE;
    if (!fake_wide_is_right(kernel, args)) return CUDA_ERROR_MISALIGNED_ADDRESS;
    for (unsigned i = 0; i < args->ndst; i++)
        if (!fake_rebuild(device, &args->dst[i], &dst[i])) return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (unsigned i = 0; i < args->nsrc; i++)
        if (!fake_rebuild(device, &args->src[i], &src[i])) return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (args->fault != 0 && (fault = fake_translate(device, args->fault, sizeof *fault)) == NULL)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (args->op == FY_LAUNCH_SCATTER || args->op == FY_LAUNCH_GATHER) {
        if ((table = translate_table(device, args, dst, src)) == NULL)
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        /* wraps around and back */
        args->attrs.packed.table_offset = (uint64_t)(uintptr_t)table -
                                          (uint64_t)(uintptr_t)src[0].data;
    }
    CUresult code;
    if (fake_kernels_are_ptx())
        code = is_flat_kernel(kernel) ? fake_run_ptx(device, kernel, &work->flat, sizeof work->flat,
                                                     work->grid, work->block_x, work->block_y)
                                      : fake_run_ptx(device, kernel, &work->args, sizeof work->args,
                                                     work->grid, work->block_x, work->block_y);
    else
        code = interpret(kernel, args, fault, dst, src) == FY_STATUS_OK ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_INVALID_VALUE;
    free(table);
    return code;
}

static CUresult run_launched(CUcontext context, const void *work)
{
    const launched_t *launched = work;
    memcpy(last_kernel, launched->kernel, sizeof last_kernel);
    fake_spend(launched->kernel);
    last_threads = (uint64_t)launched->grid * launched->block_x * launched->block_y;
    const CUresult code =
        launched->chain.struct_size != 0
            ? fake_run_chain(context->device, &launched->chain, launched->grid, launched->block_x)
            : run_kernel(context->device, launched);
    if (code != CUDA_ERROR_ILLEGAL_ADDRESS && code != CUDA_ERROR_MISALIGNED_ADDRESS) return code;
    context->lost = code;
    return CUDA_SUCCESS; /* as on a card: the launch succeeds and the next call reports the fault */
}

/* A driver knows the length of a kernel's arguments from the kernel; here their first word contains
 * it too. 0: they disagree. */
static int take_arguments(const char *kernel, const void *params, launched_t *out)
{
    uint32_t nbytes;
    memcpy(&nbytes, params, sizeof nbytes);
    if (strcmp(kernel, "fy_chain_f32") == 0) {
        if (nbytes != sizeof out->chain) return 0;
        memcpy(&out->chain, params, sizeof out->chain);
        if (nbytes > longest_args) longest_args = nbytes;
        return 1;
    }
    if (nbytes != (is_flat_kernel(kernel) ? sizeof out->flat : sizeof out->args)) return 0;
    if (nbytes > longest_args) longest_args = nbytes;
    if (!is_flat_kernel(kernel)) {
        memcpy(&out->args, params, sizeof out->args);
        return 1;
    }
    memcpy(&out->flat, params, sizeof out->flat);
    fy__cuda_flat_expand(&out->flat, &out->args);
    return 1;
}

/* The empty kernels of bench/probe_kernels.cu. */
static CUresult run_nothing(CUcontext context, const void *work)
{
    (void)context, (void)work;
    return CUDA_SUCCESS;
}

CUresult fake_cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                             CUstream stream, void **params, void **extra)
{
    CUcontext context;
    int code = fake_enter_context(FAKE_cuLaunchKernel, &context);
    const char *kernel = code == 0 ? fake_kernel_name(function, context) : NULL;
    if (code != 0) return (CUresult)fake_leave(code);
    const int square = kernel != NULL &&
                       (starts_with(kernel, "fy_matmul") || starts_with(kernel, "fy_conv2d"));
    const int tiled = kernel != NULL && starts_with(kernel, "fy_attention_tensor");
    const unsigned wanted_x = square  ? FY__CUDA_TILE
                              : tiled ? FY__CUDA_ATTENTION_BLOCK
                                      : FY__CUDA_BLOCK,
                   wanted_y = square ? FY__CUDA_TILE : 1;
    if (kernel == NULL || !fake_stream_is_valid(stream, context))
        return (CUresult)fake_leave(CUDA_ERROR_INVALID_HANDLE);
    if (starts_with(kernel, "probe_"))
        return (CUresult)fake_leave(fake_submit(context, stream, run_nothing, "", 1));
    if (grid_x == 0 || grid_x > INT32_MAX || grid_y != 1 || grid_z != 1 || block_x != wanted_x ||
        block_y != wanted_y || block_z != 1 || shared != 0 || extra != NULL)
        return (CUresult)fake_leave(CUDA_ERROR_INVALID_VALUE);
    launched_t launched = { .grid = grid_x, .block_x = block_x, .block_y = block_y };
    strncpy(launched.kernel, kernel, sizeof launched.kernel - 1);
    if (!take_arguments(kernel, params[0], &launched))
        return (CUresult)fake_leave(CUDA_ERROR_INVALID_VALUE);
    code = fake_submit(context, stream, run_launched, &launched, sizeof launched);
    return (CUresult)fake_leave(code);
}
