/* Status codes, the error record of each thread, and the log hook.
 * Every fallible call returns fy_status_t. The error record states the cause, with numbers, and the
 * remedy.
 * The library never aborts, exits or prints. Messages go to the log function, if one is set.
 *
 * Four rules hold for the whole library. The other headers do not repeat them.
 *   1. One owner. A handle belongs to the scope that was open when it was made. If no scope was
 *      open, or after keep, it belongs to you. You may destroy a handle once, before its scope
 *      ends; the scope destroys the rest. Bytes are shared and counted: views and running copies
 *      keep them alive after the handle is destroyed.
 *   2. A failed call changes nothing, unless its comment says so, and sets *out_x to NULL (or 0). A
 *      request that fails later, on the device, fails its ticket and poisons its results; other
 *      requests are not affected.
 *   3. Any thread may call any function. One thread at a time uses a handle, except that several
 *      threads may read one tensor (views of the same bytes count as that tensor). While a handle
 *      is in a scope, only that scope's thread may destroy it: keep it before another thread gets
 *      it.
 *   4. A comment that begins with "Blocks" marks a call that waits for a device. It counts as one
 *      sync, even if it did not have to wait. Other waits (ring space, a full queue, a file) are
 *      named at their call and are no sync.
 *
 * A struct that begins with struct_size may get new fields. Start from its _INIT macro, or call its
 * _init function with sizeof your struct. An impossible struct_size is INVALID_ARGUMENT.
 *   - Old program, newer library: always works.
 *   - New program, older library: works if the fields that the library does not know are 0. Facts
 *     that it does not know become 0.
 * A newer library may return enumerators (a dtype, a path, a category, a status) that your header
 * does not have. */
#ifndef FERRY_STATUS_H_
#define FERRY_STATUS_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define FY_API        __attribute__((visibility("default")))
#define FY_API_STATUS __attribute__((visibility("default"), warn_unused_result)) fy_status_t
#define FY_PRINTF(format_index, args_index) \
    __attribute__((format(printf, format_index, args_index)))
#else
#define FY_API
#define FY_API_STATUS fy_status_t
#define FY_PRINTF(format_index, args_index)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, who can act and how). The order is part of the ABI: new codes go to the end. */
#define FY_STATUS_LIST(X)                                                                        \
    X(OK, "success")                                                                             \
    X(INVALID_ARGUMENT, "the caller passed something that is never legal")                       \
    X(DEVICE_MISMATCH, "the caller mixed devices; Ferry moves nothing by itself")                \
    X(DTYPE_MISMATCH, "the caller mixed dtypes, or the op does not support this one")            \
    X(SHAPE_MISMATCH, "the shapes do not fit together")                                          \
    X(REFUSED_BY_GUARD, "a guard of an enclosing scope forbids it")                              \
    X(BUSY, "something still uses it; the text says what to wait for or to end")                 \
    X(OUT_OF_MEMORY,                                                                             \
      "device memory: free, shrink, or raise the limit; fy_error_get()->oom explains")           \
    X(PINNED_LIMIT,                                                                              \
      "page-locked host memory: free, trim, or raise the limit; fy_error_get()->oom explains")   \
    X(UNSUPPORTED, "this device or build cannot do it, or not while this thread records")        \
    X(UNAVAILABLE, "no such device, plugin or data set, or it did not load; the text says why")  \
    X(TIMEOUT, "not done in time; the request continues")                                        \
    X(CANCELLED, "cancelled before it started")                                                  \
    X(BAD_VALUE, "a value in the data made the request fail, such as an index out of range")     \
    X(IO, "the operating system refused a read or a write")                                      \
    X(CORRUPT_DATA, "the contents of a file do not match its format")                            \
    X(DEVICE_LOST, "the device is lost: close it and open it again; host tensors stay readable") \
    X(INTERNAL, "a bug in Ferry")                                                                \
    X(KERNEL_FAILED,                                                                             \
      "the kernel of a registered op failed; the text has the kernel's status and text")         \
    X(RANK_LOST, "a process of the group did not take part in time; the text names it")

typedef enum fy_status {
#define X(name, text) FY_STATUS_##name,
    FY_STATUS_LIST(X)
#undef X
} fy_status_t;

struct fy_oom_verdict; /* memory.h */

/* One failure, as recorded where it happened. */
typedef struct fy_error {
    fy_status_t status;
    /* the line in `file` that noticed it: in Ferry, or in an op of yours */
    int line;
    const char *file; /* static */
    /* one or more lines without a final newline: the cause, with numbers, and the remedy */
    char text[512];
    /* NULL unless OUT_OF_MEMORY or PINNED_LIMIT; valid as long as the record */
    const struct fy_oom_verdict *oom;
} fy_error_t;

/* Returns from the calling function if `expr` fails. For functions that own nothing, or whose
 * handles belong to a scope. */
#define FY_TRY(expr)                                 \
    do {                                             \
        fy_status_t fy_try_ = (expr);                \
        if (fy_try_ != FY_STATUS_OK) return fy_try_; \
    } while (0)

/* "SHAPE_MISMATCH" for FY_STATUS_SHAPE_MISMATCH; "UNKNOWN" for an undefined code. Static. */
FY_API const char *fy_status_name(fy_status_t status);
/* Who can act on this code, and how, in one line. Static. */
FY_API const char *fy_status_text(fy_status_t status);

/* This thread's last failure; valid until its next one. Never NULL: before any failure its status
 * is OK. */
FY_API const fy_error_t *fy_error_get(void);

/* Writes this thread's error record and returns `status`, so that your op, rule or loader fails as
 * Ferry does:
 * `return fy_error_set(FY_STATUS_SHAPE_MISMATCH, __FILE__, __LINE__, "rows: %d", n);`
 * `file` must be static. No heap use. */
FY_API fy_status_t fy_error_set(fy_status_t status, const char *file, int line, const char *format,
                                ...) FY_PRINTF(4, 5);

typedef enum fy_log_level { FY_LOG_ERROR, FY_LOG_WARNING, FY_LOG_INFO } fy_log_level_t;
/* Receives one message. `text` has no final newline and is valid during the call only. Called on
 * the thread that logs, with no lock held; it may call Ferry. */
typedef void (*fy_log_fn)(void *user, fy_log_level_t level, const char *text);

/* Sends Ferry's messages to `fn`: a guard that only logs, a slow path, a plugin that did not load.
 * NULL, the default, drops them. Process-wide; set it before other threads use Ferry. */
FY_API void fy_log_set(fy_log_fn fn, void *user);

/* Sends a message to that function, for libraries on top of Ferry. Cut at 1023 bytes. Formats
 * nothing if no function is set. */
FY_API void fy_log_write(fy_log_level_t level, const char *format, ...) FY_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif
#endif
