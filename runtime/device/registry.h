/* The registry: the known backends, built in or plugins, and the open devices. Not here: the parts
 * of an open device (wire.c). */
#ifndef FERRY_RUNTIME_REGISTRY_H_
#define FERRY_RUNTIME_REGISTRY_H_

#include "runtime/device/device.h"

extern const fy_host_api_t fy__host_api;

/* Loads a plugin (plugin.c). UNAVAILABLE with the reason why it did not load; INVALID_ARGUMENT for
 * a malformed name (allowed: lower case, digits, '_'). */
fy_status_t fy__plugin_find(const char *name, const fy_backend_t **out_backend);

/* Opens a device of `backend` under the highest index that no open device has and no program has
 * requested. UNAVAILABLE: there is no such index. */
fy_status_t fy__device_open_unused(const char *backend, const char *options,
                                   fy_device_t **out_device);

/* Calls `fn` for every open device, the host first. No other thread opens or closes one until it
 * returns. */
void fy__registry_each(void (*fn)(fy_device_t *device));

/* Fork: only the host stays open in the child. The pools of all devices are locked as well, after
 * the list of threads: fork_rows in wire.c. */
extern pthread_mutex_t fy__registry_lock;
void fy__registry_fork_lock_pools(void);
void fy__registry_fork_unlock_pools(void);
/* Also unlocks fy__registry_lock; the pools are unlocked already. */
void fy__registry_fork_child(void);

/* Whether it is a value of FERRY_MEMORY_DEBUG and debug=; of FERRY_FUSE and fuse=. */
bool fy__debug_is_good(const char *text);
bool fy__fuse_is_good(const char *text);

#endif
