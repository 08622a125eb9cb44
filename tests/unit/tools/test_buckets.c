/* Gradient buckets (tools/network/buckets.h): where each ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tools/network/buckets.h"

static void a_bucket_ends_with_the_gradient_that_fills_it(void **state)
{
    static const uint64_t nbytes[] = { 5, 5, 90, 20, 79, 1, 100, 3 };
    size_t ends[8];
    (void)state;
    assert_int_equal(buckets_cut(8, nbytes, 10, 100, ends), 4);
    assert_int_equal(ends[0], 2); /* 5 + 5 */
    assert_int_equal(ends[1], 4); /* 90 + 20: more than 100, but no gradient is divided */
    assert_int_equal(ends[2], 7); /* 79 + 1 + 100 */
    assert_int_equal(ends[3], 8); /* the rest */
}

static void a_last_full_bucket_has_no_empty_one_behind_it(void **state)
{
    size_t ends[2];
    (void)state;
    assert_int_equal(buckets_cut(2, (const uint64_t[]){ 10, 100 }, 10, 100, ends), 2);
    assert_int_equal(ends[0], 1);
    assert_int_equal(ends[1], 2);
    assert_int_equal(buckets_cut(1, (const uint64_t[]){ 3 }, 10, 100, ends), 1);
    assert_int_equal(ends[0], 1);
    assert_int_equal(buckets_cut(0, NULL, 10, 100, ends), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_ends_with_the_gradient_that_fills_it),
        cmocka_unit_test(a_last_full_bucket_has_no_empty_one_behind_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
