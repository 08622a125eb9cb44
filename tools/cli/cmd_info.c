/* `ferry info`: devices, plugins, memory. Never fails because a GPU is missing: that is what it is
 * for.
 * Not here: the session of the other subcommands, since no device may be there to open. */
#include "tools/cli/tool.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CUDA_DEVICES = 64 };

/* In JSON and CSV; for people the same with sizes in GiB. */
static const column_t device_columns[] = {
    { "spec", NULL, 0 },
    { "backend", NULL, 0 },
    { "model", NULL, 0 },
    { "memory_bytes", NULL, 0 },
    { "free_bytes", NULL, 0 },
    { "limit_bytes", NULL, 0 },
    { "workspace_bytes", NULL, 0 },
    { "clock", NULL, 0 },
};
static const column_t shown_columns[] = {
    { "", "device", 0 },          { "", "backend", 0 },    { "", "model", 0 },
    { "", "memory [GiB]", 1 },    { "", "free [GiB]", 1 }, { "", "limit [GiB]", 1 },
    { "", "workspace [GiB]", 3 }, { "", "clock", 0 },
};
static const column_t plugin_columns[] = {
    { "name", "plugin", 0 },
    { "loaded", "loaded", 0 },
    { "reason", "reason", 0 },
};

/* What the backends know beyond the table, in the order in which they said it. */
typedef struct fact {
    char spec[16], *key, *value;
} fact_t;

typedef struct findings {
    sheet_t *devices, *shown, *plugins;
    fact_t *facts;
    size_t nfacts;
    char spec[16]; /* of the device that speaks */
    /* why there is no cuda:0 though the plugin is loaded; empty if there is nothing to say */
    char no_cuda[512];
} findings_t;

static void add_text(findings_t *found, const char *text)
{
    sheet_text(found->devices, text);
    sheet_text(found->shown, text);
}

static void add_bytes(findings_t *found, uint64_t nbytes)
{
    bool limited = nbytes <= INT64_MAX;
    if (limited)
        sheet_int(found->devices, (int64_t)nbytes);
    else
        sheet_text(found->devices, NULL);
    sheet_real(found->shown, limited ? (double)nbytes / 0x1p30 : NAN);
}

static void note_fact(void *user, const char *key, const char *value)
{
    findings_t *found = user;
    found->facts = tool_grow(found->facts, found->nfacts, sizeof *found->facts);
    fact_t *fact = &found->facts[found->nfacts++];
    memcpy(fact->spec, found->spec, sizeof fact->spec);
    fact->key = tool_copy_text(key);
    fact->value = tool_copy_text(value);
}

/* Opens `spec`, notes its facts, closes it. */
static fy_status_t add_device(findings_t *found, const char *spec)
{
    fy_device_t *device;
    fy_device_info_t info = FY_DEVICE_INFO_INIT;
    FY_TRY(fy_device_open(spec, &device));
    fy_status_t status = fy_device_query(device, &info);
    if (status == FY_STATUS_OK) {
        add_text(found, info.spec);
        add_text(found, info.backend);
        add_text(found, info.model);
        add_bytes(found, info.memory_nbytes);
        add_bytes(found, info.free_nbytes);
        add_bytes(found, info.limit_nbytes);
        add_bytes(found, info.workspace_nbytes);
        add_text(found, info.is_simulated ? "model" : "wall");
    }
    snprintf(found->spec, sizeof found->spec, "%s", info.spec);
    if (status == FY_STATUS_OK) status = fy_device_describe(device, note_fact, found);
    fy_device_close(device);
    return status;
}

