/* Failures of the training library: Ferry's error record, through the public API; files whose
 * failures are statuses. Not public. */
#ifndef FERRY_TRAIN_FAIL_INTERNAL_H_
#define FERRY_TRAIN_FAIL_INTERNAL_H_

#include <stdint.h>

#include <ferry/status.h>

#include "runtime/base/replace.h"

/* return FYT_FAIL(IO, "cannot open %s", path); */
#define FYT_FAIL(code, ...) fy_error_set(FY_STATUS_##code, __FILE__, __LINE__, __VA_ARGS__)

/* Sets a result to NULL, before anything else. Fails: INVALID_ARGUMENT (the parameter is NULL). */
#define FYT_CLEAR_OUT(call, out)           \
    ((out) ? (*(out) = NULL, FY_STATUS_OK) \
           : FYT_FAIL(INVALID_ARGUMENT, "%s: %s is NULL", call, #out))

/* The calls of runtime/base/replace.h. Fail: IO, OUT_OF_MEMORY. */
fy_status_t fyt_replace_begin(fy__replace_t *replace, const char *path);
fy_status_t fyt_replace_write(fy__replace_t *replace, const void *data, size_t nbytes);
fy_status_t fyt_replace_commit(fy__replace_t *replace);
/* Reads from byte `offset` on. Fails: IO (also where the file ends). */
fy_status_t fyt_read_at(const char *path, int fd, void *to, uint64_t nbytes, uint64_t offset);

#endif
