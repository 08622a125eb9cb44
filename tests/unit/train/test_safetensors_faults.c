/* A failing disk: the N-th call of open, write, fsync, close or rename fails, for every N, while a
 * file replaces an older one. Afterwards the old file or the new one is there, complete, with no
 * other file beside it and no open file; the next attempt succeeds. Writes that take fewer bytes
 * than requested, or are interrupted, change nothing. The linker replaces the system's functions by
 * the ones below (tests.cmake). */
#include <errno.h>
#include <fcntl.h>

#include "tests/unit/train/fixture.h"

static struct {
    int countdown; /* index of the call that fails; 0: none */
    int is_for_ever, was_reached, error;
    size_t most; /* bytes that one write takes; 0: all */
    int interrupts;
} plan;

static int fails(void)
{
    if (plan.countdown <= 0) return 0;
    if (plan.countdown > 1) {
        plan.countdown--;
        return 0;
    }
    plan.was_reached = 1;
    if (!plan.is_for_ever) plan.countdown = 0;
    errno = plan.error;
    return 1;
}

int __real_open(const char *path, int flags, ...);
ssize_t __real_write(int fd, const void *data, size_t n);
int __real_fsync(int fd);
int __real_close(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_open(const char *path, int flags, mode_t mode);
ssize_t __wrap_write(int fd, const void *data, size_t n);
int __wrap_fsync(int fd);
int __wrap_close(int fd);
int __wrap_rename(const char *from, const char *to);

int __wrap_open(const char *path, int flags, mode_t mode)
{
    return fails() ? -1 : __real_open(path, flags, mode);
}
int __wrap_fsync(int fd) { return fails() ? -1 : __real_fsync(fd); }
int __wrap_rename(const char *from, const char *to)
{
    return fails() ? -1 : __real_rename(from, to);
}
/* Also when close fails, the descriptor is closed (Linux). */
int __wrap_close(int fd)
{
    const int failed = fails(), status = __real_close(fd);
    if (failed) errno = plan.error;
    return failed ? -1 : status;
}
ssize_t __wrap_write(int fd, const void *data, size_t n)
{
    if (fails()) return -1;
    if (plan.interrupts && plan.interrupts-- % 2) {
        errno = EINTR;
        return -1;
    }
    return __real_write(fd, data, plan.most && n > plan.most ? plan.most : n);
}

static int count_entries(void)
{
    const struct dirent *entry;
    int count = 0;
    DIR *listing = opendir(folder);
    assert_non_null(listing);
    while ((entry = readdir(listing))) count += entry->d_name[0] != '.';
    closedir(listing);
    return count;
}

/* Returns the value of tensor "x" in the file, which must be complete. */
static float value_in(const char *path)
{
    fy_safetensors_t *file;
    fy_tensor_t *x;
    void *data;
    ts_ok(fy_safetensors_open(path, &file));
    ts_ok(fy_safetensors_read(file, 0, &x));
    ts_ok(fy_tensor_map(x, FY_ACCESS_READ, &data));
    const float value = *(float *)data;
    fy_tensor_destroy(x);
    fy_safetensors_close(file);
    return value;
}

static fy_status_t write_value(const char *path, float value)
{
    fy_tensor_t *x;
    fy_status_t status = fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(100), value, &x);
    const fy_safetensors_entry_t entry = { "x", x };
    if (status == FY_STATUS_OK) status = fy_safetensors_write(path, 1, &entry, 0, NULL);
    fy_tensor_destroy(x);
    return status;
}

static void fail_each(const char *path, int is_for_ever)
{
    int n = 1;
    float value = 1;
    ts_ok(write_value(path, value));
    const int open_before = ts_open_files();
    for (;; n++) {
        plan.countdown = n, plan.was_reached = 0, plan.is_for_ever = is_for_ever,
        plan.error = n % 2 ? ENOSPC : EIO;
        const fy_status_t status = write_value(path, value + 1);
        plan.countdown = 0;
        const float found = value_in(path);
        if (!plan.was_reached) {
            assert_int_equal(status, FY_STATUS_OK);
            break;
        }
        /* A failure to close the folder's descriptor at the end is not reported. */
        assert_true(status == FY_STATUS_IO || (status == FY_STATUS_OK && found == value + 1));
        /* The new file only if all bytes were written and the folder could not be synced. */
        assert_true(status == FY_STATUS_OK || found == value ||
                    (found == value + 1 && strstr(fy_error_get()->text, "folder")));
        assert_int_equal(count_entries(), 1);
        assert_int_equal(ts_open_files(), open_before);
        value = found;
    }
    /* open, write of the length, header, data, fsync, close, rename; open, fsync, close of the
     * folder */
    assert_int_equal(n, 11);
}

TS_TEST(test_each_call_fails)
{
    const char *path = in_folder("x.safetensors");
    fail_each(path, 0);
    fail_each(path, 1);
}

TS_TEST(test_short_and_interrupted_writes)
{
    const char *path = in_folder("x.safetensors");
    plan.most = 7;
    plan.interrupts = 20;
    ts_ok(write_value(path, 3));
    plan.most = 0, plan.interrupts = 0;
    assert_true(value_in(path) == 3);
}

/* Any of these calls fails while a checkpoint is saved: the folder has the previous one or the new
 * one, complete, and the training continues. */
TS_TEST(test_each_call_fails_in_a_checkpoint)
{
    fy_progress_t progress = FY_PROGRESS_INIT, found = FY_PROGRESS_INIT;
    fy_model_t *model = known_model(fy_device_host(), "linear", NULL);
    ts_ok(fy_checkpoint_save(folder, model, NULL, &progress, 1));
    const int open_before = ts_open_files();
    for (int n = 1;; n++) {
        progress.step++;
        plan.countdown = n, plan.was_reached = 0, plan.is_for_ever = 0, plan.error = EIO;
        const fy_status_t status = fy_checkpoint_save(folder, model, NULL, &progress, 1);
        plan.countdown = 0;
        assert_true(status == FY_STATUS_OK || status == FY_STATUS_IO);
        ts_ok(fy_checkpoint_load(folder, model, NULL, &found));
        if (status == FY_STATUS_OK) assert_int_equal(found.step, progress.step);
        assert_in_range(found.step, progress.step - 1, progress.step);
        progress.step = found.step;
        assert_int_equal(ts_open_files(), open_before);
        if (!plan.was_reached) break;
        assert_in_range(n, 1, 40);
    }
    assert_int_equal(count_entries(), 1);
    fy_model_destroy(model);
}

TS_SUITE(.set_up = make_folder, .tear_down = drop_folder);
