/* Tests that register themselves. A file test_<name>.c defines tests, and may have one suite:
 *
 *     TS_TEST(sums_are_exact) { assert_int_equal(1 + 1, 2); }
 *     TS_DEVICE_TEST(zeros) { ... ctx->device ... }
 *     TS_SUITE(.set_up = open_device, .tear_down = close_device);
 *
 * The files of a folder are one program, which runs one file in a process: `test_unit_ops call`.
 * FERRY_TEST_ONLY=TEXT runs the tests whose name contains TEXT. `test_unit_ops --list` prints all.
 * Without arguments the program runs each file in a separate process. */
#ifndef FERRY_TESTS_SUPPORT_TEST_H_
#define FERRY_TESTS_SUPPORT_TEST_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ferry/ferry.h>

/* Of a TS_DEVICE_TEST: the device under test, freshly opened. */
typedef struct ts_ctx {
    const char *spec; /* as given */
    fy_device_t *device;
    int is_host, is_sim;
} ts_ctx_t;

typedef int (*ts_fixture_fn)(void **state);
typedef struct ts_test {
    const char *file, *name;
    int line;
    void (*run)(void **state);
    void (*run_on)(ts_ctx_t *ctx); /* of a TS_DEVICE_TEST */
    ts_fixture_fn set_up, tear_down;
    void *state; /* `*state` of run at its beginning */
    struct ts_test *next;
} ts_test_t;

/* A TS_DEVICE_TEST that is not run on devices whose spec starts with `device`, and the reason.
 * "!sim": on all others. A table of these ends with {NULL, NULL, NULL}. */
typedef struct ts_exclusion {
    const char *device, *test, *reason;
} ts_exclusion_t;

/* What the tests of a file share. */
typedef struct ts_suite {
    const char *file;
    /* Called first. Other results than 0 end the process with that status; 77: skipped. */
    int (*prepare)(void);
    /* Around all tests, and around each TS_TEST without a fixture. */
    ts_fixture_fn begin, end, set_up, tear_down;
    const ts_exclusion_t *exclusions;
    struct ts_suite *next;
} ts_suite_t;

/* The arguments of the program after the file's name; NULL ends them. */
extern char **ts_arguments;

void ts__add_test(ts_test_t *test);
void ts__add_suite(ts_suite_t *suite);

/* Tests run in the order of their lines. `state` is CMocka's. */
#define TS_TEST(name) TS_TEST_WITH(name, NULL, NULL)
/* With functions before and after it in place of the suite's. NULL: the suite's. */
#define TS_TEST_WITH(name, before, after)         \
    static void name(void **state);               \
    TS__REGISTER(name, name, NULL, before, after) \
    static void name(__attribute__((unused)) void **state)
/* Runs once for each device under test (harness.h), as NAME@SPEC. */
#define TS_DEVICE_TEST(name)                   \
    static void name(ts_ctx_t *ctx);           \
    TS__REGISTER(name, NULL, name, NULL, NULL) \
    static void name(__attribute__((unused)) ts_ctx_t *ctx)
#define TS_SUITE(...)                                                 \
    static __attribute__((constructor)) void ts__register_suite(void) \
    {                                                                 \
        static ts_suite_t suite = { .file = __FILE__, __VA_ARGS__ };  \
        ts__add_suite(&suite);                                        \
    }                                                                 \
    _Static_assert(1, "")
#define TS__REGISTER(id, run, run_on, before, after)                        \
    static __attribute__((constructor)) void ts__register_##id(void)        \
    {                                                                       \
        static ts_test_t test = {                                           \
            __FILE__, #id, __LINE__, run, run_on, before, after, NULL, NULL \
        };                                                                  \
        ts__add_test(&test);                                                \
    }

/* Ends this test. A file whose tests all do so exits with 77. `reason` may be NULL. */
void ts_skip(const char *reason);
/* CMocka's does not count. */
#undef skip
#define skip() ts_skip(NULL)

#endif
