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
    assert_int_equal(buckets_cut(8, nbytes, 10, 100, 0, ends), 4);
    assert_int_equal(ends[0], 2); /* 5 + 5 */
    assert_int_equal(ends[1], 4); /* 90 + 20: more than 100, but no gradient is divided */
    assert_int_equal(ends[2], 7); /* 79 + 1 + 100 */
    assert_int_equal(ends[3], 8); /* the rest */
}

static void a_last_full_bucket_has_no_empty_one_behind_it(void **state)
{
    size_t ends[2];
    (void)state;
    assert_int_equal(buckets_cut(2, (const uint64_t[]){ 10, 100 }, 10, 100, 0, ends), 2);
    assert_int_equal(ends[0], 1);
    assert_int_equal(ends[1], 2);
    assert_int_equal(buckets_cut(1, (const uint64_t[]){ 3 }, 10, 100, 0, ends), 1);
    assert_int_equal(ends[0], 1);
    assert_int_equal(buckets_cut(0, NULL, 10, 100, 0, ends), 0);
}

static void the_last_gradients_have_a_separate_bucket(void **state)
{
    static const uint64_t nbytes[] = { 10, 50, 60, 20, 4, 5 };
    size_t ends[6];
    (void)state;
    assert_int_equal(buckets_cut(6, nbytes, 10, 100, 9, ends), 4);
    assert_int_equal(ends[1], 3);
    assert_int_equal(ends[2], 4);
    assert_int_equal(ends[3], 6);
    assert_int_equal(buckets_cut(6, nbytes, 10, 100, 4, ends), 3); /* the last one is too large */
    assert_int_equal(buckets_cut(6, nbytes, 1000, 1000, 1000, ends), 1); /* all are last ones */
    assert_int_equal(ends[0], 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_ends_with_the_gradient_that_fills_it),
        cmocka_unit_test(a_last_full_bucket_has_no_empty_one_behind_it),
        cmocka_unit_test(the_last_gradients_have_a_separate_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
