/* Wrapped calls of the system; see host_files.h. */
#include "tests/support/host_files.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

/* Calls of any thread until one fails; < 0: none fails, or it has failed. */
static _Atomic int reads_left = -1, writes_left = -1;

ssize_t __real_read(int fd, void *bytes, size_t nbytes);
ssize_t __real_write(int fd, const void *bytes, size_t nbytes);
ssize_t __wrap_read(int fd, void *bytes, size_t nbytes);
ssize_t __wrap_write(int fd, const void *bytes, size_t nbytes);

static int fails_now(_Atomic int *left, int error)
{
    if (atomic_load(left) < 0 || atomic_fetch_sub(left, 1) != 0) return 0;
    errno = error;
    return 1;
}

ssize_t __wrap_read(int fd, void *bytes, size_t nbytes)
{
    return fails_now(&reads_left, EIO) ? -1 : __real_read(fd, bytes, nbytes);
}
ssize_t __wrap_write(int fd, const void *bytes, size_t nbytes)
{
    return fails_now(&writes_left, ENOSPC) ? -1 : __real_write(fd, bytes, nbytes);
}

void ts_fail_read(int left) { atomic_store(&reads_left, left); }
void ts_fail_write(int left) { atomic_store(&writes_left, left); }
int ts_read_failed(void) { return atomic_load(&reads_left) < 0; }
int ts_write_failed(void) { return atomic_load(&writes_left) < 0; }
