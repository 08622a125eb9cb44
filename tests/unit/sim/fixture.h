/* Shared by the sim's unit tests: a host API that records its calls, and short functions to open a
 * device and make streams.
 * One per test executable. The tests call the backend interface directly: no part of Ferry above it
 * runs. */
#ifndef FERRY_TESTS_UNIT_SIM_FIXTURE_H_
#define FERRY_TESTS_UNIT_SIM_FIXTURE_H_

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backends/builtin.h"
#include "backends/sim/memory.h"
#include "runtime/base/c_locale.h"
#include "tests/support/test.h"

/* Statuses of the backend; the last failure's text contains `part`. */
#define sim_ok(expr)          assert_int_equal((expr), FY_STATUS_OK)
#define sim_fails(expr, code) assert_int_equal((expr), FY_STATUS_##code)
#define sim_fails_with(expr, code, part)     \
    do {                                     \
        sim_fails(expr, code);               \
        assert_non_null(strstr(said, part)); \
    } while (0)

static _Thread_local char said[512]; /* the last failure's text */
static _Thread_local int nlogged;
static _Thread_local uint64_t wire_nbytes[4]; /* by fy_copy_kind_t */

FY_PRINTF(4, 5)
static fy_status_t note_failure(fy_status_t status, const char *file, int line, const char *format,
                                ...)
{
    va_list args;
    (void)file, (void)line;
    va_start(args, format);
    fy__vsnprintf(said, sizeof(said), format, args);
    va_end(args);
    return status;
}

FY_PRINTF(2, 3) static void note_log(fy_log_level_t level, const char *format, ...)
{
    (void)level, (void)format;
    nlogged++;
}

static void note_copy(fy_copy_kind_t kind, uint64_t nbytes) { wire_nbytes[kind] += nbytes; }

static const fy_host_api_t host_api = { .struct_size = sizeof(fy_host_api_t),
                                        .abi = FY_BACKEND_ABI,
                                        .fail = note_failure,
                                        .log = note_log,
                                        .record = note_copy };

static const fy_backend_t *sim;

static inline int open_backend(void **state)
{
    (void)state;
    return fy__backend_sim_open(&host_api, FY_BACKEND_ABI, &sim) == FY_STATUS_OK ? 0 : -1;
}

/* "key=value", or "capacity=8388608" for sizes; NULL ends. */
static inline fy_status_t try_open(int index, void **out_dev, const char *const *specs)
{
    fy_backend_option_t options[8];
    char keys[8][32];
    size_t n = 0;
    for (; specs && specs[n]; n++) {
        const char *equals = strchr(specs[n], '=');
        snprintf(keys[n], sizeof(keys[n]), "%.*s", (int)(equals - specs[n]), specs[n]);
        options[n] = (fy_backend_option_t){ .key = keys[n], .value = equals + 1 };
        options[n].is_size = sscanf(equals + 1, "%" SCNu64, &options[n].nbytes) == 1;
    }
    return sim->device_open(index, n, options, out_dev);
}

#define OPEN(index, ...) open_device(index, (const char *const[]){ __VA_ARGS__, NULL })
static inline void *open_device(int index, const char *const *specs)
{
    void *dev = NULL;
    sim_ok(try_open(index, &dev, specs));
    return dev;
}

static inline void *make_block(void *dev, uint64_t nbytes)
{
    void *address = NULL;
    sim_ok(sim->alloc(dev, nbytes, &address));
    return address;
}

static inline void *make_stream(void *dev)
{
    void *stream = NULL;
    sim_ok(sim->stream_create(dev, FY_STREAM_COMPUTE, 0, NULL, &stream));
    return stream;
}

static inline void *make_event(void *dev)
{
    void *event = NULL;
    sim_ok(sim->event_create(dev, &event));
    return event;
}

static inline fy_status_t copy(void *dev, void *stream, fy_copy_kind_t kind, int host_pinned,
                               void *dst, const void *src, uint64_t nbytes)
{
    fy_copy_t record = {
        .kind = kind, .host_pinned = host_pinned, .dst = dst, .src = src, .nbytes = nbytes
    };
    return sim->copy(dev, stream, &record);
}

static inline fy_backend_clock_t read_clock(void *dev)
{
    fy_backend_clock_t clock;
    sim->clock(dev, &clock);
    return clock;
}

