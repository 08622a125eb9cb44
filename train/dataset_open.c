/* Known data sets by name: the places of their files, and which part of them is for training and
 * which for testing.
 * Not here: reading the files (dataset_idx.c, dataset_cifar10.c, table_text.c). */
#include "dataset.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SYNTHETIC_TRAIN 10000
#define SYNTHETIC_TEST  2000
#define AIRFOIL_ROWS    1503
#define AIRFOIL_TEST    3
#define AIRFOIL_MOST    (16u << 20) /* bytes; the file has 59,984 */

/* The seeds of synthetic parts: never the same samples in both. */
enum { SEED_TRAIN = 1, SEED_TEST = 2 };

/* The first that exists of directory/FILE, directory/FILE.gz, directory/NAME/FILE,
 * directory/NAME/FILE.gz, from malloc; NULL if none does. One that cannot be looked at counts:
 * opening it says why. Tables are never compressed: `packed` is 0 for them. */
static fy_status_t find_file(const char *directory, const char *name, const char *file, int packed,
                             char **out_path)
{
    const size_t room = strlen(directory) + strlen(name) + strlen(file) + 8;
    char *path = *out_path = malloc(room);
    if (!path)
        return FYT_FAIL(OUT_OF_MEMORY, "dataset_open: no host memory for a path of %zu bytes",
                        room);
    for (int way = 0; way < 4; way++) {
        if (way % 2 && !packed) continue;
        snprintf(path, room, "%s/%s%s%s%s", directory, way < 2 ? "" : name, way < 2 ? "" : "/",
                 file, way % 2 ? ".gz" : "");
        if (access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR)) return FY_STATUS_OK;
    }
    free(path);
    *out_path = NULL;
    return FY_STATUS_OK;
}

/* IO if `others` are there: a part of a set is no missing one. */
static fy_status_t fail_missing(const char *directory, const char *name, const char *file,
                                bool others)
{
    return fy_error_set(
        others ? FY_STATUS_IO : FY_STATUS_UNAVAILABLE, __FILE__, __LINE__,
        "no %s in %s or %s/%s\n  Say where the files of %s lie, or give no directory: "
        "then samples are made up",
        file, directory, directory, name, name);
}

static fy_status_t open_mnist(const char *directory, int is_test, fy_dataset_t **out_dataset)
{
    static const char *const files[2][4] = {
        { "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "train-images-idx3-ubyte (or .gz)",
          "train-labels-idx1-ubyte (or .gz)" },
        { "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "t10k-images-idx3-ubyte (or .gz)",
          "t10k-labels-idx1-ubyte (or .gz)" },
    };
    if (!directory)
        return fy_dataset_synthetic_digits(is_test ? SYNTHETIC_TEST : SYNTHETIC_TRAIN,
                                           is_test ? SEED_TEST : SEED_TRAIN, out_dataset);
    char *images = NULL, *labels = NULL;
    fy_status_t status = find_file(directory, "mnist", files[is_test][0], 1, &images);
    if (status == FY_STATUS_OK)
        status = find_file(directory, "mnist", files[is_test][1], 1, &labels);
    if (status == FY_STATUS_OK)
        status = images && labels ? fy_dataset_read_idx(images, labels, NULL, out_dataset)
                                  : fail_missing(directory, "mnist", files[is_test][images ? 3 : 2],
                                                 images || labels);
    free(images);
    free(labels);
    return status;
}

static fy_status_t open_cifar10(const char *directory, int is_test, fy_dataset_t **out_dataset)
{
    char *paths[5] = { NULL };
    char file[32];
    size_t count = 0;
    fy_status_t status = FY_STATUS_OK;
    if (!directory)
        return fy_dataset_synthetic_images(is_test ? SYNTHETIC_TEST : SYNTHETIC_TRAIN,
                                           is_test ? SEED_TEST : SEED_TRAIN, out_dataset);
    for (int i = 1; status == FY_STATUS_OK && i <= (is_test ? 1 : 5); i++) {
        snprintf(file, sizeof file, is_test ? "test_batch.bin" : "data_batch_%d.bin", i);
        status = find_file(directory, "cifar10", file, 1, &paths[count]);
        if (paths[count]) count++;
    }
    if (status == FY_STATUS_OK)
        status = count
                     ? fy_dataset_read_cifar10(count, (const char *const *)paths, NULL, out_dataset)
                     : fail_missing(directory, "cifar10",
                                    is_test ? "test_batch.bin (or .gz)"
                                            : "data_batch_1.bin to data_batch_5.bin (or .gz)",
                                    false);
    for (size_t i = 0; i < count; i++) free(paths[i]);
    return status;
}

static fy_status_t open_airfoil(const char *directory, int is_test, fy_dataset_t **out_dataset)
{
    fy_table_options_t options = FY_TABLE_OPTIONS_INIT;
    options.max_nbytes = AIRFOIL_MOST;
    fy_table_t *table = NULL;
    fy_dataset_t *all = NULL, *train = NULL, *test = NULL;
    char *path = NULL;
    if (directory) FY_TRY(find_file(directory, "airfoil", "airfoil_self_noise.dat", 0, &path));
    if (directory && !path)
        return fail_missing(directory, "airfoil", "airfoil_self_noise.dat", false);
    fy_status_t status = path ? fy_table_read(path, &options, &table)
                              : fy_table_synthetic(AIRFOIL_ROWS, SEED_TRAIN, &table);
    if (status == FY_STATUS_OK && fy_table_rows(table) <= AIRFOIL_TEST)
        status = FYT_FAIL(CORRUPT_DATA,
                          "%s: %llu rows; the last %d are for testing, and there must be others",
                          path, (unsigned long long)fy_table_rows(table), AIRFOIL_TEST);
    if (status == FY_STATUS_OK) status = fy_table_standardise(table, NULL, NULL);
    if (status == FY_STATUS_OK) status = fy_dataset_from_table(table, 1, &all);
    if (status == FY_STATUS_OK)
        status = fy_dataset_split(all, fy_table_rows(table) - AIRFOIL_TEST, -1, &train, &test);
    if (status == FY_STATUS_OK) *out_dataset = is_test ? test : train;
    if (status == FY_STATUS_OK) fy_dataset_destroy(is_test ? train : test);
    fy_dataset_destroy(all);
    fy_table_destroy(table);
    free(path);
    return status;
}

fy_status_t fy_dataset_open(const char *name, const char *directory, int is_test,
                            fy_dataset_t **out_dataset)
{
    FY_TRY(FYT_CLEAR_OUT("dataset_open", out_dataset));
    if (!name) return FYT_FAIL(INVALID_ARGUMENT, "dataset_open: name is NULL");
    if (strcmp(name, "mnist") == 0) return open_mnist(directory, !!is_test, out_dataset);
    if (strcmp(name, "cifar10") == 0) return open_cifar10(directory, !!is_test, out_dataset);
    if (strcmp(name, "airfoil") == 0) return open_airfoil(directory, !!is_test, out_dataset);
    return FYT_FAIL(INVALID_ARGUMENT,
                    "dataset_open: no data set '%s'; there are mnist, cifar10 and airfoil", name);
}
