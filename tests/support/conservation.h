/* Conservation: what the ledger says crossed is what executors say they moved. The ledger counts
 * wire bytes and copies when a request is submitted; the host's and the simulator's backends and
 * the fake CUDA driver count once more where the bytes move. The harness asks around every test;
 * other programs that transfer may call begin and end themselves, with their devices drained or
 * closed in between.
 * Not here: a real driver, which does not tell. */
#ifndef FERRY_TESTS_SUPPORT_CONSERVATION_H_
#define FERRY_TESTS_SUPPORT_CONSERVATION_H_

#include <stdbool.h>
#include <stdint.h>

enum { TS_CONSERVED = 3 }; /* upload, download, peer */

typedef struct ts_conservation {
    uint64_t ledger_copies[TS_CONSERVED], ledger_nbytes[TS_CONSERVED];
    uint64_t executed_copies[TS_CONSERVED], executed_nbytes[TS_CONSERVED];
} ts_conservation_t;

/* Does what executes for `spec` count? Not a real CUDA driver. */
bool ts_conservation_knows(const char *spec);
void ts_conservation_begin(ts_conservation_t *out_before);
/* False, and both sides printed, if they grew differently since. */
bool ts_conservation_end(const ts_conservation_t *before, const char *what);

#endif
