/* Name and text of a driver's failure. The table is codes.h. The text of a lost device has its
 * recent-request log. */
#include "backends/cuda/codes.h"

#include <stdarg.h>
#include <stdio.h>

#include "backends/cuda/device.h"
#include "runtime/base/c_locale.h"

fy_status_t fy__cuda_status(CUresult code)
{
    switch ((int)code) {
    case CUDA_SUCCESS: return FY_STATUS_OK;
#define X(number, name, status) \
    case number: return FY_STATUS_##status;
        FY__CUDA_CODE_LIST(X)
#undef X
    default: return FY_STATUS_INTERNAL;
    }
}

int fy__cuda_is_fatal(CUresult code) { return fy__cuda_status(code) == FY_STATUS_DEVICE_LOST; }

static int ends_the_process(CUresult code)
{
    switch ((int)code) {
#define X(number) case number:
        FY__CUDA_PROCESS_FATAL_LIST(X)
#undef X
        return 1;
    default: return 0;
    }
}

/* The driver has a name for each code it gives; the table's serves where there is no driver yet. */
static const char *name_of(CUresult code)
{
    const char *name = NULL;
    if (fy__cuda.cuGetErrorName != NULL && fy__cuda.cuGetErrorName(code, &name) == CUDA_SUCCESS &&
        name != NULL)
        return name;
    switch ((int)code) {
#define X(number, name, status) \
    case number: return "CUDA_ERROR_" #name;
        FY__CUDA_CODE_LIST(X)
#undef X
    default: return "a code newer than this Ferry";
    }
}

/* What the reader can do about it; true for every code of that status. */
static const char *advice(CUresult code, fy_status_t status)
{
    switch (status) {
    case FY_STATUS_OUT_OF_MEMORY:
        return "free or trim device memory (another process may hold some: see nvidia-smi), then "
               "try again";
    case FY_STATUS_DEVICE_LOST:
        if (ends_the_process(code))
            return "this process can use CUDA no more: save host tensors, they stay readable, and "
                   "restart";
        return "close this device and open it again; host tensors stay readable";
    case FY_STATUS_UNAVAILABLE: return "check the driver and CUDA_VISIBLE_DEVICES with nvidia-smi";
    case FY_STATUS_UNSUPPORTED:
        return "this driver or GPU cannot do it; docs/cuda.md lists what is needed";
    case FY_STATUS_BUSY:
        return "the memory is page-locked already: unregister it there first, or hand Ferry other "
               "memory";
    case FY_STATUS_INVALID_ARGUMENT: return "the driver does not accept what it was given";
    case FY_STATUS_INTERNAL:
        return "the driver was called in a way it does not expect: please report this text";
    default: return "it may succeed later";
    }
}

fy_status_t fy__cuda_failed(CUresult code, const char *file, int line, const char *call,
                            const char *format, ...)
{
    char asked[200], recent[320] = "";
    va_list args;
    va_start(args, format);
    fy__vsnprintf(asked, sizeof asked, format, args);
    va_end(args);
    const char *text = NULL;
    if (fy__cuda.cuGetErrorString == NULL ||
        fy__cuda.cuGetErrorString(code, &text) != CUDA_SUCCESS || text == NULL)
        text = "no text";
    fy_status_t status = fy__cuda_status(code);
    if (status == FY_STATUS_DEVICE_LOST && fy__cuda_last_device != NULL)
        fy__cuda_trails_tell(&fy__cuda_last_device->trails, recent, sizeof recent);
    return fy__cuda.host->fail(status, file, line, "%s: %s gave %s (%d: %s)\n  %s%s", asked, call,
                               name_of(code), (int)code, text, advice(code, status), recent);
}
