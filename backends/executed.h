/* What executors really did: copies and bytes by kind, counted where the bytes move, by the host's
 * and the simulator's backends alike. The ledger counts the same when a request is submitted
 * (fy_host_api_t.record), so the two can be held against each other: tests do so after each test
 * (tests/support/conservation.h).
 * Not here: the ledger (transfer/). */
#ifndef FERRY_BACKENDS_EXECUTED_H_
#define FERRY_BACKENDS_EXECUTED_H_

#include <ferry/backend.h>

enum { FY__COPY_KINDS = FY_COPY_PEER + 1 };

/* Totals of the process, by fy_copy_kind_t. */
typedef struct fy__executed {
    uint64_t copies[FY__COPY_KINDS], nbytes[FY__COPY_KINDS];
    /* submitted, but failed by a script or lost with their device */
    uint64_t failed_copies[FY__COPY_KINDS], failed_nbytes[FY__COPY_KINDS];
} fy__executed_t;

void fy__executed_count(fy_copy_kind_t kind, uint64_t nbytes);
void fy__executed_count_failed(fy_copy_kind_t kind, uint64_t nbytes);
void fy__executed_read(fy__executed_t *out_totals);

#endif
