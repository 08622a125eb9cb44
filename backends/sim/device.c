/* Opening, closing and describing a simulated device; its options. No hardware limits the number of
 * devices; opening one index twice would give two devices of one name, so the caller must count.
 * Not here: the effect of an option (profile.c, order.c, memory.c). */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backends/kernels/threads.h"
#include "backends/sim/network.h"
#include "backends/sim/sim.h"
#include "runtime/base/c_locale.h"

/* What the options of one open say. */
typedef struct options {
    fy__sim_figures_t figures;
    const fy__sim_order_t *order;
    uint64_t capacity_nbytes; /* 0: the profile's */
    uint64_t seed;
    bool numerics, has_seed, overcommit, is_virtual, chains_of_cuda;
    int threads;
    fy__sim_script_t script;
    fy__sim_network_t net; /* bytes_per_s 0: none */
} options_t;

/* Writes "a, b, c". */
static void list_names(const char *(*name_at)(size_t index), size_t room, char *out_text)
{
    size_t used = 0;
    out_text[0] = '\0';
    for (size_t i = 0; name_at(i) && used < room; i++)
        used +=
            (size_t)snprintf(out_text + used, room - used, "%s%s", i > 0 ? ", " : "", name_at(i));
}

static const char *profile_name_at(size_t index)
{
    const fy__sim_profile_t *profile = fy__sim_profile_at(index);
    return profile ? profile->name : NULL;
}

static const char *order_name_at(size_t index)
{
    const fy__sim_order_t *order = fy__sim_order_at(index);
    return order ? order->name : NULL;
}

static fy_status_t fail_value(const char *name, const fy_backend_option_t *option,
                              const char *known)
{
    return FY__SIM_FAIL(FY_STATUS_INVALID_ARGUMENT, "%s: %s=%s: %s may be %s", name, option->key,
                        option->value, option->key, known);
}

static fy_status_t read_profile(const char *name, const fy_backend_option_t *option,
                                fy__sim_figures_t *out_figures)
{
    char known[256];
    if (fy__sim_profile_is_path(option->value))
        return fy__sim_profile_read(name, option->value, out_figures);
    const fy__sim_profile_t *profile = fy__sim_profile_find(option->value);
    if (profile) {
        fy__sim_figures_builtin(profile, out_figures);
        return FY_STATUS_OK;
    }
    list_names(profile_name_at, sizeof(known), known);
    return FY__SIM_FAIL(
        FY_STATUS_INVALID_ARGUMENT,
        "%s: profile=%s: profile may be %s, or a file (its name has a '/' or a '.')", name,
        option->value, known);
}

static fy_status_t read_option(const char *name, const fy_backend_option_t *option,
                               options_t *options)
{
    char known[256];
    const char *key = option->key, *value = option->value;
    if (strcmp(key, "profile") == 0) {
        FY_TRY(read_profile(name, option, &options->figures));
    } else if (strcmp(key, "capacity") == 0) {
        if (!option->is_size || option->nbytes == 0)
            return fail_value(name, option, "a size above zero, such as 8GiB or 4096");
        options->capacity_nbytes = option->nbytes;
    } else if (strcmp(key, "numerics") == 0) {
        bool on = strcmp(value, "on") == 0;
        if (!on && strcmp(value, "off") != 0) return fail_value(name, option, "on, off");
        options->numerics = on;
    } else if (strcmp(key, "overcommit") == 0) {
        bool on = strcmp(value, "on") == 0;
        if (!on && strcmp(value, "off") != 0) return fail_value(name, option, "on, off");
        options->overcommit = on;
    } else if (strcmp(key, "segments") == 0) {
        options->is_virtual = strcmp(value, "virtual") == 0;
        if (!options->is_virtual && strcmp(value, "fixed") != 0)
            return fail_value(name, option, "fixed, virtual");
    } else if (strcmp(key, "chains") == 0) {
        options->chains_of_cuda = strcmp(value, "cuda") == 0;
        if (!options->chains_of_cuda && strcmp(value, "host") != 0)
            return fail_value(name, option, "host, cuda");
    } else if (strcmp(key, "order") == 0) {
        const fy__sim_order_t *order = fy__sim_order_find(value);
        list_names(order_name_at, sizeof(known), known);
        if (!order) return fail_value(name, option, known);
        options->order = order;
    } else if (strcmp(key, "seed") == 0) {
        char *end;
        errno = 0;
        options->seed = strtoull(value, &end, 0);
        if (!isdigit((unsigned char)value[0]) || *end || errno)
            return fail_value(name, option, "a number from 0 on");
        options->has_seed = true;
    } else if (strcmp(key, "threads") == 0) {
        snprintf(known, sizeof(known), "auto, or a number from 1 to %d", FY__THREADS_MOST);
        if (!fy__threads_parse(value, &options->threads)) return fail_value(name, option, known);
    } else if (strcmp(key, "net") == 0) {
        if (!fy__sim_network_parse(value, &options->net))
            return fail_value(name, option, FY__SIM_NETWORK_FORM);
    } else if (strcmp(key, "faults") == 0) {
        FY_TRY(fy__sim_script_parse(name, value, &options->script));
    } else if (strcmp(key, "autotune") == 0) {
        return FY__SIM_FAIL(
            FY_STATUS_INVALID_ARGUMENT,
            "%s: autotune=%s: a simulated device chooses by the shape, not by time: "
            "it gives the same bits in every run; the host has autotune=",
            name, value);
    } else {
        return FY__SIM_FAIL(FY_STATUS_INVALID_ARGUMENT,
                            "%s: unknown option %s=%s; there are profile, capacity, numerics, "
                            "overcommit, segments, chains, order, "
                            "seed, threads, net and faults",
                            name, key, value);
    }
    return FY_STATUS_OK;
}

