/* Host segments, from the allocator that this program uses: a jemalloc arena if the program carries
 * jemalloc and the environment does not choose mmap, else mmap. */
#include <sys/wait.h>
#include <unistd.h>

#include <pthread.h>

#include "runtime/device/memory.h"
#include "tests/support/harness.h"

extern void *mallocx(size_t nbytes, int flags) __attribute__((weak));

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

/* First, so that it meets races of the initialisation. */
TS_TEST(many_threads)
{
    pthread_t threads[4];
    int failures[4] = { 0 };
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, &failures[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(failures[i], 0);
    }
}

TS_TEST(the_name_is_that_of_the_allocator_in_use)
{
    print_message("host memory comes from %s\n", fy__host_allocator_name());
    const char *told = getenv("FERRY_HOST_ALLOCATOR");
    assert_string_equal(fy__host_allocator_name(),
                        mallocx && !(told && strcmp(told, "mmap") == 0) ? "jemalloc" : "mmap");
    assert_ptr_equal(fy__host_allocator_name(), fy__host_allocator_name());
}

TS_TEST(segments_of_all_sizes)
{
    static const uint64_t sizes[] = {
        1,       64,       4095, 4096, 4097, 100000, (2u << 20) - 1, 2u << 20, (2u << 20) + 1,
        5000000, 33u << 20
    };
    enum { COUNT = sizeof sizes / sizeof *sizes };
    unsigned char *segments[COUNT];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++) {
            void *address;
            ts_ok(fy__host_segment_alloc(sizes[i], &address));
            segments[i] = address;
            assert_int_equal((uintptr_t)address & (sizes[i] >= (2u << 20) ? (2u << 20) - 1 : 4095),
                             0);
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

/* ---- warm segments ---- */

enum { MIB = 1 << 20 };

static unsigned char *segment(uint64_t nbytes)
{
    void *address;
    ts_ok(fy__host_segment_alloc(nbytes, &address));
    return address;
}

TS_TEST(a_freed_segment_is_reused_with_its_pages)
{
    fy__host_segments_trim(0);
    unsigned char *first = segment(8 * MIB), *other = segment(3 * MIB);
    memset(first, 0x5a, 8 * MIB);
    fy__host_segment_free(first, 8 * MIB);
    assert_int_equal(fy__host_segments_warm(), 8 * MIB);
    unsigned char *small = segment(2 * MIB); /* not cut from the larger one */
    assert_int_equal(fy__host_segments_warm(), 8 * MIB);
    unsigned char *again = segment(8 * MIB - 100); /* the same number of pages */
    assert_ptr_equal(again, first);
    assert_int_equal(again[0], 0x5a);
    assert_int_equal(again[8 * MIB - 1], 0x5a); /* the same pages */
    assert_int_equal(fy__host_segments_warm(), 0);
    fy__host_segment_free(again, 8 * MIB - 100);
    fy__host_segment_free(other, 3 * MIB);
    fy__host_segment_free(small, 2 * MIB);
    assert_int_equal(fy__host_segments_warm(), 13 * MIB);
    fy__host_segments_trim(6 * MIB); /* frees the oldest first */
    assert_int_equal(fy__host_segments_warm(), 5 * MIB);
    fy__host_segments_trim(0);
    assert_int_equal(fy__host_segments_warm(), 0);
}

TS_TEST(warm_segments_are_bounded)
{
    enum { MOST = 64 * MIB, COUNT = 100 };
    void *segments[COUNT];
    fy__host_segment_free(segment(MOST + 1), MOST + 1);
    assert_int_equal(fy__host_segments_warm(), 0); /* too large to keep */
    for (int i = 0; i < 20; i++) segments[i] = segment(5 * MIB);
    for (int i = 0; i < 20; i++) {
        fy__host_segment_free(segments[i], 5 * MIB);
        assert_true(fy__host_segments_warm() <= MOST);
    }
    assert_int_equal(fy__host_segments_warm(), 60 * MIB);
    for (int i = 0; i < COUNT; i++) segments[i] = segment(4096);
    for (int i = 0; i < COUNT; i++) fy__host_segment_free(segments[i], 4096);
    assert_int_equal(fy__host_segments_warm(),
                     32 * 4096); /* the number of segments is bounded too */
    fy__host_segments_trim(0);
}

TS_TEST(a_child_finds_the_segments_intact)
{
    unsigned char *kept = segment(4 * MIB);
    kept[5] = 7;
    fy__host_segment_free(kept, 4 * MIB);
    pthread_mutex_lock(&fy__host_segments_lock);
    const pid_t pid = fork();
    pthread_mutex_unlock(&fy__host_segments_lock);
    assert_true(pid >= 0);
    if (!pid) {
        void *address = NULL;
        alarm(240);
        const bool ok = fy__host_segment_alloc(4 * MIB, &address) == FY_STATUS_OK &&
                        address == kept && kept[5] == 7;
        _exit(ok ? 0 : 1);
    }
    int how = -1;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
    fy__host_segments_trim(0);
}

/* ---- the choice of the allocator ---- */

static int complaints;
static char complaint[256];
static void note(void *user, fy_log_level_t level, const char *text)
{
    (void)user;
    if (level != FY_LOG_WARNING || !strstr(text, "FERRY_HOST_ALLOCATOR")) return;
    complaints++;
    strncpy(complaint, text, sizeof complaint - 1);
    (void)fy__host_allocator_name(); /* the log function calls the library */
}

/* Runs a new process, because the variable is read once. Expects the allocator `name` and this
 * number of warnings. */
static void in_a_new_process(const char *value, const char *name, int warnings)
{
    char command[32], told[128];
    snprintf(command, sizeof command, "%d", warnings);
    snprintf(told, sizeof told, "FERRY_HOST_ALLOCATOR=%s", value);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        (void)putenv(told);
        execl("/proc/self/exe", "test_unit_alloc", "host_segments", name, command, (char *)NULL);
        _exit(99);
    }
    int how = -1;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    if (how)
        print_error("FERRY_HOST_ALLOCATOR=%s: not %s with %d warnings\n", value, name, warnings);
    assert_int_equal(how, 0);
}

