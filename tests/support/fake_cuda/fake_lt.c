/* cuBLASLt of the fake: it checks the objects that the plugin makes, and computes the product as a
 * plain triple loop over the descriptors.
 * Column-major, batches by stride, accumulation in f64. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/fake_cuda/fake.h"

#define EXPORT __attribute__((visibility("default")))

struct object {
    uint32_t magic;
    cudaDataType_t type;
    cublasComputeType_t compute;
    int32_t transpose_a, transpose_b, batch;
    uint64_t rows, cols, limit;
    int64_t ld, batch_stride;
    uint32_t epilogue; /* RELU and BIAS bits, or BGRADB */
    uint32_t reductions;
    const void *bias;
    uint32_t align[4];
};
enum { HANDLE = 0x17, PRODUCT, LAYOUT, PREFERENCE, DEAD = 0xDEAD };

static int64_t live;
int64_t fake_lt_live(void);
int64_t fake_lt_live(void) { return live; }

static int is_a(const void *object, uint32_t magic)
{
    if (object != NULL && ((const struct object *)object)->magic == magic) return 1;
    fake_count_misuse();
    return 0;
}

static int create(enum fake_entry entry, uint32_t magic, struct object **out)
{
    int code = fake_enter(entry);
    *out = NULL;
    if (code == 0) {
        *out = calloc(1, sizeof **out);
        (*out)->magic = magic;
        (*out)->batch = 1;
        live++;
    }
    return fake_leave(code);
}

static cublasStatus_t destroy(enum fake_entry entry, void *object, uint32_t magic)
{
    /* a planted code does not keep it alive: fake_enter_release */
    int told = fake_enter(entry);
    if (!is_a(object, magic)) return (cublasStatus_t)fake_leave(CUBLAS_STATUS_INVALID_VALUE);
    ((struct object *)object)->magic = DEAD;
    free(object);
    live--;
    return (cublasStatus_t)fake_leave(told);
}

#define DESTROY(name, type, magic)                                   \
    EXPORT cublasStatus_t cublasLt##name##Destroy(type object)       \
    {                                                                \
        return destroy(FAKE_cublasLt##name##Destroy, object, magic); \
    }
DESTROY(, cublasLtHandle_t, HANDLE)
DESTROY(MatmulDesc, cublasLtMatmulDesc_t, PRODUCT)
DESTROY(MatrixLayout, cublasLtMatrixLayout_t, LAYOUT)
DESTROY(MatmulPreference, cublasLtMatmulPreference_t, PREFERENCE)

EXPORT size_t cublasLtGetVersion(void) { return 130000; }

EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    CUcontext context = NULL;
    int code = fake_enter_context(FAKE_cublasLtCreate, &context);
    *out = NULL;
    if (code == CUDA_ERROR_INVALID_CONTEXT) code = CUBLAS_STATUS_NOT_INITIALIZED;
    struct object *object = code == 0 ? calloc(1, sizeof *object) : NULL;
    if (object != NULL) {
        object->magic = HANDLE;
        live++;
        *out = (cublasLtHandle_t)object;
    }
    return (cublasStatus_t)fake_leave(code);
}

EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out,
                                               cublasComputeType_t compute, cudaDataType_t scale)
{
    struct object *object;
    int code = create(FAKE_cublasLtMatmulDescCreate, PRODUCT, &object);
    if (code == 0) {
        object->compute = compute;
        object->type = scale;
    }
    *out = (cublasLtMatmulDesc_t)object;
    return (cublasStatus_t)code;
}

EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                                     cublasLtMatmulDescAttributes_t name,
                                                     const void *value, size_t size)
{
    struct object *object = (struct object *)desc;
    int code = fake_enter(FAKE_cublasLtMatmulDescSetAttribute);
    int32_t operation = 0;
    const uint32_t known = CUBLASLT_EPILOGUE_RELU | CUBLASLT_EPILOGUE_BIAS;
    if (code == 0 && (!is_a(object, PRODUCT) ||
                      size != (name == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? sizeof object->bias
                                                                         : sizeof operation)))
        code = CUBLAS_STATUS_INVALID_VALUE;
    if (code == 0 && name != CUBLASLT_MATMUL_DESC_BIAS_POINTER)
        memcpy(&operation, value, sizeof operation);
    if (code == 0 && name == CUBLASLT_MATMUL_DESC_TRANSA)
        object->transpose_a = operation == CUBLAS_OP_T;
    else if (code == 0 && name == CUBLASLT_MATMUL_DESC_TRANSB)
        object->transpose_b = operation == CUBLAS_OP_T;
    else if (code == 0 && name == CUBLASLT_MATMUL_DESC_EPILOGUE && operation != 0 &&
             (((uint32_t)operation & ~known) == 0 || operation == CUBLASLT_EPILOGUE_BGRADB))
        object->epilogue = (uint32_t)operation;
    else if (code == 0 && name == CUBLASLT_MATMUL_DESC_BIAS_POINTER)
        memcpy(&object->bias, value, size);
    else if (code == 0)
        code = CUBLAS_STATUS_INVALID_VALUE;
    return (cublasStatus_t)fake_leave(code);
}

EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t ld)
{
    struct object *object;
    int code = create(FAKE_cublasLtMatrixLayoutCreate, LAYOUT, &object);
    if (code == 0) {
        object->type = type;
        object->rows = rows;
        object->cols = cols;
        object->ld = ld;
    }
    *out = (cublasLtMatrixLayout_t)object;
    return (cublasStatus_t)code;
}

EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                       cublasLtMatrixLayoutAttribute_t name,
                                                       const void *value, size_t size)
{
    struct object *object = (struct object *)layout;
    int code = fake_enter(FAKE_cublasLtMatrixLayoutSetAttribute);
    if (code == 0 && !is_a(object, LAYOUT)) code = CUBLAS_STATUS_INVALID_VALUE;
    if (code == 0 && name == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && size == sizeof object->batch)
        memcpy(&object->batch, value, size);
    else if (code == 0 && name == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET &&
             size == sizeof object->batch_stride)
        memcpy(&object->batch_stride, value, size);
    else if (code == 0)
        code = CUBLAS_STATUS_INVALID_VALUE;
    return (cublasStatus_t)fake_leave(code);
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    struct object *object;
    int code = create(FAKE_cublasLtMatmulPreferenceCreate, PREFERENCE, &object);
    for (int i = 0; code == 0 && i < 4; i++) object->align[i] = 256;
    *out = (cublasLtMatmulPreference_t)object;
    return (cublasStatus_t)code;
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name,
    const void *value, size_t size)
{
    struct object *object = (struct object *)preference;
    int code = fake_enter(FAKE_cublasLtMatmulPreferenceSetAttribute);
    const int which = (int)name - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (code == 0 && !is_a(object, PREFERENCE)) code = CUBLAS_STATUS_INVALID_VALUE;
    if (code == 0 && name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES &&
        size == sizeof object->limit)
        memcpy(&object->limit, value, size);
    else if (code == 0 && name == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK &&
             size == sizeof object->reductions)
        memcpy(&object->reductions, value, size);
    else if (code == 0 && which >= 0 && which < 4 && size == sizeof object->align[0])
        memcpy(&object->align[which], value, size);
    else if (code == 0)
        code = CUBLAS_STATUS_INVALID_VALUE;
    return (cublasStatus_t)fake_leave(code);
}

/* ---- the product ---- */

typedef struct view {
    const struct object *layout;
    char *data;
    int transpose;
} view_t;

static int shapes_fit(const struct object *product, const struct object *a, const struct object *b,
                      const struct object *c, const struct object *d)
{
    uint64_t m = product->transpose_a ? a->cols : a->rows,
             k = product->transpose_a ? a->rows : a->cols;
    uint64_t kb = product->transpose_b ? b->cols : b->rows,
             n = product->transpose_b ? b->rows : b->cols;
    const struct object *all[] = { a, b, c, d };
    for (int i = 0; i < 4; i++)
        if ((i < 2 && all[i]->type != a->type) || all[i]->ld < (int64_t)all[i]->rows ||
            all[i]->batch != d->batch || all[i]->rows == 0)
            return 0;
    int wide = a->type == CUDA_R_64F;
    if (d->type != a->type && (wide || d->type != CUDA_R_32F)) return 0; /* halves may become f32 */
    return d->rows == m && d->cols == n && k == kb && c == d &&
           product->type == (wide ? CUDA_R_64F : CUDA_R_32F) &&
           (product->compute == (wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F) ||
            (a->type == CUDA_R_32F && product->compute == CUBLAS_COMPUTE_32F_FAST_TF32));
}

static fy_dtype_t dtype_of(cudaDataType_t type)
{
    return type == CUDA_R_64F   ? FY_DTYPE_F64
           : type == CUDA_R_32F ? FY_DTYPE_F32
           : type == CUDA_R_16F ? FY_DTYPE_F16
                                : FY_DTYPE_BF16;
}

/* A factor with TF32's precision: 10 bits after the point, truncated here. */
static double kept(const struct object *product, double x)
{
    float single = (float)x;
    uint32_t bits;
    if (product->compute != CUBLAS_COMPUTE_32F_FAST_TF32) return x;
    memcpy(&bits, &single, sizeof bits);
    bits &= ~0x1fffu;
    memcpy(&single, &bits, sizeof bits);
    return single;
}

