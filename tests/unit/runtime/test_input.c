/* Input files: which kinds are read and which are refused; pipes whose writer comes early, late or
 * never. Every system call and allocation of a read fails once: the error names the file, and no
 * open file or memory is left. Readers built on this: test_hostile_files.sh. */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/input.h"
#include "tests/support/harness.h"

static _Thread_local struct {
    int countdown; /* index of the call that fails; 0: none */
    int was_reached, interrupts;
    size_t most; /* bytes that one read returns; 0: all */
} plan;

static int fails(int error)
{
    if (plan.interrupts && plan.interrupts-- % 2) {
        errno = EINTR;
        return 1;
    }
    if (!plan.countdown || --plan.countdown) return 0;
    plan.was_reached = 1;
    errno = error;
    return 1;
}

int __real_open(const char *path, int flags, ...);
int __real_fstat(int fd, struct stat *facts);
ssize_t __real_read(int fd, void *to, size_t n);
int __real_poll(struct pollfd *list, nfds_t count, int ms);
int __real_fcntl(int fd, int command, ...);
void *__real_malloc(size_t nbytes);
void *__real_realloc(void *memory, size_t nbytes);
int __wrap_open(const char *path, int flags, mode_t mode);
int __wrap_fstat(int fd, struct stat *facts);
ssize_t __wrap_read(int fd, void *to, size_t n);
int __wrap_poll(struct pollfd *list, nfds_t count, int ms);
int __wrap_fcntl(int fd, int command, long argument);
void *__wrap_malloc(size_t nbytes);
void *__wrap_realloc(void *memory, size_t nbytes);

/* A call that is never interrupted is not counted as interrupted. */
static int fails_hard(int error)
{
    const int interrupts = plan.interrupts;
    plan.interrupts = 0;
    const int failed = fails(error);
    plan.interrupts = interrupts;
    return failed;
}
int __wrap_open(const char *path, int flags, mode_t mode)
{
    return fails(EIO) ? -1 : __real_open(path, flags, mode);
}
int __wrap_fstat(int fd, struct stat *facts)
{
    return fails_hard(EIO) ? -1 : __real_fstat(fd, facts);
}
ssize_t __wrap_read(int fd, void *to, size_t n)
{
    return fails(EIO) ? -1 : __real_read(fd, to, plan.most && plan.most < n ? plan.most : n);
}
int __wrap_poll(struct pollfd *list, nfds_t count, int ms)
{
    return fails(EIO) ? -1 : __real_poll(list, count, ms);
}
int __wrap_fcntl(int fd, int command, long argument)
{
    return fails_hard(EIO) ? -1 : __real_fcntl(fd, command, argument);
}
void *__wrap_malloc(size_t nbytes) { return fails_hard(ENOMEM) ? NULL : __real_malloc(nbytes); }
void *__wrap_realloc(void *memory, size_t nbytes)
{
    return fails_hard(ENOMEM) ? NULL : __real_realloc(memory, nbytes);
}

static char folder[64], path[96];

static int begin(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/ferry-input-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void write_file(const char *bytes, size_t nbytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, nbytes, file), nbytes);
    assert_int_equal(fclose(file), 0);
}

static void refuses(const char *begins, size_t most, int error, const char *says)
{
    fy__input_t input;
    char *text = path;
    size_t nbytes = 1;
    assert_int_equal(fy__input_text(&input, path, begins, most, &text, &nbytes), error);
    assert_null(text);
    if (!strstr(input.problem, says) || !strstr(input.problem, path))
        fail_msg("'%s' does not say '%s'", input.problem, says);
}

/* No file stays open. No other thread may open or close a file meanwhile. */
static void refused(const char *begins, size_t most, int error, const char *says)
{
    const int before = ts_open_files();
    refuses(begins, most, error, says);
    assert_int_equal(ts_open_files(), before);
}

TS_TEST(texts_are_read_within_limits)
{
    enum { LARGE = 300000 };
    static char large[LARGE];
    fy__input_t input;
    char *text;
    size_t nbytes;
    memset(large, 'x', sizeof large);
    write_file(large, LARGE);
    for (int limit = LARGE; limit < LARGE + 2; limit++) {
        assert_int_equal(fy__input_text(&input, path, "x", (size_t)limit, &text, &nbytes), 0);
        assert_int_equal(nbytes, LARGE);
        assert_memory_equal(text, large, LARGE);
        assert_int_equal(text[nbytes], 0);
        free(text);
    }
    refused(NULL, LARGE - 1, EFBIG, "has 300000 bytes, more than 299999");
    refused("{[", LARGE, EBADMSG, "begins with byte 0x78; expected is '{'");
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    refused(NULL, LARGE, EFBIG, "has 1099511627776 bytes");
    /* No byte is read after the piece that has the first zero of the hole. */
    write_file(" {", 2);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    assert_int_equal(fy__input_text(&input, path, "{", SIZE_MAX / 2, &text, &nbytes), 0);
    assert_true(nbytes < 1 << 20 && strlen(text) == 2);
    free(text);
    write_file("", 0);
    assert_int_equal(fy__input_text(&input, path, "{", 10, &text, &nbytes), 0);
    assert_int_equal(nbytes, 0);
    free(text);
    unlink(path);
    refused(NULL, 10, ENOENT, "cannot open");
    assert_int_equal(mkdir(path, 0700), 0);
    refused(NULL, 10, EISDIR, "it is a directory; a regular file or a pipe is expected");
    rmdir(path);
    assert_int_equal(symlink("/dev/zero", path), 0);
    refused(NULL, 10, ENOTSUP, "it is a device");
    unlink(path);
}

