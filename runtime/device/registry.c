/* Opens and closes devices. One lock guards the table. It is held while a device is built or
 * removed, so that two threads that open the same spec get the same device. */
#include "runtime/device/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/environment.h"
#include "runtime/base/fail.h"
#include "runtime/base/spec.h"
#include "runtime/base/abi_structs.h"
#include "runtime/device/hooks.h"
#include "runtime/order/stream.h"
#include "runtime/record/event.h"
#include "runtime/record/text.h"
#include "runtime/tensor/storage.h"
#include "runtime/thread/guard.h"

/* Guards the table, `spare`, and the building and closing of devices. Recursive: closing a device
 * frees its storages. */
pthread_mutex_t fy__registry_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static fy_device_t *_Atomic table[FY__MAX_DEVICES];
static fy_device_t *_Atomic host;
/* Closed devices, reused and never freed: an old ticket, or another thread's read of the table, may
 * still point to one. */
static fy_device_t *spare[FY__MAX_DEVICES];
static uint32_t nspare;

static void record(fy_copy_kind_t kind, uint64_t nbytes)
{
    static const int directions[] = { FY__UPLOAD, FY__DOWNLOAD, -1, FY__PEER };
    fy__thread_t *thread = fy__thread();
    if (!thread || directions[kind] < 0) return;
    fy__traffic_counters_t *traffic = &thread->node->traffic[directions[kind]];
    fy__count(&traffic->wire_nbytes, nbytes);
    fy__count(&traffic->copies, 1);
    FY__EVENT(fy__event_copy(thread, directions[kind], nbytes));
}

const fy_host_api_t fy__host_api = { sizeof(fy_host_api_t), FY_BACKEND_ABI, fy_error_set,
                                     fy_log_write, record };

/* ---- backends ---- */

/* Loads or finds a backend by name. UNAVAILABLE with the reason; INVALID_ARGUMENT if the name is
 * unknown. */
static fy_status_t find_backend(const char *name, const fy_backend_t **out_backend)
{
    size_t count;
    const fy__builtin_t *builtins = fy__wire_builtins(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(builtins[i].name, name) == 0)
            return builtins[i].open(&fy__host_api, FY_BACKEND_ABI, out_backend);
    return fy__plugin_find(name, out_backend);
}

/* ---- devices ---- */

static void make_device_locks(fy_device_t *device)
{
    pthread_mutex_init(&device->deferred_lock, NULL);
    pthread_mutex_init(&device->faults.lock, NULL);
}

static bool parse_debug(const char *text, uint32_t *out_debug)
{
    static const struct {
        const char *text;
        uint32_t bits;
    } values[] = { { "none", 0 },
                   { "poison", FY__DEBUG_POISON },
                   { "guard", FY__DEBUG_GUARD },
                   { "poison+guard", FY__DEBUG_POISON | FY__DEBUG_GUARD },
                   { "guard+poison", FY__DEBUG_POISON | FY__DEBUG_GUARD } };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (strcmp(text, values[i].text) == 0) {
            *out_debug = values[i].bits;
            return true;
        }
    return false;
}

bool fy__debug_is_good(const char *text)
{
    uint32_t debug;
    return parse_debug(text, &debug);
}

/* $FERRY_MEMORY_DEBUG: the default of every device, the host included, whose spec has no debug=. */
static uint32_t debug_from_environment(void)
{
    const char *text = fy__env_value("FERRY_MEMORY_DEBUG");
    uint32_t debug = 0;
    if (text && !parse_debug(text, &debug))
        fy_log_write(
            FY_LOG_ERROR,
            "FERRY_MEMORY_DEBUG=%s is ignored; it may be poison, guard, poison+guard or none",
            text);
    return debug;
}

bool fy__fuse_is_good(const char *text)
{
    return strcmp(text, "on") == 0 || strcmp(text, "off") == 0;
}

