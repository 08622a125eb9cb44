/* `ferry info`: devices, plugins, memory. Never fails because a GPU is missing: that is what it is for.
 * Not here: the session of the other subcommands, since no device may be there to open. */
#include "tools/tool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CUDA_DEVICES = 64 };

static const column_t device_columns[] = {
    { "spec", "device", 0 },
    { "backend", "backend", 0 },
    { "model", "model", 0 },
    { "memory_bytes", "memory [bytes]", 0 },
    { "free_bytes", "free [bytes]", 0 },
    { "limit_bytes", "limit [bytes]", 0 },
    { "workspace_bytes", "workspace [bytes]", 0 },
    { "clock", "clock", 0 },
};
static const column_t plugin_columns[] = {
    { "name", "plugin", 0 },
    { "loaded", "loaded", 0 },
    { "reason", "reason", 0 },
};

static void add_bytes(sheet_t *sheet, uint64_t nbytes)
{
    if (nbytes > INT64_MAX)
        sheet_text(sheet, NULL); /* unlimited */
    else
        sheet_int(sheet, (int64_t)nbytes);
}

/* Opens `spec`, notes its facts, closes it. */
static fy_status_t add_device(sheet_t *sheet, const char *spec)
{
    fy_device_t *device;
    fy_device_info_t info = FY_DEVICE_INFO_INIT;
    FY_TRY(fy_device_open(spec, &device));
    fy_status_t status = fy_device_query(device, &info);
    if (status == FY_STATUS_OK) {
        sheet_text(sheet, info.spec);
        sheet_text(sheet, info.backend);
        sheet_text(sheet, info.model);
        add_bytes(sheet, info.memory_nbytes);
        add_bytes(sheet, info.free_nbytes);
        add_bytes(sheet, info.limit_nbytes);
        add_bytes(sheet, info.workspace_nbytes);
        sheet_text(sheet, info.is_simulated ? "model" : info.is_host ? "wall" : "device");
    }
    fy_device_close(device);
    return status;
}

/* `asked`: what --device names, NULL if nothing. A device that was asked for must be there. */
static fy_status_t collect(sheet_t *devices, sheet_t *plugins, const char *asked)
{
    fy_plugin_info_t plugin = FY_PLUGIN_INFO_INIT;
    int have_cuda = 0;
    for (int i = 0; fy_plugin_query(i, &plugin); i++) {
        have_cuda |= plugin.loaded && strcmp(plugin.name, "cuda") == 0;
        sheet_text(plugins, plugin.name);
        sheet_text(plugins, plugin.loaded ? "yes" : "no");
        sheet_text(plugins, plugin.reason);
    }
    if (asked) return add_device(devices, asked);
    FY_TRY(add_device(devices, "host"));
    for (int i = 0; have_cuda && i < MAX_CUDA_DEVICES; i++) {
        char spec[16];
        snprintf(spec, sizeof spec, "cuda:%d", i);
        if (add_device(devices, spec) != FY_STATUS_OK) break;
    }
    /* Simulated devices are there whenever they are named; the first one shows what that looks like. */
    if (add_device(devices, "sim:0") != FY_STATUS_OK) fprintf(stderr, "ferry: sim:0 is left out: %s\n", fy_error_get()->text);
    return FY_STATUS_OK;
}

static void plugins_json(json_t *json)
{
    fy_plugin_info_t plugin = FY_PLUGIN_INFO_INIT;
    json_begin_array(json, "plugins");
    for (int i = 0; fy_plugin_query(i, &plugin); i++) {
        json_begin_object(json, NULL);
        json_text(json, "name", plugin.name);
        json_bool(json, "loaded", plugin.loaded);
        json_text(json, "reason", plugin.reason);
        json_end(json);
    }
    json_end(json);
}

static void print_info(const sheet_t *devices, const sheet_t *plugins, bool as_json)
{
    if (as_json) {
        json_t json = { .file = stdout };
        json_begin_object(&json, NULL);
        json_text(&json, "version", fy_version());
        sheet_json(devices, &json, "devices");
        plugins_json(&json);
        json_text(&json, "host_allocator", fy_memory_host_allocator());
        json_end(&json);
        return;
    }
    printf("ferry %s, host memory by %s\n\n", fy_version(), fy_memory_host_allocator());
    sheet_print(devices, stdout);
    printf("\n");
    sheet_print(plugins, stdout);
}

int cmd_info(int argc, char **argv)
{
    common_t common = { .device = NULL };
    const option_t options[] = { COMMON_OPTIONS(&common) };
    const usage_t usage = { "ferry info", "Shows devices, plugins and where host memory comes from.", options,
                            sizeof options / sizeof *options };
    parse_result_t parsed = options_parse(&usage, argc, argv);
    if (parsed != PARSE_OK) return parsed == PARSE_HELP ? STATUS_OK : STATUS_USAGE;

    sheet_t *devices = sheet_create(device_columns, sizeof device_columns / sizeof *device_columns);
    sheet_t *plugins = sheet_create(plugin_columns, sizeof plugin_columns / sizeof *plugin_columns);
    fy_status_t status = collect(devices, plugins, common.device);
    if (status == FY_STATUS_OK && common.csv) status = sheet_csv(devices, common.csv);
    if (status == FY_STATUS_OK) {
        print_info(devices, plugins, common.json);
        if (common.plot) fprintf(stderr, "ferry: info has no figure; --plot is ignored\n");
    } else {
        fprintf(stderr, "ferry: %s: %s\n", fy_status_name(status), fy_error_get()->text);
    }
    sheet_destroy(devices);
    sheet_destroy(plugins);
    if (status == FY_STATUS_OK && fflush(stdout) != 0) return STATUS_FAILED;
    return status == FY_STATUS_INVALID_ARGUMENT ? STATUS_USAGE : status_to_exit(status);
}
