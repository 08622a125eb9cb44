/* The ledger as a file in three formats: every path is present with the figures of fy_ledger_query,
 * and other programs can read each format (JSON with python3, if it is installed). */
#include <stdbool.h>
#include <unistd.h>

#include "tests/support/harness.h"

static char path[] = "/tmp/test_ledger.XXXXXX";

static char *written(fy_ledger_format_t format)
{
    ts_ok(fy_ledger_write(path, format));
    return ts_text_of(path);
}

/* Returns the line that begins with `head`, without its end; changes the text. */
static char *line_of(char *text, const char *head)
{
    char *line = text;
    while (line && strncmp(line, head, strlen(head)) != 0)
        line = (line = strchr(line, '\n')) ? line + 1 : NULL;
    if (!line) fail_msg("no line begins with '%s' in:\n%s", head, text);
    line[strcspn(line, "\r\n")] = 0;
    return line;
}

static void make_figures(ts_ctx_t *ctx)
{
    fy_tensor_t *host = ts_host_f32(FY_DIMS(8), (float[8]){ 1 }), *x, *y;
    fy_scope_t scope = fy_scope_begin("a, \"b\"");
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &x));
    ts_ok(fy_tensor_upload_into(x, host, NULL, NULL));
    ts_ok(fy_add(x, x, &y));
    (void)ts_download(y);
    ts_ok(fy_ledger_collective("all_reduce", 100));
    fy_ledger_collective_moved(150, 2, 30);
    fy_scope_end(scope, 0, NULL);
}

TS_DEVICE_TEST(csv)
{
    char want[1024];
    make_figures(ctx);
    const fy_ledger_totals_t t = ts_ledger("test/a, \"b\"");
    char *text = written(FY_LEDGER_CSV), *copy = strdup(text);
    assert_true(t.upload.count >= 2 && t.download.count >= 1);
    assert_true(t.collective.count >= 1); /* the figures are those of all devices' tests */
    assert_int_equal(t.collective.nbytes, 100 * t.collective.count);
    assert_int_equal(t.collective.wire_nbytes, 150 * t.collective.count);
    const char *line = line_of(text, "\"test/a, \"\"b\"\"\",");
    int n =
        snprintf(want, sizeof want, "\"test/a, \"\"b\"\"\",%llu", (unsigned long long)t.requests);
    const fy_traffic_t *ways[] = { &t.upload, &t.download, &t.peer, &t.collective };
    for (int i = 0; i < 4; i++) {
        n += snprintf(want + n, sizeof want - (size_t)n, ",%llu,%llu,%llu,%llu,%llu",
                      (unsigned long long)ways[i]->count, (unsigned long long)ways[i]->nbytes,
                      (unsigned long long)ways[i]->wire_nbytes, (unsigned long long)ways[i]->copies,
                      (unsigned long long)ways[i]->host_blocked_ns);
        for (int k = 0; k < FY_PATH_COUNT; k++)
            n += snprintf(want + n, sizeof want - (size_t)n, ",%llu",
                          (unsigned long long)ways[i]->by_path[k]);
    }
    snprintf(want + n, sizeof want - (size_t)n, ",%llu,%llu,%llu,%llu,%llu",
             (unsigned long long)t.syncs, (unsigned long long)t.sync_ns,
             (unsigned long long)t.device_allocs, (unsigned long long)t.throttles,
             (unsigned long long)t.throttle_ns);
    assert_string_equal(line, want);
    const char *head = line_of(copy, "scope,");
    /* the name contains a comma, so its line has one column too many */
    int columns[2] = { 1, 0 };
    for (const char *c = head; *c; c++) columns[0] += *c == ',';
    for (const char *c = want; *c; c++) columns[1] += *c == ',';
    assert_int_equal(columns[0], columns[1]);
    free(text);
    free(copy);
}

