/* The host as a device: synchronous, a single one, its memory is the program's memory. Every
 * request is done when its slot returns, so there are no streams, events or graphs here. The ops
 * are those of backends/kernels.
 * Not here: host memory's cache and its source (alloc/ uses its own segments for the host; alloc
 * and free below also work alone). */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/builtin.h"
#include "backends/executed.h"
#include "backends/host/load.h"
#include "backends/kernels/conv_tune.h"
#include "backends/kernels/kernels.h"
#include "backends/kernels/threads.h"
#include "runtime/base/c_locale.h"

static const fy_host_api_t *ferry; /* set once by open, before any slot is called */
static char the_device;            /* its address is the handle; the host has no state */
static _Atomic int told_bad_environment;
static _Atomic int tunes; /* autotune=on is set */

static fy_status_t device_count(int *out_count)
{
    *out_count = 1;
    return FY_STATUS_OK;
}

/* `off` forgets all choices. */
static fy_status_t take_tuning(const char *autotune)
{
    const int on = strcmp(autotune, "on") == 0;
    if (!on && strcmp(autotune, "off") != 0)
        return ferry->fail(FY_STATUS_INVALID_ARGUMENT, __FILE__, __LINE__,
                           "host: autotune=%.40s: autotune may be on or off", autotune);
    if (on)
        fy__conv_tune_measure(1);
    else
        fy__conv_tune_clear();
    atomic_store(&tunes, on);
    return FY_STATUS_OK;
}

/* The host is always open, so an option may come at any time; it holds from the next kernel on. */
static fy_status_t take_options(size_t noptions, const fy_backend_option_t *options)
{
    const char *bad = fy__threads_bad_environment();
    const char *autotune = NULL;
    int threads = 0, has_threads = 0;
    if (bad && !atomic_exchange(&told_bad_environment, 1))
        ferry->log(FY_LOG_ERROR,
                   "FERRY_THREADS=%.40s is ignored; it may be auto, or a number from 1 to %d", bad,
                   FY__THREADS_MOST);
    for (size_t i = 0; i < noptions; i++) {
        if (strcmp(options[i].key, "autotune") == 0) {
            autotune = options[i].value;
            continue;
        }
        if (strcmp(options[i].key, "threads") != 0)
            return ferry->fail(FY_STATUS_INVALID_ARGUMENT, __FILE__, __LINE__,
                               "host: unknown option '%s'; the host takes threads and autotune "
                               "only",
                               options[i].key);
        has_threads = 1;
        if (!fy__threads_parse(options[i].value, &threads))
            return ferry->fail(FY_STATUS_INVALID_ARGUMENT, __FILE__, __LINE__,
                               "host: threads=%.40s: threads may be auto, or a number from 1 to %d",
                               options[i].value, FY__THREADS_MOST);
    }
    if (autotune) FY_TRY(take_tuning(autotune));
    if (has_threads) fy__threads_set(threads);
    return FY_STATUS_OK;
}

static fy_status_t device_open(int index, size_t noptions, const fy_backend_option_t *options,
                               void **out_dev)
{
    *out_dev = NULL;
    if (index != 0)
        return ferry->fail(FY_STATUS_UNAVAILABLE, __FILE__, __LINE__,
                           "host:%d: there is one host, number 0", index);
    FY_TRY(take_options(noptions, options));
    *out_dev = &the_device;
    return FY_STATUS_OK;
}

static void device_close(void *dev) { (void)dev; }

/* The value behind `key` in the first line of a /proc file that starts with it; 0 if there is
 * none. */
static int read_proc(const char *path, const char *key, char *value, size_t size)
{
    char line[256];
    int found = 0;
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    while (!found && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0) continue;
        colon++;
        colon += strspn(colon, " \t");
        (void)snprintf(value, size, "%.*s", (int)strcspn(colon, "\n"), colon);
        found = 1;
    }
    (void)fclose(file);
    return found;
}

static fy_status_t device_query(void *dev, fy_backend_info_t *out_info)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    char text[64];
    unsigned long long kib = 0;
    (void)dev;
    memset(out_info, 0, sizeof *out_info);
    out_info->memory_nbytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
    out_info->free_nbytes = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
    /* What the kernel could free counts as well. */
    if (read_proc("/proc/meminfo", "MemAvailable", text, sizeof text) &&
        sscanf(text, "%llu", &kib) == 1)
        out_info->free_nbytes = kib * 1024;
    if (!read_proc("/proc/cpuinfo", "model name", out_info->model, sizeof out_info->model)) {
        (void)snprintf(out_info->model, sizeof out_info->model, "host CPU");
    }
    out_info->alignment = (uint32_t)page;
    out_info->numerics = 1;
    out_info->unified = 1;
    return FY_STATUS_OK;
}

static fy_status_t alloc_block(void *dev, uint64_t nbytes, void **out_address)
{
    (void)dev;
    *out_address = NULL;
    void *address = nbytes > SIZE_MAX / 2 ? MAP_FAILED
                                          : mmap(NULL, (size_t)nbytes, PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
        return ferry->fail(FY_STATUS_OUT_OF_MEMORY, __FILE__, __LINE__,
                           "host: the system refused %llu bytes", (unsigned long long)nbytes);
    }
    *out_address = address;
    return FY_STATUS_OK;
}

