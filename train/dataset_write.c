/* Data sets as files that dataset_idx.c and dataset_cifar10.c read: each is written to a temporary
 * file and renamed, so that no reader sees an incomplete one (fail.h). Not here: reading. */
#include "dataset.h"

#include <stdlib.h>
#include <string.h>

#include "train/fail.h"

/* A file being written, in pieces larger than samples. The first failure is kept. */
typedef struct part {
    fy__replace_t file;
    int is_begun;
    fy_status_t status;
    size_t used;
    unsigned char buffer[1 << 16];
} part_t;

static part_t *part_begin(const char *path, fy_status_t *status)
{
    if (*status != FY_STATUS_OK) return NULL;
    part_t *part = malloc(sizeof *part);
    if (!part) {
        *status = FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory for %zu bytes", path, sizeof *part);
        return NULL;
    }
    part->used = 0;
    part->status = *status = fyt_replace_begin(&part->file, path);
    part->is_begun = *status == FY_STATUS_OK;
    return part;
}

static void part_flush(part_t *part)
{
    if (part->status == FY_STATUS_OK && part->used)
        part->status = fyt_replace_write(&part->file, part->buffer, part->used);
    part->used = 0;
}

static void part_write(part_t *part, const unsigned char *bytes, size_t nbytes)
{
    while (nbytes) {
        const size_t room = sizeof part->buffer - part->used, n = nbytes < room ? nbytes : room;
        memcpy(part->buffer + part->used, bytes, n);
        part->used += n;
        bytes += n;
        nbytes -= n;
        if (part->used == sizeof part->buffer) part_flush(part);
    }
}

/* Renames the file if all writes succeeded, else deletes it. */
static void part_end(part_t *part, fy_status_t *status)
{
    if (!part) return;
    if (*status == FY_STATUS_OK) *status = part->status;
    if (part->is_begun && *status == FY_STATUS_OK)
        *status = fyt_replace_commit(&part->file);
    else if (part->is_begun)
        fy__replace_abort(&part->file);
    free(part);
}

static void put_u32(unsigned char *at, uint64_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> (24 - 8 * i));
}

/* [n, H, W] if there is one channel, else [n, H, W, C]. */
static void write_images(part_t *part, const fy_dataset_t *dataset)
{
    unsigned char header[20] = { 0, 0, 0x08, 3 };
    const int rank = dataset->info.rank == 3 && dataset->info.dims[2] > 1 ? 4 : 3;
    header[3] = (unsigned char)rank;
    put_u32(header + 4, dataset->info.samples);
    for (int i = 0; i < rank - 1; i++)
        put_u32(header + 8 + (size_t)i * 4, (uint64_t)dataset->info.dims[i]);
    part_write(part, header, 4 + (size_t)rank * 4);
    for (uint64_t i = 0; i < dataset->info.samples; i++)
        part_write(part, fyt_dataset_sample(dataset, i), dataset->sample_nbytes);
}

static void write_labels(part_t *part, const fy_dataset_t *dataset)
{
    unsigned char header[8] = { 0, 0, 0x08, 1 };
    put_u32(header + 4, dataset->info.samples);
    part_write(part, header, sizeof header);
    for (uint64_t i = 0; i < dataset->info.samples; i++) {
        const unsigned char label =
            (unsigned char)*(const int32_t *)(const void *)fyt_dataset_label(dataset, i);
        part_write(part, &label, 1);
    }
}

fy_status_t fy_dataset_write_idx(const fy_dataset_t *dataset, const char *images_path,
                                 const char *labels_path)
{
    if (!dataset || !images_path || !labels_path)
        return FYT_FAIL(INVALID_ARGUMENT, "dataset_write_idx: %s is NULL",
                        !dataset      ? "dataset"
                        : images_path ? "labels_path"
                                      : "images_path");
    const fy_dataset_info_t *info = &dataset->info;
    int fits = info->samples && info->samples <= UINT32_MAX && info->labels <= 1 &&
               (info->rank == 2 || info->rank == 3);
    for (int i = 0; i < info->rank; i++) fits = fits && info->dims[i] <= UINT32_MAX;
    if (info->dtype != FY_DTYPE_U8 || info->classes < 1 || info->classes > 256 || !fits)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "dataset_write_idx: %llu samples of %s, rank %d, %d classes: IDX takes 1 "
                        "to 2^32 - 1 images of u8 [H, W] or [H, W, C] "
                        "and 1 to 256 classes",
                        (unsigned long long)info->samples, fy_dtype_name(info->dtype), info->rank,
                        info->classes);
    fy_status_t status = FY_STATUS_OK;
    part_t *images = part_begin(images_path, &status), *labels = part_begin(labels_path, &status);
    if (status == FY_STATUS_OK) {
        write_images(images, dataset);
        write_labels(labels, dataset);
        part_flush(images);
        part_flush(labels);
        /* neither is renamed before both are written */
        status = images->status != FY_STATUS_OK ? images->status : labels->status;
    }
    part_end(images, &status);
    part_end(labels, &status);
    return status;
}

fy_status_t fy_dataset_write_cifar10(const fy_dataset_t *dataset, const char *path)
{
    if (!dataset || !path)
        return FYT_FAIL(INVALID_ARGUMENT, "dataset_write_cifar10: %s is NULL",
                        dataset ? "path" : "dataset");
    const fy_dataset_info_t *info = &dataset->info;
    if (!info->samples || info->dtype != FY_DTYPE_U8 || info->rank != 3 ||
        info->dims[0] != FYT_CIFAR10_SIDE || info->dims[1] != FYT_CIFAR10_SIDE ||
        info->dims[2] != 3 || info->classes < 1 || info->classes > 10)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "dataset_write_cifar10: %llu samples of %s, rank %d, %d classes: the "
                        "format takes u8 [32, 32, 3], one or more, of at "
                        "most 10 classes",
                        (unsigned long long)info->samples, fy_dtype_name(info->dtype), info->rank,
                        info->classes);
    fy_status_t status = FY_STATUS_OK;
    part_t *part = part_begin(path, &status);
    for (uint64_t i = 0; status == FY_STATUS_OK && i < info->samples; i++) {
        unsigned char record[FYT_CIFAR10_RECORD];
        const unsigned char *pixels = fyt_dataset_sample(dataset, i);
        record[0] = (unsigned char)*(const int32_t *)(const void *)fyt_dataset_label(dataset, i);
        for (int p = 0; p < FYT_CIFAR10_PLANE; p++)
            for (int c = 0; c < 3; c++) record[1 + c * FYT_CIFAR10_PLANE + p] = pixels[3 * p + c];
        part_write(part, record, sizeof record);
    }
    if (status == FY_STATUS_OK) part_flush(part);
    part_end(part, &status);
    return status;
}
