/* Reclaim callbacks: functions of the program that free memory when a device's pool is empty and
 * cannot grow (fy_memory_on_pressure). The pool calls them one by one, between its other stages,
 * and retries the request after each. Not here: when (alloc/fallback.c). */
#ifndef FERRY_RUNTIME_PRESSURE_H_
#define FERRY_RUNTIME_PRESSURE_H_

#include <pthread.h>

#include "runtime/device/memory.h"

/* Calls the next callback; a fy__segment_source_t's `reclaim`, user is the device. Calls none while
 * this thread is inside one, or holds a lock of Ferry's. No lock may be held. */
fy__reclaim_t fy__pressure_next(void *user, uint64_t nbytes, fy__reclaim_cursor_t *cursor);
/* The device closes: drops its callbacks. */
void fy__pressure_forget(fy_device_t *device);

extern pthread_mutex_t fy__pressure_lock;
void fy__pressure_fork_child(void);

#endif