static int64_t place(const view_t *v, uint64_t row, uint64_t col, int batch)
{
    return (int64_t)row + (int64_t)col * v->layout->ld + batch * v->layout->batch_stride;
}

static double get(const view_t *v, uint64_t row, uint64_t col, int batch)
{
    const int64_t at = v->transpose ? place(v, col, row, batch) : place(v, row, col, batch);
    return fake_read(dtype_of(v->layout->type), v->data, at);
}

static void set(const view_t *v, uint64_t row, uint64_t col, int batch, double x)
{
    fake_write(dtype_of(v->layout->type), v->data, place(v, row, col, batch), x);
}

static int takes_vector(const struct object *product)
{
    return product->epilogue == CUBLASLT_EPILOGUE_BGRADB ||
           (product->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
}

/* The alignment of an address that may be absent; NULL: any. */
static uint64_t alignment_of(const void *address)
{
    const uint64_t bits = (uint64_t)(uintptr_t)address | 256;
    return address == NULL ? 1 : bits & (~bits + 1);
}

EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int requested, cublasLtMatmulHeuristicResult_t results[],
    int *found)
{
    int code = fake_enter(FAKE_cublasLtMatmulAlgoGetHeuristic);
    if (code == 0 && fake_capture_forbids(FAKE_cublasLtMatmulAlgoGetHeuristic) != 0)
        code = CUBLAS_STATUS_INTERNAL_ERROR;
    *found = 0;
    if (code == 0 &&
        (!is_a(handle, HANDLE) || !is_a(product, PRODUCT) || !is_a(a, LAYOUT) || !is_a(b, LAYOUT) ||
         !is_a(c, LAYOUT) || !is_a(d, LAYOUT) || !is_a(preference, PREFERENCE) || requested < 1))
        code = CUBLAS_STATUS_INVALID_VALUE;
    if (code == 0 && !shapes_fit((struct object *)product, (struct object *)a, (struct object *)b,
                                 (struct object *)c, (struct object *)d))
        code = CUBLAS_STATUS_INVALID_VALUE;
    /* Sums in place, or rounded in between, would not have the same bits in every order; the vector
     * of an epilogue must be known here. */
    if (code == 0 &&
        ((struct object *)preference)->reductions != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
        code = CUBLAS_STATUS_INVALID_VALUE;
    if (code == 0 &&
        takes_vector((struct object *)product) != (((struct object *)product)->bias != NULL))
        code = CUBLAS_STATUS_INVALID_VALUE;
    if (code == 0) {
        const struct object *wish = (struct object *)preference;
        memset(results, 0, sizeof *results);
        results->workspaceSize = wish->limit < 4096 ? 0 : 4096;
        results->algo.data[0] = 0xA160;
        for (int i = 0; i < 4; i++) results->algo.data[1 + i] = wish->align[i];
        results->algo.data[5] = alignment_of(((struct object *)product)->bias);
        *found = 1;
    }
    return (cublasStatus_t)fake_leave(code);
}

/* Device memory with the alignment that the plan promised. NULL otherwise. */
static char *translate(int device, const void *data, const struct object *layout,
                       uint64_t alignment)
{
    int64_t last = (int64_t)layout->rows - 1 + ((int64_t)layout->cols - 1) * layout->ld +
                   (layout->batch - 1) * layout->batch_stride;
    if ((uint64_t)(uintptr_t)data % alignment != 0) return NULL;
    return fake_translate(device, (uint64_t)(uintptr_t)data,
                          (uint64_t)(last + 1) * fy_dtype_size(dtype_of(layout->type)));
}

/* All inputs of a product: its descriptors may be destroyed when a graph runs it. */
typedef struct work {
    struct object product, a, b, d;
    const void *a_data, *b_data;
    void *d_data, *workspace;
    size_t workspace_nbytes;
    cublasLtMatmulAlgo_t algo;
    double scale, keep;
} work_t;

/* The factors of a product, `inner` of each row (of each column) contiguous: read once, because
 * each is used many times. */
static double *factors(const struct object *p, const view_t *v, uint64_t nlines, uint64_t inner,
                       int by_column, int batch)
{
    double *all = malloc((nlines * inner + 1) * sizeof *all);
    for (uint64_t line = 0; line < nlines; line++)
        for (uint64_t k = 0; k < inner; k++)
            all[line * inner + k] =
                kept(p, by_column ? get(v, k, line, batch) : get(v, line, k, batch));
    return all;
}

static CUresult run_product(CUcontext context, const void *work)
{
    const work_t *w = work;
    const struct object *p = &w->product, *la = &w->a, *lb = &w->b, *ld = &w->d;
    view_t va = { la, translate(context->device, w->a_data, la, w->algo.data[1]), p->transpose_a };
    view_t vb = { lb, translate(context->device, w->b_data, lb, w->algo.data[2]), p->transpose_b };
    view_t vd = { ld, translate(context->device, w->d_data, ld, w->algo.data[4]), 0 };
    const int sums = p->epilogue == CUBLASLT_EPILOGUE_BGRADB, adds_bias = !sums && takes_vector(p);
    const uint64_t length = sums ? ld->cols : ld->rows;
    struct object line = {
        .rows = length, .cols = 1, .ld = (int64_t)length, .batch = 1, .type = ld->type
    };
    view_t vbias = { &line,
                     takes_vector(p) ? translate(context->device, p->bias, &line, w->algo.data[5])
                                     : NULL,
                     0 };
    int scratch_fits = w->workspace_nbytes == 0 ||
                       fake_translate(context->device, (uint64_t)(uintptr_t)w->workspace,
                                      w->workspace_nbytes) != NULL;
    if (va.data == NULL || vb.data == NULL || vd.data == NULL ||
        (takes_vector(p) && vbias.data == NULL) || !scratch_fits)
        return context->lost = CUDA_ERROR_ILLEGAL_ADDRESS;
    const uint64_t inner = p->transpose_a ? la->rows : la->cols;
    for (int batch = 0; batch < ld->batch; batch++) {
        double *fa = factors(p, &va, ld->rows, inner, 0, batch),
               *fb = factors(p, &vb, ld->cols, inner, 1, batch);
        for (uint64_t col = 0; col < ld->cols; col++)
            for (uint64_t row = 0; row < ld->rows; row++) {
                double sum = 0;
                for (uint64_t k = 0; k < inner; k++)
                    sum += fa[row * inner + k] * fb[col * inner + k];
                sum = w->scale * sum + (w->keep != 0 ? w->keep * get(&vd, row, col, batch) : 0);
                if (adds_bias) sum += get(&vbias, row, 0, 0);
                /* also for NaN: a fused relu may return 0 */
                if (!sums && (p->epilogue & CUBLASLT_EPILOGUE_RELU) != 0 && !(sum > 0)) sum = 0;
                set(&vd, row, col, batch, sum);
            }
        free(fa);
        free(fb);
    }
    for (uint64_t col = 0; sums && col < length; col++) {
        double sum = 0;
        for (uint64_t k = 0; k < inner; k++) sum += get(&vb, k, col, 0);
        set(&vbias, col, 0, 0, sum);
    }
    return CUDA_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                     const void *alpha, const void *a,
                                     cublasLtMatrixLayout_t a_layout, const void *b,
                                     cublasLtMatrixLayout_t b_layout, const void *beta,
                                     const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                                     cublasLtMatrixLayout_t d_layout,
                                     const cublasLtMatmulAlgo_t *algo, void *workspace,
                                     size_t workspace_nbytes, cudaStream_t stream)
{
    CUcontext context = NULL;
    int code = fake_enter_context(FAKE_cublasLtMatmul, &context);
    if (code != 0) /* a code of cuBLASLt, or one of the driver's */
        return (cublasStatus_t)fake_leave(code < 20 ? code : CUBLAS_STATUS_EXECUTION_FAILED);
    const struct object *p = (struct object *)product, *la = (struct object *)a_layout,
                        *lb = (struct object *)b_layout, *ld = (struct object *)d_layout;
    if (!is_a(handle, HANDLE) || !is_a(p, PRODUCT) || !is_a(la, LAYOUT) || !is_a(lb, LAYOUT) ||
        !is_a(ld, LAYOUT) || c != d || algo->data[0] != 0xA160 ||
        !shapes_fit(p, la, lb, (struct object *)c_layout, ld) ||
        !fake_stream_is_valid((CUstream)stream, context))
        return (cublasStatus_t)fake_leave(CUBLAS_STATUS_INVALID_VALUE);
    const int wide = p->type == CUDA_R_64F;
    const work_t work = { *p,
                          *la,
                          *lb,
                          *ld,
                          a,
                          b,
                          d,
                          workspace,
                          workspace_nbytes,
                          *algo,
                          wide ? *(const double *)alpha : *(const float *)alpha,
                          wide ? *(const double *)beta : *(const float *)beta };
    code = fake_submit(context, (CUstream)stream, run_product, &work, sizeof work);
    return (cublasStatus_t)fake_leave(code == 0 ? CUBLAS_STATUS_SUCCESS
                                                : CUBLAS_STATUS_EXECUTION_FAILED);
}
