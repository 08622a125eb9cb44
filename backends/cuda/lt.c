/* Plans: the descriptors of a product and the algorithm that cuBLASLt's heuristic chose for it.
 * Asking costs tens of microseconds, so plans are kept (plans.h). Steady launches create nothing.
 * Next: matmul.c. */
#include "backends/cuda/lt.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/lt_library.h"
#include "backends/cuda/plans.h"

_Static_assert(sizeof(fy__cuda_lt_problem_t) == 10 * 8 + 10 * 4,
               "the key is compared as bytes: it may have no padding");

typedef struct plan {
    fy__cuda_plan_t kept;
    fy__cuda_lt_problem_t problem;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
} plan_t;

struct fy__cuda_lt {
    fy__cuda_device_t *dev;
    /* Guards everything below. Held while a product is submitted, so that no other thread can drop
     * its plan meanwhile. */
    pthread_mutex_t lock;
    cublasLtHandle_t handle;
    fy__cuda_plans_t table;
    plan_t plans[FY__CUDA_PLANS + 1];
};

#define LT_FAIL(code, call, problem)                                                  \
    FY__CUDA_FAIL(fy__cublaslt_status(code),                                          \
                  "matmul [%lld x %lld x %lld, batch %lld] on cuda: %s gave %s (%d)", \
                  (long long)(problem)->cols, (long long)(problem)->inner,            \
                  (long long)(problem)->rows, (long long)(problem)->batch, call,      \
                  fy__cublaslt_name(code), (int)(code))
