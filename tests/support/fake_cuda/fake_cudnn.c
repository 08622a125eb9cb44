/* cuDNN of the fake. It checks the descriptors that the plugin makes, its heuristics first offer
 * algorithms that the plugin must not take, and convolutions are plain loops over the descriptors,
 * in f64. f32 whose math type is not FMA loses 13 bits of its factors, as with TF32. */
#include <stdlib.h>
#include <string.h>

#include "opset/formulas/half.h"
#include "tests/support/fake_cuda/fake.h"

#define EXPORT __attribute__((visibility("default")))

struct object {
    uint32_t magic;
    cudnnDataType_t type, compute;
    int dims[4]; /* N, C, H, W; of a filter K, C, R, S */
    int pad[2], stride[2], dilation[2], groups;
    cudnnMathType_t math;
    cudnnActivationMode_t mode;
    CUstream stream;
};
enum { HANDLE = 0x27, TENSOR, FILTER, CONVOLUTION, ACTIVATION, DEAD = 0xDEAD };
enum { SCRATCH = 1 }; /* in an offer: fake_cudnn_scratch */

static int64_t live;
static struct object *handles[4]; /* the live handles; more than there are devices */
int64_t fake_cudnn_live(void) { return live; }

static int is_a(const void *object, uint32_t magic)
{
    if (object != NULL && ((const struct object *)object)->magic == magic) return 1;
    fake_count_misuse();
    return 0;
}

static cudnnStatus_t create(enum fake_entry entry, uint32_t magic, void **out)
{
    int code = fake_enter(entry);
    *out = NULL;
    if (code == 0) {
        struct object *object = calloc(1, sizeof *object);
        object->magic = magic;
        *out = object;
        live++;
    }
    return (cudnnStatus_t)fake_leave(code);
}

static cudnnStatus_t destroy(enum fake_entry entry, void *object, uint32_t magic)
{
    int code = fake_enter(entry);
    if (!is_a(object, magic)) return (cudnnStatus_t)fake_leave(CUDNN_STATUS_BAD_PARAM);
    ((struct object *)object)->magic = DEAD;
    free(object);
    live--;
    return (cudnnStatus_t)fake_leave(code);
}

EXPORT size_t cudnnGetVersion(void) { return CUDNN_VERSION; }

EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t *out)
{
    CUcontext context = NULL;
    int code = fake_enter_context(FAKE_cudnnCreate, &context);
    fake_leave(0);
    if (code == CUDA_ERROR_INVALID_CONTEXT) code = CUDNN_STATUS_NOT_INITIALIZED;
    *out = NULL;
    if (code != 0) return (cudnnStatus_t)code;
    fake_lock();
    struct object *object = calloc(1, sizeof *object);
    object->magic = HANDLE;
    for (int i = 0; i < 4; i++)
        if (handles[i] == NULL) {
            handles[i] = object;
            break;
        }
    live++;
    *out = (cudnnHandle_t)object;
    fake_unlock();
    return CUDNN_STATUS_SUCCESS;
}
EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    fake_lock();
    for (int i = 0; i < 4; i++)
        if (handles[i] == (struct object *)handle) handles[i] = NULL;
    fake_unlock();
    return destroy(FAKE_cudnnDestroy, handle, HANDLE);
}

int fake_cudnn_holds(CUstream stream)
{
    for (int i = 0; i < 4; i++)
        if (handles[i] != NULL && handles[i]->stream == stream) return 1;
    return 0;
}

EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    CUcontext context = NULL;
    int code = fake_enter_context(FAKE_cudnnSetStream, &context);
    if (code == 0 && (!is_a(handle, HANDLE) ||
                      (stream != NULL && !fake_stream_is_valid((CUstream)stream, context))))
        code = CUDNN_STATUS_BAD_PARAM;
    if (code == 0) ((struct object *)handle)->stream = (CUstream)stream;
    return (cudnnStatus_t)fake_leave(code);
}

