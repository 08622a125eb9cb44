/* Batches that are uploaded one by one: a prefetch, whose thread is the first worker, and further
 * workers that fill each batch with it.
 * The prefetch never ends, but no batch is filled before it is requested: past `until` the slots
 * stay empty, and a request for more skips them. A seek starts a new generation, and batches filled
 * before it are dropped.
 * Not here: the workers (loader_workers.c), sets that live on the device (loader_resident.c). */
#include "loader.h"

#include <ferry/ops.h>
#include <ferry/prefetch.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fyt_stream {
    fy_prefetch_t *prefetch;
    fyt_workers_t *workers;
    const fy_loader_t *loader; /* only the fields that never change */
    pid_t pid;
    /* the index of the next requested batch; used by the caller's thread only */
    uint64_t taken;

    pthread_mutex_t lock; /* guards the five below: `fill` runs on the prefetch's thread */
    int64_t epoch, step;  /* of the next batch to fill */
    /* the first batch that is not requested yet, counted from the beginning of epoch 0 */
    int64_t until;
    uint64_t generation; /* +1 for each seek, from 1 on */
    struct {
        uint64_t filled, generation;
        /* by index modulo depth + 1: 1 + the index of the last call of `fill`, NOBODYS: left
         * empty */
    } rooms[FYT_LOADER_MAX_DEPTH + 1];

    /* the value of fy_loader_limit, counted like `until`; 0: none. Used by the caller's thread
     * only */
    int64_t wanted;

    int64_t *order; /* of order_epoch; `fill` only. NULL: as they stand */
    int64_t order_epoch;
};

#define NOBODYS ((uint64_t)0)

typedef struct job {
    const fy_dataset_t *dataset;
    const fyt_augment_t *augment;
    int64_t epoch;
    size_t sample_nbytes; /* of a sample in the batch */
    const int64_t *order;
    fyt_range_t span;
    unsigned char *x, *y;
} job_t;

static void fill_piece(void *user, int piece, int pieces)
{
    const job_t *job = user;
    const fy_dataset_t *dataset = job->dataset;
    const int64_t begin = job->span.count * piece / pieces,
                  end = job->span.count * (piece + 1) / pieces;
    for (int64_t i = begin; i < end; i++) {
        const uint64_t index =
            (uint64_t)(job->order ? job->order[job->span.begin + i] : job->span.begin + i);
        unsigned char *x = job->x + (size_t)i * job->sample_nbytes;
        if (job->augment->is_on)
            fyt_augment_run(job->augment, job->epoch, index, fyt_dataset_sample(dataset, index), x);
        else
            memcpy(x, fyt_dataset_sample(dataset, index), dataset->sample_nbytes);
        memcpy(job->y + (size_t)i * dataset->label_nbytes, fyt_dataset_label(dataset, index),
               dataset->label_nbytes);
    }
}

static uint64_t rooms(const fyt_stream_t *stream)
{
    return (uint64_t)stream->loader->options.depth + 1;
}

/* Batches before this one since the beginning of epoch 0. */
static int64_t place(const fyt_stream_t *stream, int64_t epoch, int64_t step)
{
    return epoch * stream->loader->steps + step;
}

/* Returns 0 if that batch is not requested yet. */
static int take_place(fyt_stream_t *stream, uint64_t index, int64_t *out_epoch, int64_t *out_step)
{
    pthread_mutex_lock(&stream->lock);
    const int is_wanted = place(stream, stream->epoch, stream->step) < stream->until;
    *out_epoch = stream->epoch;
    *out_step = stream->step;
    stream->rooms[index % rooms(stream)].filled = index + 1;
    stream->rooms[index % rooms(stream)].generation = is_wanted ? stream->generation : NOBODYS;
    if (is_wanted && ++stream->step == stream->loader->steps) {
        stream->step = 0;
        stream->epoch++;
    }
    pthread_mutex_unlock(&stream->lock);
    return is_wanted;
}

static fy_status_t fill(void *user, fy_batch_t *batch)
{
    fyt_stream_t *stream = user;
    const fy_loader_t *loader = stream->loader;
    int64_t epoch, step;
    void *x, *y;
    if (!take_place(stream, batch->index, &epoch, &step))
        return FYT_FAIL(UNAVAILABLE, "loader: that batch is not wanted yet");
    if (stream->order && stream->order_epoch != epoch) {
        stream->order_epoch = -1;
        FY_TRY(fyt_order_read(loader->options.seed, epoch, loader->dataset->info.samples,
                              stream->order));
        stream->order_epoch = epoch;
    }
    FY_TRY(fy_tensor_map(batch->host[0], FY_ACCESS_WRITE, &x));
    FY_TRY(fy_tensor_map(batch->host[1], FY_ACCESS_WRITE, &y));
    int64_t dims[FY_MAX_RANK];
    int rank;
    job_t job = { loader->dataset,
                  &loader->augment,
                  epoch,
                  fyt_loader_sample(loader, &rank, dims),
                  stream->order,
                  fyt_loader_span(loader, step),
                  x,
                  y };
    /* a batch has rows; fy_loader_next cuts this one off */
    if (!job.span.count) job.span.count = 1;
    fyt_workers_run(stream->workers, fill_piece, &job);
    batch->rows = job.span.count;
    return FY_STATUS_OK;
}

