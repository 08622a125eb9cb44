/* Host segments, in whichever mode this program is: jemalloc's own arena if the program carries jemalloc, else mmap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#include "alloc/host_segments.h"
#include "runtime/memory.h"

extern void *mallocx(size_t nbytes, int flags) __attribute__((weak));

static void name_says_what_is_there(void **state)
{
    (void)state;
    print_message("host memory comes from %s\n", fy__host_allocator_name());
    assert_string_equal(fy__host_allocator_name(), mallocx ? "jemalloc" : "mmap");
    assert_ptr_equal(fy__host_allocator_name(), fy__host_allocator_name());
}

static void segments_of_all_sizes(void **state)
{
    (void)state;
    static const uint64_t sizes[] = { 1, 64, 4095, 4096, 4097, 100000, (2u << 20) - 1, 2u << 20, (2u << 20) + 1, 5000000, 33u << 20 };
    enum { COUNT = sizeof sizes / sizeof *sizes };
    unsigned char *segments[COUNT];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++) {
            void *address;
            assert_int_equal(fy__host_segment_alloc(sizes[i], &address), FY_STATUS_OK);
            segments[i] = address;
            assert_int_equal((uintptr_t)address & (sizes[i] >= (2u << 20) ? (2u << 20) - 1 : 4095), 0);
            memset(address, i + 1, sizes[i]);
        }
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(segments[i][0], i + 1);
            assert_int_equal(segments[i][sizes[i] - 1], i + 1);
            fy__host_segment_free(segments[i], sizes[i]);
        }
    }
    fy__host_segment_free(NULL, 4096);
}

static void what_no_machine_has_is_refused(void **state)
{
    (void)state;
    static const uint64_t sizes[] = { 0, 1ull << 60, INT64_MAX, UINT64_MAX - 4096, UINT64_MAX };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *address = &address;
        assert_int_equal(fy__host_segment_alloc(sizes[i], &address), FY_STATUS_OUT_OF_MEMORY);
        assert_null(address);
        assert_non_null(strstr(fy_error_get()->text, "gives no segment"));
    }
}

static void *take_and_give(void *failures)
{
    for (uint64_t i = 1; i < 200; i++) {
        void *address;
        if (fy__host_segment_alloc(i * 10007, &address) != FY_STATUS_OK) {
            ++*(int *)failures;
            continue;
        }
        memset(address, 1, 64);
        fy__host_segment_free(address, i * 10007);
    }
    return NULL;
}

static void many_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    int failures[4] = { 0 };
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, &failures[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(failures[i], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_threads), /* first: initialisation races, if there are any */
        cmocka_unit_test(name_says_what_is_there),
        cmocka_unit_test(segments_of_all_sizes),
        cmocka_unit_test(what_no_machine_has_is_refused),
    };
    return cmocka_run_group_tests_name("alloc/host_segments", tests, NULL, NULL);
}