#define OBJECT(Name, type, magic)                                   \
    EXPORT cudnnStatus_t cudnnCreate##Name(type *out)               \
    {                                                               \
        return create(FAKE_cudnnCreate##Name, magic, (void **)out); \
    }                                                               \
    EXPORT cudnnStatus_t cudnnDestroy##Name(type object)            \
    {                                                               \
        return destroy(FAKE_cudnnDestroy##Name, object, magic);     \
    }
OBJECT(TensorDescriptor, cudnnTensorDescriptor_t, TENSOR)
OBJECT(FilterDescriptor, cudnnFilterDescriptor_t, FILTER)
OBJECT(ConvolutionDescriptor, cudnnConvolutionDescriptor_t, CONVOLUTION)
OBJECT(ActivationDescriptor, cudnnActivationDescriptor_t, ACTIVATION)

/* ---- descriptors ---- */

static cudnnStatus_t set_dims(enum fake_entry entry, void *desc, uint32_t magic,
                              cudnnTensorFormat_t format, cudnnDataType_t type, const int *dims)
{
    struct object *object = desc;
    int code = fake_enter(entry);
    if (code == 0 && (!is_a(object, magic) || format != CUDNN_TENSOR_NHWC))
        code = CUDNN_STATUS_BAD_PARAM;
    for (int i = 0; code == 0 && i < 4; i++)
        if (dims[i] < 1) code = CUDNN_STATUS_BAD_PARAM;
    if (code == 0) {
        object->type = type;
        memcpy(object->dims, dims, sizeof object->dims);
    }
    return (cudnnStatus_t)fake_leave(code);
}

EXPORT cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t desc,
                                                cudnnTensorFormat_t format, cudnnDataType_t type,
                                                int n, int c, int h, int w)
{
    return set_dims(FAKE_cudnnSetTensor4dDescriptor, desc, TENSOR, format, type,
                    (int[]){ n, c, h, w });
}
EXPORT cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t desc, cudnnDataType_t type,
                                                cudnnTensorFormat_t format, int k, int c, int h,
                                                int w)
{
    return set_dims(FAKE_cudnnSetFilter4dDescriptor, desc, FILTER, format, type,
                    (int[]){ k, c, h, w });
}

EXPORT cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t desc, int pad_h,
                                                     int pad_w, int u, int v, int dilation_h,
                                                     int dilation_w, cudnnConvolutionMode_t mode,
                                                     cudnnDataType_t compute)
{
    struct object *object = (struct object *)desc;
    int code = fake_enter(FAKE_cudnnSetConvolution2dDescriptor);
    if (code == 0 && (!is_a(object, CONVOLUTION) || pad_h < 0 || pad_w < 0 || u < 1 || v < 1 ||
                      dilation_h < 1 || dilation_w < 1 || mode != CUDNN_CROSS_CORRELATION))
        code = CUDNN_STATUS_BAD_PARAM;
    if (code == 0) {
        object->pad[0] = pad_h, object->pad[1] = pad_w;
        object->stride[0] = u, object->stride[1] = v;
        object->dilation[0] = dilation_h, object->dilation[1] = dilation_w;
        object->compute = compute;
        object->groups = 1;
        object->math = CUDNN_DEFAULT_MATH;
    }
    return (cudnnStatus_t)fake_leave(code);
}

EXPORT cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t desc, int groups)
{
    int code = fake_enter(FAKE_cudnnSetConvolutionGroupCount);
    if (code == 0 && (!is_a(desc, CONVOLUTION) || groups < 1)) code = CUDNN_STATUS_BAD_PARAM;
    if (code == 0) ((struct object *)desc)->groups = groups;
    return (cudnnStatus_t)fake_leave(code);
}

EXPORT cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t desc,
                                                 cudnnMathType_t math)
{
    int code = fake_enter(FAKE_cudnnSetConvolutionMathType);
    if (code == 0 && !is_a(desc, CONVOLUTION)) code = CUDNN_STATUS_BAD_PARAM;
    if (code == 0) ((struct object *)desc)->math = math;
    return (cudnnStatus_t)fake_leave(code);
}