static void free_block(void *dev, void *address, uint64_t nbytes)
{
    (void)dev;
    (void)munmap(address, (size_t)nbytes);
}

static fy_status_t copy(void *dev, void *stream, const fy_copy_t *request)
{
    (void)dev;
    (void)stream;
    memmove(request->dst, request->src, (size_t)request->nbytes);
    fy__executed_count(request->kind, request->nbytes);
    ferry->record(request->kind, request->nbytes);
    return FY_STATUS_OK;
}

static fy_status_t fill(void *dev, void *stream, void *address, int value, uint64_t nbytes)
{
    (void)dev;
    (void)stream;
    memset(address, value, (size_t)nbytes);
    return FY_STATUS_OK;
}

static fy_status_t launch_op(void *dev, void *stream, const fy_launch_t *launch)
{
    (void)dev;
    (void)stream;
    if (!atomic_load_explicit(&tunes, memory_order_relaxed))
        return fy__kernels_launch(ferry, launch);
    fy__conv_tune_enter(1);
    const fy_status_t status = fy__kernels_launch(ferry, launch);
    fy__conv_tune_enter(0);
    return status;
}

static int supports(void *dev, const fy_launch_t *launch)
{
    (void)dev;
    return fy__kernels_supports(launch);
}

static uint64_t workspace(void *dev, const fy_launch_t *launch, uint64_t limit)
{
    (void)dev;
    if (!atomic_load_explicit(&tunes, memory_order_relaxed))
        return fy__kernels_workspace(launch, limit);
    fy__conv_tune_enter(1);
    const uint64_t nbytes = fy__kernels_workspace(launch, limit);
    fy__conv_tune_enter(0);
    return nbytes;
}

/* Spinning threads beside other work cost a scheduler's time slice a region: a fact called
 * "warning", which `ferry info` shows. */
static void describe_load(const fy__threads_facts_t *threads, fy_fact_fn say, void *user)
{
    char line[128] = "", text[320];
    const int team = threads->forced ? threads->forced : threads->most;
    fy__load_t load;
    FILE *file = fopen("/proc/loadavg", "re");
    if (!file) return;
    const int found = fgets(line, sizeof line, file) && fy__load_parse(line, &load);
    (void)fclose(file);
    if (!found || threads->waiting != FY__WAITING_ACTIVE ||
        !fy__load_is_high(&load, team, threads->processors))
        return;
    (void)fy__snprintf(
        text, sizeof text,
        "idle kernel threads spin while other threads use the %d processors (%d of them now, load "
        "average %.2f): a parallel "
        "kernel may take 8 ms longer. Set OMP_WAIT_POLICY=passive, or GOMP_SPINCOUNT=20000",
        threads->processors, load.others, load.average);
    say(user, "warning", text);
}

static void describe_tuning(fy_fact_fn say, void *user)
{
    const fy__tune_facts_t facts = fy__conv_tune_facts();
    char text[96];
    if (!facts.measures && !facts.timed) return;
    (void)snprintf(text, sizeof text, "%llu shapes, %llu calls timed%s",
                   (unsigned long long)facts.shapes, (unsigned long long)facts.timed,
                   facts.measures ? "" : "; others by the fixed rule");
    say(user, "tuned_convolutions", text);
}

static fy_status_t describe(void *dev, fy_fact_fn say, void *user)
{
    const fy__threads_facts_t threads = fy__threads_facts();
    char text[96];
    (void)dev;
    if (threads.forced)
        (void)snprintf(text, sizeof text,
                       "%d, set by threads=, FERRY_THREADS or fy_host_set_threads", threads.forced);
    else
        (void)snprintf(text, sizeof text, threads.most > 1 ? "auto: 1 or %d, by cost" : "auto: %d",
                       threads.most);
    say(user, "threads", text);
    if (threads.spins == 0)
        (void)snprintf(text, sizeof text, "sleep");
    else if (threads.waiting == FY__WAITING_ACTIVE)
        (void)snprintf(text, sizeof text, "spin, %llu times", (unsigned long long)threads.spins);
    else
        (void)snprintf(text, sizeof text, "sleep after few spins");
    say(user, "idle_threads", text);
    describe_tuning(say, user);
    fy__kernels_describe(say, user);
    describe_load(&threads, say, user);
    return FY_STATUS_OK;
}

static const fy_backend_t backend = {
    .struct_size = sizeof(fy_backend_t),
    .abi = FY_BACKEND_ABI,
    .name = "host",
    .is_synchronous = 1,
    .device_count = device_count,
    .device_open = device_open,
    .device_close = device_close,
    .device_query = device_query,
    .alloc = alloc_block,
    .free = free_block,
    .copy = copy,
    .fill = fill,
    .launch = launch_op,
    .supports = supports,
    .workspace = workspace,
    .describe = describe,
    .chain = supports,
};

fy_status_t fy__backend_host_open(const fy_host_api_t *host, uint32_t abi,
                                  const fy_backend_t **out_backend)
{
    *out_backend = NULL;
    if (abi != FY_BACKEND_ABI) {
        return host->fail(FY_STATUS_UNSUPPORTED, __FILE__, __LINE__,
                          "host backend speaks ABI %u, Ferry asked for %u", FY_BACKEND_ABI, abi);
    }
    ferry = host;
    *out_backend = &backend;
    return FY_STATUS_OK;
}
