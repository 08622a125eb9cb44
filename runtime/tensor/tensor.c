/* Tensor handles: create, wrap, destroy, query, map. Shapes: shape.c. */
#include "runtime/tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/abi_structs.h"
#include "runtime/base/fail.h"
#include "runtime/order/stream.h"
#include "runtime/record/event.h"
#include "runtime/record/recording.h"
#include "runtime/tensor/thread_cache.h"
#include "runtime/thread/guard.h"

typedef unsigned long long ull;

FY_COLD fy_tensor_t *fy__tensor_alloc_slow(fy__thread_t *thread)
{
    fy_tensor_t *tensor = aligned_alloc(64, (sizeof *tensor + 63) / 64 * 64);
    if (!tensor) {
        (void)FY_FAIL(OUT_OF_MEMORY, "no host memory for %zu bytes of a tensor handle",
                      sizeof *tensor);
        return NULL;
    }
    tensor->handle.kind = FY__HANDLE_TENSOR;
    tensor->valued = tensor->named = tensor->read_only = false;
    tensor->value = 0;
    fy__handle_adopt(thread->frame, &tensor->handle);
    return tensor;
}

/* Frees a handle that is in no scope. */
void fy__tensor_free_blank(fy__thread_t *thread, fy_tensor_t *tensor)
{
    tensor->storage = &fy__storage_gone;
    if (FY_UNLIKELY(thread->nfree_tensors + 1 > FY__STRUCT_CACHE)) {
        free(tensor);
        return;
    }
    tensor->handle.next = (fy__handle_t *)thread->free_tensors;
    thread->free_tensors = tensor;
    thread->nfree_tensors++;
}

void fy__tensor_set_strided(fy_tensor_t *tensor, fy_dtype_t dtype, int rank, const int64_t *dims,
                            const int64_t *strides)
{
    tensor->dtype = (uint8_t)dtype;
    tensor->rank = (uint8_t)rank;
    tensor->nelem = 1;
    for (int i = 0; i < rank; i++) {
        tensor->dims[i] = dims[i];
        tensor->strides[i] = strides[i];
        tensor->nelem *= (uint64_t)dims[i];
    }
    tensor->contiguous = fy__is_contiguous(rank, tensor->dims, tensor->strides);
}

fy_status_t fy__tensor_on(fy__thread_t *thread, fy__storage_t *storage, fy_dtype_t dtype, int rank,
                          const int64_t *dims, uint64_t nelem, fy_tensor_t **out_tensor)
{
    fy_tensor_t *tensor;
    /* The only reference is the caller's, so the first handle is free. The acquire orders this
     * after its release by another thread. */
    if (!FY__HAS_ASAN && atomic_load_explicit(&storage->refs, memory_order_acquire) == 1) {
        tensor = fy__tensor_first(thread, storage);
    } else if (!(tensor = fy__tensor_alloc(thread))) {
        fy__storage_release(thread, storage);
        return FY_STATUS_OUT_OF_MEMORY;
    }
    tensor->storage = storage;
    tensor->data = storage->data;
    fy__tensor_set_dense(tensor, dtype, rank, dims, nelem);
    *out_tensor = tensor;
    return FY_STATUS_OK;
}

fy_status_t fy__tensor_new(fy__thread_t *thread, fy_device_t *device, fy_dtype_t dtype, int rank,
                           const int64_t *dims, uint64_t nelem, fy_stream_t *stream,
                           fy_tensor_t **out_tensor)
{
    fy__storage_t *storage;
    FY_TRY(fy__storage_create(thread, device, nelem * fy__dtype_sizes[dtype], stream, &storage));
    return fy__tensor_on(thread, storage, dtype, rank, dims, nelem, out_tensor);
}

/* The storage of the slot whose first handle this is, if it is a first handle. */
static inline fy__storage_t *beside(fy_tensor_t *tensor)
{
    fy__storage_t *storage = &((fy__tensor_slot_t *)tensor)->storage;
    /* Keeps the compiler from replacing it by a pointer that compared equal. */
    __asm__("" : "+r"(storage));
    return storage;
}