static void *write_pipe(void *delay_ms)
{
    usleep((useconds_t)(*(int *)delay_ms * 1000));
    const int fd = __real_open(path, O_WRONLY);
    if (fd < 0) return delay_ms;
    usleep(20000); /* the reader finds a writer and no bytes */
    const int failed = write(fd, "some ", 5) != 5 || write(fd, "text", 4) != 4;
    close(fd);
    return failed ? delay_ms : NULL;
}

/* Reads until the writer is there: on a machine with a high load it may be later than one call
 * waits. */
static int read_pipe(fy__input_t *input, size_t most_nbytes, char **text, size_t *nbytes)
{
    int error;
    do error = fy__input_text(input, path, NULL, most_nbytes, text, nbytes);
    while (error == ETIMEDOUT);
    return error;
}

TS_TEST(pipes_are_read)
{
    assert_int_equal(mkfifo(path, 0600), 0);
    refused(NULL, 100, ETIMEDOUT, "it is a pipe, and no program has opened it for writing");
    for (int delay_ms = 0; delay_ms <= 100; delay_ms += 100) {
        pthread_t thread;
        fy__input_t input;
        char *text;
        void *failed;
        size_t nbytes;
        assert_int_equal(pthread_create(&thread, NULL, write_pipe, &delay_ms), 0);
        assert_int_equal(read_pipe(&input, 100, &text, &nbytes), 0);
        assert_string_equal(text, "some text");
        free(text);
        pthread_join(thread, &failed);
        assert_null(failed);
        const int before = ts_open_files();
        assert_int_equal(pthread_create(&thread, NULL, write_pipe, &delay_ms), 0);
        assert_int_equal(read_pipe(&input, 8, &text, &nbytes), EFBIG);
        assert_non_null(strstr(input.problem, "more than 8 bytes"));
        pthread_join(thread, &failed);
        assert_null(failed);
        assert_int_equal(ts_open_files(), before);
    }
    unlink(path);
}

/* Reads the whole file with the N-th call failing, for each N. Returns the number of calls. */
static int fail_each(int is_pipe, const char *expected)
{
    int n = 1;
    const int before = ts_open_files();
    for (;; n++) {
        fy__input_t input;
        char *text;
        size_t nbytes;
        int writer = -1;
        if (is_pipe) { /* the pipe has the file's bytes, and a writer until they are read */
            writer = __real_open(path, O_RDWR | O_NONBLOCK);
            assert_int_equal(write(writer, expected, strlen(expected)), (int)strlen(expected));
            const int reader = __real_open(path, O_RDONLY | O_NONBLOCK);
            close(writer);
            writer = reader; /* keeps the bytes in the pipe */
        }
        plan.countdown = n;
        plan.was_reached = 0;
        const int error = fy__input_text(&input, path, NULL, 1 << 20, &text, &nbytes);
        plan.countdown = 0;
        if (writer >= 0) close(writer);
        assert_int_equal(ts_open_files(), before);
        if (!plan.was_reached) {
            assert_int_equal(error, 0);
            assert_string_equal(text, expected);
            free(text);
            return n - 1;
        }
        assert_true(error == EIO || error == ENOMEM);
        assert_null(text);
        assert_non_null(strstr(input.problem, path));
    }
}

TS_TEST(each_call_fails)
{
    static char large[200001];
    memset(large, 'y', sizeof large - 1);
    write_file(large, sizeof large - 1);
    /* open, fstat, malloc, read of 64 KiB; realloc, read; realloc, read; read of the end */
    assert_int_equal(fail_each(0, large), 9);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    /* open, fstat, malloc, read, two of fcntl, read of the end */
    assert_int_equal(fail_each(1, "piped"), 7);
    unlink(path);
}

TS_TEST(interrupts_and_short_reads_change_nothing)
{
    fy__input_t input;
    char *text;
    size_t nbytes;
    write_file("0123456789", 10);
    plan.interrupts = 9;
    plan.most = 3;
    const int error = fy__input_text(&input, path, NULL, 10, &text, &nbytes);
    plan.interrupts = 0;
    plan.most = 0;
    assert_int_equal(error, 0);
    assert_string_equal(text, "0123456789");
    free(text);
}

TS_SUITE(.begin = begin, .end = end);