/* $FERRY_FUSE: the default of every device, the host included, whose spec has no fuse=. */
static bool fuse_off_from_environment(void)
{
    const char *text = fy__env_value("FERRY_FUSE");
    if (text && !fy__fuse_is_good(text))
        fy_log_write(FY_LOG_ERROR, "FERRY_FUSE=%s is ignored; it may be on or off", text);
    return text && strcmp(text, "off") == 0;
}

static void set_defaults(fy_device_t *device, const fy_backend_t *backend)
{
    device->backend = backend;
    device->synchronous = backend->is_synchronous;
    device->limit_nbytes = device->pinned_limit_nbytes = device->workspace_nbytes = FY_UNLIMITED;
    device->ahead = 1024;
    device->window_nbytes = 64u << 20;
    device->queue_nbytes = 256u << 20;
    device->debug = debug_from_environment();
    device->fuse_off = fuse_off_from_environment();
}

/* There are never more devices than entries in the table, so `spare` always has room. The
 * registry's lock is held. */
static void keep_spare(fy_device_t *device) { spare[nspare++] = device; }

static fy_device_t *new_device(const fy_backend_t *backend)
{
    fy_device_t *device;
    if (nspare) {
        device = spare[--nspare]; /* not in use, but an old ticket may read its last members */
        memset(device, 0, offsetof(fy_device_t, lost));
        atomic_store(&device->lost, FY__PRESENT);
        atomic_store(&device->lost_told, false);
        pthread_mutex_lock(&device->faults.lock);
        memset(&device->faults.words, 0, sizeof device->faults - offsetof(fy__faults_t, words));
        pthread_mutex_unlock(&device->faults.lock);
    } else {
        device = calloc(1, sizeof *device);
        if (!device) return NULL;
        make_device_locks(device);
    }
    set_defaults(device, backend);
    return device;
}

/* If it fails, `host` stays NULL and fy_device_open reports OUT_OF_MEMORY. */
static void open_host(void)
{
    static fy_device_t device;
    const fy_backend_t *backend;
    fy__wire_process();
    if (find_backend("host", &backend) != FY_STATUS_OK ||
        backend->device_open(0, 0, NULL, &device.dev) != FY_STATUS_OK)
        return;
    set_defaults(&device, backend);
    make_device_locks(&device);
    device.is_host = true;
    strcpy(device.spec, "host");
    device.spec_text = fy__text(device.spec);
    if (fy__wire_open(&device) != FY_STATUS_OK) return;
    device.opens = 1;
    atomic_store(&table[0], &device);
    atomic_store(&host, &device);
}

fy_device_t *fy_device_host(void)
{
    fy_device_t *device = atomic_load_explicit(&host, memory_order_acquire);
    if (FY_LIKELY(device != NULL)) return device;
    pthread_once(&once, open_host);
    return atomic_load(&host);
}

fy_device_t *fy__device_host_if_open(void)
{
    return atomic_load_explicit(&host, memory_order_acquire);
}

/* The device may be closed, or reused for another by now; a device in use is complete. */
static bool use_if_open(fy_device_t *device)
{
    uint64_t uses = atomic_load_explicit(&device->uses, memory_order_relaxed);
    while (uses)
        if (atomic_compare_exchange_weak_explicit(&device->uses, &uses, uses + 1,
                                                  memory_order_acquire, memory_order_relaxed))
            return true;
    return false;
}

fy_device_t *fy__device_use_at(uint32_t index)
{
    fy_device_t *device = atomic_load_explicit(&table[index], memory_order_acquire);
    return device && use_if_open(device) ? device : NULL;
}

fy_device_t *fy__device_hold(fy_device_t *device)
{
    if (device == fy_device_host()) return NULL;
    if (use_if_open(device)) return device;
    /* a thread that closes the device holds the lock until it is done */
    pthread_mutex_lock(&fy__registry_lock);
    pthread_mutex_unlock(&fy__registry_lock);
    return NULL;
}

