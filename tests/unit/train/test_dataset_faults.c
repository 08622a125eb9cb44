/* Data sets are read while the N-th allocation or read fails, for every N, from raw files,
 * compressed files and pipes. The result is an error, no data set, no open file and no leaked
 * memory; the next attempt succeeds. Not here: malformed files (test_dataset_rejects.c). */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "tests/support/host_memory.h"
#include "tests/unit/train/fixture.h"

/* 1.4 MB of images: more than a reader allocates before it has seen bytes */
enum { SAMPLES = 900, SIDE = 40 };
static const char *images, *labels, *batch;

static int g_reads = -1; /* reads until one fails; < 0: none fails */
ssize_t __real_read(int fd, void *to, size_t n);
ssize_t __wrap_read(int fd, void *to, size_t n);
ssize_t __wrap_read(int fd, void *to, size_t n)
{
    if (g_reads < 0 || g_reads-- > 0) return __real_read(fd, to, n);
    errno = EIO;
    return -1;
}

static void run(const char *format)
{
    char command[256];
    snprintf(command, sizeof command, format, folder);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c): a folder of this test */
}

static void begin_file(const char *path, const unsigned char *head, size_t nhead, size_t nzeros)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, head, nhead), (int)nhead);
    assert_int_equal(ftruncate(fd, (off_t)(nhead + nzeros)), 0);
    close(fd);
}

static fy_status_t read_idx(fy_dataset_t **out_dataset)
{
    return fy_dataset_read_idx(images, labels, NULL, out_dataset);
}
static fy_status_t read_cifar10(fy_dataset_t **out_dataset)
{
    return fy_dataset_read_cifar10(1, (const char *const[]){ batch }, NULL, out_dataset);
}

static fy_status_t read_text(fy_dataset_t **out_dataset)
{
    return fy_dataset_read_text(images, 100, NULL, out_dataset);
}

/* Returns the number of calls whose failure a reader survives. */
static int fail_each(fy_status_t (*read_set)(fy_dataset_t **out_dataset), fy_status_t expected)
{
    const int before = ts_open_files();
    for (int n = 0;; n++) {
        fy_dataset_t *dataset = (fy_dataset_t *)folder;
        if (expected == FY_STATUS_IO)
            g_reads = n;
        else
            ts_fail_allocation(n);
        const fy_status_t status = read_set(&dataset);
        const int failed = expected == FY_STATUS_IO ? g_reads < 0 : ts_allocation_failed();
        g_reads = -1;
        ts_fail_allocation(-1);
        assert_int_equal(ts_open_files(), before);
        if (!failed) {
            assert_int_equal(status, FY_STATUS_OK);
            fy_dataset_destroy(dataset);
            return n;
        }
        if (status ==
            FY_STATUS_OK) { /* a buffer that could not be shrunk stays as large as it was */
            assert_int_equal(expected, FY_STATUS_OUT_OF_MEMORY);
            fy_dataset_destroy(dataset);
            continue;
        }
        assert_int_equal(status, expected);
        assert_null(dataset);
    }
}

TS_TEST(each_call_fails)
{
    const unsigned char image[] = { 0, 0, 8,    3, 0, 0, SAMPLES / 256, SAMPLES % 256, 0,
                                    0, 0, SIDE, 0, 0, 0, SIDE };
    const unsigned char label[] = { 0, 0, 8, 1, 0, 0, SAMPLES / 256, SAMPLES % 256 };
    images = in_folder("images");
    labels = in_folder("labels");
    batch = in_folder("batch");
    begin_file(images, image, sizeof image, SAMPLES * SIDE * SIDE);
    begin_file(labels, label, sizeof label, SAMPLES);
    begin_file(batch, label, 0, 40 * 3073);
    for (int packed = 0; packed < 2; packed++) {
        if (packed)
            run("cd %s && gzip -n images labels batch && for f in images labels batch; do mv $f.gz "
                "$f; done");
        assert_true(fail_each(read_idx, FY_STATUS_OUT_OF_MEMORY) >= 6);
        assert_true(fail_each(read_idx, FY_STATUS_IO) >= 4);
        assert_true(fail_each(read_cifar10, FY_STATUS_OUT_OF_MEMORY) >= 4);
        assert_true(fail_each(read_cifar10, FY_STATUS_IO) >= 2);
        assert_true(fail_each(read_text, FY_STATUS_OUT_OF_MEMORY) >= 8);
        assert_true(fail_each(read_text, FY_STATUS_IO) >= 2);
    }
}

/* The same compressed files, through pipes. */
TS_TEST(pipes_are_read)
{
    fy_dataset_info_t info = FY_DATASET_INFO_INIT;
    fy_dataset_t *dataset;
    run("cd %s && for f in images labels batch; do mv $f $f.gz && mkfifo $f; done");
    for (int packed = 0; packed < 2; packed++) {
        run(packed ? "cd %s && for f in images labels batch; do cat $f.gz >$f & done"
                   : "cd %s && for f in images labels batch; do gzip -dc $f.gz >$f & done");
        ts_ok(read_idx(&dataset));
        ts_ok(fy_dataset_query(dataset, &info));
        assert_int_equal(info.samples, SAMPLES);
        fy_dataset_destroy(dataset);
        ts_ok(read_cifar10(&dataset));
        ts_ok(fy_dataset_query(dataset, &info));
        assert_int_equal(info.samples, 40);
        fy_dataset_destroy(dataset);
    }
}

TS_SUITE(.begin = make_folder, .end = drop_folder);
