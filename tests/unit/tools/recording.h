/* What tests of files share: a temporary file, and a recording of a program in it. A suite has
 * FILE_OF_SUITE, or calls make_file and remove_file itself. */
#ifndef FERRY_TESTS_UNIT_TOOLS_RECORDING_H_
#define FERRY_TESTS_UNIT_TOOLS_RECORDING_H_

#include <unistd.h>

#include "tests/support/harness.h"

static char path[] = "/tmp/ferry-test-XXXXXX";

static inline int make_file(void **state)
{
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static inline int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

#define FILE_OF_SUITE .begin = make_file, .end = remove_file

static inline void write_file(const void *bytes, size_t nbytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, nbytes, file), nbytes);
    assert_int_equal(fclose(file), 0);
}

/* Records a program on the device, in the scope "run". */
typedef fy_status_t (*recorded_fn)(void *user, fy_device_t *device);

static inline void record_run(const char *spec, recorded_fn run, void *user)
{
    fy_device_t *device;
    ts_ok(fy_ledger_record(path));
    ts_ok(fy_device_open(spec, &device));
    fy_scope_t scope = fy_scope_begin("run");
    ts_ok(run(user, device));
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    ts_ok(fy_ledger_record(NULL));
}

#endif