/* Whether it is the first handle of a small storage with no other reference. The storage's address
 * is computed from the handle's, so the CPU loads both lines in parallel. */
static inline bool is_simple(const fy_tensor_t *tensor, const fy__storage_t *storage)
{
    return tensor->storage == storage &&
           atomic_load_explicit(&storage->refs, memory_order_acquire) == 1 &&
           fy__cache_accepts(storage);
}

/* A cached first handle stays in the ring of the innermost scope: unlinking it would touch the
 * cache lines of its neighbours. The scope unlinks it when it ends. A function that reuses the slot
 * for another storage unlinks it first. */
static inline void free_simple(fy__thread_t *thread, fy_tensor_t *tensor, fy__storage_t *storage)
{
    fy__handle_t *handle = &tensor->handle;
    tensor->storage = &fy__storage_gone; /* before another tensor can use the slot */
    if (handle->next && FY_UNLIKELY(!fy__handle_is_inside(thread->frame, handle)))
        fy__handle_release(handle);
    fy__cache_push(thread, storage);
}

/* Whether it is a clean large storage of the thread cache with no other reference. */
static inline bool is_large(const fy__storage_t *storage)
{
    return atomic_load_explicit(&storage->cache_class, memory_order_relaxed) == FY__CACHE_LARGE &&
           atomic_load_explicit(&storage->refs, memory_order_acquire) == 1;
}

/* Any handle that is not destroyed. */
static __attribute__((noinline)) void free_other(fy__thread_t *thread, fy_tensor_t *tensor)
{
    fy__storage_t *storage = tensor->storage;
    const bool is_first = storage == beside(tensor);
    fy__handle_release(&tensor->handle);
    if (is_first)
        tensor->storage = &fy__storage_gone;
    else
        fy__tensor_free_blank(thread, tensor);
    if (is_first && is_large(storage) && fy__cache_keep_large(thread, storage)) return;
    fy__storage_release(thread, storage);
}

void fy__tensor_free(fy__thread_t *thread, fy_tensor_t *tensor)
{
    fy__storage_t *storage = beside(tensor);
    if (FY_LIKELY(is_simple(tensor, storage)))
        free_simple(thread, tensor, storage);
    else
        free_other(thread, tensor);
}

fy_status_t fy__tensor_check_writable(const fy_tensor_t *tensor, const char *what, const char *role)
{
    char text[112];
    if (tensor->read_only)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: %s %s is read-only: the library that it was imported from allows no "
                       "writes\n  Make a copy: fy_empty and fy_copy",
                       what, role, fy__tensor_format(tensor, text, sizeof text));
    for (int i = 0; i < tensor->rank; i++)
        if (tensor->strides[i] == 0 && tensor->dims[i] > 1)
            return FY_FAIL(INVALID_ARGUMENT,
                           "%s: %s %s repeats its elements along axis %d (fy_broadcast): it can be "
                           "read, not written",
                           what, role, fy__tensor_format(tensor, text, sizeof text), i);
    return FY_STATUS_OK;
}

FY_COLD fy_status_t fy__refuse_gone(const char *what, const char *role)
{
    return FY_FAIL(INVALID_ARGUMENT,
                   "%s: %s was destroyed, or the scope it was made in has ended\n  Hand what must "
                   "live on to fy_scope_end, or take it out of its "
                   "scope with fy_tensor_keep",
                   what, role);
}

/* ---- public ---- */

static fy_status_t begin(fy_device_t *device, fy_tensor_t **out_tensor, const char *what,
                         fy__thread_t **out_thread)
{
    if (!out_tensor) return FY_FAIL(INVALID_ARGUMENT, "%s: out_tensor is NULL", what);
    *out_tensor = NULL;
    *out_thread = fy__thread();
    if (!*out_thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "%s: device is NULL", what);
    return fy__device_is_lost(device) ? fy__device_lost_error(device) : FY_STATUS_OK;
}

/* The number of elements of a common shape: no dim is 0 and no product overflows. 0: the shape
 * needs the full check. */
