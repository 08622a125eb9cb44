/* For tests of public behaviour over the CUDA plugin that also use the fake driver underneath (make
 * its calls fail, read its counts): `driver.fake_cuda_...`. They have
 * TS_SUITE(.prepare = fake_driver_or_skip).
 * Tests of the plugin's slots: tests/unit/cuda/fixture.h. */
#ifndef FERRY_TESTS_SUPPORT_FAKE_DRIVER_H_
#define FERRY_TESTS_SUPPORT_FAKE_DRIVER_H_

#include <dlfcn.h>
#include <unistd.h>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/harness.h"

static struct {
#define X(result, name, parameters) result(*name) parameters;
    FAKE_CUDA_LIST(X)
#undef X
} driver;

/* Returns 0; without the fake driver it ends the process with 77. */
static inline int fake_driver_or_skip(void)
{
    const char *build = getenv("FERRY_BUILD_DIR");
    char fake[1024], plugin[1024];
    snprintf(fake, sizeof fake, "%s/lib/tests/libfake_cuda.so", build ? build : "build");
    snprintf(plugin, sizeof plugin, "%s/lib/ferry", build ? build : "build");
    void *library = access(fake, R_OK) == 0 ? dlopen(fake, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        printf(
            "SKIP: the CUDA plugin was not built (%s is not there): no nvcc, or FERRY_CUDA=OFF\n",
            fake);
        exit(77);
    }
    setenv("FERRY_CUDA_DRIVER", fake, 1);
    setenv("FERRY_CUBLASLT", fake, 1);
    setenv("FERRY_CUDNN", "none", 1); /* a real library would not know the fake driver */
    setenv("FERRY_PLUGIN_PATH", plugin, 0);
    void *symbol;
#define X(result, name, parameters)                       \
    symbol = dlsym(library, #name);                       \
    if (symbol == NULL) fail_msg("%s is missing", #name); \
    memcpy(&driver.name, &symbol, sizeof symbol);
    FAKE_CUDA_LIST(X)
#undef X
    return 0;
}

/* Checks that no resource of the driver is alive, none was left in a destroyed context, no
 * handle was used after its end, and no launch had a fault. `what` appears in the message. */
static inline void fake_driver_is_tidy(const char *what)
{
    static const char *const kinds[FAKE_LIVE] = {
        "blocks",   "registrations",    "streams", "events",           "modules",
        "contexts", "cuBLASLt objects", "graphs",  "executable graphs"
    };
    /* the process keeps one reference to a device's context */
    for (int kind = 0; kind < FAKE_LIVE; kind++)
        if (driver.fake_cuda_live(kind) > (kind == FAKE_CONTEXTS ? 2 : 0))
            fail_msg("%s: %lld %s are left", what, (long long)driver.fake_cuda_live(kind),
                     kinds[kind] ? kinds[kind] : "objects");
    if (driver.fake_cuda_leaked() != 0)
        fail_msg("%s: %llu objects died with their context", what,
                 (unsigned long long)driver.fake_cuda_leaked());
    if (driver.fake_cuda_misuses() != 0)
        fail_msg("%s: %llu calls had a wrong handle", what,
                 (unsigned long long)driver.fake_cuda_misuses());
    const uint64_t nfaults = driver.fake_cuda_faults();
    if (nfaults != 0) fail_msg("%s: %llu launches had a fault", what, (unsigned long long)nfaults);
}

#endif