static fy_status_t take_growth(fy_device_t *device, const char *value)
{
    device->growth_off = strcmp(value, "off") == 0;
    if (device->growth_off || strcmp(value, "on") == 0) return FY_STATUS_OK;
    return FY_FAIL(INVALID_ARGUMENT, "device_open: growth=%s is neither on nor off", value);
}

/* Applies Ferry's options and copies the others for the backend. */
static fy_status_t take_options(fy_device_t *device, const fy__spec_t *spec,
                                fy_backend_option_t *rest, size_t *out_nrest)
{
    const struct {
        const char *key;
        uint64_t *value;
        bool is_count, may_be_0;
    } own[] = {
        { "limit", &device->limit_nbytes, false, true },
        { "pinned", &device->pinned_limit_nbytes, false, true },
        { "workspace", &device->workspace_nbytes, false, true },
        { "ahead", &device->ahead, true, false },
        { "window", &device->window_nbytes, false, false },
        { "queue", &device->queue_nbytes, false, false },
        { "segment", &device->segment_nbytes, false, false },
    };
    const size_t nown = sizeof own / sizeof *own;
    *out_nrest = 0;
    for (size_t i = 0, k; i < spec->noptions; i++) {
        const fy_backend_option_t *option = &spec->option[i];
        if (strcmp(option->key, "growth") == 0) {
            FY_TRY(take_growth(device, option->value));
            continue;
        }
        if (strcmp(option->key, "fuse") == 0) {
            if (!fy__fuse_is_good(option->value))
                return FY_FAIL(INVALID_ARGUMENT, "device_open: fuse=%s is neither on nor off",
                               option->value);
            device->fuse_off = strcmp(option->value, "off") == 0;
            continue;
        }
        if (strcmp(option->key, "debug") == 0) {
            if (parse_debug(option->value, &device->debug)) continue;
            return FY_FAIL(INVALID_ARGUMENT,
                           "device_open: debug=%s; it may be poison, guard, poison+guard or none",
                           option->value);
        }
        for (k = 0; k < nown && strcmp(option->key, own[k].key) != 0; k++) {}
        if (k == nown) {
            rest[(*out_nrest)++] = *option;
            continue;
        }
        if (!option->is_size)
            return FY_FAIL(INVALID_ARGUMENT, "device_open: %s=%s is no %s; write %s=%s",
                           option->key, option->value, own[k].is_count ? "number" : "byte size",
                           option->key, own[k].is_count ? "1024" : "512MiB or a plain number");
        if (!option->nbytes && !own[k].may_be_0)
            return FY_FAIL(INVALID_ARGUMENT,
                           "device_open: %s=%s would let nothing through; it must be more than 0",
                           option->key, option->value);
        *own[k].value = option->nbytes;
    }
    return FY_STATUS_OK;
}

/* An open device of the same name, or NULL. */
static fy_device_t *find_open(const char *name)
{
    for (uint32_t i = 0; i < FY__MAX_DEVICES; i++) {
        fy_device_t *device = atomic_load(&table[i]);
        if (device && strcmp(device->spec, name) == 0) return device;
    }
    return NULL;
}

