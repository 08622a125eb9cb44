/* `ferry replay FILE...`: what recorded allocations would take under Ferry's policy with other
 * settings or a limit, and under those of peers; on plain numbers, no device is opened. Not here:
 * reading (trace.h), policies (peer_pools.c). */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"
#include "tools/replay/replay.h"

enum { AUTO, DEVICE, PINNED, HOST, POLICY_ALL = 5 };

static const column_t columns[] = {
    { "file", "trace", 0 },
    { "pool", "pool", 0 },
    { "policy", "policy", 0 },
    { "events", NULL, 0 },
    { "peak_requested_bytes", "peak asked", 0 },
    { "peak_live_bytes", NULL, 0 },
    { "peak_reserved_bytes", "peak reserved", 0 },
    { "reserved_per_peak", "reserved/asked", 3 },
    { "waste", "waste", 3 },
    { "fragmentation", "fragmentation", 3 },
    { "segments", "segments", 0 },
    { "refusals", "refused", 0 },
    { "refused_event", NULL, 0 },
    { "refused_scope", NULL, 0 },
    { "refused_bytes", NULL, 0 },
    { "refused_live_bytes", NULL, 0 },
    { "refused_text", NULL, 0 },
};

typedef struct settings {
    int policy, kind;
    const char *pool, *save, *csv;
    int64_t limit, segment, resize;
    bool json;
} settings_t;

typedef struct run {
    const settings_t *settings;
    sheet_t *sheet;
    size_t ntraces;
    uint64_t refusals;
    bool is_cut_off; /* one of the files was */
} run_t;

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void add_row(run_t *run, const char *path, const trace_t *trace, const char *policy,
                    const replay_result_t *result)
{
    sheet_t *sheet = run->sheet;
    sheet_text(sheet, run->settings->json ? path : base_name(path));
    sheet_text(sheet, trace->pool);
    sheet_text(sheet, policy);
    sheet_int(sheet, (int64_t)trace->nsteps);
    sheet_int(sheet, (int64_t)trace->peak);
    sheet_int(sheet, (int64_t)result->peak_live);
    sheet_int(sheet, (int64_t)result->peak_reserved);
    sheet_real(sheet, result->reserved_per_peak);
    sheet_real(sheet, result->waste);
    sheet_real(sheet, result->fragmentation);
    sheet_int(sheet, (int64_t)result->segments);
    sheet_int(sheet, (int64_t)result->refusals);
    if (result->refusals) {
        sheet_int(sheet, (int64_t)result->refused_step);
        sheet_text(sheet, result->refused_scope);
        sheet_int(sheet, (int64_t)result->refused_nbytes);
        sheet_int(sheet, (int64_t)result->refused_live);
        sheet_text(sheet, result->refused_text);
    } else
        for (int i = 0; i < 5; i++) sheet_real(sheet, NAN);
}

static void tell_refusal(const trace_t *trace, const char *policy, const replay_result_t *result)
{
    printf("%s refuses %s %" PRIu64 " bytes at event %" PRIu64 ", scope '%s', with %" PRIu64
           " live:\n  %s\n",
           policy, trace->pool, result->refused_nbytes, result->refused_step, result->refused_scope,
           result->refused_live, result->refused_text);
}

static fy_status_t replay_trace(run_t *run, const char *path, const trace_t *trace)
{
    static const char *const kinds[] = { NULL, "device", "pinned memory", "host" };
    const settings_t *settings = run->settings;
    fy_pool_options_t options =
        replay_options(settings->kind == AUTO ? trace->pool : kinds[settings->kind]);
    if (settings->kind == AUTO && trace->segment_nbytes) {
        options.segment_nbytes = trace->segment_nbytes;
        options.resize_nbytes = trace->resize_nbytes;
        options.keeps_segments = trace->keeps_segments;
    }
    if (settings->segment) options.segment_nbytes = (uint64_t)settings->segment;
    if (settings->resize) options.resize_nbytes = (uint64_t)settings->resize;
    if (settings->limit) options.limit = (uint64_t)settings->limit;
    for (int i = 0; pool_policies[i]; i++) {
        replay_result_t result;
        if (settings->policy != POLICY_ALL && settings->policy != i) continue;
        const fy_status_t status = replay_run(trace, pool_policies[i], &options, &result);
        if (status != FY_STATUS_OK) return status;
        add_row(run, path, trace, pool_policies[i]->name, &result);
        run->refusals += result.refusals;
        if (result.refusals && !settings->json)
            tell_refusal(trace, pool_policies[i]->name, &result);
    }
    return FY_STATUS_OK;
}

