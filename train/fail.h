/* Failures of the training library: Ferry's error record, through the public API. Not public. */
#ifndef FERRY_TRAIN_FAIL_INTERNAL_H_
#define FERRY_TRAIN_FAIL_INTERNAL_H_

#include <ferry/status.h>

/* return FYT_FAIL(IO, "cannot open %s", path); */
#define FYT_FAIL(code, ...) fy_error_set(FY_STATUS_##code, __FILE__, __LINE__, __VA_ARGS__)

#endif
