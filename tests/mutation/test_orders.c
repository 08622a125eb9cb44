/* Every program sees the same bytes and the same statuses in every order that the simulator may
 * choose.
 * FERRY_SEEDS=n random orders a program; FERRY_SEED=n that one alone. Not here: the waits that
 * ensure this (test_waits.c). */
#include <stdio.h>
#include <stdlib.h>

#include "tests/mutation/mutation.h"
#include "tests/support/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 50 };
#else
enum { SEEDS = 1000 };
#endif

static mu_tape_t want, got;

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static void expect_same(const mu_program_t *program, const char *order)
{
    (void)mu_program_run(program, order, &got);
    const char *difference = mu_tape_compare(&want, &got);
    if (!difference) return;
    print_error("%s with %s: %s\n", program->name, order, difference);
    fail();
}

static void same_in_every_order(void **state)
{
    const mu_program_t *program = *state;
    const uint64_t only = number_from("FERRY_SEED", 0), last = number_from("FERRY_SEEDS", SEEDS);
    const char *stopped = mu_program_run(program, "order=eager", &want);
    if (stopped)
        print_error("%s ended early: %s: %s\n", program->name, stopped, fy_error_get()->text);
    assert_null(stopped);
    assert_false(want.is_full);
    if (getenv("FERRY_TAPE")) {
        for (size_t i = 0; i < want.nnotes; i++) {
            const size_t end = i + 1 < want.nnotes ? want.notes[i + 1].begin : want.nbytes,
                         n = end - want.notes[i].begin;
            print_message("%4zu %5zu bytes, %3d  %s\n", i, n,
                          n ? want.bytes[want.notes[i].begin] : 0, want.notes[i].what);
        }
    }
    expect_same(program, "order=eager");
    if (only) {
        expect_same(program, mu_order(only));
        return;
    }
    for (uint64_t seed = 0; seed <= last; seed++) expect_same(program, mu_order(seed));
}

/* A test for each program. */
static int prepare(void)
{
    ts_test_t *tests = calloc(mu_program_count, sizeof *tests); /* until the process ends */
    if (!tests) return 1;
    for (size_t i = 0; i < mu_program_count; i++) {
        tests[i] = (ts_test_t){ .file = __FILE__,
                                .name = mu_programs[i].name,
                                .line = (int)i,
                                .run = same_in_every_order,
                                .state = (void *)(uintptr_t)&mu_programs[i] };
        ts__add_test(&tests[i]);
    }
    return 0;
}

TS_SUITE(.prepare = prepare);
