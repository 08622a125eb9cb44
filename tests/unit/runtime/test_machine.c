/* The memory that this machine can back: the figures of /proc and of control groups of both
 * versions, read from folders made here. Host, page-locked and simulated segments are checked
 * against it. No large segment is ever touched. */
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/device/machine.h"
#include "tests/support/harness.h"

#define MIB (1024ull * 1024)
#define GIB (1024 * MIB)

static char folder[64];

static void put(const char *path, const char *text)
{
    char whole[256];
    snprintf(whole, sizeof whole, "%s%s", folder, path);
    for (char *slash = strchr(whole + strlen(folder) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(whole, 0700);
        *slash = '/';
    }
    FILE *file = fopen(whole, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int begin(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ferry_machine_XXXXXX");
    assert_non_null(mkdtemp(folder));
    fy__machine_set_root(folder);
    return 0;
}

static int end(void **state)
{
    char command[96];
    (void)state;
    ts_close();
    fy__machine_set_root("");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command); /* NOLINT(cert-env33-c): a folder of this test */
}

/* ---- figures ---- */

TS_TEST(available_memory_is_read_from_proc)
{
    assert_true(fy__machine_available() == UINT64_MAX);
    put("/proc/meminfo",
        "MemTotal:       16384 kB\nMemFree:         1024 kB\nMemAvailable:    8192 kB\n");
    assert_int_equal(fy__machine_available(), 8192 * 1024);
}

TS_TEST(a_group_of_version_2_leaves_less)
{
    put("/proc/meminfo", "MemAvailable: 1048576 kB\n");
    put("/proc/self/cgroup", "0::/user/job\n");
    put("/sys/fs/cgroup/user/job/memory.max", "max\n");
    put("/sys/fs/cgroup/user/job/memory.current", "5\n");
    assert_int_equal(fy__machine_available(), GIB);
    put("/sys/fs/cgroup/user/memory.max", "100000000\n"); /* the group around it */
    put("/sys/fs/cgroup/user/memory.current", "60000000\n");
    put("/sys/fs/cgroup/user/memory.stat",
        "anon 7\nfile 9\ninactive_file 4000000\nactive_file 1000000\n");
    assert_int_equal(fy__machine_available(), 45000000); /* pages of files can be reclaimed */
    put("/sys/fs/cgroup/user/job/memory.max", "1000\n");
    assert_int_equal(fy__machine_available(), 995);
    put("/sys/fs/cgroup/user/job/memory.current", "2000\n");
    assert_int_equal(fy__machine_available(), 0);
}

TS_TEST(a_group_of_version_1_leaves_less)
{
    put("/proc/meminfo", "MemAvailable: 1048576 kB\n");
    put("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/box/7f\n2:cpuacct:/\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "12345\n");
    assert_int_equal(fy__machine_available(), GIB); /* 2^63 - 4096 means no limit */
    put("/sys/fs/cgroup/memory/box/7f/memory.limit_in_bytes", "50000000\n");
    put("/sys/fs/cgroup/memory/box/7f/memory.usage_in_bytes", "20000000\n");
    put("/sys/fs/cgroup/memory/box/7f/memory.stat",
        "total_inactive_file 1000000\ntotal_active_file 500000\n");
    assert_int_equal(fy__machine_available(), 31500000);
}

/* In a container /proc names a path that lies outside of it. */
TS_TEST(the_containers_own_group_counts)
{
    put("/proc/self/cgroup", "0::/docker/0123\n");
    put("/sys/fs/cgroup/memory.max", "4096000\n");
    put("/sys/fs/cgroup/memory.current", "96000\n");
    assert_int_equal(fy__machine_available(), 4000000);
}

/* ---- reserved and untouched bytes ---- */

static void refuses(uint64_t nbytes)
{
    fy__backing_t backing = { .hint = "do something else" };
    assert_int_equal(fy__machine_take("it", nbytes, &backing), FY_STATUS_OUT_OF_MEMORY);
    assert_true(backing.is_refused);
    ts_text_has("it: ");
    ts_text_has("that this machine has available\n  Ask for less, or do something else");
}

TS_TEST(reserved_untouched_bytes_are_not_available)
{
    fy__backing_t backing = { 0 };
    put("/proc/meminfo", "MemAvailable: 1048576 kB\n");
    put("/proc/self/statm", "99999 0 1 1 0 1 0\n");
    ts_ok(fy__machine_take("it", 700 * MIB, &backing));
    assert_false(backing.is_refused);
    refuses(700 * MIB);
    /* touched now: the bytes count once, not twice */
    put("/proc/meminfo", "MemAvailable: 324000 kB\n");
    char text[64];
    snprintf(text, sizeof text, "99999 %llu 1 1 0 1 0\n",
             710 * MIB / (unsigned long long)sysconf(_SC_PAGESIZE));
    put("/proc/self/statm", text);
    ts_ok(fy__machine_take("it", 300 * MIB, &backing));
    fy__machine_give(300 * MIB);
    refuses(350 * MIB);
    fy__machine_give(700 * MIB);
}

TS_TEST(small_segments_read_no_file)
{
    fy__backing_t backing = { 0 };
    put("/proc/meminfo", "MemAvailable: 1048576 kB\n");
    ts_ok(fy__machine_take("it", MIB, &backing));
    put("/proc/meminfo", "MemAvailable: 0 kB\n"); /* every check from here on refuses */
    for (int i = 0; i < 15; i++) ts_ok(fy__machine_take("it", MIB, &backing));
    refuses(MIB);
    fy__machine_give(16 * MIB);
}

/* ---- devices ---- */

static const fy_oom_verdict_t *is_refused(fy_device_t *device, uint64_t nbytes)
{
    fy_tensor_t *tensor;
    ts_fails(fy_zeros(device, FY_DTYPE_U8, FY_DIMS((int64_t)nbytes), &tensor), OUT_OF_MEMORY);
    assert_null(tensor);
    assert_non_null(fy_error_get()->oom);
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_MACHINE);
    return fy_error_get()->oom;
}

TS_TEST(a_simulated_device_cannot_exceed_the_machine)
{
    fy_tensor_t *half, *other;
    fy_device_t *one = ts_open("sim:0"), *two = ts_open("sim:1?profile=a100");
    put("/proc/meminfo", "MemAvailable: 1048576 kB\n");
    (void)is_refused(one, 100 * GIB); /* of its 140 GiB */
    ts_text_has("sim:0: 107374182400 bytes asked for (100.0 GiB): more than the 10737");
    ts_text_has(" (1.0 GiB) that this machine has available");
    ts_text_has("Would help: ask for less, or open it with numerics=off");
    /* reserved, and never touched */
    ts_ok(fy_empty(one, FY_DTYPE_U8, FY_DIMS((int64_t)(600 * MIB)), &half));
    const fy_oom_verdict_t *verdict = is_refused(two, 600 * MIB);
    ts_text_has("sim:1: ");
    assert_int_equal(verdict->would_help, 0); /* no bytes to free on this device */
    fy_tensor_destroy(half);
    ts_ok(fy_memory_trim(one, 0, NULL));
    ts_ok(fy_empty(two, FY_DTYPE_U8, FY_DIMS((int64_t)(600 * MIB)), &other));
    verdict = is_refused(two, 800 * MIB);
    assert_int_equal(verdict->would_help, 600 * MIB);
    ts_text_has("Would help: free 629145600 live bytes (600.0 MiB, all those of one segment), or "
                "ask for less");
    fy_tensor_destroy(other); /* the hint is true */
    ts_ok(fy_empty(two, FY_DTYPE_U8, FY_DIMS((int64_t)(800 * MIB)), &other));
    fy_tensor_destroy(other);
    ts_fails(fy_memory_reserve(two, 20 * GIB), OUT_OF_MEMORY);
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_MACHINE);
    ts_fails(fy_memory_reserve(two, 90 * GIB),
             OUT_OF_MEMORY); /* its own capacity is checked first */
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_TOO_LARGE);
}