static fy_status_t build(const fy__spec_t *spec, const char *name, const fy_device_options_t *hooks,
                         fy_device_t **out_device)
{
    const fy_backend_t *backend;
    fy_backend_option_t rest[FY__SPEC_OPTIONS];
    size_t nrest;
    int count = 0;
    uint32_t index = 1;
    while (index < FY__MAX_DEVICES && atomic_load(&table[index])) index++;
    if (index == FY__MAX_DEVICES)
        return FY_FAIL(UNAVAILABLE, "device_open: %d devices are open, the most there can be",
                       FY__MAX_DEVICES);
    FY_TRY(find_backend(spec->backend, &backend));
    FY_TRY(backend->device_count(&count));
    if (spec->index >= count)
        return FY_FAIL(UNAVAILABLE,
                       "device_open: there is no %s: %s has %d device%s, numbered from 0", name,
                       spec->backend, count, count == 1 ? "" : "s");
    fy_device_t *device = new_device(backend);
    if (!device)
        return FY_FAIL(OUT_OF_MEMORY, "device_open: no host memory for %zu bytes", sizeof *device);
    device->index = index;
    if (hooks) device->hooks = *hooks;
    snprintf(device->spec, sizeof device->spec, "%s", name);
    device->spec_text = fy__text(device->spec);
    _Static_assert(sizeof device->options >= sizeof spec->options,
                   "a later open is compared with all of it");
    snprintf(device->options, sizeof device->options, "%s", spec->options);
    fy_status_t status = take_options(device, spec, rest, &nrest);
    if (status == FY_STATUS_OK) {
        status = backend->device_open(spec->index, nrest, rest, &device->dev);
        if (status == FY_STATUS_INVALID_ARGUMENT && nrest) { /* the backend's text lists its
                                                              * options */
            const fy_error_t error = *fy_error_get();
            fy_error_set(status, error.file, error.line,
                         "%s\n  Any device also takes limit, pinned, workspace, window, queue and "
                         "segment, each a byte size, ahead, a "
                         "number of requests, "
                         "growth=on|off, fuse=on|off, and debug=poison+guard",
                         error.text);
        }
    }
    if (status == FY_STATUS_OK) {
        status = fy__wire_open(device);
        if (status != FY_STATUS_OK) {
            fy__error_copy_t first;
            fy__error_save(&first);
            backend->device_close(device->dev);
            fy__error_restore(&first);
        }
    }
    if (status != FY_STATUS_OK) {
        keep_spare(device);
        return status;
    }
    if (backend->clock) fy__watch_hold(FY__WATCH_SIMULATED);
    atomic_store(&table[index], device);
    *out_device = device;
    return FY_STATUS_OK;
}

/* "auto": the first CUDA device if there is one. */
static bool has_cuda(void)
{
    const fy_backend_t *backend;
    fy__error_copy_t before;
    int count = 0;
    fy__error_save(&before);
    const bool found = find_backend("cuda", &backend) == FY_STATUS_OK &&
                       backend->device_count(&count) == FY_STATUS_OK && count > 0;
    if (!found)
        fy_log_write(FY_LOG_INFO, "auto is the host: %s", count ? "" : fy_error_get()->text);
    fy__error_restore(&before);
    return found;
}

fy_status_t fy_device_enumerate(fy_device_fn fn, void *user)
{
    char spec[64];
    fy_plugin_info_t plugin = FY_PLUGIN_INFO_INIT;
    if (!fn) return FY_FAIL(INVALID_ARGUMENT, "device_enumerate: fn is NULL");
    fn(user, "host", 0);
    for (int i = 0; fy_plugin_query(i, &plugin); i++) {
        const fy_backend_t *backend = NULL;
        int count = 0;
        if (!plugin.loaded || fy__plugin_find(plugin.name, &backend) != FY_STATUS_OK ||
            backend->device_count(&count) != FY_STATUS_OK)
            continue;
        for (int index = 0; index < count; index++) {
            snprintf(spec, sizeof spec, "%s:%d", plugin.name, index);
            fn(user, spec, 0);
        }
    }
    fn(user, "sim:0", 1);
    return FY_STATUS_OK;
}

fy_status_t fy_host_set_threads(int threads)
{
    char spec[64] = "host?threads=auto";
    fy_device_t *host_again;
    if (threads < 0)
        return FY_FAIL(INVALID_ARGUMENT,
                       "host_set_threads: %d threads; pass 0 to choose by cost, or the number",
                       threads);
    if (threads) snprintf(spec, sizeof spec, "host?threads=%d", threads);
    FY_TRY(fy_device_open(spec, &host_again));
    fy_device_close(host_again);
    return FY_STATUS_OK;
}