static int child(const char *name, const char *warnings)
{
    void *address;
    fy_log_set(note, NULL);
    const bool ok = fy__host_segment_alloc(4096, &address) == FY_STATUS_OK &&
                    strcmp(fy__host_allocator_name(), name) == 0;
    if (ok) fy__host_segment_free(address, 4096);
    return ok && complaints == atoi(warnings) &&
                   (!complaints || strstr(complaint, getenv("FERRY_HOST_ALLOCATOR")))
               ? 0
               : 1; /* the warning contains the value */
}

TS_TEST(the_environment_chooses_the_allocator)
{
    const char *there = mallocx ? "jemalloc" : "mmap";
    in_a_new_process("mmap", "mmap", 0);
    in_a_new_process("auto", there, 0);
    in_a_new_process("", there, 0);
    /* an allocator that is missing is not replaced silently */
    in_a_new_process("jemalloc", there, mallocx ? 0 : 1);
    in_a_new_process("tcmalloc", there, 1);
}

TS_TEST(sizes_beyond_any_machine_are_refused)
{
    static const uint64_t sizes[] = { 0, 1ull << 60, INT64_MAX, UINT64_MAX - 4096, UINT64_MAX };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *address = &address;
        ts_fails(fy__host_segment_alloc(sizes[i], &address), OUT_OF_MEMORY);
        assert_null(address);
        ts_text_has("gives no segment");
    }
}

static int prepare(void)
{
    if (*ts_arguments) exit(child(ts_arguments[0], ts_arguments[1]));
    return 0;
}

TS_SUITE(.prepare = prepare);
