/* Plans: the descriptors of a product and the algorithm that cuBLASLt's heuristic chose for it.
 * Asking costs tens of microseconds, so the last 256 shapes are kept, found by hash, least recently
 * used first out. Steady launches create nothing. Next: matmul.c. */
#include "backends/cuda/lt.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/lt_library.h"

enum { NPLANS = 256, NBUCKETS = 512 };

_Static_assert(sizeof(fy__cuda_lt_problem_t) == 10 * 8 + 10 * 4,
               "the key is compared as bytes: it may have no padding");

typedef struct plan {
    fy__cuda_lt_problem_t problem;
    uint64_t used;  /* tick of the last use; 0: the place is empty */
    uint32_t next;  /* in its bucket: a place + 1; 0: the last */
    int refused;    /* there is no algorithm */
    uint64_t limit; /* scratch that the heuristic was allowed */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulHeuristicResult_t choice; /* algorithm and the scratch it needs */
} plan_t;

struct fy__cuda_lt {
    fy__cuda_device_t *dev;
    int is_wanted;
    /* Guards everything below. Held while a product is submitted, so that no other thread can drop
     * its plan meanwhile. */
    pthread_mutex_t lock;
    cublasLtHandle_t handle;
    uint64_t tick, hits, misses, evictions;
    uint32_t buckets[NBUCKETS]; /* a place + 1; 0: none */
    plan_t plans[NPLANS];
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

fy_status_t fy__cuda_lt_create(fy__cuda_device_t *dev, fy__cuda_lt_t **out_lt)
{
    fy__cuda_lt_t *lt = calloc(1, sizeof *lt);
    *out_lt = lt;
    if (lt == NULL)
        return FY__CUDA_FAIL(FY_STATUS_OUT_OF_MEMORY,
                             "no host memory for the matmul plans of cuda:%d", dev->index);
    lt->dev = dev;
    lt->is_wanted = fy__cuda_lt_is_asked_for();
    pthread_mutex_init(&lt->lock, NULL);
    return FY_STATUS_OK;
}

int fy__cuda_lt_is_wanted(const fy__cuda_device_t *dev) { return dev->lt->is_wanted; }

static void drop_plan(plan_t *plan)
{
    if (plan->product != NULL) fy__cublaslt.cublasLtMatmulDescDestroy(plan->product);
    if (plan->a != NULL) fy__cublaslt.cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b != NULL) fy__cublaslt.cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->d != NULL) fy__cublaslt.cublasLtMatrixLayoutDestroy(plan->d);
    memset(plan, 0, sizeof *plan);
}

void fy__cuda_lt_destroy(fy__cuda_lt_t *lt)
{
    if (lt == NULL) return;
    for (int i = 0; i < NPLANS; i++) drop_plan(&lt->plans[i]);
    if (lt->handle != NULL) fy__cublaslt.cublasLtDestroy(lt->handle);
    pthread_mutex_destroy(&lt->lock);
    free(lt);
}

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
    int found = 0;
    LT_TRY(cublasLtMatmulPreferenceCreate, (&preference), p);
    fy_status_t status = set_preference(p, limit, preference);
    if (status == FY_STATUS_OK) {
        cublasStatus_t code = fy__cublaslt.cublasLtMatmulAlgoGetHeuristic(
            lt->handle, plan->product, plan->a, plan->b, plan->d, plan->d, preference, 1,
            &plan->choice, &found);
        if (code == CUBLAS_STATUS_SUCCESS &&
            (found == 0 || plan->choice.state != CUBLAS_STATUS_SUCCESS))
            code = CUBLAS_STATUS_NOT_SUPPORTED;
        if (code != CUBLAS_STATUS_SUCCESS)
            status = LT_FAIL(code, "cublasLtMatmulAlgoGetHeuristic", p);
    }
    fy__cublaslt.cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

/* Into an empty place. */
static fy_status_t make_plan(fy__cuda_lt_t *lt, const fy__cuda_lt_problem_t *p, uint64_t limit,
                             plan_t *place)
{
    fy_status_t status = describe(lt, p, place);
    if (status == FY_STATUS_OK) status = choose(lt, p, limit, place);
    const int refused = status == FY_STATUS_UNSUPPORTED;
    if (status != FY_STATUS_OK) drop_plan(place);
    if (status != FY_STATUS_OK && !refused) return status;
    place->problem = *p;
    place->limit = limit;
    place->refused = refused;
    return FY_STATUS_OK;
}

/* ---- finding one; the lock is held ---- */

