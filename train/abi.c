/* The rows of libferry_train's structs with a struct_size, and their fy_..._init functions. */
#include "abi.h"

#include <ferry/train/train.h>

#define X(name, NAME, last)                                                                      \
    static const fy_##name##_t name##_defaults = FY_##NAME##_INIT;                               \
    const fy__abi_t fy__abi_##name = { "fy_" #name "_t", "FY_" #NAME "_INIT",                    \
                                       FY__ABI_SIZE(fy_##name##_t, last), sizeof(fy_##name##_t), \
                                       &name##_defaults };
FYT_ABI_OPTIONS(X)
FYT_ABI_FACTS(X)
#undef X

#define X(name, NAME, last)                                                      \
    void fy_##name##_init(fy_##name##_t *options, size_t nbytes)                 \
    {                                                                            \
        fy__abi_init(&name##_defaults, sizeof name##_defaults, options, nbytes); \
    }
FYT_ABI_OPTIONS(X)
#undef X