static inline uint64_t count_elements(fy_dtype_t dtype, int rank, const int64_t *dims)
{
    const uint64_t most = 1 << 29; /* so the product of two, in bytes, fits into 64 bits */
    uint64_t nelem = 1;
    if ((unsigned)dtype >= FY_DTYPE_COUNT || (unsigned)rank > FY_MAX_RANK || (rank && !dims))
        return 0;
    for (int i = 0; i < rank; i++) {
        if ((uint64_t)dims[i] > most || nelem > most) return 0;
        nelem *= (uint64_t)dims[i];
    }
    return nelem;
}

static __attribute__((noinline)) fy_status_t place(fy__thread_t *thread, fy_tensor_t *tensor)
{
    fy__first_place(thread, &tensor->handle);
    return FY_STATUS_OK;
}

static __attribute__((noinline)) fy_status_t create(fy_device_t *device, fy_dtype_t dtype, int rank,
                                                    const int64_t *dims, fy_tensor_t **out_tensor)
{
    fy__thread_t *thread;
    uint64_t nelem, nbytes;
    FY_TRY(begin(device, out_tensor, "tensor_create", &thread));
    FY_TRY(fy__shape_check("tensor_create", dtype, rank, dims, &nelem, &nbytes));
    fy_stream_t *stream = device->synchronous ? NULL : fy__stream_current(device, thread->streams);
    return fy__tensor_new(thread, device, dtype, rank, dims, nelem, stream, out_tensor);
}

/* The next two functions: on the host, for a thread that records nothing. They use a cached slot
 * and block; without one the general path runs. */
static __attribute__((noinline)) fy_status_t create_large(fy_device_t *host, fy_dtype_t dtype,
                                                          int rank, const int64_t *dims,
                                                          fy_tensor_t **out_tensor,
                                                          fy__thread_t *thread)
{
    const uint64_t nelem = count_elements(dtype, rank, dims);
    fy__storage_t *storage = FY__HAS_ASAN || !nelem
                                 ? NULL
                                 : fy__cache_take_large(thread, nelem * fy__dtype_sizes[dtype]);
    if (FY_UNLIKELY(!storage)) return create(host, dtype, rank, dims, out_tensor);
    *out_tensor = fy__tensor_first(thread, storage);
    fy__tensor_set_dense(*out_tensor, dtype, rank, dims, nelem);
    return FY_STATUS_OK;
}

static __attribute__((noinline)) fy_status_t create_small(fy_device_t *host, fy_dtype_t dtype,
                                                          int rank, const int64_t *dims,
                                                          fy_tensor_t **out_tensor,
                                                          fy__thread_t *thread)
{
    const uint64_t nelem = FY__HAS_ASAN ? 0 : count_elements(dtype, rank, dims);
    if (FY_UNLIKELY(!nelem)) return create(host, dtype, rank, dims, out_tensor);
    const uint64_t nbytes = nelem * fy__dtype_sizes[dtype];
    if (nbytes > FY__CACHE_LARGEST)
        return create_large(host, dtype, rank, dims, out_tensor, thread);
    fy__storage_t *storage = fy__cache_pop(thread, nbytes);
    if (FY_UNLIKELY(!storage)) return create(host, dtype, rank, dims, out_tensor);
    *out_tensor = fy__tensor_first(thread, storage);
    fy__tensor_set_dense(*out_tensor, dtype, rank, dims, nelem);
    return FY_STATUS_OK;
}

/* Fast path for one axis and at most 32 KiB with a cached slot: only tail calls, few instructions,
 * and no access to the handle's second line (`strides`), so the CPU works on the next tensor while
 * it loads the lines of this one. */
