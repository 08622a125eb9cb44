/* runtime/base: checked arithmetic, the error record, device specs and byte sizes, one element as a
 * double.
 * Pure functions; no device is opened. */
#include <math.h>

#include "runtime/base/checked.h"
#include "runtime/base/dtype.h"
#include "runtime/base/fail.h"
#include "runtime/base/spec.h"
#include "tests/support/harness.h"
#include "tests/support/value.h"

TS_TEST(checked_arithmetic)
{
    uint64_t out;
    assert_true(fy__mul_u64(1ull << 32, (1ull << 32) - 1, &out));
    assert_false(fy__mul_u64(1ull << 32, 1ull << 32, &out));
    assert_true(fy__add_u64(UINT64_MAX, 0, &out));
    assert_false(fy__add_u64(UINT64_MAX, 1, &out));
    assert_true(fy__round_up_u64(65, 64, &out));
    assert_int_equal(out, 128);
    assert_true(fy__round_up_u64(0, 64, &out));
    assert_int_equal(out, 0);
    assert_false(fy__round_up_u64(UINT64_MAX - 3, 64, &out));
}

static fy_status_t inner(int n) { return FY_FAIL(SHAPE_MISMATCH, "inner: %d", n); }
static fy_status_t outer(void)
{
    FY_TRY(inner(7));
    return FY_FAIL(INTERNAL, "not reached");
}

TS_TEST(the_record_is_written_once)
{
    ts_fails_with(outer(), SHAPE_MISMATCH, "inner: 7");
    assert_non_null(strstr(fy_error_get()->file, "test_base.c"));
    char longer[1000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(FY_FAIL(IO, "%s", longer), FY_STATUS_IO); /* truncated and terminated */
    assert_int_equal(strlen(fy_error_get()->text), sizeof fy_error_get()->text - 1);
    fy_oom_verdict_t verdict = { .struct_size = sizeof verdict,
                                 .status = FY_STATUS_PINNED_LIMIT,
                                 .asked = 77,
                                 .text = "too much" };
    assert_int_equal(fy__fail_with_verdict(__FILE__, __LINE__, &verdict), FY_STATUS_PINNED_LIMIT);
    verdict.asked = 0; /* the record has its own copy */
    assert_int_equal(fy_error_get()->oom->asked, 77);
    ts_text_has("too much");
    (void)inner(1);
    assert_null(fy_error_get()->oom);
}

TS_TEST(a_failure_names_the_function_that_was_called)
{
    assert_int_equal(fy__fail_in("outer", FY_STATUS_OK), FY_STATUS_OK);
    ts_fails(inner(1), SHAPE_MISMATCH);
    assert_int_equal(fy__fail_in("pad", FY_STATUS_SHAPE_MISMATCH), FY_STATUS_SHAPE_MISMATCH);
    ts_text_has("pad: inner: ");
    assert_non_null(strstr(fy_error_get()->file, "test_base.c"));
    (void)!fy__fail_in("pad", FY_STATUS_SHAPE_MISMATCH);
    assert_null(strstr(fy_error_get()->text, "pad: pad:"));
    const fy_oom_verdict_t verdict = { .struct_size = sizeof verdict,
                                       .status = FY_STATUS_OUT_OF_MEMORY,
                                       .text = "too much" };
    const fy_status_t status = fy__fail_with_verdict(__FILE__, __LINE__, &verdict);
    assert_int_equal(fy__fail_in("pad", status), FY_STATUS_OUT_OF_MEMORY);
    assert_string_equal(fy_error_get()->text, "too much");
}

TS_TEST(specs)
{
    fy__spec_t spec;
    ts_ok(fy__spec_parse("sim:12?capacity=8GiB&order=eager", &spec));
    assert_string_equal(spec.backend, "sim");
    assert_int_equal(spec.index, 12);
    assert_int_equal(spec.noptions, 2);
    assert_string_equal(spec.option[0].key, "capacity");
    assert_string_equal(spec.option[0].value, "8GiB");
    assert_true(spec.option[0].is_size);
    assert_int_equal(spec.option[0].nbytes, 8ull << 30);
    assert_string_equal(spec.option[1].key, "order");
    assert_false(spec.option[1].is_size);
    static const char *const bad[] = {
        "sim:",
        "sim:x",
        "sim:1x",
        "sim:-1",
        "sim:99999999999",
        ":0",

        "sim:0?a",
        "sim:0?=1",
        "sim:0?a=1&b=2&a=1",

        "abcdefghijklmnopqrstuvwxyz:0",
        "sim:0?a=1&b=1&c=1&d=1&e=1&f=1&g=1&h=1&i=1&j=1&k=1&l=1&m=1"
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (fy__spec_parse(bad[i], &spec) != FY_STATUS_INVALID_ARGUMENT)
            fail_msg("\"%s\" was taken", bad[i]);
    }
    char longest[600] = "sim:0?a=";
    memset(longest + 8, 'b', sizeof longest - 9);
    ts_fails(fy__spec_parse(longest, &spec), INVALID_ARGUMENT);
}

TS_TEST(byte_sizes)
{
    static const struct {
        const char *text;
        uint64_t nbytes;
    } good[] = { { "64", 64 },           { "4k", 4096 },
                 { "4K", 4096 },         { "1KiB", 1024 },
                 { "1kB", 1000 },        { "1.5MiB", 3 << 19 },
                 { "2GB", 2000000000 },  { "8GiB", 8ull << 30 },
                 { "1TiB", 1ull << 40 }, { "0", 0 } };
    uint64_t nbytes;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (!fy__bytes_parse(good[i].text, &nbytes) || nbytes != good[i].nbytes)
            fail_msg("%s: %llu", good[i].text, (unsigned long long)nbytes);
    }
    static const char *const bad[] = {
        "", "x", "-1", "1XiB", "1 GiB", "1e400", "99999999999TiB", "nan", "inf", "1Gi B"
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (fy__bytes_parse(bad[i], &nbytes))
            fail_msg("\"%s\" was taken as %llu", bad[i], (unsigned long long)nbytes);
    }
}

TS_TEST(one_element)
{
    ts_random_t random = { 3 };
    for (fy_dtype_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        assert_int_equal(fy__dtype_sizes[dtype], fy_dtype_size(dtype));
        ts_array_t values;
        unsigned char bytes[64 * 8 + 1];
        ts_array_make(&values, dtype, 1, (int64_t[]){ 64 });
        ts_array_fill(&values, TS_SPECIAL, 0, -1, &random);
        for (uint64_t k = 0; k < 64; k++) ts_encode(&values, k, bytes + 1, k); /* unaligned */
        for (uint64_t k = 0; k < 64; k++) {
            double got = fy__dtype_read_f64(dtype, bytes + 1 + k * fy_dtype_size(dtype)),
                   want = ts_array_get(&values, k);
            if (got != want && !(isnan(got) && isnan(want)))
                fail_msg("%s: got %g, want %g", fy_dtype_name(dtype), got, want);
        }
        ts_array_free(&values);
    }
}
