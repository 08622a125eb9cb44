/* Replacing a file whose name is not a regular file. Links stay and their targets are replaced.
 * Pipes and devices are written to and stay.
 * The machine's own devices are never used: the test makes one. Not here: failing disks
 * (test_safetensors_faults.c). */

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <ferry/status.h>

#include "tests/support/test.h"
#include "train/replace.h"

static char folder[64], names[4][96];

static const char *in(int i, const char *name)
{
    snprintf(names[i], sizeof names[i], "%s/%s", folder, name);
    return names[i];
}

static int begin(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/ferry-replace-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static fy_status_t put(const char *path, const char *text)
{
    fyt_replace_t file;
    FY_TRY(fyt_replace_begin(&file, path));
    const fy_status_t status = fyt_replace_write(&file, text, strlen(text));
    if (status == FY_STATUS_OK) return fyt_replace_commit(&file);
    fyt_replace_abort(&file);
    return status;
}

static void expect_text(const char *path, const char *text)
{
    char found[64] = "";
    const int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_true(read(fd, found, sizeof found - 1) >= 0);
    close(fd);
    assert_string_equal(found, text);
}

static void expect_mode(const char *path, mode_t kind)
{
    struct stat found;
    assert_int_equal(lstat(path, &found), 0);
    assert_int_equal(found.st_mode & S_IFMT, kind);
}

TS_TEST(links_stay_and_their_targets_are_replaced)
{
    assert_int_equal(put(in(0, "file"), "old"), FY_STATUS_OK);
    assert_int_equal(symlink("file", in(1, "link")), 0);
    assert_int_equal(symlink(in(1, "link"), in(2, "second")), 0); /* absolute, to a link */
    assert_int_equal(put(in(2, "second"), "new"), FY_STATUS_OK);
    expect_mode(in(1, "link"), S_IFLNK);
    expect_mode(in(2, "second"), S_IFLNK);
    expect_mode(in(0, "file"), S_IFREG);
    expect_text(in(0, "file"), "new");
}

TS_TEST(a_dangling_link_creates_its_target)
{
    assert_int_equal(symlink("later", in(1, "dangling")), 0);
    assert_int_equal(put(in(1, "dangling"), "made"), FY_STATUS_OK);
    expect_mode(in(1, "dangling"), S_IFLNK);
    expect_mode(in(0, "later"), S_IFREG);
    expect_text(in(1, "dangling"), "made");
}

TS_TEST(a_loop_of_links_is_refused)
{
    assert_int_equal(symlink("b", in(0, "a")), 0);
    assert_int_equal(symlink("a", in(1, "b")), 0);
    assert_int_equal(put(in(0, "a"), "never"), FY_STATUS_IO);
    assert_non_null(strstr(fy_error_get()->text, "symbolic links form a loop"));
    expect_mode(in(0, "a"), S_IFLNK);
    expect_mode(in(1, "b"), S_IFLNK);
}

static void *read_pipe(void *path)
{
    static char found[64];
    const int fd = open(path, O_RDONLY);
    ssize_t n, used = 0;
    while (fd >= 0 && (n = read(fd, found + used, sizeof found - 1 - (size_t)used)) > 0) used += n;
    close(fd);
    return found;
}

TS_TEST(a_pipe_is_written_to)
{
    pthread_t reader;
    void *found;
    assert_int_equal(mkfifo(in(0, "pipe"), 0600), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_pipe, (void *)(uintptr_t)in(0, "pipe")), 0);
    alarm(240); /* a pipe that was replaced has no writer: then the alarm ends the test */
    assert_int_equal(put(in(0, "pipe"), "through"), FY_STATUS_OK);
    expect_mode(in(0, "pipe"), S_IFIFO);
    pthread_join(reader, &found);
    alarm(0);
    assert_string_equal(found, "through");
}

TS_TEST(a_device_is_written_to)
{
    if (mknod(in(0, "sink"), S_IFCHR | 0600, makedev(1, 3)) != 0) {
        print_message("skipped: this process may not make device nodes\n");
        skip();
    }
    const fy_status_t status = put(in(0, "sink"), "gone");
    expect_mode(in(0, "sink"),
                S_IFCHR); /* also where device files of this folder cannot be opened */
    if (status != FY_STATUS_OK) {
        assert_int_equal(status, FY_STATUS_IO);
        print_message("skipped: %s\n", fy_error_get()->text);
        skip();
    }
}

TS_TEST(a_folder_that_cannot_be_written)
{
    if (geteuid() == 0) {
        print_message("skipped: root writes to every folder\n");
        skip();
    }
    assert_int_equal(put(in(0, "file"), "old"), FY_STATUS_OK);
    chmod(folder, 0500);
    assert_int_equal(put(in(0, "file"), "new"), FY_STATUS_IO);
    chmod(folder, 0700);
    expect_text(in(0, "file"), "old");
}

TS_SUITE(.set_up = begin, .tear_down = end);