fy_status_t fy_tensor_create(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims,
                             fy_tensor_t **out_tensor)
{
    fy__thread_t *thread = fy__tls;
    if (FY_UNLIKELY(!thread || !out_tensor || !device) || !device->is_host ||
        FY_UNLIKELY(thread->recording || fy__device_is_lost(device)))
        return create(device, dtype, rank, dims, out_tensor);
    if (FY__HAS_ASAN || rank != 1 || FY_UNLIKELY(!dims || (unsigned)dtype >= FY_DTYPE_COUNT))
        return create_small(device, dtype, rank, dims, out_tensor, thread);
    const uint64_t nelem = (uint64_t)dims[0], nbytes = nelem * fy__dtype_sizes[dtype];
    if (nelem > FY__CACHE_LARGEST || nbytes > FY__CACHE_LARGEST)
        return create_large(device, dtype, rank, dims, out_tensor, thread);
    fy__storage_t *storage = fy__cache_pop(thread, nbytes);
    if (FY_UNLIKELY(!storage)) return create(device, dtype, rank, dims, out_tensor);
    fy_tensor_t *tensor = &fy__tensor_slot_of(storage)->first;
    tensor->dtype = (uint8_t)dtype;
    if (FY_UNLIKELY(tensor->rank != 1)) tensor->strides[0] = tensor->rank = 1;
    tensor->valued = tensor->named = false;
    tensor->storage = storage;
    tensor->nelem = nelem;
    tensor->dims[0] = (int64_t)nelem;
    *out_tensor = tensor;
    return FY_LIKELY(fy__first_is_placed(thread, &tensor->handle)) ? FY_STATUS_OK
                                                                   : place(thread, tensor);
}

fy_status_t fy_tensor_create_pinned(fy_device_t *peer, fy_dtype_t dtype, int rank,
                                    const int64_t *dims, fy_tensor_t **out_tensor)
{
    fy__thread_t *thread;
    fy__storage_t *storage;
    uint64_t nelem, nbytes;
    FY_TRY(begin(peer, out_tensor, "tensor_create_pinned", &thread));
    FY_TRY(fy__shape_check("tensor_create_pinned", dtype, rank, dims, &nelem, &nbytes));
    FY_TRY(fy__storage_create_pinned(thread, peer, nbytes, &storage));
    return fy__tensor_on(thread, storage, dtype, rank, dims, nelem, out_tensor);
}

/* A storage on `data`. `span`: elements from the first to the last in memory; 0: there are none. */
static fy_status_t wrap(const char *what, fy_device_t *device, fy_dtype_t dtype, int rank,
                        const int64_t *dims, const int64_t *strides, uint64_t span, void *data,
                        fy__thread_t *thread, fy__storage_t **out_storage)
{
    const uint64_t nbytes = span * fy__dtype_sizes[dtype];
    if (!data && nbytes)
        return FY_FAIL(INVALID_ARGUMENT, "%s: data is NULL, but the shape needs %llu bytes", what,
                       (ull)nbytes);
    if ((uintptr_t)data % fy__dtype_sizes[dtype])
        return FY_FAIL(INVALID_ARGUMENT, "%s: data %p is not aligned to the %u bytes of %s", what,
                       data, fy__dtype_sizes[dtype], fy_dtype_name(dtype));
    if (dtype == FY_DTYPE_BOOL && device->is_host && span)
        FY_TRY(fy__bools_check(what, rank, dims, strides, data));
    return fy__storage_wrap(thread, device, data, nbytes, NULL, NULL, out_storage);
}

/* After the last step that can fail: a failed call must not run the deleter. */
static void set_deleter(fy__storage_t *storage, fy_deleter_fn deleter, void *user)
{
    storage->deleter = deleter;
    storage->user = user;
}

fy_status_t fy_tensor_wrap(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims,
                           void *data, fy_deleter_fn deleter, void *user, fy_tensor_t **out_tensor)
{
    fy__thread_t *thread;
    fy__storage_t *storage;
    uint64_t nelem, nbytes;
    FY_TRY(begin(device, out_tensor, "tensor_wrap", &thread));
    FY_TRY(fy__shape_check("tensor_wrap", dtype, rank, dims, &nelem, &nbytes));
    const int64_t length = (int64_t)nelem, stride = 1;
    FY_TRY(wrap("tensor_wrap", device, dtype, 1, &length, &stride, nelem, data, thread, &storage));
    FY_TRY(fy__tensor_on(thread, storage, dtype, rank, dims, nelem, out_tensor));
    set_deleter(storage, deleter, user);
    return FY_STATUS_OK;
}

