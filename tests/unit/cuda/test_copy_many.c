/* Many copies in one submission, against fake drivers of three releases: 12.4 has no batches, 12.8
 * has the first ABI, 13.0 the second. A process loads one driver, so each release is tested in a
 * separate process. */
#include <cuda.h>
#include <sys/wait.h>

#include "fixture.h"

enum { COUNT = 300, NBYTES = 96 };

static int release; /* 12040 */
static unsigned char host[COUNT * NBYTES] __attribute__((aligned(4096)));
static fy_copy_t copies[COUNT];
static char *memory;

static const char *entry(void)
{
    return release >= 13000 ? "cuMemcpyBatchAsync_v13000" : "cuMemcpyBatchAsync_v12080";
}

static int set_up(void **state)
{
    open_device(state);
    assert_ok(cuda->register_host(dev, host, sizeof host));
    void *address;
    assert_ok(cuda->alloc(dev, 2 * sizeof host, &address));
    memory = address;
    assert_ok(cuda->fill(dev, stream, memory, 0, 2 * sizeof host));
    for (size_t i = 0; i < sizeof host; i++) host[i] = (unsigned char)random_bits();
    for (size_t i = 0; i < COUNT; i++) /* scattered: backwards on the device */
        copies[i] = (fy_copy_t){
            FY_COPY_UPLOAD, 1,   memory + 2 * NBYTES * (COUNT - 1 - i), host + NBYTES * i,
            NBYTES - i % 3, NULL
        };
    memset(recorded, 0, sizeof recorded);
    return 0;
}

static int tear_down(void **state)
{
    driver.fake_cuda_fail(NULL, 0, 0);
    cuda->free(dev, memory, 2 * sizeof host);
    cuda->unregister_host(dev, host, sizeof host);
    return close_device(state);
}

TS_TEST(all_bytes_arrive_and_are_counted_once)
{
    static unsigned char back[2 * sizeof host];
    const int64_t batches = driver.fake_cuda_calls(entry()),
                  single = driver.fake_cuda_calls("cuMemcpyHtoDAsync");
    const uint64_t wire = driver.fake_cuda_bytes(FAKE_H2D), n = driver.fake_cuda_copies(FAKE_H2D);
    assert_ok(cuda->copy_many(dev, stream, COUNT, copies));
    /* pieces of 128 */
    assert_int_equal(driver.fake_cuda_calls(entry()) - batches, release >= 12080 ? 3 : 0);
    assert_int_equal(driver.fake_cuda_calls("cuMemcpyHtoDAsync") - single,
                     release >= 12080 ? 0 : COUNT);
    assert_int_equal(driver.fake_cuda_copies(FAKE_H2D) - n, COUNT);
    assert_int_equal(recorded[FY_COPY_UPLOAD], driver.fake_cuda_bytes(FAKE_H2D) - wire);
    fetch(back, memory, sizeof back);
    for (size_t i = 0; i < COUNT; i++) {
        const unsigned char *at = back + 2 * NBYTES * (COUNT - 1 - i);
        assert_memory_equal(at, host + NBYTES * i, NBYTES - i % 3);
        for (size_t k = NBYTES - i % 3; k < NBYTES; k++) assert_int_equal(at[k], 0);
    }
}

TS_TEST(other_kinds_and_a_single_copy)
{
    static unsigned char before[NBYTES];
    memcpy(before, host, NBYTES);
    assert_ok(cuda->copy_many(dev, stream, 1, copies));
    assert_int_equal(driver.fake_cuda_copies(FAKE_H2D) > 0, 1);
    char *from = copies[0].dst;
    fy_copy_t local[2] = { { FY_COPY_LOCAL, 0, memory, from, 40, NULL },
                           { FY_COPY_LOCAL, 0, memory + 64, from + 40, NBYTES - 40, NULL } };
    assert_ok(cuda->copy_many(dev, stream, 2, local));
    memset(host, 0, NBYTES);
    fy_copy_t down[2] = { { FY_COPY_DOWNLOAD, 1, host, memory, 40, NULL },
                          { FY_COPY_DOWNLOAD, 1, host + 40, memory + 64, NBYTES - 40, NULL } };
    assert_ok(cuda->copy_many(dev, stream, 2, down));
    assert_memory_equal(host, before, NBYTES);
    assert_int_equal(recorded[FY_COPY_DOWNLOAD], NBYTES);
    assert_int_equal(recorded[FY_COPY_LOCAL], NBYTES);
}

/* The driver refuses a batch on the legacy stream. */
TS_TEST(the_legacy_stream_has_no_batches)
{
    void *wrapped;
    const int64_t batches = driver.fake_cuda_calls(entry()),
                  single = driver.fake_cuda_calls("cuMemcpyHtoDAsync");
    assert_ok(cuda->stream_create(dev, FY_STREAM_UPLOAD, 0, CU_STREAM_LEGACY, &wrapped));
    assert_ok(cuda->copy_many(dev, wrapped, COUNT, copies));
    assert_int_equal(driver.fake_cuda_calls(entry()), batches);
    assert_int_equal(driver.fake_cuda_calls("cuMemcpyHtoDAsync") - single, COUNT);
    cuda->stream_destroy(dev, wrapped);
}

/* The reported bytes are the copied bytes, and no copy is submitted again. */
TS_TEST(a_failure_in_the_middle_reports_the_copied_bytes)
{
    const uint64_t moved = driver.fake_cuda_bytes(FAKE_H2D);
    const char *name = release >= 12080 ? entry() : "cuMemcpyHtoDAsync";
    const int64_t calls = driver.fake_cuda_calls(name);
    driver.fake_cuda_fail(name, 2, 999);
    assert_failed(cuda->copy_many(dev, stream, COUNT, copies), FY_STATUS_INTERNAL, "cuda:0");
    assert_int_equal(driver.fake_cuda_calls(name) - calls, 2);
    assert_int_equal(recorded[FY_COPY_UPLOAD], driver.fake_cuda_bytes(FAKE_H2D) - moved);
    assert_true(recorded[FY_COPY_UPLOAD] > 0);
    assert_ok(cuda->copy_many(dev, stream, COUNT, copies)); /* no lasting effect */
}

TS_TEST(a_wrong_copy_is_named)
{
    if (release < 12080) skip();
    copies[5].dst = memory + 2 * sizeof host; /* behind the end of the block */
    assert_failed(cuda->copy_many(dev, stream, 10, copies), FY_STATUS_INVALID_ARGUMENT,
                  release >= 13000 ? "10 copies" : "number 5 failed");
    assert_int_equal(recorded[FY_COPY_UPLOAD], 0);
}

/* The tests run in a child for each release. */
static int prepare(void)
{
    static const char *const releases[] = { "12040", "12080", "13000" };
    int worst = 0;
    for (size_t i = 0; i < sizeof releases / sizeof *releases; i++) {
        int status = 0;
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            setenv("FAKE_CUDA_VERSION", releases[i], 1);
            release = atoi(releases[i]);
            return load_or_skip();
        }
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 1;
        if (WEXITSTATUS(status) > worst) worst = WEXITSTATUS(status);
    }
    exit(worst);
}

TS_SUITE(.prepare = prepare, .set_up = set_up, .tear_down = tear_down);
