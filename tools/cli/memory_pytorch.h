/* Memory events as the snapshot that PyTorch's memory viewer reads. Next: memory_pytorch.c. */
#ifndef FERRY_TOOLS_MEMORY_PYTORCH_H_
#define FERRY_TOOLS_MEMORY_PYTORCH_H_

#include <ferry/status.h>

/* Reads the event file `from`, writes the pickle `to`, and prints which pool is which device.
 * Fails: IO, CORRUPT_DATA, INVALID_ARGUMENT (no memory events). */
fy_status_t memory_pytorch_write(const char *from, const char *to);

#endif
