/* The host backend, slot by slot, as the runtime calls it. */
#include "backends/builtin.h"
#include "tests/unit/backends/kernel_fixture.h"

static const fy_backend_t *host;
static void *dev;

static int open_host(void **state)
{
    (void)state;
    return fy__backend_host_open(&api, FY_BACKEND_ABI, &host) != FY_STATUS_OK ||
           host->device_open(0, 0, NULL, &dev) != FY_STATUS_OK;
}

static int close_host(void **state)
{
    (void)state;
    host->device_close(dev);
    return 0;
}

TS_TEST(another_abi_is_refused)
{
    const fy_backend_t *backend = host;
    assert_int_equal(fy__backend_host_open(&api, FY_BACKEND_ABI + 1, &backend),
                     FY_STATUS_UNSUPPORTED);
    assert_null(backend);
    assert_non_null(strstr(last_text, "ABI"));
}

TS_TEST(it_is_one_synchronous_device)
{
    int count = 0;
    fy_backend_info_t info;
    assert_string_equal(host->name, "host");
    assert_int_equal(host->abi, FY_BACKEND_ABI);
    assert_true(host->struct_size == sizeof(fy_backend_t) && host->is_synchronous);
    assert_true(!host->stream_create && !host->event_create && !host->graph_begin && !host->clock &&
                !host->register_host);
    ts_ok(host->device_count(&count));
    assert_int_equal(count, 1);
    ts_ok(host->device_query(dev, &info));
    assert_true(info.model[0] != 0 && memchr(info.model, 0, sizeof info.model) != NULL);
    assert_true(info.memory_nbytes > 0 && info.free_nbytes > 0 &&
                info.free_nbytes <= info.memory_nbytes);
    assert_true(info.alignment >= 64 && (info.alignment & (info.alignment - 1)) == 0);
    assert_true(info.numerics && info.unified && !info.is_simulated);
}

TS_TEST(wrong_numbers_and_options_are_refused)
{
    const fy_backend_option_t option = { "colour", "red", 0, 0 };
    void *other = dev;
    assert_int_equal(host->device_open(1, 0, NULL, &other), FY_STATUS_UNAVAILABLE);
    assert_null(other);
    assert_int_equal(host->device_open(0, 1, &option, &other), FY_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(last_text, "colour"));
    assert_null(other);
}

TS_TEST(memory_comes_and_goes)
{
    fy_backend_info_t info;
    void *address = NULL;
    ts_ok(host->device_query(dev, &info));
    ts_ok(host->alloc(dev, 100000, &address));
    assert_int_equal((uintptr_t)address % info.alignment, 0);
    ts_ok(host->fill(dev, NULL, address, 0x5A, 100000));
    for (int i = 0; i < 100000; i++) assert_int_equal(((unsigned char *)address)[i], 0x5A);
    host->free(dev, address, 100000);
    assert_int_equal(host->alloc(dev, UINT64_MAX, &address), FY_STATUS_OUT_OF_MEMORY);
    assert_null(address);
    assert_int_equal(host->alloc(dev, (uint64_t)1 << 60, &address), FY_STATUS_OUT_OF_MEMORY);
    assert_non_null(strstr(last_text, "1152921504606846976"));
    ts_ok(host->alloc(dev, 1, &address));
    host->free(dev, address, 1);
}

TS_TEST(copies_are_recorded_by_kind)
{
    char from[1000], to[1000];
    memset(from, 7, sizeof from);
    for (int kind = FY_COPY_UPLOAD; kind <= FY_COPY_PEER; kind++) {
        const fy_copy_t copy = { (fy_copy_kind_t)kind, 0, to, from, 900 + (uint64_t)kind };
        const uint64_t before = recorded_nbytes[kind];
        memset(to, 0, sizeof to);
        ts_ok(host->copy(dev, NULL, &copy));
        assert_int_equal(recorded_nbytes[kind] - before, copy.nbytes);
        assert_memory_equal(to, from, copy.nbytes);
        assert_int_equal(to[copy.nbytes], 0);
    }
}

TS_SUITE(.begin = open_host, .end = close_host);
