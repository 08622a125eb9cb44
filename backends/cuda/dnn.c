/* Plans of cuDNN: the descriptors of a convolution and the algorithm for it. Asking costs tens of
 * microseconds and more, so plans are kept (plans.h); a refusal is kept, too. Only algorithms that
 * cuDNN calls deterministic and that add up products as they stand (no FFT, no Winograd, which have
 * other errors) are taken; f32 is multiplied in f32. Next: conv.c. */
#include "backends/cuda/dnn.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/dnn_library.h"
#include "backends/cuda/plans.h"
#include "runtime/base/environment.h"

enum { MOST_ALGORITHMS = 8 };

_Static_assert(sizeof(fy__cuda_dnn_problem_t) == 19 * 4,
               "the key is compared as bytes: it may have no padding");

typedef struct plan {
    fy__cuda_plan_t kept; /* if it is refused, the descriptors are gone */
    fy__cuda_dnn_problem_t problem;
    int algorithm; /* a cudnnConvolution{Fwd,BwdData,BwdFilter}Algo_t */
    cudnnTensorDescriptor_t x, y, bias;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    cudnnActivationDescriptor_t activation;
} plan_t;

struct fy__cuda_dnn {
    fy__cuda_device_t *dev;
    /* Guards everything below. Held while a convolution is submitted: the handle's stream is set
     * for it, and its plan must stay. */
    pthread_mutex_t lock;
    cudnnHandle_t handle;
    CUstream stream;    /* that the handle has */
    atomic_int missing; /* the library was looked for and is not there */
    /* cuDNN's code: it was found, but does not start here. Read without the lock */
    atomic_int unusable;
    atomic_int told;   /* the log has heard it */
    char refusal[320]; /* for the log, which is written without the lock; "": nothing new */
    fy__cuda_plans_t table;
    plan_t plans[FY__CUDA_PLANS + 1];
};

#define DNN_FAIL_AS(status, code, call, p)                                                    \
    FY__CUDA_FAIL(                                                                            \
        (status),                                                                             \
        "convolution [%d x %d x %d x %d] with [%d x %d x %d x %d] on cuda: %s gave %s (%d)",  \
        (p)->n, (p)->h, (p)->w, (p)->c, (p)->o, (p)->kh, (p)->kw, (p)->c / (p)->groups, call, \
        fy__cudnn_name(code), (int)(code))
