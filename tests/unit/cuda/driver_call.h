/* Functions of the fake driver, as an application looks them up. */
#ifndef FERRY_TESTS_UNIT_CUDA_DRIVER_CALL_H_
#define FERRY_TESTS_UNIT_CUDA_DRIVER_CALL_H_

#include "tests/support/fake_driver.h"

/* Puts the function into the pointer at `out`. */
static inline void find_call(const char *name, int version, void *out)
{
    int (*get)(const char *symbol, void **out_call, int version, uint64_t flags, void *status);
    void *library = dlopen(getenv("FERRY_CUDA_DRIVER"), RTLD_NOW | RTLD_LOCAL),
         *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (symbol == NULL) fail_msg("cuGetProcAddress_v2 is missing");
    memcpy(&get, &symbol, sizeof symbol);
    if (get(name, &symbol, version, 0, NULL) != 0) fail_msg("%s is missing", name);
    memcpy(out, &symbol, sizeof symbol);
}

#endif
