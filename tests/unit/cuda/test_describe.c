/* The plugin's description of a card: the driver's values, and which libraries are present or
 * missing, with the reason. */
#include "fixture.h"

#include <cuda.h>

TS_TEST(facts_come_from_the_driver)
{
    read_facts();
    assert_fact("driver=13.0\ncompute_capability=9.0\nprocessors=4\nclock_mhz=1500\n");
    assert_fact("l2_bytes=52428800\n");
    assert_fact("pci_bus=0000:1b:00.0\n");
    assert_fact("peer_cuda:1=NVLink\n");
    assert_fact("cublaslt=13.0.0, ");
    assert_fact("libfake_cuda.so\n");
    assert_fact("segments=fixed\n");
    assert_fact("cudnn=not used: FERRY_CUDNN=none");
    assert_fact("nccl=2.27.3, ");
    const char *once = strstr(facts, "driver=");
    assert_null(strstr(once + 1, "driver=")); /* each appears once */
}

static void expect(const char *variable, const char *value, const char *fact)
{
    reopen(variable, value);
    read_facts();
    assert_fact(fact);
}

/* A missing library is not a failure; a failing driver call is. */
TS_TEST(facts_give_the_reason_of_a_missing_library)
{
    expect("FERRY_CUBLASLT", "/nonexistent/libcublasLt.so",
           "cublaslt=not found: /nonexistent/libcublasLt.so: ");
    expect("FERRY_CUBLASLT", "none", "cublaslt=not used: FERRY_CUBLASLT=none");
    expect("FERRY_CUDNN", "/nonexistent/libcudnn.so",
           "cudnn=not found: /nonexistent/libcudnn.so: ");
    expect("FERRY_CUDNN", fake_path, "cudnn=9.");
    static const char *const asked[] = { "cuDeviceGetAttribute",  "cuDeviceGetPCIBusId",
                                         "cuDeviceGetCount",      "cuDeviceGet",
                                         "cuDeviceCanAccessPeer", "cuDeviceGetP2PAttribute" };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        driver.fake_cuda_fail(asked[i], 1, CUDA_ERROR_INVALID_VALUE);
        assert_failed(cuda->describe(dev, note_fact, facts), FY_STATUS_INVALID_ARGUMENT, asked[i]);
    }
}

TS_SUITE(.set_up = open_device, .tear_down = close_device, .prepare = load_or_skip);
