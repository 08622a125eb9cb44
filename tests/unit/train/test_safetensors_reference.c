/* The reference implementation of safetensors (PyPI) reads the files that are written here and
 * writes the same bytes; its files are read here. Skipped with the reason where Python, the package
 * or a network is missing; then only test_safetensors.c checks the bytes. */
#include <sys/wait.h>

#include "tests/unit/train/fixture.h"

/* Each dtype twice, with two shapes, so that the order of dtypes and the order of names both
 * show. */
static void write_ours(const char *path)
{
    static const char *const names[2 * FY_DTYPE_COUNT] = { "b",  "a",    "\xc3\xa9", "z\"",
                                                           "\\", "\x01", "",         "/",
                                                           "A",  "\n",   "~",        "\x7f",
                                                           "0",  "10",   "9",        "\t" };
    fy_safetensors_entry_t entries[2 * FY_DTYPE_COUNT];
    fy_tensor_t *tensors[2 * FY_DTYPE_COUNT];
    for (int i = 0; i < 2 * FY_DTYPE_COUNT; i++) {
        void *data;
        const fy_dtype_t dtype = (fy_dtype_t)(i % FY_DTYPE_COUNT);
        if (i < FY_DTYPE_COUNT)
            ts_ok(fy_tensor_create(fy_device_host(), dtype, FY_DIMS(3, 1 + i), &tensors[i]));
        else
            ts_ok(fy_tensor_create(fy_device_host(), dtype, i % 3 ? 0 : 1, (int64_t[]){ 0 },
                                   &tensors[i]));
        const fy_tensor_info_t info = ts_info(tensors[i]);
        ts_ok(fy_tensor_map(tensors[i], FY_ACCESS_WRITE, &data));
        for (uint64_t k = 0; k < info.nbytes; k++)
            ((unsigned char *)data)[k] = (unsigned char)(k % 2);
        entries[i] = (fy_safetensors_entry_t){ names[i], tensors[i] };
    }
    const fy_safetensors_pair_t pair = { "format\n", "ferry \xe2\x82\xac" };
    ts_ok(fy_safetensors_write(path, 2 * FY_DTYPE_COUNT, entries, 1, &pair));
    for (int i = 0; i < 2 * FY_DTYPE_COUNT; i++) fy_tensor_destroy(tensors[i]);
}

TS_TEST(test_the_reference_agrees)
{
    static char ours[65536], theirs[65536];
    char command[1024];
    const char *build = getenv("FERRY_BUILD_DIR"), *ours_path = in_folder("ours"),
               *theirs_path = in_folder("theirs");
    write_ours(ours_path);
    snprintf(command, sizeof command,
             "python3 tests/unit/train/safetensors_reference.py '%s/pip-safetensors' %s %s",
             build ? build : folder, ours_path, theirs_path);
    const int status = system(command);
    const int is_skipped = WIFEXITED(status) &&
                           (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127);
    if (!is_skipped) {
        assert_int_equal(status, 0);
        const size_t n = read_file(ours_path, ours, sizeof ours);
        assert_int_equal(read_file(theirs_path, theirs, sizeof theirs), n);
        assert_memory_equal(ours, theirs, n);
        fy_safetensors_t *file;
        ts_ok(fy_safetensors_open(theirs_path, &file));
        assert_int_equal(fy_safetensors_count(file), 2 * FY_DTYPE_COUNT);
        assert_string_equal(fy_safetensors_metadata(file, "format\n"), "ferry \xe2\x82\xac");
        fy_safetensors_close(file);
    }
    if (is_skipped) ts_skip("no python3, or no package of safetensors");
}

/* The package may be installed into the folder. */
static int drop_tree(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

TS_SUITE(.begin = make_folder, .end = drop_tree);