EXPORT cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t desc,
                                                  cudnnActivationMode_t mode,
                                                  cudnnNanPropagation_t nan, double coefficient)
{
    int code = fake_enter(FAKE_cudnnSetActivationDescriptor);
    if (code == 0 && (!is_a(desc, ACTIVATION) || nan != CUDNN_NOT_PROPAGATE_NAN ||
                      coefficient != 0 || mode != CUDNN_ACTIVATION_IDENTITY))
        code = CUDNN_STATUS_BAD_PARAM;
    if (code == 0) ((struct object *)desc)->mode = mode;
    return (cudnnStatus_t)fake_leave(code);
}

/* ---- one convolution ---- */

typedef struct problem {
    const struct object *x, *w, *y, *conv;
} problem_t;

static int is_whole(const problem_t *p)
{
    if (!is_a(p->x, TENSOR) || !is_a(p->w, FILTER) || !is_a(p->y, TENSOR) ||
        !is_a(p->conv, CONVOLUTION))
        return 0;
    const cudnnDataType_t type = p->x->type;
    if (p->w->type != type || p->y->type != type ||
        p->conv->compute != (type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT))
        return 0;
    if (p->x->dims[0] != p->y->dims[0] || p->x->dims[1] != p->w->dims[1] * p->conv->groups ||
        p->y->dims[1] != p->w->dims[0] || p->w->dims[0] % p->conv->groups != 0)
        return 0;
    for (int i = 0; i < 2; i++)
        if (p->y->dims[2 + i] != (p->x->dims[2 + i] + 2 * p->conv->pad[i] -
                                  p->conv->dilation[i] * (p->w->dims[2 + i] - 1) - 1) /
                                         p->conv->stride[i] +
                                     1)
            return 0;
    return 1;
}

