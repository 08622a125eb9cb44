/* Host memory that fails on request: for programs that are linked with the allocator's calls
 * wrapped (tests/faults/tests.cmake). */
#ifndef FERRY_TESTS_SUPPORT_HOST_MEMORY_H_
#define FERRY_TESTS_SUPPORT_HOST_MEMORY_H_

/* Of this thread's next allocations, `left` succeed and the one after them fails, once; -1: none
 * fails. */
void ts_fail_allocation(int left);
/* Returns whether it has failed. */
int ts_allocation_failed(void);

#endif
