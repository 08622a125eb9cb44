/* A handful of driver calls, asked for by the versions that the plugin uses, too
 * (backends/cuda/driver.h). Types are those of the driver's C interface, written out: results and
 * devices are int, contexts, streams and events are pointers. */
#include "runtime/base/environment.h"
#include "tools/bench/peers.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct peer_copy {
    int device;
    void *context, *stream, *event;
    int (*device_get)(int *device, int ordinal);
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*stream_create)(void **stream, unsigned flags, int priority);
    int (*stream_destroy)(void *stream);
    int (*event_create)(void **event, unsigned flags);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_wait)(void *event);
    int (*upload)(unsigned long long dst, const void *src, size_t nbytes, void *stream);
    int (*download)(void *dst, unsigned long long src, size_t nbytes, void *stream);
};

enum { STREAM_NON_BLOCKING = 1, EVENT_DISABLE_TIMING = 2 };

static bool resolve(peer_copy_t *peer)
{
    const struct {
        const char *name;
        int version;
        void *slot;
    } entries[] = {
        { "cuDeviceGet", 2000, &peer->device_get },
        { "cuDevicePrimaryCtxRetain", 7000, &peer->retain },
        { "cuDevicePrimaryCtxRelease", 11000, &peer->release },
        { "cuCtxPushCurrent", 4000, &peer->push },
        { "cuCtxPopCurrent", 4000, &peer->pop },
        { "cuStreamCreateWithPriority", 5050, &peer->stream_create },
        { "cuStreamDestroy", 4000, &peer->stream_destroy },
        { "cuEventCreate", 2000, &peer->event_create },
        { "cuEventDestroy", 4000, &peer->event_destroy },
        { "cuEventRecord", 2000, &peer->event_record },
        { "cuEventSynchronize", 2000, &peer->event_wait },
        { "cuMemcpyHtoDAsync", 3020, &peer->upload },
        { "cuMemcpyDtoHAsync", 3020, &peer->download },
    };
    int (*find)(const char *name, void **entry, int version, uint64_t flags, int *found);
    const char *name = fy__env_file("FERRY_CUDA_DRIVER");
    /* RTLD_NOLOAD: only the copy that the plugin brought, never a second one. */
    void *library = dlopen(name ? name : "libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *symbol = NULL;
    if (library) symbol = dlsym(library, "cuGetProcAddress_v2");
    if (!symbol) return false;
    memcpy(&find, &symbol, sizeof find); /* ISO C has no cast from object to function pointers */
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *entry = NULL;
        int found = 0;
        if (find(entries[i].name, &entry, entries[i].version, 0, &found) != 0 || !entry)
            return false;
        memcpy(entries[i].slot, &entry, sizeof entry);
    }
    return true;
}

peer_copy_t *peer_copy_open(const char *device)
{
    void *popped;
    if (strncmp(device, "cuda:", 5) != 0) return NULL;
    peer_copy_t *peer = calloc(1, sizeof *peer);
    if (!peer || !resolve(peer) || peer->device_get(&peer->device, atoi(device + 5)) != 0 ||
        peer->retain(&peer->context, peer->device) != 0) {
        free(peer);
        return NULL;
    }
    if (peer->push(peer->context) == 0) {
        if (peer->stream_create(&peer->stream, STREAM_NON_BLOCKING, 0) != 0) peer->stream = NULL;
        if (peer->event_create(&peer->event, EVENT_DISABLE_TIMING) != 0) peer->event = NULL;
        peer->pop(&popped);
    }
    if (peer->stream && peer->event) return peer;
    peer_copy_close(peer);
    return NULL;
}

void peer_copy_close(peer_copy_t *peer)
{
    void *popped;
    if (!peer) return;
    if (peer->push(peer->context) == 0) {
        if (peer->event) peer->event_destroy(peer->event);
        if (peer->stream) peer->stream_destroy(peer->stream);
        peer->pop(&popped);
    }
    peer->release(peer->device);
    free(peer);
}

bool peer_copy(peer_copy_t *peer, bool up, uint64_t address, void *host, size_t nbytes)
{
    void *popped;
    if (peer->push(peer->context) != 0) return false;
    int code = up ? peer->upload(address, host, nbytes, peer->stream)
                  : peer->download(host, address, nbytes, peer->stream);
    if (code == 0) code = peer->event_record(peer->event, peer->stream);
    if (code == 0) code = peer->event_wait(peer->event);
    peer->pop(&popped);
    return code == 0;
}