/* The plugin may take the last two of each kind: one with scratch, one (forward only) without. */
#define HEURISTIC(name, Perf, A, a, B, b, C, c, x_, w_, y_, ...)                          \
    EXPORT cudnnStatus_t name(cudnnHandle_t handle, const A a, const B b,                 \
                              const cudnnConvolutionDescriptor_t conv, const C c,         \
                              const int requested, int *found, Perf *results)             \
    {                                                                                     \
        static const Perf offers[] = { __VA_ARGS__ };                                     \
        const int n = (int)(sizeof offers / sizeof *offers);                              \
        const problem_t p = { (const void *)(x_), (const void *)(w_), (const void *)(y_), \
                              (const void *)conv };                                       \
        int code = fake_enter(FAKE_##name);                                               \
        *found = 0;                                                                       \
        if (code == 0 && (!is_a(handle, HANDLE) || requested < n || !is_whole(&p)))       \
            code = CUDNN_STATUS_BAD_PARAM;                                                \
        for (int i = 0; code == 0 && i < n; i++) {                                        \
            results[i] = offers[i];                                                       \
            if (results[i].memory == SCRATCH) results[i].memory = fake_cudnn_scratch;     \
            if (i > 0)                                                                    \
                results[i].mathType =                                                     \
                    p.conv->math; /* the first one: a math type that was not requested */ \
            *found = n;                                                                   \
        }                                                                                 \
        return (cudnnStatus_t)fake_leave(code);                                           \
    }
#define OFFER(algorithm, nbytes, determinism_, math)                         \
    {                                                                        \
        .algo = algorithm, .status = CUDNN_STATUS_SUCCESS, .memory = nbytes, \
        .determinism = determinism_, .mathType = math                        \
    }

HEURISTIC(cudnnGetConvolutionForwardAlgorithm_v7, cudnnConvolutionFwdAlgoPerf_t,
          cudnnTensorDescriptor_t, x, cudnnFilterDescriptor_t, w, cudnnTensorDescriptor_t, y, x, w,
          y,
          OFFER(CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, 0, CUDNN_DETERMINISTIC,
                CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION),
          OFFER(CUDNN_CONVOLUTION_FWD_ALGO_GEMM, 0, CUDNN_NON_DETERMINISTIC, CUDNN_DEFAULT_MATH),
          OFFER(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, SCRATCH, CUDNN_DETERMINISTIC,
                CUDNN_DEFAULT_MATH),
          OFFER(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, 0, CUDNN_DETERMINISTIC,
                CUDNN_DEFAULT_MATH))
HEURISTIC(cudnnGetConvolutionBackwardDataAlgorithm_v7, cudnnConvolutionBwdDataAlgoPerf_t,
          cudnnFilterDescriptor_t, w, cudnnTensorDescriptor_t, y, cudnnTensorDescriptor_t, x, x, w,
          y,
          OFFER(CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, 0, CUDNN_NON_DETERMINISTIC,
                CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION),
          OFFER(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, SCRATCH, CUDNN_DETERMINISTIC,
                CUDNN_DEFAULT_MATH))
HEURISTIC(cudnnGetConvolutionBackwardFilterAlgorithm_v7, cudnnConvolutionBwdFilterAlgoPerf_t,
          cudnnTensorDescriptor_t, x, cudnnTensorDescriptor_t, y, cudnnFilterDescriptor_t, w, x, w,
          y,
          OFFER(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, 0, CUDNN_NON_DETERMINISTIC,
                CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION),
          OFFER(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, SCRATCH, CUDNN_DETERMINISTIC,
                CUDNN_DEFAULT_MATH))

static fy_dtype_t dtype_of(cudnnDataType_t type)
{
    return type == CUDNN_DATA_DOUBLE  ? FY_DTYPE_F64
           : type == CUDNN_DATA_FLOAT ? FY_DTYPE_F32
           : type == CUDNN_DATA_HALF  ? FY_DTYPE_F16
                                      : FY_DTYPE_BF16;
}

static double factor(const problem_t *p, const void *data, int64_t i)
{
    const double x = fake_read(dtype_of(p->x->type), data, i);
    if (p->x->type != CUDNN_DATA_FLOAT || p->conv->math == CUDNN_FMA_MATH) return x;
    return fy__f32_of_bits(fy__bits_of_f32((float)x) & ~0x1fffu);
}

static int64_t count_of(const struct object *desc)
{
    return (int64_t)desc->dims[0] * desc->dims[1] * desc->dims[2] * desc->dims[3];
}

/* All factors of an operand, in f64: read once, because each is used many times. */
static double *factors(const problem_t *p, const void *data, const struct object *desc)
{
    const int64_t n = count_of(desc);
    double *all = malloc((size_t)n * sizeof *all);
    for (int64_t i = 0; i < n; i++) all[i] = factor(p, data, i);
    return all;
}

/* The products of one position of y and one of the window, over the channels. */
static inline void meet(int kind, int nchannels, double *restrict x, double *restrict w,
                        double *restrict y)
{
    const double slope = *y;
    double sum = 0;
    for (int c = 0; kind == 0 && c < nchannels; c++) sum += x[c] * w[c];
    for (int c = 0; kind == 1 && c < nchannels; c++) x[c] += slope * w[c];
    for (int c = 0; kind == 2 && c < nchannels; c++) w[c] += slope * x[c];
    if (kind == 0) *y += sum;
}

/* Adds the products of two operands to the third, which is y (kind 0), x (1) or w (2), over every
 * pair of positions. */
static void add_up(const problem_t *p, int kind, double *x, double *w, double *y)
{
    const int *xd = p->x->dims, *wd = p->w->dims, *yd = p->y->dims, og = wd[0] / p->conv->groups;
    for (int n = 0; n < yd[0]; n++)
        for (int oh = 0; oh < yd[2]; oh++)
            for (int ow = 0; ow < yd[3]; ow++)
                for (int o = 0; o < yd[1]; o++)
                    for (int kh = 0; kh < wd[2]; kh++)
                        for (int kw = 0; kw < wd[3]; kw++) {
                            const int h = oh * p->conv->stride[0] - p->conv->pad[0] +
                                          kh * p->conv->dilation[0];
                            const int v = ow * p->conv->stride[1] - p->conv->pad[1] +
                                          kw * p->conv->dilation[1];
                            if (h < 0 || h >= xd[2] || v < 0 || v >= xd[3]) continue;
                            meet(kind, wd[1],
                                 x + (((int64_t)n * xd[2] + h) * xd[3] + v) * xd[1] +
                                     o / og * wd[1],
                                 w + (((int64_t)o * wd[2] + kh) * wd[3] + kw) * wd[1],
                                 y + (((int64_t)n * yd[2] + oh) * yd[3] + ow) * yd[1] + o);
                        }
}

static double scalar(const problem_t *p, const void *value)
{
    return p->x->type == CUDNN_DATA_DOUBLE ? *(const double *)value : *(const float *)value;
}

typedef struct call {
    problem_t p;
    int kind;
    const void *alpha, *beta, *x, *w, *y, *bias;
    size_t needs, nbytes; /* scratch */
    const void *scratch;
    const struct object *bias_desc, *activation;
} call_t;

/* All inputs of a convolution: its descriptors may be destroyed when a graph runs it. */
typedef struct work {
    struct object x, w, y, conv, bias_desc, activation;
    call_t call;
    double keep;
} work_t;

static CUresult run_convolution(CUcontext context, const void *given)
{
    const work_t *work = given;
    const call_t *c = &work->call;
    const problem_t p = { &work->x, &work->w, &work->y, &work->conv };
    const struct object *desc[] = { p.x, p.w, p.y };
    const void *addresses[] = { c->x, c->w, c->y };
    void *data[3], *bias = NULL;
    int whole = c->nbytes == 0 ||
                fake_translate(context->device, (uint64_t)(uintptr_t)c->scratch, c->nbytes) != NULL;
    for (int i = 0; i < 3; i++) {
        data[i] =
            fake_translate(context->device, (uint64_t)(uintptr_t)addresses[i],
                           (uint64_t)count_of(desc[i]) * fy_dtype_size(dtype_of(desc[i]->type)));
        whole &= data[i] != NULL;
    }
    if (c->bias_desc != NULL) {
        bias = fake_translate(context->device, (uint64_t)(uintptr_t)c->bias,
                              (uint64_t)count_of(&work->bias_desc) *
                                  fy_dtype_size(dtype_of(p.x->type)));
        whole &= bias != NULL;
    }
    if (!whole) return context->lost = CUDA_ERROR_ILLEGAL_ADDRESS;
    fake_spend("cudnn");
    const int at = c->kind == 0 ? 2 : c->kind == 1 ? 0 : 1;
    const int64_t n = count_of(desc[at]);
    const fy_dtype_t dtype = dtype_of(p.x->type);
    double *parts[3], *sums;
    for (int i = 0; i < 3; i++)
        parts[i] = i == at ? calloc((size_t)n, sizeof *sums) : factors(&p, data[i], desc[i]);
    add_up(&p, c->kind, parts[0], parts[1], parts[2]);
    sums = parts[at];
    for (int64_t i = 0; i < n; i++) {
        double sum = sums[i];
        if (work->keep != 0) sum += work->keep * fake_read(dtype, data[at], i);
        if (bias != NULL) sum += fake_read(dtype, bias, i % p.y->dims[1]);
        fake_write(dtype, data[at], i, sum);
    }
    for (int i = 0; i < 3; i++) free(parts[i]);
    return CUDA_SUCCESS;
}

static cudnnStatus_t run(enum fake_entry entry, cudnnHandle_t handle, const call_t *c)
{
    CUcontext context = NULL;
    int code = fake_enter_context(entry, &context);
    if (code != 0)
        return (cudnnStatus_t)fake_leave(code < 1000 ? CUDNN_STATUS_EXECUTION_FAILED : code);
    const struct object *own = (const struct object *)handle;
    if (!is_a(own, HANDLE) || !is_whole(&c->p) || !fake_stream_is_valid(own->stream, context) ||
        scalar(&c->p, c->alpha) != 1 || c->nbytes < c->needs ||
        ((uintptr_t)c->x | (uintptr_t)c->w | (uintptr_t)c->y) % 16 != 0)
        return (cudnnStatus_t)fake_leave(CUDNN_STATUS_BAD_PARAM);
    work_t work = { .x = *c->p.x,
                    .w = *c->p.w,
                    .y = *c->p.y,
                    .conv = *c->p.conv,
                    .call = *c,
                    .keep = scalar(&c->p, c->beta) };
    if (c->bias_desc != NULL) work.bias_desc = *c->bias_desc;
    if (c->activation != NULL) work.activation = *c->activation;
    code = fake_submit(context, own->stream, run_convolution, &work, sizeof work);
    return (cudnnStatus_t)fake_leave(code == 0 ? CUDNN_STATUS_SUCCESS
                                               : CUDNN_STATUS_EXECUTION_FAILED);
}

/* An algorithm that must not be taken needs more scratch than the limit. */
static size_t needs(int may_be_taken) { return may_be_taken ? fake_cudnn_scratch : SIZE_MAX; }
static size_t forward_needs(cudnnConvolutionFwdAlgo_t algo)
{
    if (algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM) return 0;
    return needs(algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
}

/* A call from the parameters of an entry point; the rest are designators. */
#define CALL(...)                                                                               \
    {                                                                                           \
        .p = { (void *)x_desc, (void *)w_desc, (void *)y_desc, (void *)conv }, .alpha = alpha,  \
        .beta = beta, .x = x, .w = w, .y = y, .nbytes = nbytes, .scratch = scratch, __VA_ARGS__ \
    }

EXPORT cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha,
                                             const cudnnTensorDescriptor_t x_desc, const void *x,
                                             const cudnnFilterDescriptor_t w_desc, const void *w,
                                             const cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionFwdAlgo_t algo, void *scratch,
                                             size_t nbytes, const void *beta,
                                             const cudnnTensorDescriptor_t y_desc, void *y)
{
    const call_t c = CALL(.needs = forward_needs(algo));
    return run(FAKE_cudnnConvolutionForward, handle, &c);
}

EXPORT cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t x_desc, const void *x,
    const cudnnFilterDescriptor_t w_desc, const void *w, const cudnnConvolutionDescriptor_t conv,
    cudnnConvolutionFwdAlgo_t algo, void *scratch, size_t nbytes, const void *alpha2,
    const cudnnTensorDescriptor_t z_desc, const void *z, const cudnnTensorDescriptor_t bias_desc,
    const void *bias, const cudnnActivationDescriptor_t activation,
    const cudnnTensorDescriptor_t y_desc, void *y)
{
    const struct object *b = (const void *)bias_desc, *a = (const void *)activation,
                        *out = (const void *)y_desc;
    const void *beta = alpha2;
    const call_t c =
        CALL(.needs = forward_needs(algo), .bias = bias, .bias_desc = b, .activation = a);
    if (!is_a(b, TENSOR) || !is_a(a, ACTIVATION) || z_desc != y_desc || z != y ||
        b->dims[1] != out->dims[1] || count_of(b) != b->dims[1] || b->type != out->type ||
        (a->mode == CUDNN_ACTIVATION_IDENTITY &&
         algo != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM))
        return CUDNN_STATUS_BAD_PARAM;
    return run(FAKE_cudnnConvolutionBiasActivationForward, handle, &c);
}

EXPORT cudnnStatus_t cudnnConvolutionBackwardData(
    cudnnHandle_t handle, const void *alpha, const cudnnFilterDescriptor_t w_desc, const void *w,
    const cudnnTensorDescriptor_t y_desc, const void *y, const cudnnConvolutionDescriptor_t conv,
    cudnnConvolutionBwdDataAlgo_t algo, void *scratch, size_t nbytes, const void *beta,
    const cudnnTensorDescriptor_t x_desc, void *x)
{
    const call_t c = CALL(.kind = 1, .needs = needs(algo == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1));
    return run(FAKE_cudnnConvolutionBackwardData, handle, &c);
}

EXPORT cudnnStatus_t cudnnConvolutionBackwardFilter(
    cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t x_desc, const void *x,
    const cudnnTensorDescriptor_t y_desc, const void *y, const cudnnConvolutionDescriptor_t conv,
    cudnnConvolutionBwdFilterAlgo_t algo, void *scratch, size_t nbytes, const void *beta,
    const cudnnFilterDescriptor_t w_desc, void *w)
{
    const call_t c = CALL(.kind = 2, .needs = needs(algo == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1));
    return run(FAKE_cudnnConvolutionBackwardFilter, handle, &c);
}
