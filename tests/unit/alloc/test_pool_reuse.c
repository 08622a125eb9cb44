/* The fallback stages that neither grow nor wait: a ready block, a block pending on the requesting
 * stream, a finished block, joined neighbours, a block of another stream. Each stage must serve in
 * its situation, and only when the earlier stages do not. */
#include "tests/unit/alloc/fake.h"

enum { S1 = 1, S2 = 2, S3 = 3 };

TS_TEST(ready_block_is_reused)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    fy__block_t *block = take(pool, 100 * KIB, S1);
    void *address = block->address;
    give_done(block);
    block = take(pool, 100 * KIB, S2);
    assert_ptr_equal(block->address, address);
    assert_true(fake_hazard_done(&block->hazard));
    assert_int_equal(stats(pool).ready, 1);
    assert_int_equal(fake.alloc_calls, 1);
    fake_end_with(pool, block);
}

TS_TEST(best_fit_not_first_fit)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    fy__block_t *b[8];
    fill(pool, b, (const int[]){ 300, 4, 100, 4, 200, 4, 0 });
    void *want = b[2]->address;
    give_done(b[0]);
    give_done(b[2]);
    give_done(b[4]);
    fy__block_t *block = take(pool, 90 * KIB, S1);
    assert_ptr_equal(block->address, want);
    assert_int_equal(block->nbytes, 90 * KIB);
    give_done(block);
    const int left[] = { 1, 3, 5, 6 };
    for (int i = 0; i < 4; i++) give_done(b[left[i]]);
    assert_int_equal(query(pool).largest_free, MIB);
    fake_end(pool);
}

TS_TEST(same_stream_needs_no_wait)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    fy__block_t *b[2];
    fill(pool, b, (const int[]){ 512, 0 });
    void *address = b[0]->address;
    give(b[0], S1, 7);
    const uint64_t polls = fake.polls;
    fy__block_t *block = take(pool, 512 * KIB, S1);
    assert_ptr_equal(block->address, address);
    assert_int_equal(fake.polls, polls); /* not even a poll */
    assert_true(fake_word(&block->hazard, 0) == FY__POINT(S1, 7));
    assert_int_equal(stats(pool).same_stream, 1);
    assert_int_equal(fake.alloc_calls, 1);
    fake_end_with(pool, block, b[1]);
}

/* Blocks that one stream freed join, and the later point covers both. */
TS_TEST(same_stream_neighbours_join)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    fy__block_t *b[4];
    fill(pool, b, (const int[]){ 256, 256, 256, 0 });
    give(b[0], S1, 9);
    give(b[2], S1, 3);
    give(b[1], S1, 5);
    fy__block_t *block = take(pool, 768 * KIB, S1);
    assert_true(fake_word(&block->hazard, 0) == FY__POINT(S1, 9));
    assert_int_equal(stats(pool).same_stream, 1);
    assert_int_equal(fake.alloc_calls, 1);
    fake_end_with(pool, block, b[3]);
}

TS_TEST(finished_block_needs_no_wait_on_another_stream)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    fy__block_t *b[2];
    fill(pool, b, (const int[]){ 512, 0 });
    give(b[0], S1, 7);
    fake.done[S1] = 7;
    fy__block_t *block = take(pool, 512 * KIB, S2);
    assert_true(fake_word(&block->hazard, 0) == 0);
    assert_int_equal(stats(pool).reaped, 1);
    assert_int_equal(stats(pool).ready, 2); /* b[1] and this one */
    assert_int_equal(fake.alloc_calls, 1);
    fake_end_with(pool, block, b[1]);
}

/* Finished and free neighbours become one block. */
TS_TEST(finished_blocks_join_what_is_free)
{
    fy__pool_t *pool = fake_pool(MIB, MIB);
    fy__block_t *b[4];
    fill(pool, b, (const int[]){ 256, 256, 256, 0 });
    give(b[0], S1, 7);
    give_done(b[1]);
    give(b[2], S3, 2);
    fake.done[S1] = 7;
    fake.done[S3] = 9;
    fy__block_t *block = take(pool, 768 * KIB, S2);
    assert_int_equal(stats(pool).reaped, 2);
    assert_int_equal(stats(pool).inserted_wait, 0);
    fake_end_with(pool, block, b[3]);
}