#define LT_TRY(call, args, problem)                                                \
    do {                                                                           \
        cublasStatus_t code_ = fy__cublaslt.call args;                             \
        if (code_ != CUBLAS_STATUS_SUCCESS) return LT_FAIL(code_, #call, problem); \
    } while (0)

/* ---- making a plan ---- */

static cudaDataType_t type_of(int32_t dtype)
{
    switch (dtype) {
    case FY_DTYPE_F64: return CUDA_R_64F;
    case FY_DTYPE_F16: return CUDA_R_16F;
    case FY_DTYPE_BF16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
    }
}

static fy_status_t make_layout(const fy__cuda_lt_problem_t *p, int32_t dtype, int64_t rows,
                               int64_t cols, int64_t ld, int64_t batch_stride,
                               cublasLtMatrixLayout_t *out)
{
    const int32_t batch = (int32_t)p->batch;
    LT_TRY(cublasLtMatrixLayoutCreate, (out, type_of(dtype), (uint64_t)rows, (uint64_t)cols, ld),
           p);
    if (p->batch == 1) return FY_STATUS_OK;
    LT_TRY(cublasLtMatrixLayoutSetAttribute,
           (*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch), p);
    LT_TRY(cublasLtMatrixLayoutSetAttribute,
           (*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride, sizeof batch_stride),
           p);
    return FY_STATUS_OK;
}

/* f16 and bf16 add up in f32; f32 stays f32 unless the device was opened with tf32=on. */
static fy_status_t describe(const fy__cuda_lt_t *lt, const fy__cuda_lt_problem_t *p, plan_t *plan)
{
    const int wide = p->dtype == FY_DTYPE_F64;
    const cublasComputeType_t single = lt->dev->tf32 && p->dtype == FY_DTYPE_F32
                                           ? CUBLAS_COMPUTE_32F_FAST_TF32
                                           : CUBLAS_COMPUTE_32F;
    const int32_t transpose = CUBLAS_OP_T;
    /* The heuristic reads this pointer's alignment and does not follow it (cublasLt.h,
     * BIAS_POINTER); each run sets its own. */
    const void *bias = (const void *)(uintptr_t)p->align_bias;
    LT_TRY(cublasLtMatmulDescCreate,
           (&plan->product, wide ? CUBLAS_COMPUTE_64F : single, wide ? CUDA_R_64F : CUDA_R_32F), p);
    if (p->align_bias)
        LT_TRY(cublasLtMatmulDescSetAttribute,
               (plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias), p);
    if (p->transpose_a)
        LT_TRY(cublasLtMatmulDescSetAttribute,
               (plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose), p);
    if (p->transpose_b)
        LT_TRY(cublasLtMatmulDescSetAttribute,
               (plan->product, CUBLASLT_MATMUL_DESC_TRANSB, &transpose, sizeof transpose), p);
    if (p->epilogue)
        LT_TRY(cublasLtMatmulDescSetAttribute,
               (plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue, sizeof p->epilogue), p);
    FY_TRY(make_layout(p, p->dtype, p->transpose_a ? p->inner : p->rows,
                       p->transpose_a ? p->rows : p->inner, p->lda, p->batch_a, &plan->a));
    FY_TRY(make_layout(p, p->dtype, p->transpose_b ? p->cols : p->inner,
                       p->transpose_b ? p->inner : p->cols, p->ldb, p->batch_b, &plan->b));
    return make_layout(p, p->dtype_d, p->rows, p->cols, p->ldd, p->batch_d, &plan->d);
}

static fy_status_t set_preference(const fy__cuda_lt_problem_t *p, uint64_t limit,
                                  cublasLtMatmulPreference_t preference)
{
    static const cublasLtMatmulPreferenceAttributes_t names[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
    };
    const uint32_t values[] = { p->align_a, p->align_b, p->align_d, p->align_d };
    /* Parts of a long sum are joined in one order, and as wide as they were added up: neither in
     * place nor rounded to the output. */
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    LT_TRY(cublasLtMatmulPreferenceSetAttribute,
           (preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit), p);
    LT_TRY(cublasLtMatmulPreferenceSetAttribute,
           (preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions),
           p);
    for (int i = 0; i < 4; i++)
        LT_TRY(cublasLtMatmulPreferenceSetAttribute,
               (preference, names[i], &values[i], sizeof values[i]), p);
    return FY_STATUS_OK;
}

static fy_status_t choose(fy__cuda_lt_t *lt, const fy__cuda_lt_problem_t *p, uint64_t limit,
                          plan_t *plan)
{
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t choice;
    int found = 0;
    LT_TRY(cublasLtMatmulPreferenceCreate, (&preference), p);
    fy_status_t status = set_preference(p, limit, preference);
    if (status == FY_STATUS_OK) {
        cublasStatus_t code = fy__cublaslt.cublasLtMatmulAlgoGetHeuristic(
            lt->handle, plan->product, plan->a, plan->b, plan->d, plan->d, preference, 1, &choice,
            &found);
        if (code == CUBLAS_STATUS_SUCCESS && (found == 0 || choice.state != CUBLAS_STATUS_SUCCESS))
            code = CUBLAS_STATUS_NOT_SUPPORTED;
        if (code != CUBLAS_STATUS_SUCCESS) {
            status = LT_FAIL(code, "cublasLtMatmulAlgoGetHeuristic", p);
        } else {
            plan->algo = choice.algo;
            plan->kept.nbytes = choice.workspaceSize;
        }
    }
    fy__cublaslt.cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

static fy_status_t make_plan(void *lt_, void *plan_)
{
    fy__cuda_lt_t *lt = lt_;
    plan_t *plan = plan_;
    const cublasStatus_t code = lt->handle == NULL ? fy__cublaslt.cublasLtCreate(&lt->handle)
                                                   : CUBLAS_STATUS_SUCCESS;
    if (code != CUBLAS_STATUS_SUCCESS) {
        lt->handle = NULL;
        return LT_FAIL(code, "cublasLtCreate", &plan->problem);
    }
    FY_TRY(describe(lt, &plan->problem, plan));
    return choose(lt, &plan->problem, plan->kept.limit, plan);
}

static void drop_plan(void *plan_)
{
    const plan_t *plan = plan_;
    if (plan->product != NULL) fy__cublaslt.cublasLtMatmulDescDestroy(plan->product);
    if (plan->a != NULL) fy__cublaslt.cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b != NULL) fy__cublaslt.cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->d != NULL) fy__cublaslt.cublasLtMatrixLayoutDestroy(plan->d);
}

fy_status_t fy__cuda_lt_create(fy__cuda_device_t *dev, fy__cuda_lt_t **out_lt)
{
    fy__cuda_lt_t *lt = calloc(1, sizeof *lt);
    *out_lt = lt;
    if (lt == NULL)
        return FY__CUDA_FAIL(FY_STATUS_OUT_OF_MEMORY,
                             "no host memory for the matmul plans of cuda:%d", dev->index);
    lt->dev = dev;
    /* cuBLASLt of CUDA 13.3 fails if a capture is running */
    lt->table = (fy__cuda_plans_t){ (char *)lt->plans,
                                    sizeof *lt->plans,
                                    sizeof lt->plans->problem,
                                    make_plan,
                                    drop_plan,
                                    lt,
                                    "choosing how to multiply" };
    pthread_mutex_init(&lt->lock, NULL);
    return FY_STATUS_OK;
}