static fy_status_t open_host_again(const char *text, const fy__spec_t *spec,
                                   const fy_device_options_t *hooks, fy_device_t **out_device)
{
    fy_device_t *device = fy_device_host();
    void *dev;
    if (spec->index)
        return FY_FAIL(INVALID_ARGUMENT, "device_open: '%.100s': the host is one device, number 0",
                       text);
    if (fy__hooks_any(hooks))
        return FY_FAIL(UNSUPPORTED,
                       "device_open: '%.100s' is the host, which takes no allocator: its memory is "
                       "the process's\n  Wrap yours with fy_tensor_wrap, or link jemalloc",
                       text);
    if (spec->noptions) FY_TRY(device->backend->device_open(0, spec->noptions, spec->option, &dev));
    *out_device = device;
    return FY_STATUS_OK;
}

fy_status_t fy_device_open(const char *text, fy_device_t **out_device)
{
    return fy_device_open_with(text, NULL, out_device);
}

fy_status_t fy_device_open_with(const char *text, const fy_device_options_t *options,
                                fy_device_t **out_device)
{
    fy__spec_t spec;
    fy_device_options_t hooks;
    char name[64];
    if (!out_device) return FY_FAIL(INVALID_ARGUMENT, "device_open: out_device is NULL");
    *out_device = NULL;
    if (!text) return FY_FAIL(INVALID_ARGUMENT, "device_open: spec is NULL");
    FY_TRY(FY__READ(device_options, "device_open", options, &hooks));
    FY_TRY(fy__hooks_check(&hooks));
    /* also starts the recording of $FERRY_RECORD */
    if (!fy__thread()) return FY_STATUS_OUT_OF_MEMORY;
    if (!fy_device_host())
        return FY_FAIL(OUT_OF_MEMORY, "device_open: the host could not be set up");
    FY_TRY(fy__budget_check());
    FY_TRY(fy__env_check());
    FY_TRY(fy__spec_parse(text, &spec));
    if (strcmp(spec.backend, "auto") == 0) strcpy(spec.backend, has_cuda() ? "cuda" : "host");
    if (strcmp(spec.backend, "host") == 0) return open_host_again(text, &spec, &hooks, out_device);
    snprintf(name, sizeof name, "%s:%d", spec.backend, spec.index);
    pthread_mutex_lock(&fy__registry_lock);
    fy_device_t *device = find_open(name);
    fy_status_t status = FY_STATUS_OK;
    if (!device)
        status = build(&spec, name, &hooks, &device);
    else if (device->is_of_plan)
        status = FY_FAIL(BUSY,
                         "device_open: a plan simulates on %s until it ends and its last tensor is "
                         "destroyed\n  Open a device with a lower number",
                         name);
    else if (fy__device_is_lost(device))
        status = fy__device_lost_error(device);
    else if (spec.noptions && strcmp(spec.options, device->options) != 0)
        status = FY_FAIL(INVALID_ARGUMENT,
                         "device_open: %s is open with '%s'; it cannot be opened with '%s' at the "
                         "same time\n  Close it and destroy its "
                         "tensors first, or open it without options",
                         name, device->options, spec.options);
    else
        status = fy__hooks_match(device, &hooks);
    if (status == FY_STATUS_OK) {
        device->opens++;
        atomic_fetch_add_explicit(&device->uses, 1, memory_order_release);
        *out_device = device;
    }
    pthread_mutex_unlock(&fy__registry_lock);
    return status;
}