/* Takes the axes by growing stride: each must step over all elements of those before it. */
static fy_status_t check_strides(const char *what, int rank, const int64_t *dims,
                                 const int64_t *strides, uint64_t nbytes_each, uint64_t *out_span)
{
    int64_t last = 0, step;
    bool taken[FY_MAX_RANK] = { false };
    for (int count = 0; count < rank; count++) {
        int axis = -1;
        for (int i = 0; i < rank; i++) {
            if (strides[i] < 0)
                return FY_FAIL(INVALID_ARGUMENT, "%s: strides[%d] is %lld; it must be 0 or more",
                               what, i, (long long)strides[i]);
            if (!taken[i] && (axis < 0 || strides[i] < strides[axis])) axis = i;
        }
        taken[axis] = true;
        if (dims[axis] <= 1 || !strides[axis]) continue;
        if (strides[axis] <= last)
            return FY_FAIL(INVALID_ARGUMENT,
                           "%s: strides[%d] is %lld, but the axes of smaller strides span %lld "
                           "elements: elements would overlap",
                           what, axis, (long long)strides[axis], (long long)last + 1);
        if (__builtin_mul_overflow(dims[axis] - 1, strides[axis], &step) ||
            __builtin_add_overflow(last, step, &last) || (uint64_t)last >= INT64_MAX / nbytes_each)
            return FY_FAIL(INVALID_ARGUMENT,
                           "%s: axis %d of %lld elements with stride %lld ends past 2^63 bytes",
                           what, axis, (long long)dims[axis], (long long)strides[axis]);
    }
    *out_span = (uint64_t)last + 1;
    return FY_STATUS_OK;
}

fy_status_t fy__tensor_wrap_strided(const char *what, fy_device_t *device, fy_dtype_t dtype,
                                    int rank, const int64_t *dims, const int64_t *strides,
                                    void *data, fy_deleter_fn deleter, void *user,
                                    fy_tensor_t **out_tensor)
{
    fy__thread_t *thread;
    fy__storage_t *storage;
    uint64_t nelem, nbytes, span = 0;
    FY_TRY(begin(device, out_tensor, what, &thread));
    FY_TRY(fy__shape_check(what, dtype, rank, dims, &nelem, &nbytes));
    if (rank && !strides) return FY_FAIL(INVALID_ARGUMENT, "%s: strides is NULL", what);
    FY_TRY(check_strides(what, rank, dims, strides, fy__dtype_sizes[dtype], &span));
    if (!nelem) span = 0;
    FY_TRY(wrap(what, device, dtype, rank, dims, strides, span, data, thread, &storage));
    fy_tensor_t *tensor = fy__tensor_alloc(thread);
    if (!tensor) {
        fy__storage_release(thread, storage);
        return FY_STATUS_OUT_OF_MEMORY;
    }
    tensor->storage = storage;
    tensor->data = storage->data;
    fy__tensor_set_strided(tensor, dtype, rank, dims, strides);
    set_deleter(storage, deleter, user);
    *out_tensor = tensor;
    return FY_STATUS_OK;
}

fy_status_t fy_tensor_wrap_strided(fy_device_t *device, fy_dtype_t dtype, int rank,
                                   const int64_t *dims, const int64_t *strides, void *data,
                                   fy_deleter_fn deleter, void *user, fy_tensor_t **out_tensor)
{
    return fy__tensor_wrap_strided("tensor_wrap_strided", device, dtype, rank, dims, strides, data,
                                   deleter, user, out_tensor);
}

static __attribute__((noinline)) void destroy_other(fy_tensor_t *tensor)
{
    fy__thread_t *thread = fy__thread();
    if (!tensor || !thread) return;
    if (fy__tensor_is_gone(tensor))
        fy_log_write(
            FY_LOG_WARNING,
            "tensor_destroy: this tensor was destroyed before, or its scope ended; ignored");
    else
        free_other(thread, tensor);
}

