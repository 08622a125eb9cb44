/* The runner of test.h: main of each folder's program. A TS_DEVICE_TEST becomes one CMocka test per
 * device, with a freshly opened device, a scope and a leak check around it. */
#include "tests/support/test.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/sim/queue.h"
#include "tests/support/conservation.h"
#include "tests/support/harness.h"

static ts_test_t *g_tests;
static ts_suite_t *g_suites;
char **ts_arguments;

/* "call" of ".../tests/unit/ops/test_call.c", in a buffer of this thread. */
static const char *file_name(const char *path)
{
    static __thread char name[64];
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    if (strncmp(base, "test_", 5) == 0) base += 5;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(base, "."), base);
    return name;
}

/* Sorted by file, then by line. */
void ts__add_test(ts_test_t *test)
{
    ts_test_t **at = &g_tests;
    for (int order; *at; at = &(*at)->next) {
        order = strcmp((*at)->file, test->file);
        if (order > 0 || (order == 0 && (*at)->line > test->line)) break;
    }
    test->next = *at;
    *at = test;
}

void ts__add_suite(ts_suite_t *suite)
{
    suite->next = g_suites;
    g_suites = suite;
}

/* ---- a test on a device ---- */

typedef struct binding {
    const ts_test_t *test;
    const char *reason; /* why it is skipped, or NULL */
    ts_ctx_t ctx;
    fy_scope_t scope;
    uint64_t live_before, violations_before;
    ts_conservation_t conserved;
    char name[128], why[600];
} binding_t;

static size_t g_nskipped;

void ts_skip(const char *reason)
{
    if (reason) print_message("           skipped: %s\n", reason);
    g_nskipped++;
    _skip(__FILE__, __LINE__);
}

static const char *exclusion_reason(const ts_exclusion_t *list, const char *test, const char *spec)
{
    for (; list && list->device; list++) {
        const char *device = list->device + (list->device[0] == '!');
        const int is_it = strncmp(spec, device, strlen(device)) == 0;
        if (is_it == (device == list->device) && strcmp(test, list->test) == 0) return list->reason;
    }
    return NULL;
}

static int close_opened(void **state)
{
    (void)state;
    ts_close();
    return 0;
}

static int set_up(void **state)
{
    binding_t *b = *state;
    if (b->reason) return 0;
    fy_status_t status = fy_device_open(b->ctx.spec, &b->ctx.device);
    const char *require = getenv("FERRY_TEST_REQUIRE");
    if (status == FY_STATUS_UNAVAILABLE && !(require && *require == '1')) {
        snprintf(b->why, sizeof b->why, "%s", fy_error_get()->text);
        b->reason = b->why;
        return 0;
    }
    if (status != FY_STATUS_OK) {
        print_error("opening %s: %s: %s\n", b->ctx.spec, fy_status_name(status),
                    fy_error_get()->text);
        return -1;
    }
    fy_device_info_t info = FY_DEVICE_INFO_INIT;
    if (fy_device_query(b->ctx.device, &info) != FY_STATUS_OK) return -1;
    b->ctx.is_host = info.is_host;
    b->ctx.is_sim = info.is_simulated;
    b->live_before = ts_live(b->ctx.device);
    b->violations_before = fy__sim_violations();
    ts_conservation_begin(&b->conserved);
    b->scope = fy_scope_begin("test");
    ts__has_scope = true;
    return 0;
}

static void run_one(void **state)
{
    binding_t *b = *state;
    if (b->reason) ts_skip(b->reason);
    b->test->run_on(&b->ctx);
}

static int tear_down(void **state)
{
    binding_t *b = *state;
    if (b->reason || !b->ctx.device) return 0;
    fy_scope_end(b->scope, 0, NULL);
    ts__has_scope = false;
    ts_close();
    int result = 0;
    fy_status_t status = fy_device_wait(b->ctx.device, FY_FOREVER);
    (void)status; /* ignores a fault that the test provoked */
    uint64_t live = ts_live(b->ctx.device);
    if (live != b->live_before) {
        print_error("%s: %llu live bytes before, %llu after: leaked\n", b->name,
                    (unsigned long long)b->live_before, (unsigned long long)live);
        result = -1;
    }
    fy_device_close(b->ctx.device);
    b->ctx.device = NULL;
    if (ts_conservation_knows(b->ctx.spec) && !ts_conservation_end(&b->conserved, b->name))
        result = -1;
    if (fy__sim_violations() != b->violations_before) {
        print_error("%s: memory was freed under %llu requests that had not run yet; the log "
                    "says which\n",
                    b->name, (unsigned long long)(fy__sim_violations() - b->violations_before));
        result = -1;
    }
    return result;
}

