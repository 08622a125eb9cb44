/* How a part of the plugin tells people about itself (fy_device_describe, `ferry info`): a function
 * that says key and value, with its row in the table of describe.c. A library that is missing is a
 * fact with its reason, no failure. Keys: lower_case, unit at the end. */
#ifndef FERRY_BACKENDS_CUDA_DESCRIBE_H_
#define FERRY_BACKENDS_CUDA_DESCRIBE_H_

#include "backends/cuda/device.h"

typedef struct fy__cuda_facts {
    fy_fact_fn say;
    void *user;
} fy__cuda_facts_t;

/* One fact; a value longer than 400 bytes is cut. */
void fy__cuda_say(const fy__cuda_facts_t *facts, const char *key, const char *format, ...)
    FY_PRINTF(3, 4);
/* Says whether a library can be loaded: "13.1.0, /path/of/it", else what the loader said. `names`:
 * tried in turn, up to a NULL;
 * `version_entry`: its function size_t (void) that gives major * 10000 + minor * 100 + patch. */
void fy__cuda_say_library(const fy__cuda_facts_t *facts, const char *key, const char *const *names,
                          const char *version_entry);
/* A row of another file: nccl_library.c. */
fy_status_t fy__cuda_nccl_say(fy__cuda_device_t *dev, const fy__cuda_facts_t *facts);

#endif