static fy_status_t start(fyt_stream_t *stream)
{
    const fy_loader_t *loader = stream->loader;
    const fy_dataset_info_t *info = &loader->dataset->info;
    fy_prefetch_options_t options = FY_PREFETCH_OPTIONS_INIT;
    const int64_t ranks = loader->options.ranks, rows = (loader->options.batch + ranks - 1) / ranks;
    fy_batch_spec_t specs[2] = { { .dtype = info->dtype, .dims = { rows } }, { 0 } };
    specs[1].dtype = fyt_dataset_labels(info, rows, &specs[1].rank, specs[1].dims);
    fyt_loader_sample(loader, &specs[0].rank, specs[0].dims + 1);
    specs[0].rank++;
    options.depth = loader->options.depth;
    options.threads = loader->options.workers > 0;
    if (loader->options.shuffle) {
        stream->order = malloc(info->samples * sizeof *stream->order);
        if (!stream->order)
            return FYT_FAIL(OUT_OF_MEMORY,
                            "loader_create: no host memory for the order of %llu samples",
                            (unsigned long long)info->samples);
    }
    FY_TRY(fyt_workers_create(loader->options.workers ? loader->options.workers : 1,
                              &stream->workers));
    FY_TRY(fy_prefetch_create(loader->device, 2, specs, fill, stream, &options, &stream->prefetch));
    fy_prefetch_keep(stream->prefetch);
    return FY_STATUS_OK;
}

fy_status_t fyt_stream_create(const fy_loader_t *loader, fyt_stream_t **out_stream)
{
    fyt_stream_t *stream = calloc(1, sizeof *stream);
    if (!stream)
        return FYT_FAIL(OUT_OF_MEMORY, "loader_create: no host memory for %zu bytes",
                        sizeof *stream);
    stream->loader = loader;
    stream->pid = getpid();
    stream->order_epoch = -1;
    stream->generation = NOBODYS + 1;
    pthread_mutex_init(&stream->lock, NULL);
    fy_status_t status = start(stream);
    if (status != FY_STATUS_OK) {
        fyt_stream_destroy(stream);
        return status;
    }
    *out_stream = stream;
    return FY_STATUS_OK;
}

/* The lock may have been held when the process forked: check this first. */
static fy_status_t check_process(const fyt_stream_t *stream, const char *what)
{
    if (stream->pid == getpid()) return FY_STATUS_OK;
    return FYT_FAIL(
        UNAVAILABLE,
        "%s: the threads that fill the batches are not in this forked child; make a loader here",
        what);
}

fy_status_t fyt_stream_seek(fyt_stream_t *stream, int64_t epoch, int64_t step)
{
    FY_TRY(check_process(stream, "loader_seek"));
    const int is_end = step == stream->loader->steps;
    pthread_mutex_lock(&stream->lock);
    stream->epoch = is_end ? epoch + 1 : epoch;
    stream->step = is_end ? 0 : step;
    stream->until = 0;
    stream->generation++;
    pthread_mutex_unlock(&stream->lock);
    stream->wanted = 0;
    return FY_STATUS_OK;
}

void fyt_stream_limit(fyt_stream_t *stream, int64_t batches)
{
    const fy_loader_t *loader = stream->loader;
    const int64_t begin = place(stream, loader->epoch, loader->step);
    stream->wanted = !batches ? 0 : batches > INT64_MAX - begin ? INT64_MAX : begin + batches;
}

/* Requests this batch, and the ones after it up to the limit, or else to the end of its epoch. */
static void want(fyt_stream_t *stream)
{
    const fy_loader_t *loader = stream->loader;
    const int64_t now = place(stream, loader->epoch, loader->step),
                  end = place(stream, loader->epoch + 1, 0);
    pthread_mutex_lock(&stream->lock);
    stream->until = !stream->wanted ? end : stream->wanted > now ? stream->wanted : now + 1;
    pthread_mutex_unlock(&stream->lock);
}

/* Returns the next batch of this generation. It skips batches from before a seek, failed ones
 * included, and empty slots. */
static fy_status_t next_batch(fyt_stream_t *stream, fy_tensor_t **tensors, int *out_is_taken)
{
    for (;;) {
        int64_t rows;
        const fy_status_t status = fy_prefetch_next(stream->prefetch, tensors, &rows);
        /* during a recording: no batch was taken */
        if (status == FY_STATUS_UNSUPPORTED) return status;
        pthread_mutex_lock(&stream->lock);
        const uint64_t index = stream->taken++;
        const int was_filled = stream->rooms[index % rooms(stream)].filled == index + 1;
        const int is_stale = stream->rooms[index % rooms(stream)].generation != stream->generation;
        pthread_mutex_unlock(&stream->lock);
        if (was_filled && is_stale) continue;
        *out_is_taken =
            /* otherwise the prefetch failed before that (a lost device), and the batch is still to
             * be filled */
            was_filled;
        return status;
    }
}

/* Makes a separate handle to the same bytes: the loader's must outlive any action of the caller. */
static fy_status_t own_view(fy_tensor_t *tensor, fy_tensor_t **out_view)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(tensor, &info));
    return fy_reshape(tensor, info.rank, info.dims, out_view);
}

fy_status_t fyt_stream_next(fyt_stream_t *stream, const fy_loader_t *loader, fy_tensor_t **out_x,
                            fy_tensor_t **out_y, int *out_is_taken)
{
    fy_tensor_t *tensors[2];
    FY_TRY(check_process(stream, "loader_next"));
    want(stream);
    FY_TRY(next_batch(stream, tensors, out_is_taken));
    if (loader->dataset->info.dtype != FY_DTYPE_U8 && loader->normal.is_identity)
        FY_TRY(own_view(tensors[0], out_x));
    else
        FY_TRY(fyt_loader_normalise(&loader->normal, tensors[0], out_x));
    return own_view(tensors[1], out_y);
}

void fyt_stream_destroy(fyt_stream_t *stream)
{
    if (!stream) return;
    const int is_here = stream->pid == getpid();
    fy_prefetch_destroy(stream->prefetch);
    fyt_workers_destroy(stream->workers, is_here);
    if (is_here) pthread_mutex_destroy(&stream->lock);
    free(stream->order);
    free(stream);
}