/* ---- a file ---- */

static const ts_suite_t *suite_of(const char *file)
{
    static const ts_suite_t none;
    for (const ts_suite_t *suite = g_suites; suite; suite = suite->next)
        if (strcmp(file_name(suite->file), file) == 0) return suite;
    return &none;
}

/* CMocka does not count what the end of a group returns. */
static ts_fixture_fn g_end;
static int g_end_failed;
static int end_file(void **state)
{
    g_end_failed = g_end && g_end(state) != 0;
    return -g_end_failed;
}

/* Returns main's exit status: 0, 1, or 77 if everything was skipped. */
static int run_file(const char *file, const ts_suite_t *suite)
{
    size_t room = 0, n = 0;
    for (const ts_test_t *test = g_tests; test; test = test->next) room += ts_device_count();
    binding_t *bindings = calloc(room + 1, sizeof *bindings);
    struct CMUnitTest *units = calloc(room + 1, sizeof *units);
    if (!bindings || !units) {
        free(bindings);
        free(units);
        return 1;
    }
    const char *only = getenv("FERRY_TEST_ONLY");
    for (size_t d = 0; d < ts_device_count(); d++) {
        for (const ts_test_t *test = g_tests; test; test = test->next) {
            if (strcmp(file_name(test->file), file) != 0 || (!test->run_on && d > 0)) continue;
            binding_t *b = &bindings[n];
            b->test = test;
            b->ctx.spec = ts_device_spec(d);
            snprintf(b->name, sizeof b->name, test->run_on ? "%s@%s" : "%s", test->name,
                     b->ctx.spec);
            if (only && !strstr(b->name, only)) continue;
            if (test->run_on) {
                b->reason = exclusion_reason(suite->exclusions, test->name, b->ctx.spec);
                units[n++] = (struct CMUnitTest){ b->name, run_one, set_up, tear_down, b };
            } else {
                const ts_fixture_fn end = test->tear_down ? test->tear_down : suite->tear_down;
                units[n++] = (struct CMUnitTest){ b->name, test->run,
                                                  test->set_up ? test->set_up : suite->set_up,
                                                  end ? end : close_opened, test->state };
            }
        }
    }
    if (n == 0) print_message("%s has no test whose name contains '%s'\n", file, only ? only : "");
    g_nskipped = 0;
    g_end = suite->end;
    const int nfailed = _cmocka_run_group_tests(file, units, n, suite->begin, end_file);
    free(bindings);
    free(units);
    return nfailed || g_end_failed ? 1 : g_nskipped == n ? 77 : 0;
}

/* Runs a file in a separate process. Returns whether it passed, or was skipped. */
static int passes(const char *program, const char *file)
{
    int status = -1;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", program, file, (char *)NULL);
        _exit(127);
    }
    if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
        (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77))
        return 1;
    fprintf(stderr, "failed: %s %s\n", program, file);
    return 0;
}

/* Each file of the program; some have a suite that makes the tests. */
static int run_all(const char *program)
{
    size_t nfiles = 0, nfailed = 0;
    for (const ts_test_t *test = g_tests; test; test = test->next) {
        if (test->next && strcmp(test->next->file, test->file) == 0) continue;
        nfiles++;
        nfailed += !passes(program, file_name(test->file));
    }
    for (const ts_suite_t *suite = g_suites; suite; suite = suite->next) {
        const ts_test_t *test = g_tests;
        while (test && strcmp(test->file, suite->file) != 0) test = test->next;
        if (test) continue;
        nfiles++;
        nfailed += !passes(program, file_name(suite->file));
    }
    printf("%zu files, %zu failed\n", nfiles, nfailed);
    return nfailed != 0;
}

static int list(void)
{
    for (const ts_test_t *test = g_tests; test; test = test->next)
        printf("%s %s\n", file_name(test->file), test->name);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) return run_all(argv[0]);
    if (strcmp(argv[1], "--list") == 0) return list();
    const ts_suite_t *suite = suite_of(argv[1]);
    const ts_test_t *test = g_tests;
    while (test && strcmp(file_name(test->file), argv[1]) != 0) test = test->next;
    if (!test && !suite->file) {
        fprintf(stderr, "%s: no file test_%s.c; --list prints all\n", argv[0], argv[1]);
        return 2;
    }
    ts_arguments = argv + 2;
    /* As Qt and GTK do: .ci/run odd chooses a decimal comma. The command's own code never does, and
     * its tests neither. */
    if (!strstr(test ? test->file : suite->file, "unit/tools/")) setlocale(LC_ALL, "");
    const int status = suite->prepare ? suite->prepare() : 0;
    return status ? status : run_file(argv[1], suite);
}