/* With many live tensors their lines come from memory, and the CPU waits for as many tensors in
 * parallel as fit into its window of some hundred instructions. So the simple case makes no call,
 * and other cases are tail calls. */
void fy_tensor_destroy(fy_tensor_t *tensor)
{
    fy__thread_t *thread = fy__tls;
    if (FY_LIKELY(thread && tensor)) {
        fy__storage_t *storage = beside(tensor);
        if (FY_LIKELY(is_simple(tensor, storage))) {
            free_simple(thread, tensor, storage);
            return;
        }
    }
    destroy_other(tensor);
}

void fy_tensor_keep(fy_tensor_t *tensor)
{
    if (tensor && !fy__tensor_is_gone(tensor)) fy__handle_release(&tensor->handle);
}

fy_status_t fy_tensor_query(const fy_tensor_t *tensor, fy_tensor_info_t *out_info)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(FY__CHECK_OUT(tensor_info, "tensor_query", out_info));
    if (!tensor) return FY_FAIL(INVALID_ARGUMENT, "tensor_query: tensor is NULL");
    if (fy__tensor_is_gone(tensor)) return fy__refuse_gone("tensor_query", "tensor");
    info.device = tensor->storage->device;
    info.dtype = (fy_dtype_t)tensor->dtype;
    info.rank = tensor->rank;
    for (int i = 0; i < tensor->rank; i++) {
        info.dims[i] = tensor->dims[i];
        info.strides[i] = tensor->strides[i];
    }
    info.nelem = tensor->nelem;
    info.nbytes = fy__tensor_nbytes(tensor);
    info.version = atomic_load_explicit(&tensor->storage->version, memory_order_relaxed);
    info.is_contiguous = tensor->contiguous;
    info.is_pinned = tensor->storage->pinned;
    info.name = fy__tensor_name(tensor);
    info.storage = (uint64_t)(uintptr_t)tensor->storage;
    info.offset_nbytes = (uint64_t)((uintptr_t)tensor->data - (uintptr_t)tensor->storage->data);
    info.storage_nbytes = tensor->storage->nbytes;
    info.is_read_only = tensor->read_only;
    FY__WRITE(out_info, &info);
    return FY_STATUS_OK;
}

void fy_tensor_set_name(fy_tensor_t *tensor, const char *name)
{
    if (!tensor || fy__tensor_is_gone(tensor)) return;
    snprintf(tensor->name, sizeof tensor->name, "%s", name ? name : "");
    tensor->named = true;
    atomic_store_explicit(&tensor->name_number, 0, memory_order_relaxed);
    FY__EVENT(fy__event_named(tensor));
}

fy_status_t fy_tensor_map(fy_tensor_t *tensor, fy_access_t access, void **out_data)
{
    char text[128];
    if (!out_data) return FY_FAIL(INVALID_ARGUMENT, "tensor_map: out_data is NULL");
    *out_data = NULL;
    if (!tensor) return FY_FAIL(INVALID_ARGUMENT, "tensor_map: tensor is NULL");
    if (fy__tensor_is_gone(tensor)) return fy__refuse_gone("tensor_map", "tensor");
    if (!(access & FY_ACCESS_READ_WRITE) || (access & ~FY_ACCESS_READ_WRITE))
        return FY_FAIL(INVALID_ARGUMENT, "tensor_map: access %d is not READ, WRITE or READ_WRITE",
                       (int)access);
    fy__storage_t *storage = tensor->storage;
    if (!storage->device->is_host)
        return FY_FAIL(DEVICE_MISMATCH,
                       "tensor_map: %s lives on %s; its bytes cannot be read on the host\n  Fetch "
                       "them with fy_tensor_download and "
                       "fy_download_wait (%llu bytes)",
                       fy__tensor_format(tensor, text, sizeof text), storage->device->spec,
                       (ull)fy__tensor_nbytes(tensor));
    fy__thread_t *thread = storage->private_memory ? fy__thread() : NULL;
    /* Created in a recording: its contents do not exist yet. */
    if (thread) FY_TRY(fy__recording_check(thread, storage->device, "tensor_map"));
    if (access & FY_ACCESS_READ)
        FY_TRY(fy__taint_resolve(storage->device, &storage->taint, "tensor_map"));
    if (access & FY_ACCESS_WRITE) {
        FY_TRY(fy__tensor_check_writable(tensor, "tensor_map", "tensor"));
        FY_TRY(fy__storage_check_borrow(storage, "tensor_map"));
    }
    FY__EVENT(fy__event_map(storage, (int)access, fy__tensor_nbytes(tensor),
                            __builtin_return_address(0)));
    if (access & FY_ACCESS_WRITE) fy__storage_wrote(storage);
    *out_data = tensor->data;
    return FY_STATUS_OK;
}

