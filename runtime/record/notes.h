/* The last refusals and faults as texts, for `ferry watch`. Off unless FERRY_WATCH=1; then a note
 * costs a lock, on the path of a failure only. Not here: the event file (event.h). */
#ifndef FERRY_RUNTIME_NOTES_H_
#define FERRY_RUNTIME_NOTES_H_

#include <pthread.h>

#include <ferry/status.h>

#include "runtime/base/live_page.h"

void fy__notes_enable(bool on);
void fy__note(fy_status_t status, const char *text);
/* Copies the last ones; returns how many there were in all. */
uint64_t fy__notes_copy(fy__live_note_t out[FY__LIVE_NOTES]);

extern pthread_mutex_t fy__notes_lock;

#endif
