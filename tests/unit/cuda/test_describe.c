/* The plugin's description of a card: the driver's values, and which libraries are present or
 * missing, with the reason. */
#include "fixture.h"

#include <cuda.h>

static char facts[4096];

static void note_fact(void *user, const char *key, const char *value)
{
    assert_ptr_equal(user, facts);
    size_t used = strlen(facts);
    snprintf(facts + used, sizeof facts - used, "%s=%s\n", key, value);
}

static void assert_fact(const char *line)
{
    if (strstr(facts, line) == NULL) fail_msg("'%s' is not among the facts:\n%s", line, facts);
}

TS_TEST(facts_come_from_the_driver)
{
    facts[0] = '\0';
    assert_ok(cuda->describe(dev, note_fact, facts));
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

/* A missing library is not a failure; a failing driver call is. */
TS_TEST(facts_give_the_reason_of_a_missing_library)
{
    facts[0] = '\0';
    reopen("FERRY_CUBLASLT", "/nonexistent/libcublasLt.so");
    assert_ok(cuda->describe(dev, note_fact, facts));
    assert_fact("cublaslt=not found: /nonexistent/libcublasLt.so: ");
    facts[0] = '\0';
    reopen("FERRY_CUBLASLT", "none");
    assert_ok(cuda->describe(dev, note_fact, facts));
    assert_fact("cublaslt=not used: FERRY_CUBLASLT=none");
    reopen("FERRY_CUDNN", "/nonexistent/libcudnn.so");
    assert_ok(cuda->describe(dev, note_fact, facts));
    assert_fact("cudnn=not found: /nonexistent/libcudnn.so: ");
    reopen("FERRY_CUDNN", fake_path);
    assert_ok(cuda->describe(dev, note_fact, facts));
    assert_fact("cudnn=9.");
    static const char *const asked[] = { "cuDeviceGetAttribute",  "cuDeviceGetPCIBusId",
                                         "cuDeviceGetCount",      "cuDeviceGet",
                                         "cuDeviceCanAccessPeer", "cuDeviceGetP2PAttribute" };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        fake.fake_cuda_fail(asked[i], 1, CUDA_ERROR_INVALID_VALUE);
        assert_failed(cuda->describe(dev, note_fact, facts), FY_STATUS_INVALID_ARGUMENT, asked[i]);
    }
}

TS_SUITE(.set_up = open_device, .tear_down = close_device, .prepare = load_or_skip);