fy_status_t fy_stream_native(fy_device_t *device, fy_stream_t *stream, void **out_native)
{
    fy__thread_t *thread = fy__thread();
    if (!out_native) return FY_FAIL(INVALID_ARGUMENT, "stream_native: out_native is NULL");
    *out_native = NULL;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "stream_native: device is NULL");
    if (stream) FY_TRY(fy__stream_check(stream, "stream_native"));
    if (stream && stream->device != device)
        return FY_FAIL(INVALID_ARGUMENT, "stream_native: stream '%s' is of %s, the device is %s",
                       stream->name, stream->device->spec, device->spec);
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    if (device->synchronous || !device->backend->stream_native) return FY_STATUS_OK;
    if (!stream) stream = fy__stream_current(device, thread->streams);
    atomic_store(&stream->foreign, true); /* others may submit from now on */
    *out_native = device->backend->stream_native(device->dev, stream->native);
    return FY_STATUS_OK;
}

fy_status_t fy_tensor_begin_native_access(fy_tensor_t *tensor, fy_access_t access,
                                          fy_stream_t *stream, void **out_address)
{
    if (!out_address)
        return FY_FAIL(INVALID_ARGUMENT, "tensor_begin_native_access: out_address is NULL");
    *out_address = NULL;
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!tensor) return FY_FAIL(INVALID_ARGUMENT, "tensor_begin_native_access: tensor is NULL");
    if (fy__tensor_is_gone(tensor)) return fy__refuse_gone("tensor_begin_native_access", "tensor");
    if (!(access & FY_ACCESS_READ_WRITE) || (access & ~FY_ACCESS_READ_WRITE))
        return FY_FAIL(INVALID_ARGUMENT,
                       "tensor_begin_native_access: access %d is not READ, WRITE or READ_WRITE",
                       (int)access);
    fy__storage_t *storage = tensor->storage;
    fy_device_t *device = storage->device;
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    FY_TRY(fy__recording_check(thread, device, "tensor_begin_native_access"));
    if (stream && stream->device != device)
        return FY_FAIL(INVALID_ARGUMENT,
                       "tensor_begin_native_access: stream '%s' is of %s, the tensor lives on %s",
                       stream->name, stream->device->spec, device->spec);
    if (access & FY_ACCESS_WRITE) {
        FY_TRY(fy__tensor_check_writable(tensor, "tensor_begin_native_access", "tensor"));
        FY_TRY(fy__storage_check_borrow(storage, "tensor_begin_native_access"));
    }
    if (!device->synchronous) {
        if (!stream) stream = fy__stream_current(device, thread->streams);
        FY_TRY(access & FY_ACCESS_WRITE
                   ? fy__hazard_before_write(&storage->hazard, stream, FY__WAIT_NATIVE_USE)
                   : fy__hazard_before_read(&storage->hazard, stream, FY__WAIT_NATIVE_USE));
        const fy__point_t point = fy__stream_submitted(stream);
        if (access & FY_ACCESS_WRITE)
            fy__hazard_written(&storage->hazard, point);
        else
            fy__hazard_read(&storage->hazard, stream, point);
    }
    if (access & FY_ACCESS_WRITE) fy__storage_wrote(storage);
    *out_address = tensor->data;
    return FY_STATUS_OK;
}
