/* The registry: which backends there are, built in or as plugins, and which devices are open.
 * Not here: what is built when one opens (wire.c). */
#ifndef FERRY_RUNTIME_REGISTRY_H_
#define FERRY_RUNTIME_REGISTRY_H_

#include "runtime/device/device.h"

extern const fy_host_api_t fy__host_api;

/* Loads or finds a backend by name. UNAVAILABLE with the reason; INVALID_ARGUMENT if no such name
 * is known. */
fy_status_t fy__backend_find(const char *name, const fy_backend_t **out_backend);

/* Opens a device of `backend` under a number that no open device has, the highest first, which
 * nobody else has asked for.
 * UNAVAILABLE: there is no such number. */
fy_status_t fy__device_open_unused(const char *backend, const char *options,
                                   fy_device_t **out_device);

/* fork: only the host lives on in the child. The pools of all devices are held besides, after the
 * list of threads; see wire.c. */
void fy__registry_fork_lock(void);
void fy__registry_fork_lock_pools(void);
void fy__registry_fork_unlock_pools(void);
void fy__registry_fork_unlock(void);
/* Instead of fork_unlock; the pools are let go already. */
void fy__registry_fork_child(void);

/* Is it one of the values of FERRY_MEMORY_DEBUG and debug=? */
bool fy__debug_is_good(const char *text);

#endif
