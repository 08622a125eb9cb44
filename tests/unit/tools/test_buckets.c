/* Gradient buckets (tools/network/overlap.h): where each ends. */

#include "tests/support/test.h"
#include "tools/network/overlap.h"

TS_TEST(a_bucket_ends_with_the_gradient_that_fills_it)
{
    static const uint64_t nbytes[] = { 5, 5, 90, 20, 79, 1, 100, 3 };
    size_t ends[8];
    assert_int_equal(buckets_cut(8, nbytes, 10, 100, 0, ends), 4);
    assert_int_equal(ends[0], 2); /* 5 + 5 */
    assert_int_equal(ends[1], 4); /* 90 + 20: more than 100, but no gradient is divided */
    assert_int_equal(ends[2], 7); /* 79 + 1 + 100 */
    assert_int_equal(ends[3], 8); /* the rest */
}

TS_TEST(a_last_full_bucket_has_no_empty_one_behind_it)
{
    size_t ends[2];
    assert_int_equal(buckets_cut(2, (const uint64_t[]){ 10, 100 }, 10, 100, 0, ends), 2);
    assert_int_equal(ends[0], 1);
    assert_int_equal(ends[1], 2);
    assert_int_equal(buckets_cut(1, (const uint64_t[]){ 3 }, 10, 100, 0, ends), 1);
    assert_int_equal(ends[0], 1);
    assert_int_equal(buckets_cut(0, NULL, 10, 100, 0, ends), 0);
}

TS_TEST(the_last_gradients_have_a_separate_bucket)
{
    static const uint64_t nbytes[] = { 10, 50, 60, 20, 4, 5 };
    size_t ends[6];
    assert_int_equal(buckets_cut(6, nbytes, 10, 100, 9, ends), 4);
    assert_int_equal(ends[1], 3);
    assert_int_equal(ends[2], 4);
    assert_int_equal(ends[3], 6);
    assert_int_equal(buckets_cut(6, nbytes, 10, 100, 4, ends), 3); /* the last one is too large */
    assert_int_equal(buckets_cut(6, nbytes, 1000, 1000, 1000, ends), 1); /* all are last ones */
    assert_int_equal(ends[0], 6);
}
