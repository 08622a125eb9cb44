/* Carries the fatbins. The assembler reads the files, so no generator and no huge C array stand
 * between; FERRY_FATBIN_DIR comes from cmake/cuda.cmake, which also makes this file depend on
 * them. */
#include "backends/cuda/device.h"

#define X(name)                                                   \
    __asm__(".pushsection .rodata\n"                              \
            ".balign 64\n"                                        \
            "fy__cuda_fatbin_" #name ":\n"                        \
            ".incbin \"" FERRY_FATBIN_DIR "/" #name ".fatbin\"\n" \
            ".byte 0\n"                                           \
            ".popsection\n");                                     \
    extern const unsigned char fy__cuda_fatbin_##name[] __attribute__((visibility("hidden")));
FY__CUDA_MODULE_LIST(X)
#undef X

const void *fy__cuda_fatbin(int index)
{
    static const unsigned char *const fatbins[] = {
#define X(name) fy__cuda_fatbin_##name,
        FY__CUDA_MODULE_LIST(X)
#undef X
    };
    return fatbins[index];
}
