/* CIFAR-10's binary format: records of a label and three planes of 32 x 32, which become pixels of
 * three channels.
 * Not here: opening and inflating (inflate.c), writing (dataset_write.c). Source of the format:
 * Krizhevsky, "The CIFAR-10 dataset". */
#include "dataset.h"

#include <stdlib.h>

#include "train/abi.h"

#define CLASSES      10
#define PIXELS       (3 * FYT_CIFAR10_PLANE)
#define RECORDS_READ 16 /* at once: the buffer is small beside the set */

static fy_status_t make_room(fyt_cifar10_t *set, const char *name)
{
    const uint64_t room = set->room ? set->room * 2 : RECORDS_READ;
    if (set->samples < set->room) return FY_STATUS_OK;
    unsigned char *data = realloc(set->data, room * PIXELS);
    if (data) set->data = data;
    int32_t *labels = data ? realloc(set->labels, room * sizeof *labels) : NULL;
    if (!labels)
        return FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory for %llu images", name,
                        (unsigned long long)room);
    set->labels = labels;
    set->room = room;
    return FY_STATUS_OK;
}

static fy_status_t take_record(fyt_cifar10_t *set, const fyt_source_t *source,
                               const unsigned char *record, uint64_t index)
{
    if (record[0] >= CLASSES)
        return FYT_FAIL(CORRUPT_DATA, "%s: byte %llu: label %d of record %llu; it may be 0 to %d",
                        source->name, (unsigned long long)(index * FYT_CIFAR10_RECORD), record[0],
                        (unsigned long long)index, CLASSES - 1);
    /* checked, not kept */
    if (set->max_samples && set->samples == set->max_samples) return FY_STATUS_OK;
    FY_TRY(make_room(set, source->name));
    unsigned char *pixels = set->data + set->samples * PIXELS;
    for (int i = 0; i < FYT_CIFAR10_PLANE; i++)
        for (int c = 0; c < 3; c++) pixels[3 * i + c] = record[1 + c * FYT_CIFAR10_PLANE + i];
    set->labels[set->samples++] = record[0];
    return FY_STATUS_OK;
}

fy_status_t fyt_cifar10_parse(fyt_cifar10_t *set, fyt_source_t *source)
{
    uint64_t got, total = 0;
    if (fyt_source_is_exact(source) && source->nbytes % FYT_CIFAR10_RECORD)
        return FYT_FAIL(CORRUPT_DATA,
                        "%s: %llu bytes are no multiple of %d, a record's size: %llu are left over",
                        source->name, (unsigned long long)source->nbytes, FYT_CIFAR10_RECORD,
                        (unsigned long long)(source->nbytes % FYT_CIFAR10_RECORD));
    unsigned char *buffer = malloc(RECORDS_READ * FYT_CIFAR10_RECORD);
    if (!buffer)
        return FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory for %d bytes", source->name,
                        RECORDS_READ * FYT_CIFAR10_RECORD);
    fy_status_t status;
    do {
        status = fyt_source_read(source, buffer, RECORDS_READ * FYT_CIFAR10_RECORD, &got);
        for (uint64_t i = 0; status == FY_STATUS_OK && i < got / FYT_CIFAR10_RECORD; i++)
            status = take_record(set, source, buffer + i * FYT_CIFAR10_RECORD,
                                 total / FYT_CIFAR10_RECORD + i);
        total += got;
    } while (status == FY_STATUS_OK && got == RECORDS_READ * FYT_CIFAR10_RECORD);
    free(buffer);
    FY_TRY(status);
    if (!total) return FYT_FAIL(CORRUPT_DATA, "%s: no records: the file is empty", source->name);
    if (total % FYT_CIFAR10_RECORD)
        return FYT_FAIL(
            CORRUPT_DATA,
            "%s: %llu bytes%s are no multiple of %d, a record's size: %llu are left over",
            source->name, (unsigned long long)total, source->z ? ", inflated," : "",
            FYT_CIFAR10_RECORD, (unsigned long long)(total % FYT_CIFAR10_RECORD));
    return FY_STATUS_OK;
}

fy_status_t fyt_cifar10_finish(fyt_cifar10_t *set, fy_dataset_t **out_dataset)
{
    fy_dataset_info_t info = FY_DATASET_INFO_INIT;
    info.samples = set->samples;
    info.rank = 3;
    info.dims[0] = info.dims[1] = FYT_CIFAR10_SIDE;
    info.dims[2] = 3;
    info.dtype = FY_DTYPE_U8;
    info.classes = CLASSES;
    fy_status_t status = FY_STATUS_OK;
    if (out_dataset) {
        unsigned char *data = realloc(set->data, (set->samples + !set->samples) * PIXELS);
        int32_t *labels = realloc(set->labels, (set->samples + !set->samples) * sizeof *labels);
        if (data) set->data = data;
        if (labels) set->labels = labels;
        status = fyt_dataset_new(status, &info, set->data, set->labels, out_dataset);
    } else {
        free(set->data);
        free(set->labels);
    }
    *set = (fyt_cifar10_t){ 0 };
    return status;
}

fy_status_t fy_dataset_read_cifar10(size_t count, const char *const *paths,
                                    const fy_dataset_options_t *options, fy_dataset_t **out_dataset)
{
    FY_TRY(FYT_CLEAR_OUT("dataset_read_cifar10", out_dataset));
    if (!count || !paths)
        return FYT_FAIL(INVALID_ARGUMENT, "dataset_read_cifar10: %s",
                        count ? "paths is NULL" : "no files");
    fy_dataset_options_t checked;
    FY_TRY(FY__READ(dataset_options, "dataset", options, &checked));
    fyt_cifar10_t set = { .max_samples = checked.max_samples };
    fy_status_t status = FY_STATUS_OK;
    for (size_t i = 0; i < count && status == FY_STATUS_OK; i++) {
        fyt_source_t source = { 0 };
        status = paths[i]
                     ? fyt_source_open_file(paths[i], checked.max_nbytes, &source)
                     : FYT_FAIL(INVALID_ARGUMENT, "dataset_read_cifar10: paths[%zu] is NULL", i);
        if (status == FY_STATUS_OK) status = fyt_cifar10_parse(&set, &source);
        fyt_source_close(&source);
    }
    if (status == FY_STATUS_OK) return fyt_cifar10_finish(&set, out_dataset);
    (void)fyt_cifar10_finish(&set, NULL);
    return status;
}
