/* Conservation: the ledger's transferred bytes equal the bytes that the executors copied. The
 * ledger counts wire bytes and copies when a request is submitted. The host and sim backends and
 * the fake CUDA driver count again when they copy. The harness compares around every test. Other
 * programs that transfer can call begin and end themselves, with their devices drained or closed
 * between.
 * Not here: a real driver, which does not count. */
#ifndef FERRY_TESTS_SUPPORT_CONSERVATION_H_
#define FERRY_TESTS_SUPPORT_CONSERVATION_H_

#include <stdbool.h>
#include <stdint.h>

enum { TS_CONSERVED = 3 }; /* upload, download, peer */

typedef struct ts_conservation {
    uint64_t ledger_copies[TS_CONSERVED], ledger_nbytes[TS_CONSERVED];
    uint64_t executed_copies[TS_CONSERVED], executed_nbytes[TS_CONSERVED];
} ts_conservation_t;

/* Returns whether the executor of `spec` counts. A real CUDA driver does not. */
bool ts_conservation_knows(const char *spec);
void ts_conservation_begin(ts_conservation_t *out_before);
/* Returns false, and prints both sides, if they grew differently since. */
bool ts_conservation_end(const ts_conservation_t *before, const char *what);

#endif
