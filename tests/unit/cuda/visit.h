/* A complete visit to the plugin: open, use each slot, release. It stops at the first failure and
 * releases its resources, so that each driver call can be made to fail in turn. For test_driver.c
 * and test_codes.c. */
#ifndef FERRY_TESTS_UNIT_CUDA_VISIT_H_
#define FERRY_TESTS_UNIT_CUDA_VISIT_H_

#include "fixture.h"

static int64_t calls_before_release[64];
static const char *const fallible[] = {
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxPushCurrent",
    "cuCtxGetStreamPriorityRange",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuMemGetInfo",
    "cuMemAlloc",
    "cuMemHostRegister",
    "cuMemcpyHtoDAsync",
    "cuMemcpyDtoHAsync",
    "cuMemcpyDtoDAsync",
    "cuMemsetD8Async",
    "cuStreamCreateWithPriority",
    "cuStreamWaitEvent",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuLaunchKernel",
    "cublasLtCreate",
    "cublasLtMatmul",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutSetAttribute",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatmulAlgoGetHeuristic",
};
enum { NFALLIBLE = sizeof fallible / sizeof *fallible };
static char pinned[4096] __attribute__((aligned(4096)));

typedef struct visit {
    void *dev, *other, *stream, *event, *memory;
    int registered;
} visit_t;

static fy_status_t launch_op(visit_t *v, fy_op_t op, unsigned nsrc, fy_desc_t *dst, fy_desc_t *src,
                             const void *attrs)
{
    fy_launch_t launch = launch_of(op, nsrc, dst, src, attrs);
    return cuda->launch(v->dev, v->stream, &launch);
}

/* Changes of the current context: another device's replaces it, or one of the application's is
 * pushed over it. */
static fy_status_t change_context(visit_t *v)
{
    static void *own;
    fy_backend_info_t info;
    if (own == NULL) own = driver.fake_cuda_context(0);
    FY_TRY(cuda->device_open(1, 0, NULL, &v->other));
    driver.fake_cuda_application(own);
    const fy_status_t status = cuda->device_query(v->dev, &info);
    driver.fake_cuda_application(NULL);
    return status;
}

static fy_status_t use(visit_t *v)
{
    char bytes[8192] = { 0 };
    int done;
    fy_backend_info_t info;
    FY_TRY(cuda->device_open(0, 0, NULL, &v->dev));
    FY_TRY(cuda->device_query(v->dev, &info));
    FY_TRY(change_context(v));
    FY_TRY(cuda->stream_create(v->dev, FY_STREAM_COMPUTE, 3, NULL, &v->stream));
    FY_TRY(cuda->event_create(v->dev, &v->event));
    FY_TRY(cuda->alloc(v->dev, 65536, &v->memory));
    FY_TRY(cuda->register_host(v->dev, pinned, sizeof pinned));
    v->registered = 1;
    fy_copy_t up = { FY_COPY_UPLOAD, 0, v->memory, bytes, sizeof bytes },
              down = { FY_COPY_DOWNLOAD, 0, bytes, v->memory, sizeof bytes };
    fy_copy_t local = { FY_COPY_LOCAL, 0, (char *)v->memory + 16384, v->memory, 4096 };
    FY_TRY(cuda->copy(v->dev, v->stream, &up));
    FY_TRY(cuda->copy(v->dev, v->stream, &local));
    FY_TRY(cuda->fill(v->dev, v->stream, v->memory, 0, 4096));
    fy_desc_t a = DENSE(F32, 2, 4, 8), b = DENSE(F32, 2, 4, 8), c = DENSE(F32, 2, 4, 4),
              sum = DENSE(F32, 4);
    const fy_matmul_attrs_t product = { .transpose_b = 1 };
    const fy_reduce_attrs_t axes = { .axes = 3 };
    a.data = v->memory;
    b.data = (char *)v->memory + 4096;
    c.data = (char *)v->memory + 8192;
    sum.data = (char *)v->memory + 12288;
    fy_desc_t ab[] = { a, b }, aa[] = { a, a }, both = a;
    both.data = (char *)v->memory + 20480;
    FY_TRY(launch_op(v, FY_OP_ADD, 2, &both, aa, NULL));
    FY_TRY(launch_op(v, FY_OP_MATMUL, 2, &c, ab, &product));
    FY_TRY(launch_op(v, FY_OP_SUM, 1, &sum, &c, &axes));
    FY_TRY(cuda->event_record(v->dev, v->event, v->stream));
    FY_TRY(cuda->event_wait(v->dev, v->stream, v->event));
    FY_TRY(cuda->event_query(v->dev, v->event, &done));
    FY_TRY(cuda->event_sync(v->dev, v->event, FY_FOREVER));
    FY_TRY(cuda->event_sync(v->dev, v->event, 1000));
    return cuda->copy(v->dev, v->stream, &down);
}

static void give_back(visit_t *v)
{
    if (v->registered) cuda->unregister_host(v->dev, pinned, sizeof pinned);
    if (v->memory != NULL) cuda->free(v->dev, v->memory, 65536);
    if (v->event != NULL) cuda->event_destroy(v->dev, v->event);
    if (v->stream != NULL) cuda->stream_destroy(v->dev, v->stream);
    if (v->other != NULL) cuda->device_close(v->other);
    if (v->dev != NULL) cuda->device_close(v->dev);
}

static fy_status_t visit(void)
{
    visit_t v = { 0 };
    fy_status_t status = use(&v);
    for (int i = 0; i < NFALLIBLE; i++)
        calls_before_release[i] = driver.fake_cuda_calls(fallible[i]);
    give_back(&v);
    return status;
}

#endif
