/* Figures come from a device that is opened only to be asked: names, files and their errors are the
 * library's. */
#include "tools/program/figures.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

enum { STAGED_BY_ONE_NBYTES = 256 << 10 };

static void take_fact(void *user, const char *key, const char *value)
{
    figures_t *machine = user;
    fy__sim_profile_t *device = &machine->device;
    const struct {
        const char *key;
        uint64_t *figure;
    } figures[] = {
        { "memory_bytes", &device->memory_nbytes },
        { "f32_flops_per_s", &device->f32_flops_per_s },
        { "f64_flops_per_s", &device->f64_flops_per_s },
        { "f16_flops_per_s", &device->f16_flops_per_s },
        { "bf16_flops_per_s", &device->bf16_flops_per_s },
        { "memory_bytes_per_s", &device->memory_bytes_per_s },
        { "pinned_bytes_per_s", &device->pinned_bytes_per_s },
        { "pageable_bytes_per_s", &device->pageable_bytes_per_s },
        { "peer_bytes_per_s", &device->peer_bytes_per_s },
        { "launch_submit_ns", &device->launch_submit_ns },
        { "copy_submit_ns", &device->copy_submit_ns },
        { "poll_ns", &device->poll_ns },
        { "wake_ns", &device->wake_ns },
        { "kernel_ns", &device->kernel_ns },
        { "copy_setup_ns", &device->copy_setup_ns },
        { "host_flops_per_s", &machine->host.flops_per_s },
        { "host_bytes_per_s", &machine->host.bytes_per_s },
        { "host_op_ns", &machine->host.op_ns },
        { "host_copy_bytes_per_s", &machine->host.copy_bytes_per_s },
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (strcmp(key, figures[i].key) == 0) *figures[i].figure = strtoull(value, NULL, 10);
}

/* The library's reason, without the device that the caller did not name and its other options. */
static fy_status_t report_profile(void)
{
    char text[400];
    const fy_status_t status = fy_error_get()->status;
    const char *why = fy_error_get()->text;
    if (strncmp(why, "sim:15: ", 8) == 0) why += 8;
    snprintf(text, sizeof text, "%.*s", (int)strcspn(why, "\n"), why);
    return fy_error_set(status, __FILE__, __LINE__, "%s", text);
}

fy_status_t figures_open(const char *profile, figures_t *out_figures)
{
    char spec[512];
    fy_device_t *device;
    *out_figures = (figures_t){ .name = "" };
    snprintf(out_figures->name, sizeof out_figures->name, "%s", profile);
    snprintf(spec, sizeof spec, "sim:15?profile=%.400s&numerics=off", profile);
    if (fy_device_open(spec, &device) != FY_STATUS_OK) return report_profile();
    const fy_status_t status = fy_device_describe(device, take_fact, out_figures);
    fy_device_close(device);
    return status;
}

/* GB/s of 16 lanes, as the profiles have them for page-locked memory; 6: twice generation 5. */
static const uint64_t lanes16[] = { 0, 0, 0, 12, 25, 52, 104 };

fy_status_t figures_set_link(figures_t *machine, const char *link)
{
    unsigned generation = 0, lanes = 0;
    int used = 0;
    double rate = 0;
    char *end;
    if (sscanf(link, "pcie%1ux%2u%n", &generation, &lanes, &used) == 2 && !link[used]) {
        if (generation >= 3 && generation <= 6 && lanes && lanes <= 16 && !(lanes & (lanes - 1))) {
            const uint64_t bytes_per_s = lanes16[generation] * 1000000000ull * lanes / 16;
            rate = (double)bytes_per_s;
        }
    } else {
        rate = strtod(link, &end);
        rate = strcmp(end, "GB/s") == 0 ? rate * 1e9 : strcmp(end, "MB/s") == 0 ? rate * 1e6 : 0;
    }
    if (!(rate >= 1e6 && rate <= 1e15))
        return TOOL_FAIL(INVALID_ARGUMENT,
                         "'%s' is no link: pcie3x1 to pcie6x16, or a rate such as 24GB/s", link);
    machine->device.pinned_bytes_per_s = (uint64_t)rate;
    if (machine->device.pageable_bytes_per_s > machine->device.pinned_bytes_per_s)
        machine->device.pageable_bytes_per_s = machine->device.pinned_bytes_per_s;
    return FY_STATUS_OK;
}

void figures_scale_latency(figures_t *machine, double factor)
{
    fy__sim_profile_t *device = &machine->device;
    uint64_t *const times[] = { &device->launch_submit_ns, &device->copy_submit_ns,
                                &device->copy_setup_ns, &device->kernel_ns, &device->wake_ns };
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        *times[i] = (uint64_t)((double)*times[i] * factor + 0.5);
}

uint64_t figures_staging_ns(const figures_t *machine, uint64_t before, uint64_t nbytes)
{
    const uint64_t left = before < STAGED_BY_ONE_NBYTES ? STAGED_BY_ONE_NBYTES - before : 0,
                   by_one = nbytes < left ? nbytes : left;
    uint64_t ns = by_one ? fy__sim_profile_host_ns(&machine->host, 0, 2 * by_one) : 0;
    if (nbytes > by_one) ns += fy__sim_profile_host_copy_ns(&machine->host, nbytes - by_one);
    return ns;
}