fy_status_t fy__device_open_unused(const char *backend, const char *options,
                                   fy_device_t **out_device)
{
    fy__spec_t spec;
    const fy_backend_t *found;
    char text[sizeof spec.backend + sizeof spec.options + 16], name[64];
    int count = 0;
    *out_device = NULL;
    if (!fy__thread() || !fy_device_host()) return FY_STATUS_OUT_OF_MEMORY;
    FY_TRY(find_backend(backend, &found));
    FY_TRY(found->device_count(&count));
    fy_status_t status = FY_STATUS_UNAVAILABLE;
    pthread_mutex_lock(&fy__registry_lock);
    int i = count - 1;
    for (; i >= 0; i--) {
        snprintf(name, sizeof name, "%s:%d", backend, i);
        if (!find_open(name)) break;
    }
    if (i >= 0) {
        snprintf(text, sizeof text, "%s?%s", name, options);
        status = fy__spec_parse(text, &spec);
        if (status == FY_STATUS_OK) status = build(&spec, name, NULL, out_device);
    } else
        status = FY_FAIL(UNAVAILABLE, "device_open: all %d devices of %s are open; close one",
                         count, backend);
    if (status == FY_STATUS_OK) {
        (*out_device)->is_of_plan = true;
        (*out_device)->opens++;
        atomic_fetch_add_explicit(&(*out_device)->uses, 1, memory_order_release);
    }
    pthread_mutex_unlock(&fy__registry_lock);
    return status;
}

void fy__device_unuse(fy_device_t *device)
{
    if (device->is_host) return;
    uint64_t uses = atomic_load_explicit(&device->uses, memory_order_relaxed);
    while (uses > 1)
        if (atomic_compare_exchange_weak_explicit(&device->uses, &uses, uses - 1,
                                                  memory_order_acq_rel, memory_order_relaxed))
            return;
    /* The last use is dropped under the lock, where no other thread can open or close the
     * device. */
    pthread_mutex_lock(&fy__registry_lock);
    if (atomic_fetch_sub_explicit(&device->uses, 1, memory_order_acq_rel) == 1) {
        atomic_store(&table[device->index], NULL);
        if (device->backend->clock && atomic_load(&device->lost) != FY__LOST_BY_FORK)
            fy__watch_release(FY__WATCH_SIMULATED);
        fy__wire_close(device);
        keep_spare(device);
    }
    pthread_mutex_unlock(&fy__registry_lock);
}

void fy_device_close(fy_device_t *device)
{
    if (!device || device->is_host) return;
    pthread_mutex_lock(&fy__registry_lock);
    const bool open = atomic_load(&device->opens) > 0;
    if (open) atomic_fetch_sub(&device->opens, 1);
    pthread_mutex_unlock(&fy__registry_lock);
    if (!open) return;
    /* there may be no later API call that submits queued transfers */
    if (!atomic_load(&device->opens)) fy__device_flush(device);
    fy__storage_reap_last(device);
    fy__device_unuse(device);
}

static void lock_pools(fy_device_t *device)
{
    fy__pool_fork_lock(device->pool);
    fy__pool_fork_lock(device->pinned);
}

static void unlock_pools(fy_device_t *device)
{
    fy__pool_fork_unlock(device->pinned);
    fy__pool_fork_unlock(device->pool);
}

/* The lock is held. */
static void for_each_device(void (*fn)(fy_device_t *device))
{
    for (uint32_t i = 0; i < FY__MAX_DEVICES; i++) {
        fy_device_t *device = atomic_load(&table[i]);
        if (device) fn(device);
    }
}

void fy__registry_each(void (*fn)(fy_device_t *device))
{
    if (!fy__device_host_if_open()) return; /* nor any other */
    pthread_mutex_lock(&fy__registry_lock);
    for_each_device(fn);
    pthread_mutex_unlock(&fy__registry_lock);
}

void fy__registry_fork_lock_pools(void) { for_each_device(lock_pools); }
void fy__registry_fork_unlock_pools(void) { for_each_device(unlock_pools); }

static void lose_by_fork(fy_device_t *device)
{
    make_device_locks(device);
    if (device->is_host) return;
    atomic_store(&device->lost, FY__LOST_BY_FORK);
    if (device->backend->clock) fy__watch_release(FY__WATCH_SIMULATED);
}

void fy__registry_fork_child(void)
{
    for_each_device(lose_by_fork);
    for (uint32_t i = 0; i < nspare; i++) make_device_locks(spare[i]);
    /* a recursive lock stores its owner, so this thread cannot unlock it */
    fy__registry_lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}