/* Small, so that a user can type it again. */
static uint64_t draw_seed(void)
{
    struct timespec now = { 0 };
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t state = (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 32 ^ (uint64_t)getpid() << 16;
    return fy__sim_random_next(&state) % 1000000;
}

fy_status_t fy__sim_device_count(int *out_count)
{
    *out_count = FY__SIM_DEVICE_COUNT;
    return FY_STATUS_OK;
}

/* As a card's, but that a small device has small pages. */
static uint64_t resize_step(uint64_t capacity_nbytes)
{
    uint64_t step = 2u << 20;
    while (step > 4096 && step > capacity_nbytes / 64) step /= 2;
    return step;
}

fy_status_t fy__sim_device_open(int index, size_t noptions, const fy_backend_option_t *options,
                                void **out_dev)
{
    *out_dev = NULL;
    if (index < 0 || index >= FY__SIM_DEVICE_COUNT)
        return FY__SIM_FAIL(FY_STATUS_UNAVAILABLE, "sim:%d: there are sim:0 to sim:%d", index,
                            FY__SIM_DEVICE_COUNT - 1);
    char name[16];
    snprintf(name, sizeof(name), "sim:%d", index);
    options_t chosen = { .order = fy__sim_order_at(0),
                         .numerics = true,
                         .threads = FY__THREADS_INHERIT };
    fy__sim_figures_builtin(fy__sim_profile_find("h200"), &chosen.figures);
    for (size_t i = 0; i < noptions; i++) FY_TRY(read_option(name, &options[i], &chosen));
    if (chosen.has_seed && !chosen.order->is_random)
        return FY__SIM_FAIL(FY_STATUS_INVALID_ARGUMENT,
                            "%s: seed=%" PRIu64 " goes with order=random only; order is %s", name,
                            chosen.seed, chosen.order->name);
    if (!chosen.has_seed) chosen.seed = draw_seed();

    fy__sim_device_t *dev = calloc(1, sizeof(*dev));
    if (!dev)
        return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY, "%s: no host memory for the device itself",
                            name);
    memcpy(dev->name, name, sizeof(name));
    if (chosen.net.bytes_per_s) {
        chosen.figures.device.peer_bytes_per_s = chosen.net.bytes_per_s;
        chosen.figures.device.peer_ns = chosen.net.latency_ns;
    }
    fy__sim_figures_copy(&chosen.figures, &dev->figures);
    dev->profile = &dev->figures.device;
    dev->order = chosen.order;
    dev->index = index;
    dev->seed = dev->random = chosen.seed;
    dev->numerics = chosen.numerics;
    dev->threads = chosen.threads;
    dev->chains_of_cuda = chosen.chains_of_cuda;
    dev->memory.overcommits = chosen.overcommit;
    dev->memory.capacity_nbytes = chosen.capacity_nbytes ? chosen.capacity_nbytes
                                                         : chosen.figures.device.memory_nbytes;
    if (chosen.is_virtual) dev->memory.resize_nbytes = resize_step(dev->memory.capacity_nbytes);
    dev->script = chosen.script;
    dev->has_script = chosen.script.nitems > 0;
    if (pthread_mutex_init(&dev->script_lock, NULL) != 0) {
        free(dev);
        return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY, "%s: the system gives no lock for the device",
                            name);
    }
    *out_dev = dev;
    return FY_STATUS_OK;
}

void fy__sim_device_close(void *dev)
{
    if (!dev) return;
    fy__sim_queue_finish(dev, true);
    fy__sim_memory_close(dev);
    pthread_mutex_destroy(&((fy__sim_device_t *)dev)->script_lock);
    free(dev);
}

