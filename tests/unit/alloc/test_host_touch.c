/* Pages that are faulted in advance: all of them become present, their contents stay, and a forked
 * child can do it too. */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/device/memory.h"
#include "tests/support/harness.h"

enum { MIB = 1 << 20, PAGE = 4096 };

/* Maps memory without huge pages, so that each skipped page stays absent. */
static unsigned char *fresh(uint64_t nbytes)
{
    unsigned char *bytes =
        mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(bytes != MAP_FAILED);
    (void)madvise(bytes, nbytes, MADV_NOHUGEPAGE);
    return bytes;
}

static uint64_t pages_there(void *bytes, uint64_t nbytes)
{
    static unsigned char is_there[40 * MIB / PAGE];
    uint64_t count = 0;
    assert_int_equal(mincore(bytes, nbytes, is_there), 0);
    for (uint64_t i = 0; i < nbytes / PAGE; i++) count += is_there[i] & 1;
    return count;
}

static const uint64_t sizes[] = { PAGE, MIB, 8 * MIB - PAGE, 8 * MIB, 13 * MIB + PAGE, 40 * MIB };

TS_TEST(all_pages_are_there)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *bytes = fresh(sizes[i]);
        assert_int_equal(pages_there(bytes, sizes[i]), 0);
        fy__host_segment_touch(bytes, sizes[i]);
        assert_int_equal(pages_there(bytes, sizes[i]), sizes[i] / PAGE);
        munmap(bytes, sizes[i]);
    }
}

TS_TEST(bytes_stay_as_they_are)
{
    const uint64_t nbytes = 13 * MIB + PAGE;
    unsigned char *bytes = fresh(nbytes);
    for (uint64_t at = 0; at < nbytes; at++) bytes[at] = (unsigned char)(at * 7 >> 3);
    fy__host_segment_touch(bytes, nbytes);
    for (uint64_t at = 0; at < nbytes; at++)
        assert_int_equal(bytes[at], (unsigned char)(at * 7 >> 3));
    munmap(bytes, nbytes);
}

TS_TEST(a_child_faults_pages_too)
{
    unsigned char *bytes = fresh(40 * MIB);
    pthread_mutex_lock(&fy__host_segments_lock);
    const pid_t pid = fork();
    if (!pid) {
        alarm(240);
        fy__host_segments_fork_child();
        fy__host_segment_touch(bytes, 40 * MIB);
        void *segment;
        const bool ok = pages_there(bytes, 40 * MIB) == 40 * MIB / PAGE &&
                        fy__host_segment_alloc(PAGE, &segment) == FY_STATUS_OK;
        _exit(ok ? 0 : 1);
    }
    pthread_mutex_unlock(&fy__host_segments_lock);
    int how = -1;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
    munmap(bytes, 40 * MIB);
}

/* The address space is large enough, the machine is not. The driver must refuse it; a process that
 * faulted these pages would be killed. */
TS_TEST(more_bytes_than_the_machine_has_are_not_touched)
{
    const uint64_t nbytes = 8ull * (uint64_t)sysconf(_SC_PHYS_PAGES) *
                            (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned char *bytes = mmap(NULL, nbytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED) skip(); /* ulimit -v, or the kernel counts reserved bytes */
    fy__host_segment_touch(bytes, nbytes);
    assert_int_equal(pages_there(bytes, 40 * MIB), 0);
    munmap(bytes, nbytes);
}