void fy__cuda_lt_destroy(fy__cuda_lt_t *lt)
{
    if (lt == NULL) return;
    fy__cuda_plans_clear(&lt->table);
    if (lt->handle != NULL) fy__cublaslt.cublasLtDestroy(lt->handle);
    pthread_mutex_destroy(&lt->lock);
    free(lt);
}

void fy__cuda_lt_query(fy__cuda_lt_t *lt, fy__cuda_plans_t *out_table)
{
    pthread_mutex_lock(&lt->lock);
    *out_table = lt->table;
    pthread_mutex_unlock(&lt->lock);
}

uint32_t fy__cuda_lt_alignment(const void *address)
{
    const uint64_t bits = (uint64_t)(uintptr_t)address | 256;
    return (uint32_t)(bits & (~bits + 1));
}

/* ---- use ---- */

int fy__cuda_lt_workspace(fy__cuda_device_t *dev, const fy__cuda_lt_problem_t *problem,
                          uint64_t limit, uint64_t *out_nbytes)
{
    fy_status_t status;
    *out_nbytes = 0;
    if (fy__cuda_lt_load() != FY_STATUS_OK) return 1; /* launch will say so */
    pthread_mutex_lock(&dev->lt->lock);
    const plan_t *plan = fy__cuda_plans_get(&dev->lt->table, dev, problem,
                                            limit == UINT64_MAX ? limit - 1 : limit, 0, &status);
    if (plan != NULL) *out_nbytes = plan->kept.nbytes;
    pthread_mutex_unlock(&dev->lt->lock);
    return status != FY_STATUS_UNSUPPORTED;
}

/* cuBLASLt's codes do not tell a lost device from a refused launch; the driver's do. */
static fy_status_t explain(fy__cuda_device_t *dev, fy_status_t status)
{
    size_t available, total;
    if (status != FY_STATUS_INTERNAL) return status;
    CUresult driver = fy__cuda_checked(dev, fy__cuda.cuMemGetInfo(&available, &total));
    if (!fy__cuda_is_fatal(driver)) return status;
    return fy__cuda_failed(driver, __FILE__, __LINE__, "cuBLASLt failed, and the driver",
                           "multiplying matrices on cuda:%d", dev->index);
}

fy_status_t fy__cuda_lt_run(fy__cuda_device_t *dev, CUstream stream,
                            const fy__cuda_lt_problem_t *problem, const void *a, const void *b,
                            void *d, const void *bias, void *workspace, uint64_t workspace_nbytes)
{
    static const float one_f32 = 1, zero_f32 = 0;
    static const double one_f64 = 1, zero_f64 = 0;
    const int wide = problem->dtype == FY_DTYPE_F64;
    const void *alpha = wide ? (const void *)&one_f64 : &one_f32;
    const void *beta = problem->accumulate ? alpha : wide ? (const void *)&zero_f64 : &zero_f32;
    fy__cuda_lt_t *lt = dev->lt;
    fy_status_t status;
    FY_TRY(fy__cuda_lt_load());
    pthread_mutex_lock(&lt->lock);
    plan_t *plan =
        fy__cuda_plans_get(&lt->table, dev, problem, UINT64_MAX, workspace_nbytes, &status);
    /* a plan serves many: the lock is held until it is submitted */
    if (status == FY_STATUS_OK && bias != NULL) {
        cublasStatus_t code = fy__cublaslt.cublasLtMatmulDescSetAttribute(
            plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
        if (code != CUBLAS_STATUS_SUCCESS)
            status = LT_FAIL(code, "cublasLtMatmulDescSetAttribute", problem);
    }
    if (status == FY_STATUS_OK) {
        cublasStatus_t code = fy__cublaslt.cublasLtMatmul(
            lt->handle, plan->product, alpha, a, plan->a, b, plan->b, beta, d, plan->d, d, plan->d,
            &plan->algo, plan->kept.nbytes > 0 ? workspace : NULL, plan->kept.nbytes,
            (cudaStream_t)stream);
        if (code != CUBLAS_STATUS_SUCCESS) status = LT_FAIL(code, "cublasLtMatmul", problem);
        if (status == FY_STATUS_UNSUPPORTED) fy__cuda_plans_refuse(&lt->table, &plan->kept);
    }
    pthread_mutex_unlock(&lt->lock);
    return explain(dev, status);
}
