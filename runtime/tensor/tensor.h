/* Tensor handles: a strided view of a storage. The handle of the first tensor on a storage is in
 * the same slot as the storage; other handles (views) are cached per thread. Not here: the
 * arithmetic of views (view.c), bytes (storage.h), how slots are allocated (slot.h). */
#ifndef FERRY_RUNTIME_TENSOR_H_
#define FERRY_RUNTIME_TENSOR_H_

#include <ferry/op.h>
#include <ferry/tensor.h>

#include "runtime/base/dtype.h"
#include "runtime/tensor/storage.h"
#include "runtime/thread/scope.h"

struct fy_tensor {
    fy__handle_t handle;
    uint8_t dtype, rank;
    /* `name` and `value` are set; adjacent, so one store clears both */
    bool named;
    uint8_t valued; /* whether `value` is on a tape, and FY__VALUE_SHARED */
    bool contiguous;
    bool read_only; /* imported as such, or a view of such a tensor; never of a first handle */
    _Atomic uint16_t name_number; /* fy__event_name; 0: not asked for, or no name */
    fy__storage_t *storage;
    void *data; /* first element, on the storage's device */
    uint64_t nelem;
    int64_t dims[FY_MAX_RANK], strides[FY_MAX_RANK]; /* the first `rank` are set */
    uint64_t value; /* `valued`: on a tape (tape.h); else of a view: fy__tensor_seen */
    /* Set if `named`, so creating and destroying a tensor does not touch this cache line. */
    char name[32];
};

/* The handle of the first tensor, then the storage. Creating and destroying a small tensor touches
 * three cache lines: two of the handle, one of the storage. Their addresses follow from the
 * handle's address, so the CPU loads them in parallel. A slot has an odd number of lines, so the
 * same line of different slots falls into different sets of the CPU's cache.
 * The handle is in use only while the storage has a reference, so a slot is free when its storage
 * has none. */
typedef struct fy__tensor_slot {
    _Alignas(64) fy_tensor_t first;
    fy__storage_t storage;
} fy__tensor_slot_t;

_Static_assert(offsetof(fy__tensor_slot_t, storage.refs) % 64 == 0 &&
                   sizeof(fy__tensor_slot_t) == 7 * 64,
               "the lines of a slot");

static inline fy__tensor_slot_t *fy__tensor_slot_of(const fy__storage_t *storage)
{
    return (fy__tensor_slot_t *)((char *)(uintptr_t)storage - offsetof(fy__tensor_slot_t, storage));
}

static inline fy__handle_t *fy__tensor_handle(fy_tensor_t *tensor) { return &tensor->handle; }
/* "" if it has no name. */
static inline const char *fy__tensor_name(const fy_tensor_t *tensor)
{
    return tensor->named ? tensor->name : "";
}
static inline bool fy__tensor_is_gone(const fy_tensor_t *tensor)
{
    return tensor->storage == &fy__storage_gone;
}
/* INVALID_ARGUMENT: a view that repeats its elements and a read-only tensor cannot be written.
 * `role`: "dst", "dst0", ... */
fy_status_t fy__tensor_check_writable(const fy_tensor_t *tensor, const char *what,
                                      const char *role);
/* INVALID_ARGUMENT: a handle (`role`: "src", ...) that was destroyed, or whose scope ended. */
fy_status_t fy__refuse_gone(const char *what, const char *role);
static inline uint64_t fy__tensor_nbytes(const fy_tensor_t *tensor)
{
    return tensor->nelem * fy__dtype_sizes[tensor->dtype];
}

/* The bytes from the first to behind the last element. */
static inline void fy__tensor_extent(const fy_tensor_t *tensor, const char **out_begin,
                                     const char **out_end)
{
    int64_t last = 0;
    if (__builtin_expect(tensor->contiguous, 1)) {
        *out_begin = tensor->data;
        *out_end = *out_begin + fy__tensor_nbytes(tensor);
        return;
    }
    for (int i = 0; i < tensor->rank; i++) last += (tensor->dims[i] - 1) * tensor->strides[i];
    *out_begin = tensor->data;
    *out_end = *out_begin +
               (tensor->nelem ? (uint64_t)(last + 1) * fy__dtype_sizes[tensor->dtype] : 0);
}
/* Whether two tensors have a byte in common, by the ranges that their elements span. */
static inline bool fy__tensor_overlaps(const fy_tensor_t *a, const fy_tensor_t *b)
{
    const char *a_begin, *a_end, *b_begin, *b_end;
    fy__tensor_extent(a, &a_begin, &a_end);
    fy__tensor_extent(b, &b_begin, &b_end);
    return a_begin < b_end && b_begin < a_end && a_begin != a_end && b_begin != b_end;
}
/* For a view without a value on the tape: the version of its bytes when it was made, if no tape
 * recorded then; earlier writes are constants for it. Else 0. */
static inline uint64_t fy__tensor_seen(const fy_tensor_t *tensor)
{
    return tensor->valued || tensor == &fy__tensor_slot_of(tensor->storage)->first ? 0
                                                                                   : tensor->value;
}

/* Checks rank and dims and computes both products; INVALID_ARGUMENT names the call `what` and the
 * number that is wrong. */
fy_status_t fy__shape_check(const char *what, fy_dtype_t dtype, int rank, const int64_t *dims,
                            uint64_t *out_nelem, uint64_t *out_nbytes);
