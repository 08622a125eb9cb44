/* Malformed environment variables, one row each: fy_device_open fails and names the variable. With
 * a corrected or empty value, or with FERRY_STRICT=0, it opens. */

#include "runtime/base/environment.h"
#include "tests/support/harness.h"

static const struct {
    const char *name, *bad, *good;
} rows[] = {
    { "FERRY_STRICT", "maybe", "1" },
    { "FERRY_THREADS", "0", "2" },
    { "FERRY_HOST_ALLOCATOR", "malloc", "mmap" },
    { "FERRY_MACHINE_MEMORY", "lots", "8GiB" },
    { "FERRY_MEMORY_DEBUG", "on", "none" },
    { "FERRY_FUSE", "no", "off" },
    { "FERRY_WATCH", "yes", "0" },
};

static fy_status_t open_one(const char *spec)
{
    fy_device_t *device = NULL;
    const fy_status_t status = fy_device_open(spec, &device);
    if (status == FY_STATUS_OK)
        fy_device_close(device);
    else
        assert_null(device);
    return status;
}

TS_TEST(malformed)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int is_sim = 0; is_sim < 2; is_sim++) {
            const char *spec = is_sim ? "sim:0" : "host";
            setenv(rows[i].name, rows[i].bad, 1);
            assert_int_equal(open_one(spec), FY_STATUS_INVALID_ARGUMENT);
            assert_non_null(strstr(fy_error_get()->text, rows[i].name));
            assert_non_null(strstr(fy_error_get()->text, rows[i].bad));
            if (strcmp(rows[i].name, "FERRY_STRICT") != 0) {
                setenv("FERRY_STRICT", "0", 1);
                assert_int_equal(open_one(spec), FY_STATUS_OK);
                unsetenv("FERRY_STRICT");
            }
            setenv(rows[i].name, "", 1);
            assert_int_equal(open_one(spec), FY_STATUS_OK);
            setenv(rows[i].name, rows[i].good, 1);
            assert_int_equal(open_one(spec), FY_STATUS_OK);
            unsetenv(rows[i].name);
        }
}

/* Both ways of reading treat an empty variable as unset. tests/unit/tools/test_setuid.sh tests
 * their difference. */
TS_TEST(empty_is_unset)
{
    setenv("FERRY_TEST_NOTHING", "", 1);
    assert_null(fy__env_file("FERRY_TEST_NOTHING"));
    assert_null(fy__env_value("FERRY_TEST_NOTHING"));
    setenv("FERRY_TEST_NOTHING", "x", 1);
    assert_string_equal(fy__env_file("FERRY_TEST_NOTHING"), "x");
    assert_string_equal(fy__env_value("FERRY_TEST_NOTHING"), "x");
    unsetenv("FERRY_TEST_NOTHING");
}