TS_TEST(free_and_pending_neighbours_serve_their_stream)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    fy__block_t *b[5];
    fill(pool, b, (const int[]){ 128, 256, 256, 256, 0 });
    give(b[1], S1, 7);
    give_done(b[2]);
    give(b[3], S1, 9);
    fy__block_t *block = take(pool, 600 * KIB, S1);
    assert_int_equal(stats(pool).joined, 1);
    assert_int_equal(fake.alloc_calls, 1);
    assert_true(fake_word(&block->hazard, 0) == FY__POINT(S1, 9));
    assert_int_equal(query(pool).pending, 168 * KIB); /* unneeded blocks stay unchanged */
    assert_true(fy__pool_is_valid(pool));
    fake_end_with(pool, block, b[0], b[4]);
}

TS_TEST(another_streams_block_is_handed_out_with_its_points)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    fy__block_t *b[2];
    fill(pool, b, (const int[]){ 512, 0 });
    void *address = b[0]->address;
    give(b[0], S1, 7);
    fy__block_t *block = take(pool, 200 * KIB, S2);
    assert_ptr_equal(block->address, address);
    assert_true(fake_word(&block->hazard, 0) == FY__POINT(S1, 7));
    assert_int_equal(stats(pool).inserted_wait, 1);
    assert_int_equal(fake.alloc_calls, 1); /* the pool prefers them to growth */
    assert_int_equal(fake.waits, 0);
    assert_int_equal(query(pool).pending, 312 * KIB);
    /* The other half keeps the point too. */
    fy__block_t *half = take(pool, 312 * KIB, S3);
    assert_true(fake_word(&half->hazard, 0) == FY__POINT(S1, 7));
    fake_end_with(pool, half, block, b[1]);
}

/* Adjacent blocks of three streams: the owner of the joined block waits for all of them. */
TS_TEST(neighbours_of_several_streams_are_joined_before_growing)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    fy__block_t *b[5];
    fill(pool, b, (const int[]){ 128, 256, 256, 256, 0 });
    give(b[1], S1, 7);
    fy__hazard_clear(&b[2]->hazard); /* pending on two streams only */
    atomic_store(&b[2]->hazard.writer, FY__POINT(S2, 3));
    atomic_store(&b[2]->hazard.readers[1], FY__POINT(S1, 8));
    fy__pool_free(b[2]);
    give(b[3], S3, 1);
    fy__block_t *block = take(pool, 700 * KIB, S3);
    assert_int_equal(stats(pool).inserted_wait, 1);
    assert_int_equal(fake.alloc_calls, 1);
    uint64_t seen[4] = { 0 };
    for (int i = 0; i <= FY__READER_COUNT; i++)
        if (fake_word(&block->hazard, i))
            seen[FY__POINT_STREAM(fake_word(&block->hazard, i))] =
                FY__POINT_SEQ(fake_word(&block->hazard, i));
    assert_int_equal(seen[S1], 8);
    assert_int_equal(seen[S2], 3);
    assert_int_equal(seen[S3], 1);
    fake_end_with(pool, block, b[0], b[4]);
}

/* Stream 0 is the host. It cannot wait on the device, so it never gets pending bytes. */
TS_TEST(the_host_gets_only_what_is_done)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    fy__block_t *b[2];
    fill(pool, b, (const int[]){ 512, 0 });
    give(b[0], S1, 7);
    fy__block_t *block = take(pool, 512 * KIB, 0);
    assert_int_equal(fake.alloc_calls, 2);
    assert_true(fake_hazard_done(&block->hazard));
    fake_end_with(pool, block, b[1]);
}

/* Freed blocks used by one stream are not polled: a poll may cost a call of the backend. */
TS_TEST(a_free_does_not_poll)
{
    fy__pool_t *pool = fake_pool(FY_UNLIMITED, MIB);
    for (uint64_t seq = 1; seq < 100; seq++) give(take(pool, 4 * KIB, S1), S1, seq);
    assert_int_equal(fake.polls, 0);
    assert_int_equal(query(pool).pending, 4 * KIB);
    fake.done[S1] = 99;
    assert_int_equal(query(pool).pending, 0);
    fake_end(pool);
}

TS_SUITE(.set_up = fake_set_up);
