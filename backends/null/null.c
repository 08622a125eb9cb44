/* A device that accepts everything and computes nothing: the page to read, and the file to copy,
 * when you write a backend.
 *
 * What a backend is: one table of functions (ferry/backend.h), found by one symbol. Ferry keeps the
 * policy (caching, ordering, refusals, accounting); the backend only does what a request says. This
 * one shows the *asynchronous* shape that a GPU needs; for the synchronous one, with fewer slots,
 * read backends/host/host.c. To make it a plugin, name the last function `fy_backend_open`, export
 * it, link nothing of Ferry, and install it as libferry_<name>.so. The conformance suite
 * (tests/conformance) then lists the missing parts. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backends/builtin.h"

/* The only way back into Ferry. Keep the pointer; it is valid for the life of the process. */
static const fy_host_api_t *ferry;

/* Failures are reported once, where they happen: the text says what, with numbers, and what to do;
 * the status says who can act. */
#define FAIL(status, ...) ferry->fail((status), __FILE__, __LINE__, __VA_ARGS__)

typedef struct device {
    uint64_t capacity;
    /* any thread calls slots: share state by atomics or a lock */
    _Atomic uint64_t used;
} device_t;

/* ---- devices ---- */

/* Called before anything is opened. "No driver" is UNAVAILABLE here, with the attempts. */
static fy_status_t device_count(int *out_count)
{
    *out_count = 1;
    return FY_STATUS_OK;
}

/* Options are the text after the device's name, as in "null:0?memory=8GiB". Refuse unknown ones: a
 * typing error must not pass. */
static fy_status_t device_open(int index, size_t noptions, const fy_backend_option_t *options,
                               void **out_dev)
{
    uint64_t capacity = (uint64_t)16 << 30;
    *out_dev = NULL; /* outputs first: a failed call leaves them empty */
    if (index != 0) return FAIL(FY_STATUS_UNAVAILABLE, "null:%d: there is only null:0", index);
    for (size_t i = 0; i < noptions; i++) {
        if (strcmp(options[i].key, "memory") != 0) {
            return FAIL(FY_STATUS_INVALID_ARGUMENT, "null: unknown option '%s'; it knows: memory",
                        options[i].key);
        }
        if (!options[i].is_size)
            return FAIL(FY_STATUS_INVALID_ARGUMENT, "null: memory=%s is not a size such as 8GiB",
                        options[i].value);
        capacity = options[i].nbytes;
    }
    device_t *device = calloc(1, sizeof *device);
    if (!device) return FAIL(FY_STATUS_OUT_OF_MEMORY, "null: no host memory for a device");
    device->capacity = capacity;
    *out_dev = device;
    return FY_STATUS_OK;
}

/* Ferry has released every stream, event and block before. */
static void device_close(void *dev) { free(dev); }

static fy_status_t device_query(void *dev, fy_backend_info_t *out_info)
{
    const device_t *device = dev;
    memset(out_info, 0, sizeof *out_info);
    strcpy(out_info->model, "null");
    out_info->memory_nbytes = device->capacity;
    out_info->free_nbytes = device->capacity - atomic_load(&device->used);
    out_info->alignment = 4096; /* what alloc really gives; Ferry places tensors by it */
    out_info->numerics = 0;     /* results have no values */
    out_info->unified = 0;      /* host code must not touch what alloc returns */
    return FY_STATUS_OK;
}

/* ---- memory: called for large segments, rarely; Ferry's allocator cuts tensors from them ---- */

/* Addresses without memory: a host access to them crashes at once. */
static fy_status_t alloc_segment(void *dev, uint64_t nbytes, void **out_address)
{
    device_t *device = dev;
    *out_address = NULL;
    const uint64_t used = atomic_fetch_add(&device->used, nbytes);
    void *address = MAP_FAILED;
    if (used <= device->capacity && nbytes <= device->capacity - used) {
        address = mmap(NULL, (size_t)nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1, 0);
    }
    /* out of memory is an ordinary answer: undo everything, stay usable */
    if (address == MAP_FAILED) {
        atomic_fetch_sub(&device->used, nbytes);
        return FAIL(FY_STATUS_OUT_OF_MEMORY, "null: %llu bytes asked, %llu of %llu in use",
                    (unsigned long long)nbytes, (unsigned long long)used,
                    (unsigned long long)device->capacity);
    }
    *out_address = address;
    return FY_STATUS_OK;
}

