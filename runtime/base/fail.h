/* Reports failures: one macro writes the thread's error record once, where the failure happens,
 * without heap use. The codes are in include/ferry/status.h. Next: runtime/base/fail.c. */
#ifndef FERRY_RUNTIME_BASE_FAIL_H_
#define FERRY_RUNTIME_BASE_FAIL_H_

#include <pthread.h>
#include <stdbool.h>

#include <ferry/memory.h>

/* return FY_FAIL(SHAPE_MISMATCH, "reshape: %lld elements do not fit", n); Its value is the
 * constant, so compilers can exclude OK. */
#define FY_FAIL(code, ...) \
    (fy_error_set(FY_STATUS_##code, __FILE__, __LINE__, __VA_ARGS__), FY_STATUS_##code)

#define FY_LIKELY(x)   __builtin_expect(!!(x), 1)
#define FY_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* Moves the failing branch's code out of the hot path. */
#define FY_COLD __attribute__((cold, noinline))

/* For functions that own something: goes to the function's `done` block with `status` set. */
#define FY_CHECK(expr)                         \
    do {                                       \
        status = (expr);                       \
        if (status != FY_STATUS_OK) goto done; \
    } while (0)

/* Copies `verdict` and its text to this thread's record; returns verdict->status. */
fy_status_t fy__fail_with_verdict(const char *file, int line, const fy_oom_verdict_t *verdict);

/* A step of the public function `call` returned `status`: begins the text of its failure with
 * "call: ". A refusal of memory names no step and keeps its text. Returns `status`. */
fy_status_t fy__fail_in(const char *call, fy_status_t status);

/* A copy of the record during cleanup, or during another call that may fail: the first error
 * wins. */
typedef struct fy__error_copy {
    fy_error_t error;
    fy_oom_verdict_t verdict;
} fy__error_copy_t;
void fy__error_save(fy__error_copy_t *copy);
void fy__error_restore(const fy__error_copy_t *copy);

/* A lock under which code may log. The log function may call Ferry, so a line of fy_log_write waits
 * until this thread releases its last lock of this kind. */
void fy__lock(pthread_mutex_t *mutex);
bool fy__trylock(pthread_mutex_t *mutex);
void fy__unlock(pthread_mutex_t *mutex);

#endif
