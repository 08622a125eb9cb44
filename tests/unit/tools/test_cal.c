/* cal_write: a profile is written completely; a link stays, and its target is written, whether it
 * existed or not; a device is written to. */
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/harness.h"
#include "tools/calibrate/cal.h"

TS_TEST(places)
{
    static const cal_t cal = { 0 };
    static const cal_origin_t origin = { .name = "made", .clock = "wall" };
    char folder[] = "/tmp/ferry-cal-XXXXXX", text[512] = "";
    struct stat found;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(symlink("later.json", "link.json"), 0); /* the target does not exist yet */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cal_write(&cal, &origin, "link.json"), FY_STATUS_OK);
        assert_int_equal(lstat("link.json", &found), 0);
        assert_true(S_ISLNK(found.st_mode));
        FILE *file = fopen("later.json", "r");
        assert_non_null(file);
        assert_true(fread(text, 1, sizeof text - 1, file) > 0);
        fclose(file);
        assert_non_null(strstr(text, "\"ferry_profile\": 1"));
    }
    assert_int_equal(cal_write(&cal, &origin, "/dev/null"), FY_STATUS_OK);
    assert_int_equal(stat("/dev/null", &found), 0);
    assert_true(S_ISCHR(found.st_mode));
    assert_int_equal(cal_write(&cal, &origin, "no/where.json"), FY_STATUS_IO);
    assert_int_equal(unlink("link.json") | unlink("later.json") | chdir("/"), 0);
    assert_int_equal(rmdir(folder), 0); /* no other file is left */
}