static void free_segment(void *dev, void *address, uint64_t nbytes)
{
    device_t *device = dev;
    (void)munmap(address, (size_t)nbytes);
    atomic_fetch_sub(&device->used, nbytes);
}

/* ---- order: streams are queues, events are marks in them. Here everything has happened as soon as
 * it is asked for. ---- */

static fy_status_t stream_create(void *dev, fy_stream_role_t role, int priority, void *native,
                                 void **out_stream)
{
    (void)role; /* a hint: which engine, which priority */
    (void)priority;
    /* any non-NULL handle will do; native ones are borrowed, never destroyed */
    *out_stream = native ? native : dev;
    return FY_STATUS_OK;
}

static void stream_destroy(void *dev, void *stream) { (void)dev, (void)stream; }

static fy_status_t event_create(void *dev, void **out_event)
{
    *out_event = dev;
    return FY_STATUS_OK;
}

static void event_destroy(void *dev, void *event) { (void)dev, (void)event; }

/* Both only submit. In the second the *device* waits, not the caller. */
static fy_status_t event_record(void *dev, void *event, void *stream)
{
    return (void)dev, (void)event, (void)stream, FY_STATUS_OK;
}
static fy_status_t event_wait(void *dev, void *stream, void *event)
{
    return (void)dev, (void)stream, (void)event, FY_STATUS_OK;
}

/* Called often: no system call. A fault of the device (a sticky error of the driver) is returned
 * here, as DEVICE_LOST. */
static fy_status_t event_query(void *dev, void *event, int *out_done)
{
    (void)dev, (void)event;
    *out_done = 1;
    return FY_STATUS_OK;
}

/* The only slot that blocks. TIMEOUT leaves everything running. */
static fy_status_t event_sync(void *dev, void *event, uint64_t timeout_ns)
{
    (void)dev, (void)event, (void)timeout_ns;
    return FY_STATUS_OK;
}

/* ---- work: submitted to a stream, done later; read the record before you return ---- */

static fy_status_t copy(void *dev, void *stream, const fy_copy_t *request)
{
    (void)dev, (void)stream;
    /* Device memory that was never written reads as zero. */
    if (request->kind == FY_COPY_DOWNLOAD) memset(request->dst, 0, (size_t)request->nbytes);
    /* The executor of a copy counts the ledger's wire bytes. A copy that fails is not recorded. */
    ferry->record(request->kind, request->nbytes);
    return FY_STATUS_OK;
}

static fy_status_t fill(void *dev, void *stream, void *address, int value, uint64_t nbytes)
{
    (void)dev, (void)stream, (void)address, (void)value, (void)nbytes;
    return FY_STATUS_OK;
}

/* One op. A real backend switches on launch->op and the dtypes, returns UNSUPPORTED (nothing done)
 * for what it lacks, runs launch->kernel with its native stream if that is set (a registered op),
 * and looks at launch->accumulate. The sources' strides may be 0 or large. */
static fy_status_t launch_op(void *dev, void *stream, const fy_launch_t *launch)
{
    (void)dev, (void)stream, (void)launch;
    return FY_STATUS_OK;
}

/* Slots left out here: register_host (nothing to lock), supports (everything), workspace (none),
 * graph_* (not recorded), clock, describe, stream_native. */
static const fy_backend_t backend = {
    .struct_size = sizeof(fy_backend_t),
    .abi = FY_BACKEND_ABI,
    .name = "null",
    .device_count = device_count,
    .device_open = device_open,
    .device_close = device_close,
    .device_query = device_query,
    .alloc = alloc_segment,
    .free = free_segment,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_query = event_query,
    .event_sync = event_sync,
    .copy = copy,
    .fill = fill,
    .launch = launch_op,
};

/* Called once per process. Another ABI is refused by number, so that a stale plugin explains
 * itself. */
fy_status_t fy__backend_null_open(const fy_host_api_t *host, uint32_t abi,
                                  const fy_backend_t **out_backend)
{
    *out_backend = NULL;
    ferry = host;
    if (abi != FY_BACKEND_ABI)
        return FAIL(FY_STATUS_UNSUPPORTED, "null backend speaks ABI %u, Ferry asked for %u",
                    FY_BACKEND_ABI, abi);
    *out_backend = &backend;
    return FY_STATUS_OK;
}