static uint32_t bucket_of(const fy__cuda_lt_problem_t *p)
{
    uint64_t words[sizeof *p / 8], hash = 0;
    memcpy(words, p, sizeof *p);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        /* 2^64 / golden ratio: Knuth, multiplicative hashing */
        hash = (hash ^ words[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    return (uint32_t)(hash % NBUCKETS);
}

/* The plan of this product that was made under just this limit, or (limit UINT64_MAX) the roomiest
 * that `granted` suffices for. */
static plan_t *find(fy__cuda_lt_t *lt, const fy__cuda_lt_problem_t *p, uint64_t limit,
                    uint64_t granted)
{
    plan_t *found = NULL;
    for (uint32_t place = lt->buckets[bucket_of(p)]; place != 0;
         place = lt->plans[place - 1].next) {
        plan_t *plan = &lt->plans[place - 1];
        if (memcmp(&plan->problem, p, sizeof *p) != 0) continue;
        if (limit != UINT64_MAX ? plan->limit != limit : plan->choice.workspaceSize > granted)
            continue;
        if (found == NULL || plan->limit > found->limit) found = plan;
    }
    return found;
}

/* An empty place: the least recently used plan gives way. */
static plan_t *take_place(fy__cuda_lt_t *lt)
{
    plan_t *place = &lt->plans[0];
    for (int i = 1; i < NPLANS && place->used != 0; i++)
        if (lt->plans[i].used < place->used) place = &lt->plans[i];
    if (place->used == 0) return place;
    uint32_t *link = &lt->buckets[bucket_of(&place->problem)];
    while (&lt->plans[*link - 1] != place) link = &lt->plans[*link - 1].next;
    *link = place->next;
    drop_plan(place);
    lt->evictions++;
    return place;
}

static fy_status_t get_plan(fy__cuda_lt_t *lt, const fy__cuda_lt_problem_t *p, uint64_t limit,
                            uint64_t granted, plan_t **out_plan)
{
    plan_t *plan = find(lt, p, limit, granted);
    *out_plan = NULL;
    if (plan != NULL) {
        lt->hits++;
    } else {
        lt->misses++;
        /* cuBLASLt of CUDA 13.3 fails there */
        FY_TRY(fy__cuda_check_capture("choosing how to multiply"));
        if (lt->handle == NULL) {
            cublasStatus_t code = fy__cublaslt.cublasLtCreate(&lt->handle);
            if (code != CUBLAS_STATUS_SUCCESS) {
                lt->handle = NULL;
                return LT_FAIL(code, "cublasLtCreate", p);
            }
        }
        plan = take_place(lt);
        FY_TRY(make_plan(lt, p, limit != UINT64_MAX ? limit : granted, plan));
        uint32_t *bucket = &lt->buckets[bucket_of(p)];
        plan->next = *bucket;
        *bucket = (uint32_t)(plan - lt->plans) + 1;
    }
    plan->used = ++lt->tick;
    /* no text: something else runs it, launch after launch */
    if (plan->refused) return FY_STATUS_UNSUPPORTED;
    *out_plan = plan;
    return FY_STATUS_OK;
}

void fy__cuda_lt_query(fy__cuda_lt_t *lt, fy__cuda_lt_counts_t *out_counts)
{
    pthread_mutex_lock(&lt->lock);
    *out_counts = (fy__cuda_lt_counts_t){
        .most = NPLANS, .hits = lt->hits, .misses = lt->misses, .evictions = lt->evictions
    };
    for (int i = 0; i < NPLANS; i++) out_counts->plans += lt->plans[i].used != 0;
    pthread_mutex_unlock(&lt->lock);
}

uint32_t fy__cuda_lt_alignment(const void *address)
{
    const uint64_t bits = (uint64_t)(uintptr_t)address | 256;
    return (uint32_t)(bits & (~bits + 1));
}

/* ---- use ---- */

uint64_t fy__cuda_lt_workspace(fy__cuda_device_t *dev, const fy__cuda_lt_problem_t *problem,
                               uint64_t limit)
{
    fy__cuda_lt_t *lt = dev->lt;
    fy__cuda_frame_t frame;
    if (fy__cuda_lt_load() != FY_STATUS_OK) return 0; /* launch will say so */
    if (limit == UINT64_MAX) limit--;
    pthread_mutex_lock(&lt->lock);
    plan_t *plan = find(lt, problem, limit, 0);
    if (plan != NULL) {
        lt->hits++;
        plan->used = ++lt->tick;
    } else if (fy__cuda_enter_to_release(dev, &frame)) {
        (void)get_plan(lt, problem, limit, 0, &plan);
        fy__cuda_leave(&frame);
    }
    const uint64_t nbytes = plan != NULL && !plan->refused ? plan->choice.workspaceSize : 0;
    pthread_mutex_unlock(&lt->lock);
    return nbytes;
}

int fy__cuda_lt_is_refused(fy__cuda_device_t *dev, const fy__cuda_lt_problem_t *problem,
                           uint64_t limit)
{
    if (limit == UINT64_MAX) limit--;
    pthread_mutex_lock(&dev->lt->lock);
    const plan_t *plan = find(dev->lt, problem, limit, 0);
    const int refused = plan != NULL && plan->refused;
    pthread_mutex_unlock(&dev->lt->lock);
    return refused;
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
    plan_t *plan = NULL;
    FY_TRY(fy__cuda_lt_load());
    pthread_mutex_lock(&lt->lock);
    fy_status_t status = get_plan(lt, problem, UINT64_MAX, workspace_nbytes, &plan);
    /* a plan serves many: the lock is held until it is submitted */
    if (plan != NULL && bias != NULL) {
        cublasStatus_t code = fy__cublaslt.cublasLtMatmulDescSetAttribute(
            plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
        if (code != CUBLAS_STATUS_SUCCESS)
            status = LT_FAIL(code, "cublasLtMatmulDescSetAttribute", problem);
    }
    if (plan != NULL && status == FY_STATUS_OK) {
        cublasStatus_t code = fy__cublaslt.cublasLtMatmul(
            lt->handle, plan->product, alpha, a, plan->a, b, plan->b, beta, d, plan->d, d, plan->d,
            &plan->choice.algo, plan->choice.workspaceSize > 0 ? workspace : NULL,
            plan->choice.workspaceSize, (cudaStream_t)stream);
        if (code != CUBLAS_STATUS_SUCCESS) status = LT_FAIL(code, "cublasLtMatmul", problem);
    }
    pthread_mutex_unlock(&lt->lock);
    return explain(dev, status);
}
