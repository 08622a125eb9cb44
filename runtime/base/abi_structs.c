/* The rows of libferry's structs with a struct_size, and their fy_..._init functions. */
#include "runtime/base/abi_structs.h"

#include <ferry/ferry.h>

#define X(name, NAME, last)                                                                      \
    static const fy_##name##_t name##_defaults = FY_##NAME##_INIT;                               \
    const fy__abi_t fy__abi_##name = { "fy_" #name "_t", "FY_" #NAME "_INIT",                    \
                                       FY__ABI_SIZE(fy_##name##_t, last), sizeof(fy_##name##_t), \
                                       &name##_defaults };
FY__ABI_OPTIONS(X)
FY__ABI_FACTS(X)
#undef X

#define X(name, NAME, last)                                                      \
    void fy_##name##_init(fy_##name##_t *options, size_t nbytes)                 \
    {                                                                            \
        fy__abi_init(&name##_defaults, sizeof name##_defaults, options, nbytes); \
    }
FY__ABI_OPTIONS(X)
#undef X
