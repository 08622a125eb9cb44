/* Transfers between a file and a device: read into, or written from, slots of the ring; no mmap,
 * and no copy between. On the host the tensor's bytes are read and written directly (the executor
 * copies nothing, so there are no wire bytes). Sizes are checked first, so a file that is too short
 * fails before anything has changed. Not here: formats; the caller knows dtype, shape and
 * offset. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/c_locale.h"
#include "runtime/base/fail.h"
#include "runtime/thread/guard.h"
#include "transfer/fetch.h"
#include "transfer/upload.h"

typedef unsigned long long ull;

/* An open file, and the tensor's range in it. */
typedef struct file {
    const char *what, *path;
    int fd;
    uint64_t offset, nbytes;
    bool moved; /* some bytes were read */
} file_t;

/* Opens it; `flags` without O_CLOEXEC. The whole range must be addressable. */
static fy_status_t open_file(file_t *file, int flags)
{
    if (file->offset > INT64_MAX || file->nbytes > INT64_MAX - file->offset)
        return FY_FAIL(INVALID_ARGUMENT, "%s: offset %llu and %llu bytes end past 2^63", file->what,
                       (ull)file->offset, (ull)file->nbytes);
    /* Non-blocking: a pipe without a program at its other end is refused (check_size), without a
     * wait. */
    do
        file->fd = open(file->path,
                        flags | O_CLOEXEC | O_NOCTTY | (flags & O_ACCMODE ? 0 : O_NONBLOCK), 0666);
    while (file->fd < 0 && errno == EINTR);
    if (file->fd >= 0) return FY_STATUS_OK;
    return FY_FAIL(IO, "%s: cannot open '%s': %s", file->what, file->path, fy__strerror(errno));
}

static fy_status_t too_short(const file_t *file, uint64_t nbytes)
{
    return FY_FAIL(CORRUPT_DATA,
                   "%s: '%s' has %llu bytes from offset %llu on; the tensor needs %llu", file->what,
                   file->path, (ull)nbytes, (ull)file->offset, (ull)file->nbytes);
}

/* A device file has no size: only reading it shows a lack of bytes. */
static fy_status_t check_size(const file_t *file)
{
    struct stat info;
    if (fstat(file->fd, &info) != 0)
        return FY_FAIL(IO, "%s: cannot look at '%s': %s", file->what, file->path,
                       fy__strerror(errno));
    if (S_ISDIR(info.st_mode))
        return FY_FAIL(IO, "%s: '%s': %s", file->what, file->path, fy__strerror(EISDIR));
    if (S_ISFIFO(info.st_mode))
        return FY_FAIL(IO, "%s: '%s' is a pipe, which has no offsets", file->what, file->path);
    if (!S_ISREG(info.st_mode)) return FY_STATUS_OK;
    const uint64_t size = (uint64_t)info.st_size,
                   there = size > file->offset ? size - file->offset : 0;
    return there < file->nbytes ? too_short(file, there) : FY_STATUS_OK;
}