TS_DEVICE_TEST(json)
{
    char want[256];
    make_figures(ctx);
    const fy_ledger_totals_t t = ts_ledger("test/a, \"b\"");
    char *text = written(FY_LEDGER_JSON);
    snprintf(want, sizeof want,
             "{\"scope\": \"test/a, \\\"b\\\"\", \"requests\": %llu, \"upload\": {\"count\": %llu, "
             "\"bytes\": %llu,",
             (unsigned long long)t.requests, (unsigned long long)t.upload.count,
             (unsigned long long)t.upload.nbytes);
    if (!strstr(text, want)) fail_msg("'%s' is not in\n%s", want, text);
    assert_non_null(strstr(text, "\"by_path\": {\"host\": "));
    free(text);
    if (system("command -v python3 >/dev/null 2>&1") != 0) return;
    snprintf(want, sizeof want,
             "python3 -c 'import json; d = json.load(open(\"%s\")); assert "
             "d[\"scopes\"][0][\"scope\"] == \"\" and "
             "len(d[\"scopes\"]) > 2'",
             path);
    assert_int_equal(system(want), 0);
}

TS_DEVICE_TEST(text)
{
    unsigned long long requests, uploads, nbytes;
    make_figures(ctx);
    const fy_ledger_totals_t t = ts_ledger("test/a, \"b\"");
    char *all = written(FY_LEDGER_TEXT);
    assert_true(strncmp(all, "scope ", 6) == 0);
    assert_non_null(strstr(all, "\neverything "));
    const char *line = line_of(all, "test/a, \"b\" ") + strlen("test/a, \"b\" ");
    assert_int_equal(sscanf(line, "%llu %llu %llu", &requests, &uploads, &nbytes), 3);
    assert_int_equal(requests, t.requests);
    assert_int_equal(uploads, t.upload.count);
    assert_int_equal(nbytes, t.upload.nbytes);
    free(all);
}

TS_DEVICE_TEST(unwritable_paths_are_refused)
{
    ts_fails(fy_ledger_write(NULL, FY_LEDGER_TEXT), INVALID_ARGUMENT);
    ts_fails(fy_ledger_write("", FY_LEDGER_TEXT), INVALID_ARGUMENT);
    ts_fails(fy_ledger_write(path, (fy_ledger_format_t)7), INVALID_ARGUMENT);
    ts_fails_with(fy_ledger_write("/nowhere/at/all", FY_LEDGER_JSON), IO, "/nowhere/at/all");
    if (access("/dev/full", W_OK) == 0) ts_fails(fy_ledger_write("/dev/full", FY_LEDGER_CSV), IO);
}

TS_DEVICE_TEST(guards_refuse_collectives)
{
    const uint64_t before = ts_ledger("test/guarded").collective.nbytes;
    fy_scope_t scope = fy_scope_begin("guarded");
    ts_guard(collective_nbytes, 150);
    ts_ok(fy_ledger_collective("broadcast", 100));
    ts_fails(fy_ledger_collective("broadcast", 51), REFUSED_BY_GUARD);
    /* with 100 these are 0 and 99 bytes in 64 bits */
    ts_fails(fy_ledger_collective("broadcast", UINT64_MAX - 99), REFUSED_BY_GUARD);
    ts_fails_with(fy_ledger_collective("broadcast", UINT64_MAX), REFUSED_BY_GUARD,
                  "broadcast: the guard on scope 'test/guarded' allows 150 collective bytes, of "
                  "which 100 are used");
    ts_ok(fy_ledger_collective("broadcast", 50));
    ts_fails(fy_ledger_collective(NULL, 0), INVALID_ARGUMENT);
    fy_scope_end(scope, 0, NULL);
    scope = fy_scope_begin("light");
    ts_ok(fy_scope_guard(&(fy_guard_options_t)FY_GUARD_LIGHT_ONLY));
    ts_fails(fy_ledger_collective("broadcast", 1), REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
    ts_ok(fy_budget_set("collective=1KiB/step"));
    scope = fy_scope_begin("step");
    ts_fails(fy_ledger_collective("broadcast", 1025), REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
    ts_ok(fy_budget_set(NULL));
    assert_int_equal(ts_ledger("test/guarded").collective.nbytes - before, 150);
    assert_int_equal(ts_ledger("test/step").collective.count, 0);
}

static int begin(void **state)
{
    (void)state;
    ts_make_file(path);
    return 0;
}

static int end(void **state)
{
    (void)state;
    return unlink(path);
}

TS_SUITE(.begin = begin, .end = end);