static fy_status_t replay_file(run_t *run, const char *path)
{
    const settings_t *settings = run->settings;
    traces_t traces;
    fy_status_t status = traces_read(path, &traces);
    if (status != FY_STATUS_OK) return status;
    for (size_t i = 0; i < traces.count && status == FY_STATUS_OK; i++) {
        const trace_t *trace = &traces.list[i];
        if ((settings->pool && strcmp(trace->pool, settings->pool) != 0) || !trace->nblocks)
            continue;
        run->ntraces++;
        if (settings->save && run->ntraces > 1)
            status = TOOL_FAIL(
                INVALID_ARGUMENT,
                "--save: there are several pools, '%s' is one of them; name one with --pool",
                trace->pool);
        else if (settings->save)
            status = trace_write(trace, NULL, settings->save);
        if (status == FY_STATUS_OK) status = replay_trace(run, path, trace);
        if (trace->unknown)
            fprintf(stderr,
                    "ferry: %s: %s: %" PRIu64 " freed blocks were allocated before the "
                    "recording began; they are left out\n",
                    path, trace->pool, trace->unknown);
    }
    if (traces.is_cut_off)
        fprintf(stderr,
                "ferry: %s has no end (the process was killed, or still runs, or the disk was "
                "full): what is there was replayed\n",
                path);
    run->is_cut_off |= traces.is_cut_off;
    traces_free(&traces);
    return status;
}

static fy_status_t replay_files(run_t *run, char **files, int count)
{
    fy_status_t status = FY_STATUS_OK;
    for (int i = 0; i < count && status == FY_STATUS_OK; i++) status = replay_file(run, files[i]);
    if (status == FY_STATUS_OK && !run->ntraces)
        status =
            run->settings->pool
                ? TOOL_FAIL(
                      INVALID_ARGUMENT,
                      "--pool: nothing here is about a pool '%s'; without --pool all are listed",
                      run->settings->pool)
                : TOOL_FAIL(CORRUPT_DATA,
                            "%s holds no block_alloc event: there is nothing to replay", files[0]);
    if (status == FY_STATUS_OK && run->settings->csv)
        status = sheet_csv(run->sheet, run->settings->csv);
    return status;
}

static void print_result(const run_t *run)
{
    if (!run->settings->json) {
        sheet_print(run->sheet, stdout);
        return;
    }
    json_t json = { .file = stdout };
    json_begin_object(&json, NULL);
    if (run->settings->limit)
        json_uint(&json, "limit_bytes", (uint64_t)run->settings->limit);
    else
        json_text(&json, "limit_bytes", NULL);
    sheet_json(run->sheet, &json, "rows");
    json_end(&json);
}

int cmd_replay(int argc, char **argv)
{
    settings_t settings = { .policy = POLICY_ALL };
    const option_t options[] = {
        { "policy", OPTION_CHOICE, "ferry|power-of-two|pytorch|pytorch-near|jemalloc-arena|all",
          &settings.policy, "whose rules" },
        { "pool", OPTION_TEXT, "NAME", &settings.pool,
          "only this pool, such as sim:0 or 'pinned memory of sim:0'" },
        { "kind", OPTION_CHOICE, "auto|device|pinned|host", &settings.kind,
          "Ferry's settings for which memory; auto goes by the pool's name" },
        { "limit", OPTION_BYTES, "SIZE", &settings.limit, "most that each pool may reserve", 1,
          INT64_MAX },
        { "segment", OPTION_BYTES, "SIZE", &settings.segment, "Ferry's segments", 64, INT64_MAX },
        { "resize", OPTION_BYTES, "SIZE", &settings.resize,
          "Ferry's segments grow where they stand, by so much (segments=virtual: 2MiB)", 256,
          1ll << 40 },
        { "save", OPTION_TEXT, "FILE", &settings.save,
          "write the pool's trace to FILE, as compact text" },
        { "csv", OPTION_TEXT, "FILE", &settings.csv, "write the rows of the table to FILE" },
        { "json", OPTION_FLAG, NULL, &settings.json,
          "print one JSON document on standard output, and nothing else there" },
    };
    const usage_t usage = { "ferry replay FILE...",
                            "Replays the allocations of event files (--record FILE writes one) or "
                            "traces under several policies: what "
                            "would they reserve, and does it fit a limit?",
                            options, sizeof options / sizeof *options,
                            "ferry train linear --device sim:0 --record run.events\n"
                            "ferry replay run.events --pool sim:0 --limit 64MiB\n" };
    int nfiles = 0;
    while (nfiles + 1 < argc && argv[nfiles + 1][0] != '-') nfiles++;
    OPTIONS_TRY(options_parse(&usage, argc - nfiles, argv + nfiles));
    if (!nfiles)
        return TOOL_REFUSE(STATUS_USAGE,
                           "which file? 'ferry replay FILE'; --record FILE makes one\n");
    run_t run = { .settings = &settings,
                  .sheet = sheet_create(columns, sizeof columns / sizeof *columns) };
    fy_status_t status = replay_files(&run, argv + 1, nfiles);
    if (status == FY_STATUS_OK) print_result(&run);
    sheet_destroy(run.sheet);
    if (tool_end(status) != STATUS_OK)
        return status == FY_STATUS_OUT_OF_MEMORY ? STATUS_OUT_OF_MEMORY : STATUS_FAILED;
    return run.refusals ? STATUS_OUT_OF_MEMORY : run.is_cut_off ? STATUS_FAILED : STATUS_OK;
}
