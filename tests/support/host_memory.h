/* The host's memory fails when a test says so: for programs that are linked with the allocator's
 * calls wrapped (tests/faults/tests.cmake). */
#ifndef FERRY_TESTS_SUPPORT_HOST_MEMORY_H_
#define FERRY_TESTS_SUPPORT_HOST_MEMORY_H_

/* Of this thread's allocations from now on, the one after the next `left` fails, once; -1: none. */
void ts_fail_allocation(int left);
/* Has it failed? */
int ts_allocation_failed(void);

#endif
