/* Shares the figures of the process with `ferry watch` if FERRY_WATCH=1: a thread reads the ledger
 * and the pools ten times a second and writes a page of shared memory (runtime/base/live_page.h).
 * No path of a call knows of it. Next: live.c. */
#ifndef FERRY_TRANSFER_LIVE_H_
#define FERRY_TRANSFER_LIVE_H_

#include <pthread.h>
#include <stdbool.h>

/* Reads $FERRY_WATCH, once; a failure is logged, and nothing is shared. */
void fy__live_from_environment(void);
/* "1" or "0" */
bool fy__live_value_is_good(const char *value);

extern pthread_mutex_t fy__live_lock;
/* The child shares nothing. */
void fy__live_fork_child(void);

#endif