#define DNN_FAIL(code, call, p) DNN_FAIL_AS(fy__cudnn_status(code), code, call, p)
/* In the making of a plan only. */
#define DNN_TRY(call, args, p)                                                        \
    do {                                                                              \
        cudnnStatus_t code_ = fy__cudnn.call args;                                    \
        if (code_ != CUDNN_STATUS_SUCCESS) return note_refusal(dnn, code_, #call, p); \
    } while (0)

int fy__cuda_dnn_is_there(fy__cuda_device_t *dev)
{
    static atomic_int told;
    fy__cuda_dnn_t *dnn = dev->dnn;
    if (!dev->wants_dnn || atomic_load(&dnn->unusable) || atomic_load(&dnn->missing)) return 0;
    if (fy__cudnn_load() == FY_STATUS_OK) return 1;
    atomic_store(&dnn->missing, 1);
    const char *asked = fy__env_file("FERRY_CUDNN");
    if (!atomic_exchange(&told, 1))
        fy__cuda.host->log(FY_LOG_INFO,
                           "cuda:%d: there is no cuDNN 9 (%s), so Ferry's own kernels run "
                           "convolutions; FERRY_CUDNN names another file (said once)",
                           dev->index, asked != NULL ? asked : "libcudnn.so.9");
    return 0;
}

/* ---- making a plan ---- */

/* Keeps what the log is to say of a refusal, and fails. */
static fy_status_t note_refusal(fy__cuda_dnn_t *dnn, cudnnStatus_t code, const char *call,
                                const fy__cuda_dnn_problem_t *p)
{
    const fy_status_t status = fy__cudnn_planning_status(code);
    if (status == FY_STATUS_UNSUPPORTED)
        snprintf(dnn->refusal, sizeof dnn->refusal, "%s gave %s (%d)", call, fy__cudnn_name(code),
                 (int)code);
    return DNN_FAIL_AS(status, code, call, p);
}

static cudnnDataType_t type_of(int32_t dtype)
{
    switch (dtype) {
    case FY_DTYPE_F64: return CUDNN_DATA_DOUBLE;
    case FY_DTYPE_F16: return CUDNN_DATA_HALF;
    case FY_DTYPE_BF16: return CUDNN_DATA_BFLOAT16;
    default: return CUDNN_DATA_FLOAT;
    }
}

static fy_status_t make_tensor(fy__cuda_dnn_t *dnn, const fy__cuda_dnn_problem_t *p, int n, int c,
                               int h, int w, cudnnTensorDescriptor_t *out)
{
    DNN_TRY(cudnnCreateTensorDescriptor, (out), p);
    DNN_TRY(cudnnSetTensor4dDescriptor, (*out, CUDNN_TENSOR_NHWC, type_of(p->dtype), n, c, h, w),
            p);
    return FY_STATUS_OK;
}

/* FMA: f32 in f32; cuDNN's default would take TF32, and may with tf32=on. Halves on tensor cores,
 * their sums in f32. */
static cudnnMathType_t math_of(const fy__cuda_device_t *dev, int32_t dtype)
{
    return dtype == FY_DTYPE_F32 && !dev->tf32              ? CUDNN_FMA_MATH
           : dtype == FY_DTYPE_F32 || dtype == FY_DTYPE_F64 ? CUDNN_DEFAULT_MATH
                                                            : CUDNN_TENSOR_OP_MATH;
}

static fy_status_t describe(fy__cuda_dnn_t *dnn, const fy__cuda_dnn_problem_t *p, plan_t *plan)
{
    const cudnnDataType_t compute = p->dtype == FY_DTYPE_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    FY_TRY(make_tensor(dnn, p, p->n, p->c, p->h, p->w, &plan->x));
    FY_TRY(make_tensor(dnn, p, p->n, p->o, p->oh, p->ow, &plan->y));
    DNN_TRY(cudnnCreateFilterDescriptor, (&plan->w), p);
    DNN_TRY(cudnnSetFilter4dDescriptor,
            (plan->w, type_of(p->dtype), CUDNN_TENSOR_NHWC, p->o, p->c / p->groups, p->kh, p->kw),
            p);
    DNN_TRY(cudnnCreateConvolutionDescriptor, (&plan->conv), p);
    DNN_TRY(cudnnSetConvolution2dDescriptor,
            (plan->conv, p->padding_h, p->padding_w, p->stride_h, p->stride_w, p->dilation_h,
             p->dilation_w, CUDNN_CROSS_CORRELATION, compute),
            p);
    DNN_TRY(cudnnSetConvolutionGroupCount, (plan->conv, p->groups), p);
    DNN_TRY(cudnnSetConvolutionMathType, (plan->conv, math_of(dnn->dev, p->dtype)), p);
    if (!p->bias) return FY_STATUS_OK;
    FY_TRY(make_tensor(dnn, p, 1, p->o, 1, 1, &plan->bias));
    DNN_TRY(cudnnCreateActivationDescriptor, (&plan->activation), p);
    /* relu is a launch of ours (conv.c): it keeps NaN, and IDENTITY is offered without a promise
     * about NaN. */
    DNN_TRY(cudnnSetActivationDescriptor,
            (plan->activation, CUDNN_ACTIVATION_IDENTITY, CUDNN_NOT_PROPAGATE_NAN, 0.0), p);
    return FY_STATUS_OK;
}

/* What the three kinds of results have in common. */
typedef struct offer {
    int algorithm, deterministic;
    cudnnStatus_t status;
    uint64_t nbytes;
    cudnnMathType_t math;
} offer_t;

/* Sums of products as they stand. IDENTITY is known to one algorithm only. */
static int is_direct(const fy__cuda_dnn_problem_t *p, int algorithm)
{
    if (p->kind == FY__CUDA_DNN_INPUT) return algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
    if (p->kind == FY__CUDA_DNN_WEIGHT) return algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
    if (p->bias) return algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
    return algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM ||
           algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM ||
           algorithm == CUDNN_CONVOLUTION_FWD_ALGO_GEMM;
}

#define ASK(kind, Perf, ...)                                                               \
    do {                                                                                   \
        Perf found_[MOST_ALGORITHMS];                                                      \
        DNN_TRY(cudnnGetConvolution##kind##Algorithm_v7,                                   \
                (dnn->handle, __VA_ARGS__, MOST_ALGORITHMS, out_n, found_), p);            \
        for (int i_ = 0; i_ < *out_n; i_++)                                                \
            offers[i_] =                                                                   \
                (offer_t){ .algorithm = (int)found_[i_].algo,                              \
                           .deterministic = found_[i_].determinism == CUDNN_DETERMINISTIC, \
                           .status = found_[i_].status,                                    \
                           .nbytes = found_[i_].memory,                                    \
                           .math = found_[i_].mathType };                                  \
    } while (0)

/* Best first, as cuDNN expects. */
static fy_status_t ask(fy__cuda_dnn_t *dnn, const fy__cuda_dnn_problem_t *p, const plan_t *plan,
                       offer_t *offers, int *out_n)
{
    *out_n = 0;
    if (p->kind == FY__CUDA_DNN_FORWARD)
        ASK(Forward, cudnnConvolutionFwdAlgoPerf_t, plan->x, plan->w, plan->conv, plan->y);
    else if (p->kind == FY__CUDA_DNN_INPUT)
        ASK(BackwardData, cudnnConvolutionBwdDataAlgoPerf_t, plan->w, plan->y, plan->conv, plan->x);
    else
        ASK(BackwardFilter, cudnnConvolutionBwdFilterAlgoPerf_t, plan->x, plan->y, plan->conv,
            plan->w);
    return FY_STATUS_OK;
}

static fy_status_t choose(fy__cuda_dnn_t *dnn, const fy__cuda_dnn_problem_t *p, uint64_t limit,
                          plan_t *plan)
{
    offer_t offers[MOST_ALGORITHMS] = { 0 };
    int n = 0;
    uint64_t wants = UINT64_MAX; /* the least scratch of one that may be taken */
    const int exact = p->dtype == FY_DTYPE_F32 && !dnn->dev->tf32;
    FY_TRY(ask(dnn, p, plan, offers, &n));
    for (int i = 0; i < n; i++) {
        const offer_t *offer = &offers[i];
        if (offer->status != CUDNN_STATUS_SUCCESS || !offer->deterministic ||
            !is_direct(p, offer->algorithm))
            continue;
        if (exact && offer->math != CUDNN_FMA_MATH && offer->math != CUDNN_DEFAULT_MATH) continue;
        if (offer->nbytes < wants) wants = offer->nbytes;
        if (offer->nbytes > limit) continue;
        /* Algorithm and way of multiplying belong together; f32 stays FMA. */
        if (!exact) DNN_TRY(cudnnSetConvolutionMathType, (plan->conv, offer->math), p);
        plan->algorithm = offer->algorithm;
        plan->kept.nbytes = offer->nbytes;
        return FY_STATUS_OK;
    }
    const fy_status_t status = note_refusal(dnn, CUDNN_STATUS_NOT_SUPPORTED,
                                            "the choice among deterministic algorithms", p);
    if (wants != UINT64_MAX)
        snprintf(dnn->refusal, sizeof dnn->refusal,
                 "it needs %llu bytes of scratch and has %llu; workspace=%lluMiB in the device's "
                 "spec grants as much",
                 (unsigned long long)wants, (unsigned long long)limit,
                 (unsigned long long)((wants + 1048575) / 1048576));
    return status;
}

/* cuDNN's codes do not tell a lost device from a refused launch; the driver's do. */
static fy_status_t explain(fy__cuda_device_t *dev, cudnnStatus_t code, const char *call,
                           const fy__cuda_dnn_problem_t *p)
{
    size_t available, total;
    CUresult driver = fy__cuda_checked(dev, fy__cuda.cuMemGetInfo(&available, &total));
    if (fy__cuda_is_fatal(driver))
        return fy__cuda_failed(driver, __FILE__, __LINE__, "cuDNN",
                               "running a convolution on cuda:%d", dev->index);
    return DNN_FAIL(code, call, p);
}

/* Makes the handle. A cuDNN that is there but does not start (parts of it missing, too new for the
 * driver) is none, from then on: the launch is refused and Ferry's own kernels run. For want of
 * memory it may start later. */
static fy_status_t start(fy__cuda_dnn_t *dnn, const fy__cuda_dnn_problem_t *p)
{
    const cudnnStatus_t code = fy__cudnn.cudnnCreate(&dnn->handle);
    if (code == CUDNN_STATUS_SUCCESS) return FY_STATUS_OK;
    dnn->handle = NULL;
    const fy_status_t status = explain(dnn->dev, code, "cudnnCreate", p);
    if (status == FY_STATUS_DEVICE_LOST || status == FY_STATUS_OUT_OF_MEMORY) return status;
    atomic_store(&dnn->unusable, (int)code);
    return DNN_FAIL(CUDNN_STATUS_NOT_SUPPORTED, "cudnnCreate", p);
}

/* A refusal makes a plan, too: one that says so. */
static fy_status_t make_plan(void *dnn_, void *plan_)
{
    fy__cuda_dnn_t *dnn = dnn_;
    plan_t *plan = plan_;
    if (dnn->handle == NULL) FY_TRY(start(dnn, &plan->problem));
    FY_TRY(describe(dnn, &plan->problem, plan));
    return choose(dnn, &plan->problem, plan->kept.limit, plan);
}

static void drop_plan(void *plan_)
{
    const plan_t *plan = plan_;
    if (plan->x != NULL) fy__cudnn.cudnnDestroyTensorDescriptor(plan->x);
    if (plan->y != NULL) fy__cudnn.cudnnDestroyTensorDescriptor(plan->y);
    if (plan->bias != NULL) fy__cudnn.cudnnDestroyTensorDescriptor(plan->bias);
    if (plan->w != NULL) fy__cudnn.cudnnDestroyFilterDescriptor(plan->w);
    if (plan->conv != NULL) fy__cudnn.cudnnDestroyConvolutionDescriptor(plan->conv);
    if (plan->activation != NULL) fy__cudnn.cudnnDestroyActivationDescriptor(plan->activation);
}

fy_status_t fy__cuda_dnn_create(fy__cuda_device_t *dev, fy__cuda_dnn_t **out_dnn)
{
    fy__cuda_dnn_t *dnn = calloc(1, sizeof *dnn);
    *out_dnn = dnn;
    if (dnn == NULL)
        return FY__CUDA_FAIL(FY_STATUS_OUT_OF_MEMORY,
                             "no host memory for the convolution plans of cuda:%d", dev->index);
    dnn->dev = dev;
    dnn->table = (fy__cuda_plans_t){ (char *)dnn->plans,
                                     sizeof *dnn->plans,
                                     sizeof dnn->plans->problem,
                                     make_plan,
                                     drop_plan,
                                     dnn,
                                     "choosing how to convolve" };
    pthread_mutex_init(&dnn->lock, NULL);
    return FY_STATUS_OK;
}

void fy__cuda_dnn_destroy(fy__cuda_dnn_t *dnn)
{
    if (dnn == NULL) return;
    fy__cuda_plans_clear(&dnn->table);
    if (dnn->handle != NULL) fy__cudnn.cudnnDestroy(dnn->handle);
    pthread_mutex_destroy(&dnn->lock);
    free(dnn);
}

/* ---- use ---- */

/* Without the lock: a log hook may launch something itself. `refusal` is a copy that was taken with
 * it. */
static void tell(fy__cuda_dnn_t *dnn, const fy__cuda_dnn_problem_t *p, const char *refusal)
{
    static const char *const kinds[] = { "", ", gradient of the input",
                                         ", gradient of the weights" };
    const int code = atomic_load(&dnn->unusable);
    if (refusal[0] != '\0')
        fy__cuda.host->log(FY_LOG_INFO,
                           "cuda:%d: cuDNN does not run convolution [%d x %d x %d x %d] with [%d x "
                           "%d x %d x %d]%s, so Ferry's kernel does: %s",
                           dnn->dev->index, p->n, p->h, p->w, p->c, p->o, p->kh, p->kw,
                           p->c / p->groups, kinds[p->kind], refusal);
    if (code == 0 || atomic_exchange(&dnn->told, 1)) return;
    fy__cuda.host->log(FY_LOG_WARNING,
                       "cuda:%d: cudnnCreate gave %s (%d), so Ferry's own kernels run convolutions",
                       dnn->dev->index, fy__cudnn_name((cudnnStatus_t)code), code);
}

/* Unlocks, and then logs a new refusal. */
static void unlock(fy__cuda_dnn_t *dnn, const fy__cuda_dnn_problem_t *p, fy_status_t status)
{
    char refusal[sizeof dnn->refusal];
    memcpy(refusal, dnn->refusal, sizeof refusal);
    dnn->refusal[0] = '\0';
    pthread_mutex_unlock(&dnn->lock);
    if (status != FY_STATUS_OK) tell(dnn, p, refusal);
}

fy_status_t fy__cuda_dnn_workspace(fy__cuda_device_t *dev, const fy__cuda_dnn_problem_t *problem,
                                   uint64_t limit, uint64_t *out_nbytes)
{
    fy__cuda_dnn_t *dnn = dev->dnn;
    fy_status_t status;
    *out_nbytes = 0;
    pthread_mutex_lock(&dnn->lock);
    const plan_t *plan = fy__cuda_plans_get(&dnn->table, dev, problem,
                                            limit == UINT64_MAX ? limit - 1 : limit, 0, &status);
    if (plan != NULL) *out_nbytes = plan->kept.nbytes;
    unlock(dnn, problem, status);
    return status;
}

static cudnnStatus_t submit(fy__cuda_dnn_t *dnn, const fy__cuda_dnn_problem_t *p,
                            const plan_t *plan, const fy__cuda_dnn_operands_t *o)
{
    static const float one_f32 = 1, zero_f32 = 0;
    static const double one_f64 = 1, zero_f64 = 0;
    const int wide = p->dtype == FY_DTYPE_F64;
    const void *one = wide ? (const void *)&one_f64 : &one_f32,
               *zero = wide ? (const void *)&zero_f64 : &zero_f32;
    const void *keep = o->accumulate ? one : zero;
    void *scratch = plan->kept.nbytes > 0 ? o->workspace : NULL;
    switch (p->kind) {
    case FY__CUDA_DNN_INPUT:
        return fy__cudnn.cudnnConvolutionBackwardData(
            dnn->handle, one, plan->w, o->src[1], plan->y, o->src[0], plan->conv,
            (cudnnConvolutionBwdDataAlgo_t)plan->algorithm, scratch, plan->kept.nbytes, keep,
            plan->x, o->dst);
    case FY__CUDA_DNN_WEIGHT:
        return fy__cudnn.cudnnConvolutionBackwardFilter(
            dnn->handle, one, plan->x, o->src[1], plan->y, o->src[0], plan->conv,
            (cudnnConvolutionBwdFilterAlgo_t)plan->algorithm, scratch, plan->kept.nbytes, keep,
            plan->w, o->dst);
    default:
        if (!p->bias)
            return fy__cudnn.cudnnConvolutionForward(
                dnn->handle, one, plan->x, o->src[0], plan->w, o->src[1], plan->conv,
                (cudnnConvolutionFwdAlgo_t)plan->algorithm, scratch, plan->kept.nbytes, keep,
                plan->y, o->dst);
        return fy__cudnn.cudnnConvolutionBiasActivationForward(
            dnn->handle, one, plan->x, o->src[0], plan->w, o->src[1], plan->conv,
            (cudnnConvolutionFwdAlgo_t)plan->algorithm, scratch, plan->kept.nbytes, zero, plan->y,
            o->dst, plan->bias, o->bias, plan->activation, plan->y, o->dst);
    }
}

fy_status_t fy__cuda_dnn_run(fy__cuda_device_t *dev, CUstream stream,
                             const fy__cuda_dnn_problem_t *problem,
                             const fy__cuda_dnn_operands_t *operands)
{
    fy__cuda_dnn_t *dnn = dev->dnn;
    fy_status_t status;
    pthread_mutex_lock(&dnn->lock);
    plan_t *plan = fy__cuda_plans_get(&dnn->table, dev, problem, UINT64_MAX,
                                      operands->workspace != NULL ? operands->workspace_nbytes : 0,
                                      &status);
    if (status == FY_STATUS_OK) {
        cudnnStatus_t code = fy__cudnn.cudnnSetStream(dnn->handle, (cudaStream_t)stream);
        if (code == CUDNN_STATUS_SUCCESS) dnn->stream = stream;
        if (code == CUDNN_STATUS_SUCCESS) code = submit(dnn, problem, plan, operands);
        if (code != CUDNN_STATUS_SUCCESS) status = explain(dev, code, "the convolution", problem);
        if (status == FY_STATUS_UNSUPPORTED) {
            fy__cuda_plans_refuse(&dnn->table, &plan->kept);
            snprintf(dnn->refusal, sizeof dnn->refusal,
                     "it was planned, and running it gave %s (%d)", fy__cudnn_name(code),
                     (int)code);
        }
    }
    unlock(dnn, problem, status);
    return status;
}

void fy__cuda_dnn_leave_stream(fy__cuda_device_t *dev, CUstream stream)
{
    fy__cuda_dnn_t *dnn = dev->dnn;
    pthread_mutex_lock(&dnn->lock);
    if (dnn->handle != NULL && dnn->stream == stream && stream != NULL) {
        /* the default one; each convolution sets its own */
        (void)fy__cudnn.cudnnSetStream(dnn->handle, NULL);
        dnn->stream = NULL;
    }
    pthread_mutex_unlock(&dnn->lock);
}
