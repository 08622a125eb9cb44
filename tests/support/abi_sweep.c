/* Sweeping struct_size. */
#include "tests/support/abi_sweep.h"

#include "tests/support/harness.h"

enum { TAIL = 24, FILLED = 0xAB };

static int nwrong; /* negative numbers that were not refused */

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

/* A number of 4 or 8 bytes in a copy of the defaults. */
static void expect_refused(const ts_abi_case_t *test, const char *field, size_t offset, size_t size,
                           int64_t value)
{
    char *given = malloc(test->abi->own);
    assert_non_null(given);
    memcpy(given, test->abi->defaults, test->abi->own);
    memcpy(given + offset, &value, size); /* little-endian */
    const fy_scope_t scope = fy_scope_begin("negative");
    const fy_status_t status = test->call(given);
    fy_scope_end(scope, 0, NULL);
    if (status != FY_STATUS_INVALID_ARGUMENT) {
        print_error("%s: %s is %lld: status %d\n", test->name, field, (long long)value, status);
        nwrong++;
    }
    free(given);
}

void ts_abi_refuse_negative(const char *interface, const ts_abi_case_t *cases, size_t count,
                            const ts_abi_signed_t *may)
{
    char line[512], field[128], type[8];
    size_t offset, nfields = 0;
    FILE *file = fopen(interface, "r");
    if (!file) fail_msg("%s is not there: run this from the sources", interface);
    nwrong = 0;
    while (fgets(line, sizeof line, file)) {
        const int is_int =
            sscanf(line, "struct %127[a-z0-9_.]: %7s at %zu", field, type, &offset) == 3 &&
            strcmp(type, "int") == 0;
        if (!is_int && sscanf(line, "struct %127[a-z0-9_.]: long int at %zu", field, &offset) != 2)
            continue;
        int64_t least = 0;
        for (const ts_abi_signed_t *m = may; m->field; m++)
            if (strcmp(m->field, field) == 0) least = m->least;
        for (size_t i = 0; i < count; i++) {
            const size_t length = strcspn(field, ".");
            if (!cases[i].is_options || strncmp(cases[i].abi->name, field, length) != 0 ||
                strcmp(cases[i].abi->name + length, "_t") != 0)
                continue;
            nfields++;
            for (int64_t below = 1; least != INT64_MIN && below < 3; below++)
                expect_refused(&cases[i], field, offset, is_int ? 4 : 8, least - below);
            if (least != INT64_MIN)
                expect_refused(&cases[i], field, offset, is_int ? 4 : 8,
                               is_int ? INT32_MIN : INT64_MIN);
        }
    }
    fclose(file);
    assert_true(nfields > 5); /* the file was understood */
    if (nwrong) fail_msg("%d negative numbers were not refused", nwrong);
}
