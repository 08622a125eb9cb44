/* In a build with AddressSanitizer, free bytes of host and page-locked pools are marked as invalid:
 * a read of one stops the program. Each stray access happens in a separate child process. Other
 * builds skip. */
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/asan.h"
#include "tests/support/harness.h"

#ifdef FY__ASAN

/* The child's access to `data`, which has `nbytes` bytes. */
typedef enum stray { IN_BOUNDS, PAST_THE_END, BEFORE_THE_BEGINNING, AFTER_ITS_END } stray_t;

/* Child: makes a tensor of page-locked or host memory and reads. It exits with 0 if no check stops
 * it. */
static int read_it(const char *kind, int64_t nbytes, stray_t stray)
{
    fy_device_t *device;
    fy_tensor_t *x = NULL, *y = NULL;
    void *data;
    if (fy_device_open(strcmp(kind, "pinned") == 0 ? "sim:0" : "host", &device) != FY_STATUS_OK)
        return 3;
    /* keeps the segment */
    if (fy_tensor_create_pinned(device, FY_DTYPE_U8, FY_DIMS(nbytes), &y) != FY_STATUS_OK) return 4;
    if (fy_tensor_create_pinned(device, FY_DTYPE_U8, FY_DIMS(nbytes), &x) != FY_STATUS_OK) return 4;
    if (fy_tensor_map(x, FY_ACCESS_WRITE, &data) != FY_STATUS_OK) return 5;
    volatile uint8_t *bytes = data;
    memset(data, 1, (size_t)nbytes);
    switch (stray) {
    case IN_BOUNDS: return bytes[0] + bytes[nbytes - 1] == 2 ? 0 : 6;
    case PAST_THE_END: return bytes[nbytes] == 77;
    case BEFORE_THE_BEGINNING: return bytes[-1] == 77;
    case AFTER_ITS_END: fy_tensor_destroy(x); return bytes[nbytes / 2] == 77;
    }
    return 7;
}

/* Returns the standard error and the exit status of a child. */
static int in_child(const char *kind, int64_t nbytes, stray_t stray, char *out, size_t size)
{
    int ends[2], status = -1;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        _exit(read_it(kind, nbytes, stray));
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t n;
    char rest[512];
    while ((n = read(ends[0], used + 1 < size ? out + used : rest,
                     used + 1 < size ? size - 1 - used : sizeof rest)) > 0)
        if (used + 1 < size) used += (size_t)n;
    out[used] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

TS_TEST(stray_accesses_are_caught)
{
    static const char *const kinds[] = { "pinned", "host" };
    static const int64_t sizes[] = { 100, 1000, 60001, 1 << 20 };
    char text[4096];
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 4; i++) {
            const int status = in_child(kinds[k], sizes[i], IN_BOUNDS, text, sizeof text);
            if (status != 0)
                fail_msg("%s, %lld bytes: %d: %s", kinds[k], (long long)sizes[i], status, text);
            for (stray_t stray = PAST_THE_END; stray <= AFTER_ITS_END; stray++) {
                /* Blocks are adjacent: only a block with room behind it, or before it, shows the
                 * error. */
                if (stray == PAST_THE_END && sizes[i] % 64 == 0) continue;
                if (stray == BEFORE_THE_BEGINNING && sizes[i] % 64 == 0) continue;
                assert_int_not_equal(in_child(kinds[k], sizes[i], stray, text, sizeof text), 0);
                if (!strstr(text, "use-after-poison"))
                    fail_msg("%s, %lld bytes, stray %d: %s", kinds[k], (long long)sizes[i],
                             (int)stray, text);
            }
        }
}

#else

static int prepare(void)
{
    printf("skipped: this build has no AddressSanitizer\n");
    return 77;
}

TS_SUITE(.prepare = prepare);

#endif