/* Fails: BAD_VALUE (an element is neither 0 nor 1); `what` is for the text. */
fy_status_t fy__bools_check(const char *what, int rank, const int64_t *dims, const int64_t *strides,
                            const void *data);

/* A new handle of the current scope with `handle`, `named`, `valued` and `read_only` set; NULL with
 * the error set: OUT_OF_MEMORY. */
fy_tensor_t *fy__tensor_alloc_slow(fy__thread_t *thread);
static inline fy_tensor_t *fy__tensor_alloc(fy__thread_t *thread)
{
    fy_tensor_t *tensor = thread->free_tensors;
    if (__builtin_expect(tensor == NULL, 0)) return fy__tensor_alloc_slow(thread);
    thread->free_tensors = (fy_tensor_t *)tensor->handle.next;
    thread->nfree_tensors--;
    tensor->valued = tensor->named = tensor->read_only = false;
    tensor->value = 0;
    fy__handle_adopt(thread->frame, &tensor->handle);
    return tensor;
}
/* ---- first handles ---- Only dense tensors use them, so some fields keep their value from one
 * tensor to the next and are not written again: `contiguous`; `read_only`; the stride of the last
 * axis, which is 1, if the rank is the same; `data`, while the slot keeps its block.
 * fy__cache_is_valid checks them. */

/* Whether the handle is in the ring of this scope: a destroyed first handle stays there
 * (fy__tensor_free). */
static inline bool fy__first_is_placed(const fy__thread_t *thread, const fy__handle_t *handle)
{
    return handle->next ? fy__handle_is_inside(thread->frame, handle) : !thread->frame;
}
static inline void fy__first_place(fy__thread_t *thread, fy__handle_t *handle)
{
    fy__handle_release(handle);
    fy__handle_adopt(thread->frame, handle);
}
/* As fy__tensor_alloc, for a storage whose only reference is the caller's and that has no tensor.
 * Takes over that reference. */
static inline fy_tensor_t *fy__tensor_first(fy__thread_t *thread, fy__storage_t *storage)
{
    fy_tensor_t *tensor = &fy__tensor_slot_of(storage)->first;
    if (__builtin_expect(!fy__first_is_placed(thread, &tensor->handle), 0))
        fy__first_place(thread, &tensor->handle);
    tensor->valued = tensor->named = false;
    tensor->storage = storage;
    return tensor;
}
static inline void fy__tensor_set_dense(fy_tensor_t *tensor, fy_dtype_t dtype, int rank,
                                        const int64_t *dims, uint64_t nelem)
{
    int64_t stride = 1;
    tensor->dtype = (uint8_t)dtype;
    tensor->rank = (uint8_t)rank;
    tensor->contiguous = true;
    tensor->nelem = nelem;
    for (int i = rank - 1; i >= 0; i--) {
        tensor->dims[i] = dims[i];
        tensor->strides[i] = stride;
        stride *= dims[i] ? dims[i] : 1;
    }
}
/* Sets dtype, shape and strides of a handle, and what follows from them. */
void fy__tensor_set_strided(fy_tensor_t *tensor, fy_dtype_t dtype, int rank, const int64_t *dims,
                            const int64_t *strides);
/* A dense tensor of a checked shape on a new storage. */
fy_status_t fy__tensor_new(fy__thread_t *thread, fy_device_t *device, fy_dtype_t dtype, int rank,
                           const int64_t *dims, uint64_t nelem, fy_stream_t *stream,
                           fy_tensor_t **out_tensor);
/* A dense tensor on `storage`, whose reference the caller hands over (released on failure). */
fy_status_t fy__tensor_on(fy__thread_t *thread, fy__storage_t *storage, fy_dtype_t dtype, int rank,
                          const int64_t *dims, uint64_t nelem, fy_tensor_t **out_tensor);
/* fy_tensor_wrap_strided, for errors of the call `what`. The tensor has no first handle. */
fy_status_t fy__tensor_wrap_strided(const char *what, fy_device_t *device, fy_dtype_t dtype,
                                    int rank, const int64_t *dims, const int64_t *strides,
                                    void *data, fy_deleter_fn deleter, void *user,
                                    fy_tensor_t **out_tensor);
/* fy_tensor_destroy for a known thread. */
void fy__tensor_free(fy__thread_t *thread, fy_tensor_t *tensor);
/* Frees a handle that is in no scope and has no storage. */
void fy__tensor_free_blank(fy__thread_t *thread, fy_tensor_t *tensor);
/* Whether it is row-major without gaps. Tensors of 0 or 1 elements are. */
bool fy__is_contiguous(int rank, const int64_t *dims, const int64_t *strides);

/* "'x' [64x784 f32]", for errors; returns buffer. */
const char *fy__tensor_format(const fy_tensor_t *tensor, char *buffer, size_t size);
/* The descriptor that kernels get. */
static inline void fy__tensor_desc(const fy_tensor_t *tensor, fy_desc_t *desc)
{
    desc->data = tensor->data;
    desc->dtype = tensor->dtype;
    desc->rank = tensor->rank;
    for (int i = 0; i < tensor->rank; i++) {
        desc->dims[i] = tensor->dims[i];
        desc->strides[i] = tensor->strides[i];
    }
}

#endif
