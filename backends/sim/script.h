/* Fault scripts: which allocation (of memory, page-locked memory, a stream, an event), copy or
 * launch of a device fails, when it is lost, which request is slow. faults=ITEM[+ITEM...], where
 * ITEM is alloc@N, pin@N, stream@N, event@N, copy@N, launch@N, lost@N or slow@N:DURATION, and N*
 * means from the N-th on, for ever.
 * N counts calls of that kind from 1, from when the script was set (the device's opening, or a
 * test's call); lost and slow count requests:
 * copies, fills and launches. Not here: what failing means (work.c, memory.c, stream.c,
 * order.c). */
#ifndef FERRY_BACKENDS_SIM_SCRIPT_H_
#define FERRY_BACKENDS_SIM_SCRIPT_H_

#include <stdbool.h>

#include <ferry/backend.h>

struct fy__sim_device;

typedef enum fy__sim_fault_kind {
    FY__SIM_FAULT_ALLOC,
    FY__SIM_FAULT_PIN,
    FY__SIM_FAULT_STREAM,
    FY__SIM_FAULT_EVENT,
    FY__SIM_FAULT_COPY,
    FY__SIM_FAULT_LAUNCH,
    FY__SIM_FAULT_LOST,
    FY__SIM_FAULT_SLOW,
    FY__SIM_FAULT_KINDS
} fy__sim_fault_kind_t;

typedef struct fy__sim_fault {
    fy__sim_fault_kind_t kind;
    bool for_ever;
    uint64_t nth;
    uint64_t slow_ns;
} fy__sim_fault_t;

enum { FY__SIM_SCRIPT_ITEMS = 16 };

typedef struct fy__sim_script {
    size_t nitems;
    fy__sim_fault_t items[FY__SIM_SCRIPT_ITEMS];
    uint64_t counts[FY__SIM_FAULT_KINDS];
} fy__sim_script_t;

/* `name`: the device's, for the failure: INVALID_ARGUMENT, names the item and the grammar. "" is an
 * empty script. */
fy_status_t fy__sim_script_parse(const char *name, const char *text, fy__sim_script_t *out_script);
bool fy__sim_script_has(const fy__sim_script_t *script, fy__sim_fault_kind_t kind);
/* Counts one more call of this kind; returns its number if the script strikes it, else 0.
 * *out_slow_ns (may be NULL): the sum for SLOW. */
uint64_t fy__sim_script_next(fy__sim_script_t *script, fy__sim_fault_kind_t kind,
                             uint64_t *out_slow_ns);

/* For tests: another script for an open device ("": none), counted from now. Whether
 * copies_can_fault was said when it was opened: open it with a copy item far away. */
fy_status_t fy__sim_set_faults(struct fy__sim_device *dev, const char *text);

#endif