/* Bytes [at, at + nbytes) of the tensor. */
static fy_status_t read_at(file_t *file, void *bytes, uint64_t at, uint64_t nbytes)
{
    for (uint64_t done = 0; done < nbytes;) {
        const ssize_t got =
            pread(file->fd, (char *)bytes + done, nbytes - done, (off_t)(file->offset + at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return FY_FAIL(IO, "%s: reading '%s' at %llu: %s", file->what, file->path,
                           (ull)(file->offset + at + done), fy__strerror(errno));
        if (got == 0) return too_short(file, at + done);
        file->moved = true;
        done += (uint64_t)got;
    }
    fy__charge_host(0, 2 * nbytes);
    return FY_STATUS_OK;
}

static fy_status_t write_at(const file_t *file, const void *bytes, uint64_t at, uint64_t nbytes)
{
    for (uint64_t done = 0; done < nbytes;) {
        const ssize_t put = pwrite(file->fd, (const char *)bytes + done, nbytes - done,
                                   (off_t)(file->offset + at + done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0)
            return FY_FAIL(IO, "%s: writing '%s' at %llu: %s", file->what, file->path,
                           (ull)(file->offset + at + done),
                           put ? fy__strerror(errno) : "nothing was written");
        done += (uint64_t)put;
    }
    fy__charge_host(0, 2 * nbytes);
    return FY_STATUS_OK;
}

/* ---- file to device ---- */

/* Sends the file to `target`, dense on its device. *out_sent: some of it was submitted. */
static fy_status_t send_file(fy__thread_t *thread, fy_device_t *device, file_t *file,
                             const fy__end_t *target, uint64_t *blocked_ns, bool *out_sent,
                             fy__taint_t *taint)
{
    fy_stream_t *stream = device->upload;
    FY_TRY(fy__stream_throttle(thread, stream));
    FY_TRY(fy__hazard_before_write(&target->storage->hazard, stream, FY__WAIT_FILE_WRITE));
    for (uint64_t at = 0; at < file->nbytes;) {
        fy__slot_t slot;
        fy__point_t point = 0;
        FY_TRY(fy__ring_take(device, blocked_ns, &slot));
        const uint64_t most = fy__ring_chunk(file->nbytes, slot.nbytes), left = file->nbytes - at,
                       chunk = left < most ? left : most;
        fy_status_t status = read_at(file, slot.bytes, at, chunk);
        if (status == FY_STATUS_OK)
            status =
                fy__ring_send(device, &slot, (char *)target->desc.data + at, chunk, &point, taint);
        fy__ring_give(device, &slot, point);
        if (status != FY_STATUS_OK) return status;
        fy__hazard_written(&target->storage->hazard, point);
        *out_sent = true;
        at += chunk;
    }
    return FY_STATUS_OK;
}

/* *out_changed: it failed, but some of dst's bytes may have changed. */
static fy_status_t upload_file(fy__thread_t *thread, fy_tensor_t *dst, file_t *file,
                               uint64_t *blocked_ns, bool *out_changed)
{
    fy_device_t *device = dst->storage->device;
    fy_stream_t *stream = device->synchronous ? NULL : device->upload;
    fy__storage_t *raw = NULL;
    fy__end_t target, final;
    fy_status_t status = FY_STATUS_OK;
    fy__taint_t taint = { 0, 0, 0 };
    bool sent = false;
    if (!file->nbytes) return status;
    fy__end_of(dst, &final);
    target = final;
    if (!dst->contiguous) {
        FY_CHECK(fy__storage_create_scratch(thread, device, file->nbytes, stream,
                                            FY_CATEGORY_STAGING, &raw));
        fy__end_dense(dst, (fy_dtype_t)dst->dtype, raw, &target);
    }
    if (stream)
        status = send_file(thread, device, file, &target, blocked_ns, &sent, &taint);
    else {
        status = read_at(file, target.desc.data, 0, file->nbytes);
        sent = file->moved;
    }
    *out_changed = sent && !raw && status != FY_STATUS_OK;
    if (status == FY_STATUS_OK && raw)
        status = fy__convert(device, stream, &final, &target, dst->nelem);
    if (status == FY_STATUS_OK && stream) fy__upload_set_faults(dst, &taint);
done:
    if (raw) fy__storage_release(thread, raw);
    return status;
}

fy_status_t fy_tensor_upload_file(fy_tensor_t *dst, const char *path, uint64_t offset,
                                  const fy_transfer_options_t *options)
{
    fy__move_t move = { .what = "tensor_upload_file",
                        .caller = __builtin_return_address(0),
                        .direction = FY__UPLOAD,
                        .path = FY_PATH_FILE,
                        .dst = dst };
    file_t file = { .what = move.what, .path = path, .offset = offset };
    bool changed = false;
    FY_TRY(fy__move_begin(&move, options, dst, "dst", path, "path"));
    FY_TRY(fy__move_check_dtype(move.what, dst, &move.options));
    move.device = dst->storage->device;
    FY_TRY(fy__move_check_device(&move, move.device));
    FY_TRY(fy__tensor_check_writable(dst, move.what, "dst"));
    FY_TRY(fy__storage_check_borrow(dst->storage, move.what));
    file.nbytes = move.nbytes;
    FY_TRY(fy__guard_check_transfer(move.thread, FY__UPLOAD, file.nbytes, move.what));
    FY_TRY(fy__guard_settled(move.thread, open_file(&file, O_RDONLY)));
    fy_status_t status = check_size(&file);
    if (status == FY_STATUS_OK)
        status = upload_file(move.thread, dst, &file, &move.blocked_ns, &changed);
    (void)close(file.fd);
    if (status != FY_STATUS_OK) {
        fy__guard_settle(move.thread);
        if (changed) fy__upload_poison(dst, status);
        return status;
    }
    fy__upload_done(dst);
    fy__move_note(&move);
    fy__storage_reap(move.device);
    return FY_STATUS_OK;
}

/* ---- device to file ---- */

typedef struct save {
    const file_t *file;
    fy__fetch_t *fetch;
} save_t;

static fy_status_t put(void *user, const void *bytes, uint64_t at, uint64_t nbytes)
{
    save_t *save = user;
    /* The request that made the bytes is done when the first of them arrive: its fault is found
     * before the file is written. */
    FY_TRY(fy__taint_resolve(save->fetch->device, &save->fetch->taint, save->file->what));
    return write_at(save->file, bytes, at, nbytes);
}

static fy_status_t save_all(fy__thread_t *thread, fy__fetch_t *fetch, save_t *save,
                            const fy_tensor_t *src, fy_dtype_t dtype)
{
    fy_status_t status;
    FY_CHECK(fy__fetch_begin(thread, fetch, src, dtype, FY__WAIT_FILE_READ));
    if (!fetch->nbytes) goto done;
    status = fetch->stream ? fy__fetch_through_ring(fetch, put, save)
                           : put(save, fetch->src.desc.data, 0, fetch->nbytes);
done:
    fy__fetch_end(thread, fetch);
    return status;
}

fy_status_t fy_tensor_download_file(const fy_tensor_t *src, const char *path, uint64_t offset,
                                    const fy_transfer_options_t *options)
{
    fy__move_t move = { .what = "tensor_download_file",
                        .caller = __builtin_return_address(0),
                        .direction = FY__DOWNLOAD,
                        .path = FY_PATH_FILE,
                        .src = src };
    file_t file = { .what = move.what, .path = path, .offset = offset };
    uint64_t start_ns;
    FY_TRY(fy__move_begin(&move, options, src, "src", path, "path"));
    fy__thread_t *thread = move.thread;
    fy_device_t *device = move.device = src->storage->device;
    FY_TRY(fy__move_check_device(&move, device));
    if (src->nelem && src->storage->taint.poison)
        return fy__poison_fail(src->storage->taint.poison, move.what);
    file.nbytes = move.nbytes;
    FY_TRY(fy__guard_check_transfer(thread, FY__DOWNLOAD, file.nbytes, file.what));
    FY_TRY(fy__guard_settled(
        thread, fy__sync_begin(thread, file.what, FY__WAIT_FILE_ARRIVE, 0, &start_ns)));
    fy__fetch_t fetch = { .device = device,
                          .stream = device->synchronous ? NULL : device->download,
                          .site = FY__WAIT_FILE_ARRIVE };
    save_t save = { &file, &fetch };
    fy_status_t status = open_file(&file, O_WRONLY | O_CREAT);
    if (status == FY_STATUS_OK) {
        status = save_all(thread, &fetch, &save, src, move.dtype);
        /* some file systems report only here that they were full */
        if (close(file.fd) != 0 && status == FY_STATUS_OK)
            status = FY_FAIL(IO, "%s: closing '%s': %s", file.what, path, fy__strerror(errno));
    }
    fy__sync_end(thread, start_ns);
    if (status != FY_STATUS_OK) fy__guard_settle(thread);
    if (status == FY_STATUS_OK) {
        move.blocked_ns = fetch.blocked_ns;
        move.point = fetch.point;
        fy__move_note(&move);
    }
    fy__storage_reap(device);
    return status;
}
