/* The machine's memory for segments of the host, of page-locked memory and of simulated devices
 * with numerics. Linux grants more memory than the machine has, and kills the process when the
 * bytes are written. So a segment is checked before it is reserved, against MemAvailable and the
 * memory limits of the process's control groups (versions 1 and 2).
 * Not here: a device's own capacity and limit (backends/sim/memory.c, alloc/). Next:
 * runtime/wire.c, which calls this. */
#ifndef FERRY_RUNTIME_MACHINE_H_
#define FERRY_RUNTIME_MACHINE_H_

#include <stdint.h>

#include "runtime/device/memory.h"

/* Counts `nbytes` as reserved by this process. Fails: OUT_OF_MEMORY if the machine has less;
 * *backing then has the bytes that it has. `who` ("sim:0") and backing->hint are for the text.
 * Cost: small segments use a credit of earlier readings; a large one reads /proc and the files of
 * the control groups once. Threads: any; takes no lock. */
fy_status_t fy__machine_take(const char *who, uint64_t nbytes, fy__backing_t *backing);
/* Subtracts bytes that were unmapped. */
void fy__machine_give(uint64_t nbytes);

/* Available bytes, without those that this process has written: the smallest of MemAvailable and
 * the rest of each control group. UINT64_MAX if the system reports nothing. Reads files. */
uint64_t fy__machine_available(void);
/* For tests: reads /proc and /sys below `root` ("": the real ones), which must stay valid. */
void fy__machine_set_root(const char *root);

#endif