fy_status_t fy__sim_device_query(void *dev_, fy_backend_info_t *out_info)
{
    fy__sim_device_t *dev = dev_;
    FY_TRY(fy__sim_device_check(dev));
    const uint64_t capacity = dev->memory.capacity_nbytes, used_nbytes = fy__sim_memory_used(dev);
    *out_info = (fy_backend_info_t){
        .memory_nbytes = capacity,
        .free_nbytes = used_nbytes < capacity ? capacity - used_nbytes : 0,
        .alignment = FY__SIM_ALIGNMENT,
        .resize_nbytes = dev->memory.resize_nbytes,
        .numerics = dev->numerics,
        .is_simulated = 1,
        /* in every order, so that all have the same times and the same faults */
        .kernels_run_late = 1,
        .copies_can_fault = fy__sim_script_has(&dev->script, FY__SIM_FAULT_COPY),
    };
    int used = snprintf(out_info->model, sizeof(out_info->model), "%s profile", dev->profile->name);
    if (dev->order->is_deferred)
        used += snprintf(out_info->model + used, sizeof(out_info->model) - (size_t)used,
                         ", order=%s", dev->order->name);
    if (dev->order->is_random)
        snprintf(out_info->model + used, sizeof(out_info->model) - (size_t)used, " seed=%" PRIu64,
                 dev->seed);
    return FY_STATUS_OK;
}

fy_status_t fy__sim_device_describe(void *dev, fy_fact_fn say, void *user)
{
    const fy__sim_device_t *sim = dev;
    FY_TRY(fy__sim_device_check(sim));
    fy__sim_figures_say(&sim->figures, say, user);
    say(user, "segments", sim->memory.resize_nbytes ? "virtual" : "fixed");
    say(user, "chains", sim->chains_of_cuda ? "cuda" : "host");
    return FY_STATUS_OK;
}

/* ---- losing it ---- */

fy_status_t fy__sim_device_check(const fy__sim_device_t *dev)
{
    if (!fy__sim_device_is_lost(dev)) return FY_STATUS_OK;
    return FY__SIM_FAIL(FY_STATUS_DEVICE_LOST, "%s is lost: %s", dev->name, dev->why);
}

uint64_t fy__sim_device_strikes(fy__sim_device_t *dev, fy__sim_fault_kind_t kind,
                                uint64_t *out_slow_ns)
{
    if (out_slow_ns) *out_slow_ns = 0;
    if (!atomic_load_explicit(&dev->has_script, memory_order_relaxed)) return 0;
    pthread_mutex_lock(&dev->script_lock);
    uint64_t n = fy__sim_script_next(&dev->script, kind, out_slow_ns);
    pthread_mutex_unlock(&dev->script_lock);
    return n;
}

fy_status_t fy__sim_device_refuses(fy__sim_device_t *dev, fy__sim_fault_kind_t kind,
                                   const char *what)
{
    const uint64_t struck = fy__sim_device_strikes(dev, kind, NULL);
    if (!struck) return FY_STATUS_OK;
    return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY,
                        "%s: %s %" PRIu64 " fails, as the device's faults= says", dev->name, what,
                        struck);
}

void fy__sim_device_lose(fy__sim_device_t *dev, const char *format, ...)
{
    va_list args;
    if (atomic_exchange(&dev->is_losing, true)) return;
    va_start(args, format);
    fy__vsnprintf(dev->why, sizeof(dev->why), format, args);
    va_end(args);
    atomic_store(&dev->is_lost, true);
}

/* ---- time ---- */

void fy__sim_device_clock(void *dev_, fy_backend_clock_t *out_clock)
{
    fy__sim_device_t *dev = dev_;
    uint64_t busy_ns[FY__SIM_ENGINE_COUNT], idle_ns;
    fy__sim_clock_busy(&dev->engines, busy_ns, &idle_ns);
    *out_clock = (fy_backend_clock_t){
        .now_ns = fy__sim_clock_now(),
        .compute_ns = busy_ns[FY__SIM_COMPUTE],
        .upload_ns = busy_ns[FY__SIM_UPLOAD],
        .download_ns = busy_ns[FY__SIM_DOWNLOAD],
        .idle_ns = idle_ns,
    };
}

void fy__sim_device_host_work(void *dev, uint64_t flops, uint64_t nbytes)
{
    fy__sim_clock_advance(
        fy__sim_profile_host_ns(&((fy__sim_device_t *)dev)->figures.host, flops, nbytes));
}

void fy__sim_device_host_copy(void *dev, uint64_t nbytes)
{
    fy__sim_clock_advance(
        fy__sim_profile_host_copy_ns(&((fy__sim_device_t *)dev)->figures.host, nbytes));
}