/* `asked`: what --device names, NULL if nothing. A device that was asked for must be there. */
static fy_status_t collect(findings_t *found, const char *asked)
{
    fy_plugin_info_t plugin = FY_PLUGIN_INFO_INIT;
    int have_cuda = 0;
    for (int i = 0; fy_plugin_query(i, &plugin); i++) {
        have_cuda |= plugin.loaded && strcmp(plugin.name, "cuda") == 0;
        sheet_text(found->plugins, plugin.name);
        sheet_text(found->plugins, plugin.loaded ? "yes" : "no");
        sheet_text(found->plugins, plugin.reason);
    }
    if (asked) return add_device(found, asked);
    FY_TRY(add_device(found, "host"));
    for (int i = 0; have_cuda && i < MAX_CUDA_DEVICES; i++) {
        char spec[16];
        snprintf(spec, sizeof spec, "cuda:%d", i);
        if (add_device(found, spec) == FY_STATUS_OK) continue;
        if (i == 0) snprintf(found->no_cuda, sizeof found->no_cuda, "%s", fy_error_get()->text);
        break;
    }
    /* Simulated devices are there whenever they are named; the first one shows what that looks
     * like. */
    if (add_device(found, "sim:0") != FY_STATUS_OK)
        fprintf(stderr, "ferry: sim:0 is left out: %s\n", fy_error_get()->text);
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

/* One object per device that has something to say. */
static void facts_json(const findings_t *found, json_t *json)
{
    json_begin_object(json, "facts");
    for (size_t i = 0; i < found->nfacts; i++) {
        const fact_t *fact = &found->facts[i];
        if (i == 0 || strcmp(fact->spec, fact[-1].spec) != 0) json_begin_object(json, fact->spec);
        json_text(json, fact->key, fact->value);
        if (i + 1 == found->nfacts || strcmp(fact->spec, fact[1].spec) != 0) json_end(json);
    }
    json_end(json);
}

/* Warnings are shown at the end. */
static bool is_warning(const fact_t *fact) { return strcmp(fact->key, "warning") == 0; }

/* A simulated device that the user did not name is an example only: its figures appear only in
 * JSON. */
static void print_facts(const findings_t *found, const char *asked)
{
    for (size_t i = 0; i < found->nfacts; i++) {
        const fact_t *fact = &found->facts[i];
        if ((!asked && strncmp(fact->spec, "sim:", 4) == 0) || is_warning(fact)) continue;
        if (i == 0 || strcmp(fact->spec, fact[-1].spec) != 0) printf("\n%s\n", fact->spec);
        printf("  %-28s%s\n", fact->key, fact->value);
    }
}

static void warnings_json(const findings_t *found, json_t *json)
{
    json_begin_array(json, "warnings");
    for (size_t i = 0; i < found->nfacts; i++)
        if (is_warning(&found->facts[i])) json_text(json, NULL, found->facts[i].value);
    json_end(json);
}

static void print_warnings(const findings_t *found)
{
    for (size_t i = 0; i < found->nfacts; i++)
        if (is_warning(&found->facts[i]))
            printf("\nwarning: %s: %s\n", found->facts[i].spec, found->facts[i].value);
}

static void print_info(const findings_t *found, bool as_json, const char *asked)
{
    if (as_json) {
        json_t json = { .file = stdout };
        json_begin_object(&json, NULL);
        json_text(&json, "version", fy_version());
        sheet_json(found->devices, &json, "devices");
        json_text(&json, "devices_reason", *found->no_cuda ? found->no_cuda : NULL);
        facts_json(found, &json);
        warnings_json(found, &json);
        plugins_json(&json);
        json_text(&json, "host_allocator", fy_memory_host_allocator());
        json_end(&json);
        return;
    }
    printf("ferry %s, host memory by %s\n\n", fy_version(), fy_memory_host_allocator());
    sheet_print(found->shown, stdout);
    print_facts(found, asked);
    printf("\n");
    sheet_print(found->plugins, stdout);
    if (*found->no_cuda) printf("\nno cuda:0: %s\n", found->no_cuda);
    print_warnings(found);
}

int cmd_info(int argc, char **argv)
{
    common_t common = { .device = NULL };
    const option_t options[] = { COMMON_OPTIONS(&common) };
    const usage_t usage = { "ferry info",
                            "Shows devices, plugins and where host memory comes from.", options,
                            sizeof options / sizeof *options,
                            "ferry info\n"
                            "ferry info --device sim:0 --json\n" };
    OPTIONS_TRY(options_parse(&usage, argc, argv));

    findings_t found = {
        .devices = sheet_create(device_columns, sizeof device_columns / sizeof *device_columns),
        .shown = sheet_create(shown_columns, sizeof shown_columns / sizeof *shown_columns),
        .plugins = sheet_create(plugin_columns, sizeof plugin_columns / sizeof *plugin_columns)
    };
    fy_log_set(tool_log, NULL);
    fy_status_t status = common.record ? fy_ledger_record(common.record) : FY_STATUS_OK;
    if (status == FY_STATUS_OK && common.budget) status = fy_budget_set(common.budget);
    if (status == FY_STATUS_OK) status = collect(&found, common.device);
    if (status == FY_STATUS_OK && common.csv) status = sheet_csv(found.devices, common.csv);
    if (status == FY_STATUS_OK) {
        print_info(&found, common.json, common.device);
        if (common.plot) fprintf(stderr, "ferry: info has no figure; --plot is ignored\n");
        if (common.snapshot)
            fprintf(stderr, "ferry: info holds nothing on a device; --snapshot is ignored\n");
        if (common.record) status = fy_ledger_record(NULL);
    }
    const int exit_status = tool_end(status);
    for (size_t i = 0; i < found.nfacts; i++) {
        free(found.facts[i].key);
        free(found.facts[i].value);
    }
    free(found.facts);
    sheet_destroy(found.devices);
    sheet_destroy(found.shown);
    sheet_destroy(found.plugins);
    fy_log_set(NULL, NULL);
    return status == FY_STATUS_INVALID_ARGUMENT ? STATUS_USAGE : exit_status;
}