/* Waits for all requests on `stream`. */
static inline void drain(void *dev, void *stream)
{
    void *event = make_event(dev);
    sim_ok(sim->event_record(dev, event, stream));
    sim_ok(sim->event_sync(dev, event, FY_FOREVER));
    sim->event_destroy(dev, event);
}

/* ---- devices with streams, events and a block ---- */

enum { STREAMS = 3, WORLDS = 4 };

typedef struct world {
    void *dev, *stream[STREAMS], *event[STREAMS];
    unsigned char *block; /* of `nbytes`; NULL: 0 */
    uint64_t nbytes;
    void *host; /* registered; NULL: none */
    uint64_t host_nbytes;
} world_t;

static world_t worlds[WORLDS]; /* that are open */
static int nworlds;

#define MAKE_WORLD(index, nbytes, host, host_nbytes, ...) \
    make_world(index, nbytes, host, host_nbytes, (const char *const[]){ __VA_ARGS__, NULL })
static inline world_t make_world(int index, uint64_t nbytes, void *host, uint64_t host_nbytes,
                                 const char *const *specs)
{
    world_t w = {
        .dev = open_device(index, specs), .nbytes = nbytes, .host = host, .host_nbytes = host_nbytes
    };
    for (int i = 0; i < STREAMS; i++) {
        w.stream[i] = make_stream(w.dev);
        w.event[i] = make_event(w.dev);
    }
    if (nbytes) w.block = make_block(w.dev, nbytes);
    if (host) sim_ok(sim->register_host(w.dev, host, host_nbytes));
    assert_true(nworlds < WORLDS);
    return worlds[nworlds++] = w;
}

static inline void drain_all(world_t *w)
{
    for (int i = 0; i < STREAMS; i++) drain(w->dev, w->stream[i]);
}

static inline void destroy_streams(world_t *w)
{
    for (int i = 0; i < STREAMS; i++) {
        sim->event_destroy(w->dev, w->event[i]);
        sim->stream_destroy(w->dev, w->stream[i]);
    }
}

/* Closes the device; the tear-down does not close it again. */
static inline void close_device(const world_t *w)
{
    int i = 0;
    while (worlds[i].dev != w->dev) i++;
    sim->device_close(w->dev);
    worlds[i] = worlds[--nworlds];
}

/* After its requests, unless the device is lost. */
static inline void end_world(world_t *w)
{
    fy_backend_info_t info;
    world_t last = *w; /* which may be one of `worlds` */
    if (sim->device_query(w->dev, &info) == FY_STATUS_OK) drain_all(&last);
    destroy_streams(&last);
    if (last.host) sim->unregister_host(last.dev, last.host, last.host_nbytes);
    if (last.block) sim->free(last.dev, last.block, last.nbytes);
    close_device(&last);
}

/* For TS_SUITE. */
static inline int end_worlds(void **state)
{
    (void)state;
    while (nworlds) end_world(&worlds[nworlds - 1]);
    return 0;
}

static inline void fill(world_t *w, int stream, uint64_t at, int value)
{
    sim_ok(sim->fill(w->dev, w->stream[stream], w->block + at, value, 64));
}

/* Returns the current byte, written by the requests that have run. Reads through the shadow
 * mapping, so no request runs because of it. */
static inline int peep(world_t *w, uint64_t at)
{
    void *bytes;
    sim_ok(fy__sim_memory_find(w->dev, (fy__sim_use_t){ "test", "byte", -1 }, w->block + at, 1,
                               &bytes));
    return *(unsigned char *)bytes;
}

/* A launch with one result of one element, by `kernel` (NULL: the op's). */
static inline fy_launch_t launch_into(fy_desc_t *dst, fy_op_t op, fy_kernel_fn kernel)
{
    return (fy_launch_t){ .struct_size = sizeof(fy_launch_t),
                          .op = op,
                          .ndst = 1,
                          .dst = dst,
                          .nelem = 1,
                          .kernel = kernel };
}

static inline fy_desc_t dense_f32(void *data, int64_t n)
{
    return (fy_desc_t){
        .data = data, .dtype = FY_DTYPE_F32, .rank = 1, .dims = { n }, .strides = { 1 }
    };
}

#endif
