/* FERRY_WATCH=1: the page of figures that a process shares, its content, its mode, fork, exit, and
 * each of its system calls failing once. Each case is a process, because the variable is read once.
 * Not here: what `ferry watch` shows (tests/unit/tools/test_watch.sh). */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/live_page.h"
#include "tests/support/harness.h"

/* ---- calls that fail: tests.cmake replaces them in the library's objects ---- */

static int countdown; /* index of the call that fails; 0: none */
static bool was_reached;

static bool fails(void)
{
    if (!countdown || --countdown) return false;
    was_reached = true;
    return true;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    if (strstr(path, FY__LIVE_PREFIX) && fails()) return errno = EACCES, -1;
    return __real_open(path, flags, 0600);
}

int __real_posix_fallocate(int fd, off_t offset, off_t nbytes);
int __wrap_posix_fallocate(int fd, off_t offset, off_t nbytes);
int __wrap_posix_fallocate(int fd, off_t offset, off_t nbytes)
{
    return fails() ? ENOSPC : __real_posix_fallocate(fd, offset, nbytes);
}

void *__real_mmap(void *at, size_t nbytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t nbytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t nbytes, int protection, int flags, int fd, off_t offset)
{
    if (nbytes == sizeof(fy__live_page_t) && fails()) return errno = ENOMEM, MAP_FAILED;
    return __real_mmap(at, nbytes, protection, flags, fd, offset);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user)
{
    return fails() ? EAGAIN : __real_pthread_create(thread, attributes, run, user);
}

/* ---- processes ---- */

#define CHECK TS_CHILD_CHECK

static void page_path(pid_t pid, char path[64])
{
    snprintf(path, 64, FY__LIVE_FOLDER "/" FY__LIVE_PREFIX "%ld", (long)pid);
}

static bool has_page(pid_t pid)
{
    char path[64];
    page_path(pid, path);
    return access(path, F_OK) == 0;
}

/* Runs `body` in a process with FERRY_WATCH=`value`, which exits with 0; returns its number. */
static pid_t run(const char *value, void (*body)(void))
{
    const pid_t child = ts_fork();
    if (child == 0) {
        char path[64];
        page_path(getpid(), path);
        (void)unlink(path); /* of a killed process that had this number */
        setenv("FERRY_WATCH", value, 1);
        body();
        exit(0);
    }
    ts_child_ends(child);
    return child;
}

static const fy__live_page_t *map_page(void)
{
    char path[64];
    struct stat found;
    page_path(getpid(), path);
    const int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && fstat(fd, &found) == 0);
    CHECK((found.st_mode & 0777) == 0600 && found.st_uid == geteuid());
    const fy__live_page_t *page = mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(page != MAP_FAILED && page->magic == FY__LIVE_MAGIC && page->nbytes == sizeof *page);
    CHECK(page->pid == (uint64_t)getpid() && !page->ended);
    close(fd);
    return page;
}

/* The figures of an update that began after the call. */
static fy__live_figures_t next_figures(const fy__live_page_t *page)
{
    fy__live_figures_t figures = { 0 };
    uint64_t first = 0;
    for (int i = 0; i < 120000; i++) {
        if (fy__live_read(page, &figures) && !first) first = figures.updates + 1;
        if (first && figures.updates > first) return figures;
        usleep(1000);
    }
    CHECK(!"the figures are updated");
    return figures;
}

static fy_status_t upload(fy_device_t *device)
{
    float data[256] = { 0 };
    fy_tensor_t *host, *sent;
    FY_TRY(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(256), data, NULL, NULL, &host));
    const fy_status_t status = fy_tensor_upload(host, device, NULL, &sent);
    fy_tensor_destroy(host);
    if (status == FY_STATUS_OK) fy_tensor_destroy(sent);
    return status;
}

/* ---- the cases ---- */

static void share(void)
{
    fy_device_t *device;
    fy_tensor_t *held;
    int status;
    CHECK(fy_device_open("sim:0", &device) == FY_STATUS_OK);
    const fy__live_page_t *page = map_page();
    CHECK(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(1000), &held) == FY_STATUS_OK);
    CHECK(upload(device) == FY_STATUS_OK);
    fy__live_figures_t figures = next_figures(page);
    CHECK(figures.upload.count == 1 && figures.upload.nbytes == 1024 && figures.requests >= 1);
    CHECK(figures.ndevices == 2 && strcmp(figures.devices[1].name, "sim:0") == 0);
    CHECK(figures.devices[1].live >= 4000 && figures.refusals == 0);
    const fy_scope_t scope = fy_scope_begin("guarded");
    CHECK(fy_scope_guard(&(fy_guard_options_t)FY_GUARD_LIGHT_ONLY) == FY_STATUS_OK);
    for (int i = 0; i < FY__LIVE_NOTES + 2; i++)
        CHECK(upload(device) == FY_STATUS_REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
    figures = next_figures(page);
    CHECK(figures.refusals == FY__LIVE_NOTES + 2 && figures.upload.count == 1);
    const fy__live_note_t *last = &figures.notes[figures.refusals % FY__LIVE_NOTES];
    CHECK(last->number == figures.refusals && strstr(last->text, "REFUSED_BY_GUARD: "));
    /* A child has no page, and its exit leaves the parent's. */
    const pid_t child = fork();
    if (child == 0) {
        char path[64];
        page_path(getpid(), path);
        (void)unlink(path);
        CHECK(fy_device_open("host", &device) == FY_STATUS_OK && !has_page(getpid()));
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
    CHECK(has_page(getpid()) && !page->ended);
    CHECK(next_figures(page).refusals == FY__LIVE_NOTES + 2);
    fy_tensor_destroy(held);
    fy_device_close(device);
}

TS_TEST(a_process_shares_its_figures_until_it_exits) { assert_false(has_page(run("1", share))); }

static void open_without_page(void)
{
    fy_device_t *device;
    CHECK(fy_device_open("sim:0", &device) == FY_STATUS_OK);
    CHECK(upload(device) == FY_STATUS_OK && !has_page(getpid()));
    fy_device_close(device);
}

TS_TEST(nothing_is_shared_unless_requested)
{
    run("0", open_without_page);
    run("", open_without_page);
}

static void open_malformed(void)
{
    fy_device_t *device;
    CHECK(fy_device_open("sim:0", &device) == FY_STATUS_INVALID_ARGUMENT);
    CHECK(strstr(fy_error_get()->text, "FERRY_WATCH") != NULL);
}

TS_TEST(another_value_is_an_error) { run("yes", open_malformed); }

static char logged[512];
static void note_log(void *user, fy_log_level_t level, const char *text)
{
    (void)user;
    if (level == FY_LOG_WARNING) snprintf(logged, sizeof logged, "%s", text);
}

/* The host opens the page: nothing that fails ends the program or leaves a file. */
static void open_with_failure(void)
{
    const int which = countdown;
    fy_device_t *device;
    fy_log_set(note_log, NULL);
    CHECK(fy_device_open("host", &device) == FY_STATUS_OK);
    CHECK(was_reached && countdown == 0 && which > 0);
    CHECK(strstr(logged, "FERRY_WATCH=1: nothing is shared: ") != NULL && !has_page(getpid()));
    CHECK(fy_device_open("sim:0", &device) == FY_STATUS_OK && upload(device) == FY_STATUS_OK);
    fy_device_close(device);
}

TS_TEST(each_call_that_fails_is_logged)
{
    for (int n = 1; n <= 4; n++) {
        countdown = n;
        assert_false(has_page(run("1", open_with_failure)));
    }
    countdown = 0;
    assert_false(has_page(run("1", share)));
}
