/* The error record and the log hook. The record is in the thread's state (thread.h), so a failure
 * needs no heap. A thread for whose state there is no memory reads a static record. Codes and their
 * texts come from the list in status.h. */
#include "runtime/base/fail.h"

#include <ferry/memory.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/c_locale.h"
#include "runtime/thread/thread.h"

static const fy_error_t no_error = { FY_STATUS_OK, 0, "", "no call has failed on this thread",
                                     NULL };
static const fy_error_t no_thread = { FY_STATUS_OUT_OF_MEMORY, __LINE__, __FILE__,
                                      "no memory for this thread's state", NULL };

const char *fy_status_name(fy_status_t status)
{
    static const char *const names[] = {
#define X(name, text) #name,
        FY_STATUS_LIST(X)
#undef X
    };
    return (unsigned)status < sizeof names / sizeof *names ? names[status] : "UNKNOWN";
}

const char *fy_status_text(fy_status_t status)
{
    static const char *const texts[] = {
#define X(name, text) text,
        FY_STATUS_LIST(X)
#undef X
    };
    return (unsigned)status < sizeof texts / sizeof *texts ? texts[status] : "no such status";
}

const fy_error_t *fy_error_get(void)
{
    const fy__thread_t *thread = fy__thread();
    if (!thread) return &no_thread;
    return thread->error.file ? &thread->error : &no_error;
}

fy_status_t fy_error_set(fy_status_t status, const char *file, int line, const char *format, ...)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return status;
    char text[sizeof thread->error.text]; /* an argument may be the text of the previous record */
    va_list args;
    va_start(args, format);
    const int length = fy__vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length >= 0)
        memcpy(thread->error.text, text,
               (size_t)length < sizeof text ? (size_t)length + 1 : sizeof text);
    thread->error.status = status;
    thread->error.file = file;
    thread->error.line = line;
    thread->error.oom = NULL;
    return status;
}

fy_status_t fy__fail_with_verdict(const char *file, int line, const fy_oom_verdict_t *verdict)
{
    fy_error_set(verdict->status, file, line, "%s", verdict->text);
    fy__thread_t *thread = fy__thread();
    if (thread) {
        thread->verdict = *verdict;
        thread->error.oom = &thread->verdict;
    }
    return verdict->status;
}

FY_COLD fy_status_t fy__fail_in(const char *call, fy_status_t status)
{
    fy__thread_t *thread = fy__thread();
    const size_t length = strlen(call);
    if (status == FY_STATUS_OK || !thread || thread->error.oom) return status;
    if (strncmp(thread->error.text, call, length) == 0 && thread->error.text[length] == ':')
        return status;
    char text[sizeof thread->error.text];
    snprintf(text, sizeof text, "%s: %s", call, thread->error.text);
    memcpy(thread->error.text, text, sizeof text);
    return status;
}

void fy__error_save(fy__error_copy_t *copy)
{
    const fy__thread_t *thread = fy__thread();
    if (!thread) return;
    copy->error = thread->error;
    copy->verdict = thread->verdict;
}

void fy__error_restore(const fy__error_copy_t *copy)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return;
    thread->error = copy->error;
    thread->verdict = copy->verdict;
    /* the copy may be another thread's */
    if (thread->error.oom) thread->error.oom = &thread->verdict;
}

/* Written once, before other threads use Ferry (see fy_log_set). */
static fy_log_fn log_fn;
static void *log_user;

void fy_log_set(fy_log_fn fn, void *user)
{
    log_user = user;
    log_fn = fn;
}

void fy_log_write(fy_log_level_t level, const char *format, ...)
{
    va_list args;
    char text[1024];
    if (!log_fn) return;
    fy__thread_t *thread = fy__thread();
    va_start(args, format);
    if (!thread || !thread->nlocks) {
        fy__vsnprintf(text, sizeof text, format, args);
        log_fn(log_user, level, text);
    } else if (!thread->nkept++) { /* the first of several is the cause */
        fy__vsnprintf(thread->kept, sizeof thread->kept, format, args);
        thread->kept_level = level;
    }
    va_end(args);
}

void fy__lock(pthread_mutex_t *mutex)
{
    fy__thread_t *thread = fy__thread();
    if (thread) thread->nlocks++;
    pthread_mutex_lock(mutex);
}

bool fy__trylock(pthread_mutex_t *mutex)
{
    fy__thread_t *thread = fy__thread();
    if (pthread_mutex_trylock(mutex) != 0) return false;
    if (thread) thread->nlocks++;
    return true;
}

void fy__unlock(pthread_mutex_t *mutex)
{
    fy__thread_t *thread = fy__thread();
    pthread_mutex_unlock(mutex);
    if (!thread || !thread->nlocks || --thread->nlocks || FY_LIKELY(!thread->nkept)) return;
    char text[sizeof thread->kept];
    const uint32_t lost = thread->nkept - 1;
    memcpy(text, thread->kept, sizeof text);
    thread->nkept = 0;
    if (lost)
        fy_log_write(thread->kept_level, "%s (and %u lines more at once)", text, lost);
    else
        fy_log_write(thread->kept_level, "%s", text);
}
