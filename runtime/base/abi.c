/* Structs of callers that were built with another version of a header.
 *
 * A struct only grows, behind its last byte, and 0 or the macro's value means "not asked for":
 *   1. smaller than this library's: the caller is older. Its bytes are read; the other fields have
 *      the values of the macro. Facts that it has no room for are not written.
 *   2. larger: the caller is newer. Options are accepted if the bytes that this library does not
 *      know are all 0: then nothing is asked for that it cannot do. Facts behind its own become 0.
 *   3. smaller than the first version, or larger than any struct: garbage, refused. */
#include "runtime/base/abi.h"

#define REFUSE(...) fy_error_set(FY_STATUS_INVALID_ARGUMENT, __FILE__, __LINE__, __VA_ARGS__)

fy_status_t fy__abi_check_other(const fy__abi_t *abi, const char *call, const char *what,
                                const void *given)
{
    if (!given) return REFUSE("%s: %s is NULL; start from %s", call, what, abi->init);
    const size_t size = *(const size_t *)given;
    if (size < abi->first)
        return REFUSE("%s: %s->struct_size is %zu; %s has at least %zu bytes: start from %s", call,
                      what, size, abi->name, abi->first, abi->init);
    if (size > FY__ABI_MOST)
        return REFUSE("%s: %s->struct_size is %zu; %s has %zu bytes: start from %s", call, what,
                      size, abi->name, abi->own, abi->init);
    return FY_STATUS_OK;
}

fy_status_t fy__abi_read_other(const fy__abi_t *abi, const char *call, const char *what,
                               const void *given, void *out)
{
    FY_TRY(fy__abi_check_other(abi, call, what, given));
    const size_t size = *(const size_t *)given, known = size < abi->own ? size : abi->own;
    const unsigned char *bytes = given;
    for (size_t i = abi->own; i < size; i++)
        if (bytes[i])
            return REFUSE("%s: %s->struct_size is %zu and byte %zu is not 0; this library, Ferry "
                          "%s, knows the first %zu bytes of %s\n  The program was built for a "
                          "newer Ferry: leave its new fields at 0, or install that version",
                          call, what, size, i, FERRY_VERSION, abi->own, abi->name);
    memcpy(out, abi->defaults, abi->own);
    memcpy(out, given, known);
    *(size_t *)out = abi->own;
    return FY_STATUS_OK;
}

void fy__abi_write_other(void *out, const void *facts, size_t own)
{
    const size_t size = *(const size_t *)out, known = size < own ? size : own;
    memcpy((char *)out + sizeof size, (const char *)facts + sizeof size, known - sizeof size);
    if (size > own) memset((char *)out + own, 0, size - own);
}

void fy__abi_init(const void *defaults, size_t own, void *out, size_t nbytes)
{
    if (!out || nbytes < sizeof nbytes) return;
    *(size_t *)out = nbytes;
    fy__abi_write(out, defaults, own);
}
