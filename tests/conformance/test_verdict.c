/* The verdict on a device: the scopes that have the memory, over all threads, and the exact text of
 * docs/memory.md.
 * Not here: reasons, figures and hints (tests/unit/alloc/test_pool_verdict.c). */
#include <pthread.h>
#include <unistd.h>

#include "tests/support/harness.h"

static const int64_t MIB = 1 << 20;

static fy_oom_verdict_t refused(fy_device_t *device, int64_t n)
{
    fy_tensor_t *tensor;
    ts_fails(fy_tensor_create(device, FY_DTYPE_U8, 1, &n, &tensor), OUT_OF_MEMORY);
    assert_null(tensor);
    assert_non_null(fy_error_get()->oom);
    return *fy_error_get()->oom;
}

static void expect_top(const fy_oom_verdict_t *verdict, int i, const char *path, uint64_t live)
{
    assert_string_equal(verdict->top[i].path, path);
    assert_int_equal(verdict->top[i].live, live);
}

/* Allocated on another thread, under a path that this thread has too, and held until the test ends
 * it. */
typedef struct other {
    fy_device_t *device;
    pthread_barrier_t made, over;
} other_t;

static void *other_thread(void *user)
{
    other_t *other = user;
    fy_scope_t test = fy_scope_begin("test"), model = fy_scope_begin("model");
    fy_tensor_t *tensor;
    const fy_status_t status =
        fy_tensor_create(other->device, FY_DTYPE_U8, FY_DIMS(3 * MIB), &tensor);
    pthread_barrier_wait(&other->made);
    pthread_barrier_wait(&other->over);
    fy_scope_end(model, 0, NULL);
    fy_scope_end(test, 0, NULL);
    return status == FY_STATUS_OK ? NULL : user;
}

TS_DEVICE_TEST(the_largest_scopes_of_all_threads)
{
    other_t other = { .device = ts_open_with(ctx, "limit=16MiB") };
    fy_scope_t scope = fy_scope_begin("here");
    fy_scope_end(scope, 0, NULL); /* a scope without live bytes is not listed */
    fy_oom_verdict_t verdict = refused(other.device, 17 * MIB);
    expect_top(&verdict, 0, "", 0);
    assert_null(strstr(verdict.text, "by scope"));

    void *failed;
    pthread_barrier_init(&other.made, NULL, 2);
    pthread_barrier_init(&other.over, NULL, 2);
    const pthread_t thread = ts_thread(other_thread, &other);
    pthread_barrier_wait(&other.made);
    scope = fy_scope_begin("model");
    ts_bytes(other.device, 2 * MIB);
    fy_scope_t layer = fy_scope_begin("layer");
    ts_bytes(other.device, 4 * MIB);
    fy_scope_t deep = fy_scope_begin("a name that is longer than a verdict has room for, so that "
                                     "the end of the path is what is seen");
    ts_bytes(other.device, MIB);
    fy_scope_t small = fy_scope_begin("small");
    ts_bytes(other.device, MIB / 2);
    verdict = refused(other.device, 8 * MIB);
    /* of both threads, without inner scopes */
    expect_top(&verdict, 0, "test/model", 5 * (uint64_t)MIB);
    expect_top(&verdict, 1, "test/model/layer", 4 * (uint64_t)MIB);
    expect_top(&verdict, 2,
               "...ger than a verdict has room for, so that the end of the path is what is seen",
               (uint64_t)MIB);
    assert_int_equal(strlen(verdict.top[2].path), sizeof verdict.top[2].path - 1);
    assert_non_null(strstr(
        verdict.text, "\n  live by scope: test/model 5.0 MiB, test/model/layer 4.0 MiB, ...ger"));
    fy_scope_end(small, 0, NULL);
    fy_scope_end(deep, 0, NULL);
    fy_scope_end(layer, 0, NULL);
    verdict = refused(other.device, 15 * MIB);
    expect_top(&verdict, 0, "test/model", 5 * (uint64_t)MIB);
    expect_top(&verdict, 1, "", 0);
    fy_scope_end(scope, 0, NULL);
    pthread_barrier_wait(&other.over);
    pthread_join(thread, &failed);
    assert_null(failed);
    pthread_barrier_destroy(&other.made);
    pthread_barrier_destroy(&other.over);
    ts_reopen(ctx, other.device);
}

/* On a separate thread, outside the runner's scopes. */
static void *example(void *user)
{
    fy_device_t *device = user;
    char *said = calloc(1, sizeof((fy_oom_verdict_t *)0)->text);
    fy_scope_t train = fy_scope_begin("train"), model = fy_scope_begin("model");
    ts_ok(fy_scope_memory(FY_CATEGORY_WEIGHTS));
    fy_tensor_t *weights = ts_bytes(device, 2 * MIB);
    fy_scope_end(model, 1, &weights);
    (void)fy_scope_begin("step");
    ts_bytes(device, MIB);
    const fy_oom_verdict_t verdict = refused(device, 2 * MIB - 100);
    if (said) memcpy(said, verdict.text, sizeof verdict.text);
    fy_scope_end(train, 0, NULL);
    return said;
}

/* The program of the page gets the text of the page. */
TS_DEVICE_TEST(the_page_shows_the_real_text)
{
    /* not run from the source folder, or the device has another name */
    if (access("docs/memory.md", R_OK) || strcmp(ts_spec_name(ctx->spec), "sim:0") != 0) return;
    char *page = ts_text_of("docs/memory.md");
    fy_device_t *device = ts_open_with(ctx, "limit=4MiB");
    void *said = ts_on_thread(example, device);
    assert_non_null(said);
    if (!strstr(page, said)) print_error("docs/memory.md does not show:\n%s\n", (char *)said);
    assert_non_null(strstr(page, said));
    free(said);
    free(page);
}

static const ts_exclusion_t k_exclusions[] = {
    { "host", "the_largest_scopes_of_all_threads",
      "host bytes are not accounted by path, and the host takes no limit" },
    { "host", "the_page_shows_the_real_text", "the same" },
    { "cuda", "the_page_shows_the_real_text", "the page shows sim:0" },
    { NULL, NULL, NULL },
};

TS_SUITE(.exclusions = k_exclusions);
