/* A ring of texts; see notes.h. */
#include "runtime/record/notes.h"

#include <pthread.h>
#include <stdio.h>

#include "runtime/thread/guard.h"

static _Atomic bool enabled;
pthread_mutex_t fy__notes_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the two below; a leaf lock */
static fy__live_note_t notes[FY__LIVE_NOTES];
static uint64_t count;

void fy__notes_enable(bool on) { atomic_store(&enabled, on); }

void fy__note(fy_status_t status, const char *text)
{
    if (!atomic_load_explicit(&enabled, memory_order_relaxed)) return;
    pthread_mutex_lock(&fy__notes_lock);
    fy__live_note_t *note = &notes[++count % FY__LIVE_NOTES];
    note->number = count;
    note->at_ns = fy__now_ns();
    snprintf(note->text, sizeof note->text, "%s: %s", fy_status_name(status), text);
    pthread_mutex_unlock(&fy__notes_lock);
}

uint64_t fy__notes_copy(fy__live_note_t out[FY__LIVE_NOTES])
{
    pthread_mutex_lock(&fy__notes_lock);
    memcpy(out, notes, sizeof notes);
    const uint64_t all = count;
    pthread_mutex_unlock(&fy__notes_lock);
    return all;
}
