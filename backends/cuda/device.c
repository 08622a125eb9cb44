/* Devices: counting, opening, closing, asking. Kernels are loaded here, once per open device, from
 * the fatbins that fatbins.c carries. Not here: the current context (context.c), memory.c,
 * stream.c, launch.c. */
#include "backends/cuda/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/dnn.h"
#include "backends/cuda/lt.h"
#include "backends/cuda/nccl.h"
#include "backends/cuda/nvtx.h"
#include "backends/cuda/tune.h"
#include "backends/cuda/virtual.h"
#include "runtime/base/environment.h"

_Thread_local CUresult fy__cuda_last_code;
_Thread_local fy__cuda_device_t *fy__cuda_last_device;

/* ---- devices ---- */

fy_status_t fy__cuda_device_count(int *out_count)
{
    *out_count = 0;
    FY_TRY(fy__cuda_driver_load());
    int count = 0;
    FY_TRY(FY__CUDA_CALL(NULL, cuDeviceGetCount, (&count), "counting CUDA devices"));
    if (count == 0)
        return FY__CUDA_FAIL(
            FY_STATUS_UNAVAILABLE,
            "the CUDA driver (version %d.%d) knows no device: is CUDA_VISIBLE_DEVICES empty?",
            fy__cuda.version / 1000, fy__cuda.version % 1000 / 10);
    *out_count = count;
    return FY_STATUS_OK;
}

fy_status_t fy__cuda_attribute(fy__cuda_device_t *dev, CUdevice_attribute attribute, int *out_value)
{
    return FY__CUDA_CALL(dev, cuDeviceGetAttribute, (out_value, attribute, dev->handle),
                         "asking cuda:%d for attribute %d", dev->index, (int)attribute);
}

static fy_status_t load_kernels(fy__cuda_device_t *dev)
{
    static const char *const module_names[] = {
#define X(name) #name,
        FY__CUDA_MODULE_LIST(X)
#undef X
    };
    static const struct {
        int module;
        const char *name;
    } kernels[] = {
#define X(module, name) { FY__CUDA_MODULE_##module, #name },
        FY__CUDA_KERNEL_LIST(X)
#undef X
    };
    for (int i = 0; i < FY__CUDA_MODULE_COUNT; i++)
        FY_TRY(FY__CUDA_CALL(dev, cuModuleLoadData, (&dev->modules[i], fy__cuda_fatbin(i)),
                             "loading kernels '%s' on cuda:%d (%s, compute capability %d.%d; "
                             "compiled by CUDA %d.%d, whose code needs driver "
                             "%d.0 or newer; this one is %d.%d)",
                             module_names[i], dev->index, dev->model, dev->major, dev->minor,
                             CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10, CUDA_VERSION / 1000,
                             fy__cuda.version / 1000, fy__cuda.version % 1000 / 10));
    for (int i = 0; i < FY__CUDA_KERNEL_COUNT; i++)
        FY_TRY(FY__CUDA_CALL(dev, cuModuleGetFunction,
                             (&dev->kernels[i], dev->modules[kernels[i].module], kernels[i].name),
                             "finding kernel %s on cuda:%d", kernels[i].name, dev->index));
    return FY_STATUS_OK;
}

/* These calls need the context to be current. */
static fy_status_t prepare(fy__cuda_device_t *dev)
{
    FY_TRY(FY__CUDA_CALL(dev, cuCtxGetStreamPriorityRange,
                         (&dev->least_priority, &dev->greatest_priority),
                         "asking cuda:%d for its stream priorities", dev->index));
    return load_kernels(dev);
}

static fy_status_t describe(fy__cuda_device_t *dev)
{
    FY_TRY(
        FY__CUDA_CALL(dev, cuDeviceGet, (&dev->handle, dev->index), "opening cuda:%d", dev->index));
    FY_TRY(FY__CUDA_CALL(dev, cuDeviceGetName, (dev->model, (int)sizeof dev->model, dev->handle),
                         "asking cuda:%d for its name", dev->index));
    dev->model[sizeof dev->model - 1] = '\0';
    FY_TRY(fy__cuda_attribute(dev, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &dev->nprocessors));
    FY_TRY(fy__cuda_attribute(dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &dev->major));
    FY_TRY(fy__cuda_attribute(dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &dev->minor));
    int same_address = 0;
    FY_TRY(fy__cuda_attribute(dev, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
                              &same_address));
    if (same_address) return FY_STATUS_OK;
    return FY__CUDA_FAIL(FY_STATUS_UNSUPPORTED,
                         "cuda:%d (%s): kernels do not reach page-locked host memory at the host's "
                         "address (CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM is 0), where those of "
                         "Ferry write fault flags\n  Use another device, or host",
                         dev->index, dev->model);
}

static _Atomic uint32_t last_serial;

/* What the options of one open say: of each the value that it has, the first of two or the
 * second. */
typedef struct options {
    int is_virtual, tf32, fused_relu, autotune;
} options_t;