TS_TEST(segments_that_grow_are_checked_too)
{
    fy_device_t *device = ts_open("sim:0?segments=virtual");
    fy_tensor_t *first, *more;
    put("/proc/meminfo", "MemAvailable: 1048576 kB\n");
    ts_ok(fy_empty(device, FY_DTYPE_U8, FY_DIMS((int64_t)(600 * MIB)), &first));
    (void)is_refused(device, 600 * MIB);
    fy_tensor_destroy(first);
    ts_ok(fy_empty(device, FY_DTYPE_U8, FY_DIMS((int64_t)(900 * MIB)), &more));
}

TS_TEST(a_device_without_numerics_has_the_profiles_capacity)
{
    fy_device_t *device = ts_open("sim:0?numerics=off");
    put("/proc/meminfo", "MemAvailable: 1048576 kB\n");
    (void)ts_zeros(device, FY_DTYPE_U8, FY_DIMS((int64_t)(100 * GIB)));
}

/* The padding of this convolution of one small image makes a result of 16 GB. */
TS_TEST(absurd_padding_is_refused)
{
    fy_device_t *device = ts_open("sim:0");
    fy_conv2d_attrs_t attrs = FY_CONV2D_ATTRS_INIT;
    attrs.padding_h = attrs.padding_w = 32000;
    put("/proc/meminfo", "MemAvailable: 1048576 kB\n");
    fy_tensor_t *x = ts_full(device, FY_DIMS(1, 8, 8, 1), 0),
                *w = ts_full(device, FY_DIMS(1, 3, 3, 1), 0), *y;
    ts_fails_with(fy_conv2d(x, w, NULL, &attrs, &y), OUT_OF_MEMORY, "16387072144 bytes asked for",
                  "that this machine has available");
}

TS_TEST(host_and_page_locked_memory_cannot_exceed_the_machine)
{
    fy_device_t *device = ts_open("sim:0");
    fy_tensor_t *tensor;
    put("/proc/meminfo", "MemAvailable: 1048576 kB\n");
    ts_fails(fy_tensor_create(fy_device_host(), FY_DTYPE_U8, FY_DIMS((int64_t)(2 * GIB)), &tensor),
             OUT_OF_MEMORY);
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_MACHINE);
    ts_text_has("host: 2147483648 bytes asked for");
    assert_null(strstr(fy_error_get()->text, "numerics=off"));
    ts_fails(fy_tensor_create_pinned(device, FY_DTYPE_U8, FY_DIMS((int64_t)(2 * GIB)), &tensor),
             PINNED_LIMIT);
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_MACHINE);
    assert_null(strstr(fy_error_get()->text, "numerics=off"));
}

TS_SUITE(.set_up = begin, .tear_down = end);
