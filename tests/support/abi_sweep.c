/* Sweeping struct_size. */
#include "tests/support/abi_sweep.h"

#include "tests/support/harness.h"

enum { TAIL = 24, FILLED = 0xAB };

/* A struct of `size` bytes: the defaults as far as it has room, `tail` in the bytes behind. */
static unsigned char *make(const fy__abi_t *abi, size_t size, int tail)
{
    unsigned char *given = malloc(size);
    assert_non_null(given);
    memset(given, tail, size);
    memcpy(given, abi->defaults, size < abi->own ? size : abi->own);
    *(size_t *)given = size;
    return given;
}

static void accepted(const ts_abi_case_t *test, size_t size, int tail)
{
    unsigned char *given = make(test->abi, size, tail);
    ts_ok(test->call(given));
    assert_int_equal(*(size_t *)given, size);
    for (size_t i = test->abi->own; i < size; i++) assert_int_equal(given[i], 0);
    free(given);
}

static void refused(const ts_abi_case_t *test, size_t size, size_t claimed, int tail)
{
    char number[32];
    unsigned char *given = make(test->abi, size, tail);
    *(size_t *)given = claimed;
    ts_fails_with(test->call(given), INVALID_ARGUMENT, "struct_size", test->abi->name);
    snprintf(number, sizeof number, "is %zu", claimed);
    ts_text_has(number);
    free(given);
}

void ts_abi_sweep(const ts_abi_case_t *test)
{
    const fy__abi_t *abi = test->abi;
    print_message("%s: %s\n", test->name, abi->name);
    assert_true(abi->first <= abi->own && abi->own <= FY__ABI_MOST);
    assert_int_equal(*(const size_t *)abi->defaults, abi->own);
    for (size_t size = abi->first; size <= abi->own; size += 8) accepted(test, size, FILLED);
    accepted(test, abi->own + TAIL, 0);
    accepted(test, FY__ABI_MOST, 0);
    if (test->is_options) {
        refused(test, abi->own + TAIL, abi->own + TAIL, FILLED);
        unsigned char *given = make(abi, abi->own + TAIL, 0);
        given[abi->own + TAIL - 1] = 1; /* the very last byte alone */
        ts_fails_with(test->call(given), INVALID_ARGUMENT, "a newer Ferry");
        free(given);
    } else
        accepted(test, abi->own + TAIL, FILLED);
    refused(test, abi->own, 0, 0);
    refused(test, abi->own, 1, 0);
    refused(test, abi->own, abi->first - 1, 0);
    refused(test, abi->own, FY__ABI_MOST + 1, 0);
    refused(test, abi->own, SIZE_MAX, 0);
}
