/* Each of Ferry's waits is needed: dropped (runtime/thread/wait_site.h), it makes a program see
 * other bytes, use freed memory, crash or hang, in one of the first 64 random orders. With no wait
 * dropped, no order does.
 * The table of the observed effects is docs/internals/wait-sites.md. FERRY_WRITE=1 writes it;
 * otherwise every site must have its row there.
 * Each site is tried in a child process, which may crash. FERRY_SITE=name tries that one alone. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/sim/queue.h"
#include "runtime/thread/wait_site.h"
#include "tests/mutation/mutation.h"
#include "tests/support/test.h"

enum { LAST_SEED = 64, MAX_PROGRAMS = 64, PATIENCE_S = 60 };

/* Shared with the child. */
typedef struct trial {
    bool is_killed, is_eager_done;
    uint64_t seed;
    size_t program;
    char how[300];
    mu_tape_t want[MAX_PROGRAMS], got;
} trial_t;

static trial_t *trial;

typedef struct verdict {
    bool is_killed;
    uint64_t seed;
    size_t program;
    char how[300];
} verdict_t;

static verdict_t verdicts[FY__WAIT_SITE_COUNT];

static trial_t *map_trial(void)
{
    void *shared =
        mmap(NULL, sizeof(trial_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? NULL : shared;
}

/* In the child: the first order that differs. */
static void try_orders(fy__wait_site_t site)
{
    for (size_t i = 0; i < mu_program_count; i++)
        (void)mu_program_run(&mu_programs[i], "order=eager", &trial->want[i]);
    trial->is_eager_done = true;
    fy__wait_dropped = site;
    for (trial->seed = 0; trial->seed <= LAST_SEED; trial->seed++)
        for (trial->program = 0; trial->program < mu_program_count; trial->program++) {
            const uint64_t violations = fy__sim_violations();
            (void)alarm(PATIENCE_S);
            (void)mu_program_run(&mu_programs[trial->program], mu_order(trial->seed), &trial->got);
            const char *difference = mu_tape_compare(&trial->want[trial->program], &trial->got);
            if (!difference && fy__sim_violations() == violations) continue;
            snprintf(trial->how, sizeof trial->how, "%s",
                     difference ? difference : "memory that a request still uses was freed");
            trial->is_killed = true;
            return;
        }
}

static verdict_t try_site(fy__wait_site_t site)
{
    int status = 0;
    trial->is_killed = trial->is_eager_done = false;
    trial->seed = trial->program = 0;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        const struct rlimit none = { 0, 0 };
        (void)setrlimit(RLIMIT_CORE, &none);
        try_orders(site);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    verdict_t verdict = { trial->is_killed, trial->seed, trial->program, "" };
    snprintf(verdict.how, sizeof verdict.how, "%s", trial->how);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        verdict.is_killed = true;
        snprintf(verdict.how, sizeof verdict.how, "%s",
                 !trial->is_eager_done ? "it dies with nothing dropped"
                 : WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "it hangs"
                                                                      : "it crashes");
    }
    return verdict;
}

static const char *order_of(const verdict_t *verdict)
{
    static char text[32];
    if (!verdict->seed) return "lazy";
    snprintf(text, sizeof text, "random, seed %llu", (unsigned long long)verdict->seed);
    return text;
}

TS_TEST(without_a_dropped_wait_no_order_differs)
{
    const verdict_t verdict = try_site(FY__WAIT_NONE);
    if (verdict.is_killed)
        print_error("%s, %s: %s\n", mu_programs[verdict.program].name, order_of(&verdict),
                    verdict.how);
    assert_false(verdict.is_killed);
}

static int nalive;

TS_TEST(every_wait_is_needed)
{
    const char *only = getenv("FERRY_SITE");
    for (fy__wait_site_t site = FY__WAIT_NONE + 1; site < FY__WAIT_SITE_COUNT; site++) {
        const char *name = fy__wait_site_name(site);
        if (only && strcmp(only, name) != 0) continue;
        const verdict_t verdict = verdicts[site] = try_site(site);
        if (verdict.is_killed)
            print_message("%-18s %-16s %-16s %s\n", name, mu_programs[verdict.program].name,
                          order_of(&verdict), verdict.how);
        else
            print_error("%-18s dropped, and every program passed: %s\n", name,
                        fy__wait_site_text(site));
        nalive += !verdict.is_killed;
    }
    assert_int_equal(nalive, 0);
}

/* ---- the table in the documentation ---- */

static const char path[] = "docs/internals/wait-sites.md";
static const char head[] =
    "# Where Ferry waits\n"
    "\n"
    "Each row is a place where a request, or the host, waits for another request\n"
    "(`runtime/thread/wait_site.h`), the error without that wait, and the first program of\n"
    "`tests/mutation/` that shows the error: with `order=lazy`, or with the named seed of\n"
    "`order=random`. The table is written by `FERRY_WRITE=1\n"
    "build/dev/bin/tests/test_mutation waits`. That test fails if a wait can be dropped without\n"
    "effect or has no row.\n"
    "\n"
    "Not listed: waits on which no byte depends (`ahead=`, a full queue); waits that the\n"
    "simulator cannot show (native queues of the caller, races of two threads).\n"
    "\n"
    "| site | without it | seen by |\n"
    "|---|---|---|\n";

static void write_table(void)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(head, file);
    for (fy__wait_site_t site = FY__WAIT_NONE + 1; site < FY__WAIT_SITE_COUNT; site++) {
        const verdict_t *verdict = &verdicts[site];
        fprintf(file, "| %s | %s | %s", fy__wait_site_name(site), fy__wait_site_text(site),
                mu_programs[verdict->program].name);
        if (verdict->seed) fprintf(file, ", seed %llu", (unsigned long long)verdict->seed);
        fputs(" |\n", file);
    }
    assert_int_equal(fclose(file), 0);
}

TS_TEST(every_wait_is_in_the_table)
{
    static char text[1 << 16], row[300];
    if (getenv("FERRY_SITE")) skip();
    if (getenv("FERRY_WRITE") && nalive == 0) write_table();
    FILE *file = fopen(path, "r");
    if (!file) print_error("%s is not there: run from the top of the sources\n", path);
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    int nmissing = 0, nrows = 0;
    for (fy__wait_site_t site = FY__WAIT_NONE + 1; site < FY__WAIT_SITE_COUNT; site++) {
        snprintf(row, sizeof row, "| %s | %s |", fy__wait_site_name(site),
                 fy__wait_site_text(site));
        if (strstr(text, row)) continue;
        print_error("%s has no row \"%s\"; FERRY_WRITE=1 writes the table\n", path, row);
        nmissing++;
    }
    for (const char *at = text; (at = strstr(at, "\n| ")); at++) nrows++;
    assert_int_equal(nmissing, 0);
    assert_int_equal(nrows - 1, FY__WAIT_SITE_COUNT - 1); /* one is the head */
}

static int prepare(void)
{
    trial = map_trial();
    if (!trial || mu_program_count > MAX_PROGRAMS) {
        print_error("no memory for the tapes of %zu programs, or more than %d\n", mu_program_count,
                    MAX_PROGRAMS);
        return 1;
    }
    return 0;
}

TS_SUITE(.prepare = prepare);
