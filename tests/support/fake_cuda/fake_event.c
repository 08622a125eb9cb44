/* Events of the fake, and the clock that they read, which only work advances (fake_cuda_cost). A
 * test may hold everything back, so that no request is known to be done. Handles are slots of a
 * table, like those of fake_context.c. */
#include <pthread.h>
#include <string.h>

#include "tests/support/fake_cuda/fake.h"

enum { NEVENTS = 4096 };

struct CUevent_st {
    CUcontext context;
    int recorded, held, timed;
    double ms; /* time of the record */
};

static struct CUevent_st events[NEVENTS];
static int64_t live;
static double clock_ms;
static int hold;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
/* guards `hold` for waiting threads */
static pthread_mutex_t release_lock = PTHREAD_MUTEX_INITIALIZER;

static int event_is_valid(CUevent event, CUcontext context)
{
    int valid = event >= events && event < events + NEVENTS && event->context == context;
    if (!valid) fake_count_misuse();
    return valid;
}

static int event_is_live(CUevent event)
{
    int valid = event >= events && event < events + NEVENTS && event->context != NULL;
    if (!valid) fake_count_misuse();
    return valid;
}

CUresult fake_cuEventCreate(CUevent *out, unsigned int flags)
{
    FAKE_ENTER(cuEventCreate);
    *out = NULL;
    if (code == 0 && flags != CU_EVENT_DISABLE_TIMING && flags != CU_EVENT_DEFAULT)
        code = CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; code == 0 && *out == NULL && i < NEVENTS; i++)
        if (events[i].context == NULL) *out = &events[i];
    if (code == 0 && *out == NULL) code = CUDA_ERROR_OUT_OF_MEMORY;
    if (code == 0) {
        **out = (struct CUevent_st){ .context = context, .timed = flags == CU_EVENT_DEFAULT };
        live++;
    }
    return (CUresult)fake_leave(code);
}

CUresult fake_cuEventDestroy(CUevent event)
{
    FAKE_ENTER_RELEASE(cuEventDestroy);
    if (code == 0 && !event_is_valid(event, context)) code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0) {
        event->context = NULL;
        live--;
    }
    return (CUresult)fake_leave(code != 0 ? code : told);
}

CUresult fake_cuEventRecord(CUevent event, CUstream stream)
{
    FAKE_ENTER(cuEventRecord);
    if (code == 0 && (!event_is_valid(event, context) || !fake_stream_is_valid(stream, context)))
        code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0) code = fake_capture_refuses(stream);
    if (code == 0) {
        event->recorded = 1;
        event->held = hold;
        event->ms = clock_ms;
    }
    return (CUresult)fake_leave(code);
}

/* The event may belong to another device, as the driver's manual documents. */
CUresult fake_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    FAKE_ENTER(cuStreamWaitEvent);
    (void)flags;
    if (code == 0 && (!event_is_live(event) || !fake_stream_is_valid(stream, context)))
        code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0) code = fake_capture_refuses(stream);
    return (CUresult)fake_leave(code);
}

/* ---- timeline words ---- */

/* The word as host code sees it; NULL and *code: not memory of the device, or unaligned. */
static uint64_t *word_at(CUcontext context, CUstream stream, CUdeviceptr address, int *code)
{
    if (*code == 0 && !fake_stream_is_valid(stream, context)) *code = CUDA_ERROR_INVALID_HANDLE;
    if (*code == 0) *code = fake_capture_refuses(stream);
    uint64_t *word = *code == 0 && address % sizeof(uint64_t) == 0
                         ? fake_translate(context->device, address, sizeof(uint64_t))
                         : NULL;
    if (*code == 0 && word == NULL) *code = CUDA_ERROR_INVALID_VALUE;
    return word;
}

CUresult fake_cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                   unsigned int flags)
{
    FAKE_ENTER(cuStreamWriteValue64);
    if (code == 0 && flags != CU_STREAM_WRITE_VALUE_DEFAULT) code = CUDA_ERROR_INVALID_VALUE;
    uint64_t *word = word_at(context, stream, address, &code);
    if (word != NULL) *word = value;
    return (CUresult)fake_leave(code);
}

/* Work runs when it is submitted, so a wait whose value is not there yet cannot be kept: misuse. */
CUresult fake_cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                  unsigned int flags)
{
    FAKE_ENTER(cuStreamWaitValue64);
    if (code == 0 && flags != CU_STREAM_WAIT_VALUE_GEQ) code = CUDA_ERROR_INVALID_VALUE;
    const uint64_t *word = word_at(context, stream, address, &code);
    if (word != NULL && (int64_t)(*word - value) < 0) fake_count_misuse();
    return (CUresult)fake_leave(code);
}

CUresult fake_cuEventQuery(CUevent event)
{
    FAKE_ENTER(cuEventQuery);
    if (code == 0 && !event_is_valid(event, context)) code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0 && event->recorded && event->held) code = CUDA_ERROR_NOT_READY;
    return (CUresult)fake_leave(code);
}

CUresult fake_cuEventSynchronize(CUevent event)
{
    FAKE_ENTER(cuEventSynchronize);
    if (code == 0 && !event_is_valid(event, context)) code = CUDA_ERROR_INVALID_HANDLE;
    int waits = code == 0 && event->recorded && event->held;
    fake_leave(code);
    pthread_mutex_lock(&release_lock);
    while (waits && hold) pthread_cond_wait(&released, &release_lock);
    pthread_mutex_unlock(&release_lock);
    return (CUresult)code;
}

void fake_cuda_hold(int on)
{
    fake_lock();
    pthread_mutex_lock(&release_lock);
    hold = on;
    for (int i = 0; !on && i < NEVENTS; i++) events[i].held = 0;
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&release_lock);
    fake_unlock();
}

void fake_events_close(CUcontext context, int lost)
{
    for (int i = 0; i < NEVENTS; i++) {
        if (events[i].context != context) continue;
        events[i].context = NULL;
        live--;
        fake_count_leak(!lost);
    }
}

int64_t fake_events_live(void) { return live; }

/* ---- the clock ---- */

static struct {
    char prefix[48];
    double ms;
} costs[8];

void fake_cuda_cost(const char *prefix, double ms)
{
    fake_lock();
    for (int i = 0; i < 8; i++)
        if (costs[i].prefix[0] == '\0' || strcmp(costs[i].prefix, prefix) == 0) {
            strncpy(costs[i].prefix, prefix, sizeof costs[i].prefix - 1);
            costs[i].ms = ms;
            break;
        }
    fake_unlock();
}

void fake_spend(const char *name)
{
    for (int i = 0; i < 8; i++)
        if (costs[i].prefix[0] != '\0' &&
            strncmp(costs[i].prefix, name, strlen(costs[i].prefix)) == 0)
            clock_ms += costs[i].ms;
}

CUresult fake_cuEventElapsedTime(float *ms, CUevent begin, CUevent end)
{
    FAKE_ENTER(cuEventElapsedTime);
    *ms = 0;
    if (code == 0 && (!event_is_valid(begin, context) || !event_is_valid(end, context) ||
                      !begin->timed || !end->timed || !begin->recorded || !end->recorded))
        code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0 && (begin->held || end->held)) code = CUDA_ERROR_NOT_READY;
    if (code == 0) *ms = (float)(end->ms - begin->ms);
    return (CUresult)fake_leave(code);
}
