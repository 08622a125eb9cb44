/* Loads backends from plugins. The public query is fy_plugin_query in device.h. */
#ifndef FERRY_RUNTIME_PLUGIN_H_
#define FERRY_RUNTIME_PLUGIN_H_

#include "runtime/device/registry.h"

/* UNAVAILABLE with the reason why it did not load; INVALID_ARGUMENT for a malformed name (allowed:
 * lower case, digits, '_'). */
fy_status_t fy__plugin_find(const char *name, const fy_backend_t **out_backend);

#endif
