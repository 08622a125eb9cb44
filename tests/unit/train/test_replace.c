/* Replacing a file whose name is not a regular file. Links stay and their targets are replaced.
 * Pipes and devices are written to and stay.
 * The machine's own devices are never used: the test makes one. Not here: failing disks
 * (test_safetensors_faults.c). */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tests/unit/train/fixture.h"
#include "train/fail.h"

static fy_status_t put(const char *path, const char *text)
{
    fy__replace_t file;
    FY_TRY(fyt_replace_begin(&file, path));
    const fy_status_t status = fyt_replace_write(&file, text, strlen(text));
    if (status == FY_STATUS_OK) return fyt_replace_commit(&file);
    fy__replace_abort(&file);
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
    assert_int_equal(put(in_folder("file"), "old"), FY_STATUS_OK);
    assert_int_equal(symlink("file", in_folder("link")), 0);
    assert_int_equal(symlink(in_folder("link"), in_folder("second")), 0); /* absolute, to a link */
    assert_int_equal(put(in_folder("second"), "new"), FY_STATUS_OK);
    expect_mode(in_folder("link"), S_IFLNK);
    expect_mode(in_folder("second"), S_IFLNK);
    expect_mode(in_folder("file"), S_IFREG);
    expect_text(in_folder("file"), "new");
}

/* The new file keeps the mode of the old one, whatever the umask is; a new name gets 0666. */
TS_TEST(a_replaced_file_keeps_its_mode)
{
    static const mode_t modes[] = { 0600, 0640, 0664, 0755 };
    struct stat found;
    const mode_t mask = umask(022);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        assert_int_equal(put(in_folder("kept"), "old"), FY_STATUS_OK);
        assert_int_equal(chmod(in_folder("kept"), modes[i]), 0);
        assert_int_equal(put(in_folder("kept"), "new"), FY_STATUS_OK);
        assert_int_equal(stat(in_folder("kept"), &found), 0);
        assert_int_equal(found.st_mode & 07777, modes[i]);
    }
    assert_int_equal(put(in_folder("made"), "new"), FY_STATUS_OK);
    assert_int_equal(stat(in_folder("made"), &found), 0);
    assert_int_equal(found.st_mode & 07777, 0644);
    umask(mask);
}

/* Only root may give a file to another user. */
TS_TEST(a_replaced_file_keeps_its_owner)
{
    struct stat found;
    assert_int_equal(put(in_folder("given"), "old"), FY_STATUS_OK);
    if (chown(in_folder("given"), 65534, 65534)) return;
    assert_int_equal(put(in_folder("given"), "new"), FY_STATUS_OK);
    assert_int_equal(stat(in_folder("given"), &found), 0);
    assert_int_equal(found.st_uid, 65534);
    assert_int_equal(found.st_gid, 65534);
}

/* The longest names that file systems have, in bytes; the last one has characters of two bytes. */
TS_TEST(long_names_are_written)
{
    char name[256], path[512];
    for (size_t length = 200; length <= 255; length++) {
        memset(name, 'n', length);
        name[length] = 0;
        snprintf(path, sizeof path, "%s/%s", folder, name);
        assert_int_equal(put(path, "long"), FY_STATUS_OK);
        expect_text(path, "long");
    }
    for (size_t i = 0; i < 254; i += 2) memcpy(name + i, "\xc3\xa4", 3);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(put(path, "long"), FY_STATUS_OK);
    expect_text(path, "long");
}

TS_TEST(a_dangling_link_creates_its_target)
{
    assert_int_equal(symlink("later", in_folder("dangling")), 0);
    assert_int_equal(put(in_folder("dangling"), "made"), FY_STATUS_OK);
    expect_mode(in_folder("dangling"), S_IFLNK);
    expect_mode(in_folder("later"), S_IFREG);
    expect_text(in_folder("dangling"), "made");
}

TS_TEST(a_loop_of_links_is_refused)
{
    assert_int_equal(symlink("b", in_folder("a")), 0);
    assert_int_equal(symlink("a", in_folder("b")), 0);
    assert_int_equal(put(in_folder("a"), "never"), FY_STATUS_IO);
    assert_non_null(strstr(fy_error_get()->text, "symbolic links form a loop"));
    expect_mode(in_folder("a"), S_IFLNK);
    expect_mode(in_folder("b"), S_IFLNK);
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

TS_TEST(an_empty_path_is_refused) { ts_fails_with(put("", "text"), IO, "its path is \"\""); }

TS_TEST(a_pipe_is_written_to)
{
    pthread_t reader;
    void *found;
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_pipe, (void *)(uintptr_t)in_folder("pipe")),
                     0);
    alarm(240); /* a pipe that was replaced has no writer: then the alarm ends the test */
    assert_int_equal(put(in_folder("pipe"), "through"), FY_STATUS_OK);
    expect_mode(in_folder("pipe"), S_IFIFO);
    pthread_join(reader, &found);
    alarm(0);
    assert_string_equal(found, "through");
}

TS_TEST(a_device_is_written_to)
{
    if (mknod(in_folder("sink"), S_IFCHR | 0600, makedev(1, 3)) != 0) {
        print_message("skipped: this process may not make device nodes\n");
        skip();
    }
    const fy_status_t status = put(in_folder("sink"), "gone");
    expect_mode(in_folder("sink"),
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
    assert_int_equal(put(in_folder("file"), "old"), FY_STATUS_OK);
    chmod(folder, 0500);
    assert_int_equal(put(in_folder("file"), "new"), FY_STATUS_IO);
    chmod(folder, 0700);
    expect_text(in_folder("file"), "old");
}

TS_SUITE(.set_up = make_folder, .tear_down = drop_folder);
