/* What this machine can back: bytes of the host, of page-locked memory and of simulated devices with numerics are this machine's memory. The kernel
 * grants more than there is and kills the process when the bytes are touched, so segments are checked against the memory limits of the
 * process's control groups (versions 1 and 2) and MemAvailable before they are reserved.
 * Not here: a device's own capacity and limit (backends/sim/memory.c, alloc/). Next: runtime/wire.c, who asks. */
#ifndef FERRY_RUNTIME_MACHINE_H_
#define FERRY_RUNTIME_MACHINE_H_

#include <stdint.h>

#include "runtime/memory.h"

/* Counts `nbytes` as reserved by this process. Fails: OUT_OF_MEMORY if the machine cannot back them; *backing says how much it can.
 * `who` ("sim:0") and backing->hint are for the text. Cost: small segments draw on a credit; a large one reads /proc and the control
 * groups' files once. Threads: any; takes no lock. */
fy_status_t fy__machine_take(const char *who, uint64_t nbytes, fy__backing_t *backing);
/* The bytes are unmapped. */
void fy__machine_give(uint64_t nbytes);

/* Bytes that could be backed besides those that this process has touched: the least of MemAvailable and what each control group leaves.
 * UINT64_MAX if the system says nothing. Reads files. */
uint64_t fy__machine_available(void);
/* For tests: /proc and /sys are looked for below `root` ("": the real ones), which must stay valid. */
void fy__machine_set_root(const char *root);

#endif
