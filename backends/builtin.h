/* The backends that are part of libferry. Each has the signature of a plugin's fy_backend_open, so
 * wire.c treats all alike. */
#ifndef FERRY_BACKENDS_BUILTIN_H_
#define FERRY_BACKENDS_BUILTIN_H_

#include <pthread.h>

#include <ferry/backend.h>

fy_status_t fy__backend_host_open(const fy_host_api_t *host, uint32_t abi,
                                  const fy_backend_t **out_backend);
fy_status_t fy__backend_sim_open(const fy_host_api_t *host, uint32_t abi,
                                 const fy_backend_t **out_backend);
fy_status_t fy__backend_null_open(const fy_host_api_t *host, uint32_t abi,
                                  const fy_backend_t **out_backend);

/* The locks of the simulated accelerator, held over a fork. They are taken last: code under them
 * calls no other module. */
extern pthread_mutex_t fy__sim_queue_lock, fy__sim_memory_lock, fy__sim_clock_lock;

#endif
