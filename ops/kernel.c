/* Registered ops' kernels; see kernel.h. `run` is the kernel of every launch of a registered op. It
 * finds the op by its number, so a launch that runs later, on another thread, needs only its own
 * record. */
#include "ops/kernel.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ops/format.h"
#include "ops/optable.h"
#include "runtime/base/fail.h"
#include "runtime/thread/thread.h"

/* ---- texts of hooks and kernels: either may fail without a text ---- */

/* Sets the status of this thread's error record to OK; returns the status before. */
static fy_status_t begin_words(void)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OK;
    const fy_status_t before = thread->error.status;
    thread->error.status = FY_STATUS_OK;
    return before;
}

/* The text written since begin_words; NULL if there is none, and the record then has its status
 * from before. */
static const char *end_words(fy_status_t before)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return NULL;
    if (thread->error.status != FY_STATUS_OK) return thread->error.text;
    thread->error.status = before;
    return NULL;
}

static const char k_no_words[] = "the kernel gives no reason";

/* ---- running ---- */

static FY_COLD fy_status_t failed(const fy_launch_t *launch, const char *op, fy_status_t status,
                                  const char *words)
{
    if (!launch->fault || status == FY_STATUS_DEVICE_LOST)
        return words ? status
                     : fy_error_set(status, __FILE__, __LINE__, "%s: its kernel failed with %s: %s",
                                    op, fy_status_name(status), k_no_words);
    __atomic_store_n(launch->fault, fy__poison_kernel(op, status, words ? words : k_no_words),
                     __ATOMIC_RELEASE);
    return FY_STATUS_OK;
}

static fy_status_t run(const fy_launch_t *launch, void *stream)
{
    const fy__op_row_t *row = fy__op_registered(launch->op - FY_OP_BUILTIN_COUNT);
    fy_launch_t own = *launch;
    own.kernel = ((const fy_op_kernel_t *)launch->user)->kernel;
    own.user = row->user;
    if (!(row->info.flags & FY_OP_CAN_FAULT)) own.fault = NULL;
    const fy_status_t before = begin_words(), status = own.kernel(&own, stream);
    const char *words = end_words(before);
    return FY_LIKELY(status == FY_STATUS_OK) ? status
                                             : failed(launch, row->info.name, status, words);
}

/* ---- choosing ---- */

/* "src0 [4x3 f32, strides 1 4]"; strides only where the operand has gaps or another order. Returns
 * where the next text goes. */
static size_t describe(char *buffer, size_t size, size_t at, const char *role, unsigned index,
                       const fy_desc_t *desc)
{
    char text[FY__DESC_TEXT_NBYTES], strides[FY_MAX_RANK * 22] = "";
    size_t used = 0;
    int64_t dense = 1;
    bool is_dense = true;
    for (int i = desc->rank - 1; i >= 0; i--) {
        is_dense &= desc->dims[i] == 1 || desc->strides[i] == dense;
        dense *= desc->dims[i];
    }
    for (int i = 0; !is_dense && i < desc->rank; i++)
        used +=
            (size_t)snprintf(strides + used, sizeof strides - used, " %" PRId64, desc->strides[i]);
    fy__desc_format(desc, text, sizeof text);
    text[strlen(text) - 1] = '\0'; /* the bracket */
    const int length = snprintf(buffer + at, size - at, "%s%s%u %s%s%s]", at ? ", " : "", role,
                                index, text, used ? ", strides" : "", strides);
    return length > 0 && (size_t)length < size - at ? at + (size_t)length : size - 1;
}

static FY_COLD fy_status_t refuse(const fy__op_row_t *row, const fy_device_t *device,
                                  const fy_launch_t *launch, const char *words)
{
    char operands[200] = "";
    size_t at = 0;
    for (unsigned i = 0; i < launch->nsrc && at < sizeof operands - 1; i++)
        at = describe(operands, sizeof operands, at, "src", i, &launch->src[i]);
    for (unsigned i = 0; i < launch->ndst && at < sizeof operands - 1; i++)
        at = describe(operands, sizeof operands, at, "dst", i, &launch->dst[i]);
    return FY_FAIL(UNSUPPORTED, "%s: its kernel does not take this call on %s: %.180s\n  %s",
                   row->info.name, device->spec, words ? words : k_no_words, operands);
}

static const fy_op_kernel_t *find_kernel(const fy__op_row_t *row, const char *backend)
{
    for (size_t i = 0; i < row->nkernels; i++)
        if (strcmp(row->kernels[i].backend, backend) == 0) return &row->kernels[i];
    return strcmp(backend, "sim") == 0 ? find_kernel(row, "host") : NULL; /* sim runs the host's */
}

fy_status_t fy__kernel_find(const fy__op_row_t *row, const fy_device_t *device,
                            const fy_op_kernel_t **out_kernel)
{
    *out_kernel = find_kernel(row, device->backend->name);
    if (*out_kernel) return FY_STATUS_OK;
    return FY_FAIL(UNSUPPORTED, "%s: it was registered without a kernel for %s (device %s)",
                   row->info.name, device->backend->name, device->spec);
}

fy_status_t fy__kernel_choose(const fy__op_row_t *row, const fy_device_t *device,
                              fy_launch_t *launch)
{
    const fy_op_kernel_t *found;
    FY_TRY(fy__kernel_find(row, device, &found));
    if (found->supports) {
        launch->kernel = found->kernel;
        launch->user = row->user;
        const fy_status_t before = begin_words(), status = found->supports(launch);
        const char *words = end_words(before);
        if (status != FY_STATUS_OK) return refuse(row, device, launch, words);
    }
    launch->kernel = run;
    launch->user = (void *)(uintptr_t)found; /* const: run reads it */
    return FY_STATUS_OK;
}
