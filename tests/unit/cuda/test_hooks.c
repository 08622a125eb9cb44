/* An allocator of the program on cuda, over the fake driver: device memory from the program's own
 * calls of the driver, page-locked memory that the program page-locked itself or not. Not here:
 * failures and figures (tests/unit/runtime/test_hooks.c). */
#include <cuda.h>
#include <cudaTypedefs.h>

#include "tests/support/own_allocator.h"
#include "tests/unit/cuda/driver_call.h"

enum { N = 100000 };

static own_allocator_t own;
static PFN_cuMemAlloc_v3020 driver_alloc;
static PFN_cuMemFree_v3020 driver_free;
static PFN_cuMemHostRegister_v6050 driver_lock;
static PFN_cuMemHostUnregister_v4000 driver_unlock;
static void *context;

/* The application's device memory: it selects its own context, as Ferry makes none current. */
static void *device_alloc(uint64_t nbytes)
{
    CUdeviceptr address = 0;
    driver.fake_cuda_application(context);
    (void)driver_alloc(&address, nbytes);
    driver.fake_cuda_application(NULL);
    return (void *)(uintptr_t)address;
}
static void device_free(void *address)
{
    driver.fake_cuda_application(context);
    assert_int_equal(driver_free((CUdeviceptr)(uintptr_t)address), CUDA_SUCCESS);
    driver.fake_cuda_application(NULL);
}

/* One range of host memory, page-locked by the application before Ferry sees it. */
enum { POOL = 64 << 20 };
static char *pool;
static uint64_t pool_used;
static int pool_live;

static void *pool_alloc(void *user, uint64_t nbytes, uint64_t alignment)
{
    (void)user;
    pool_used = (pool_used + alignment - 1) & ~(alignment - 1);
    if (nbytes > POOL - pool_used) return NULL;
    pool_used += nbytes;
    pool_live++;
    return pool + pool_used - nbytes;
}
static void pool_free(void *user, void *address, uint64_t nbytes)
{
    (void)user, (void)address, (void)nbytes;
    pool_live--;
}

static void run(fy_device_t *device)
{
    fy_tensor_t *x, *y, *sum;
    const fy_scope_t scope = fy_scope_begin("run");
    x = ts_iota(device, FY_DIMS(N), 0);
    ts_ok(fy_add(x, x, &y));
    ts_ok(fy_slice(y, 0, 0, 3, &sum));
    ts_expect_f32(sum, (float[]){ 0, 2, 4 }, 3);
    fy_scope_end(scope, 0, NULL);
}

static void expect_same_bytes(const fy_device_t *device)
{
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT, pinned = FY_MEMORY_STATS_INIT;
    ts_ok(fy_memory_query(device, NULL, &stats));
    ts_ok(fy_memory_query_pinned(device, &pinned));
    assert_int_equal(stats.reserved, own.live[OWN_DEVICE]);
    assert_int_equal(pinned.reserved, own.live[OWN_PINNED]);
}

TS_TEST(all_memory_is_the_program_s)
{
    static const char *const specs[] = { "cuda:0", "cuda:0?segments=virtual" };
    for (size_t i = 0; i < 2; i++) {
        const fy_device_options_t options = own_options(&own);
        fy_device_t *device;
        own.device_alloc = device_alloc;
        own.device_free = device_free;
        ts_ok(fy_device_open_with(specs[i], &options, &device));
        const int64_t allocs = driver.fake_cuda_calls("cuMemAlloc"),
                      created = driver.fake_cuda_calls("cuMemCreate");
        const int before = own.calls;
        run(device);
        expect_same_bytes(device);
        assert_true(own.live[OWN_DEVICE] > 0 && own.calls > before);
        /* all of the driver's allocations were the program's */
        assert_true(driver.fake_cuda_calls("cuMemAlloc") - allocs <= own.calls - before);
        assert_int_equal(driver.fake_cuda_calls("cuMemCreate"), created);
        fy_device_close(device);
        assert_int_equal(own.live[OWN_DEVICE] + own.live[OWN_PINNED], 0);
        assert_int_equal(own.errors, 0);
    }
}

/* Page-locked memory of the application stays locked: Ferry uses it and does not unlock it. */
TS_TEST(locked_memory_is_used_as_it_is)
{
    static const CUresult codes[] = { CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE };
    for (size_t i = 0; i < 2; i++) {
        fy_device_options_t options = FY_DEVICE_OPTIONS_INIT;
        fy_device_t *device;
        options.alloc_pinned = pool_alloc;
        options.free_pinned = pool_free;
        pool_used = 0;
        pool = aligned_alloc(4096, POOL);
        assert_non_null(pool);
        driver.fake_cuda_application(context);
        assert_int_equal(
            driver_lock(pool, POOL, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
            CUDA_SUCCESS);
        driver.fake_cuda_application(NULL);
        /* some drivers answer so for memory of cuMemHostAlloc */
        if (codes[i] != CUDA_SUCCESS) driver.fake_cuda_fail("cuMemHostRegister", 1, codes[i]);
        ts_ok(fy_device_open_with("cuda:0", &options, &device));
        driver.fake_cuda_fail(NULL, 0, 0);
        assert_true(pool_live > 0);
        run(device);
        assert_int_equal(driver.fake_cuda_live(FAKE_REGISTRATIONS), 1);
        fy_device_close(device);
        assert_int_equal(pool_live, 0);
        assert_int_equal(driver.fake_cuda_live(FAKE_REGISTRATIONS), 1);
        driver.fake_cuda_application(context);
        assert_int_equal(driver_unlock(pool), CUDA_SUCCESS);
        driver.fake_cuda_application(NULL);
        free(pool);
    }
    fake_driver_is_tidy("the end");
}

static int prepare(void)
{
    fake_driver_or_skip();
    find_call("cuMemAlloc", 3020, &driver_alloc);
    find_call("cuMemFree", 3020, &driver_free);
    find_call("cuMemHostRegister", 6050, &driver_lock);
    find_call("cuMemHostUnregister", 4000, &driver_unlock);
    context = driver.fake_cuda_context(0);
    return 0;
}

TS_SUITE(.prepare = prepare);