static fy_status_t read_option(int index, const fy_backend_option_t *option, options_t *options)
{
    const struct {
        const char *key, *values[2];
        int *chosen;
    } known[] = { { "segments", { "fixed", "virtual" }, &options->is_virtual },
                  { "tf32", { "off", "on" }, &options->tf32 },
                  { "relu", { "exact", "fused" }, &options->fused_relu },
                  { "autotune", { "off", "on" }, &options->autotune } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(option->key, known[i].key) != 0) continue;
        *known[i].chosen = strcmp(option->value, known[i].values[1]) == 0;
        if (*known[i].chosen || strcmp(option->value, known[i].values[0]) == 0) return FY_STATUS_OK;
        return FY__CUDA_FAIL(FY_STATUS_INVALID_ARGUMENT, "cuda:%d: %s=%s: %s may be %s, %s", index,
                             option->key, option->value, option->key, known[i].values[0],
                             known[i].values[1]);
    }
    return FY__CUDA_FAIL(FY_STATUS_INVALID_ARGUMENT,
                         "cuda:%d: option '%s' is unknown; the cuda backend's own are segments, "
                         "tf32, relu, autotune",
                         index, option->key);
}

static int is_wanted(const char *library)
{
    const char *file = fy__env_file(library);
    return file == NULL || strcmp(file, "none") != 0;
}

fy_status_t fy__cuda_device_open(int index, size_t noptions, const fy_backend_option_t *options,
                                 void **out_dev)
{
    *out_dev = NULL;
    options_t chosen = { 0 };
    for (size_t i = 0; i < noptions; i++) FY_TRY(read_option(index, &options[i], &chosen));
    int count;
    FY_TRY(fy__cuda_device_count(&count));
    if (index < 0 || index >= count)
        return FY__CUDA_FAIL(FY_STATUS_UNAVAILABLE,
                             "there is no cuda:%d: the driver shows %d device%s, cuda:0 to cuda:%d",
                             index, count, count == 1 ? "" : "s", count - 1);
    fy__cuda_device_t *dev = calloc(1, sizeof *dev);
    if (dev == NULL)
        return FY__CUDA_FAIL(FY_STATUS_OUT_OF_MEMORY, "no host memory for the handle of cuda:%d",
                             index);
    dev->index = index;
    dev->tf32 = chosen.tf32;
    dev->fused_relu = chosen.fused_relu;
    dev->wants_lt = is_wanted("FERRY_CUBLASLT");
    dev->wants_dnn = is_wanted("FERRY_CUDNN");
    pthread_mutex_init(&dev->trails.lock, NULL);
    dev->serial = atomic_fetch_add(&last_serial, 1) + 1;
    fy__cuda_frame_t frame;
    int entered = 0;
    fy_status_t status = describe(dev);
    if (status == FY_STATUS_OK) status = fy__cuda_lt_create(dev, &dev->lt);
    if (status == FY_STATUS_OK) status = fy__cuda_dnn_create(dev, &dev->dnn);
    if (status == FY_STATUS_OK && chosen.autotune) status = fy__cuda_tune_create(dev, &dev->tune);
    if (status == FY_STATUS_OK) status = fy__cuda_context_retain(dev);
    if (status == FY_STATUS_OK) {
        status = fy__cuda_enter(dev, &frame);
        entered = status == FY_STATUS_OK;
    }
    /* compute-sanitizer asks for a context before the first word to it */
    if (entered) fy__cuda_nvtx_open();
    if (status == FY_STATUS_OK) status = prepare(dev);
    if (status == FY_STATUS_OK && chosen.is_virtual) status = fy__cuda_virtual_open(dev);
    if (entered) fy__cuda_leave(&frame);
    if (status != FY_STATUS_OK) {
        fy__cuda_device_close(dev);
        return status;
    }
    *out_dev = dev;
    return FY_STATUS_OK;
}

void fy__cuda_device_close(void *handle)
{
    fy__cuda_device_t *dev = handle;
    fy__cuda_frame_t frame;
    if (dev->context != NULL) {
        if (fy__cuda_enter_to_release(dev, &frame)) {
            fy__cuda_tune_destroy(dev->tune);
            fy__cuda_dnn_destroy(dev->dnn);
            fy__cuda_nccl_forget(dev);
            fy__cuda_lt_destroy(dev->lt);
            for (int i = 0; i < FY__CUDA_MODULE_COUNT; i++)
                if (dev->modules[i] != NULL)
                    fy__cuda_note(dev, fy__cuda.cuModuleUnload(dev->modules[i]));
            fy__cuda_leave(&frame);
        }
        fy__cuda_context_release(dev);
    } else {
        fy__cuda_tune_destroy(dev->tune);
        fy__cuda_dnn_destroy(dev->dnn);
        fy__cuda_lt_destroy(dev->lt);
    }
    fy__cuda_virtual_close(dev->virtual_memory);
    fy__cuda_trails_free(&dev->trails);
    pthread_mutex_destroy(&dev->trails.lock);
    free(dev);
}

fy_status_t fy__cuda_device_query(void *handle, fy_backend_info_t *out_info)
{
    fy__cuda_device_t *dev = handle;
    fy__cuda_frame_t frame;
    size_t available = 0, total = 0;
    memset(out_info, 0, sizeof *out_info);
    FY_TRY(fy__cuda_enter(dev, &frame));
    fy_status_t status = FY__CUDA_CALL(dev, cuMemGetInfo, (&available, &total),
                                       "asking cuda:%d how much memory it has", dev->index);
    fy__cuda_leave(&frame);
    FY_TRY(status);
    snprintf(out_info->model, sizeof out_info->model, "%s", dev->model);
    out_info->memory_nbytes = total;
    out_info->free_nbytes = available;
    out_info->resize_nbytes = fy__cuda_virtual_step(dev->virtual_memory);
    out_info->alignment = 256; /* cuMemAlloc's promise */
    out_info->numerics = 1;
    return FY_STATUS_OK;
}
