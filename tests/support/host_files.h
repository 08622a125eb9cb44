/* Reads and writes that fail on request: for programs that are linked with `read` and `write`
 * wrapped (tests/faults/tests.cmake). Files that the C library writes (FILE) are not covered. */
#ifndef FERRY_TESTS_SUPPORT_HOST_FILES_H_
#define FERRY_TESTS_SUPPORT_HOST_FILES_H_

/* Of the process's next calls, `left` succeed and the one after them fails, once, with EIO (reads)
 * or ENOSPC (writes); -1: none fails. */
void ts_fail_read(int left);
void ts_fail_write(int left);
/* Return whether it has failed. */
int ts_read_failed(void);
int ts_write_failed(void);

#endif
