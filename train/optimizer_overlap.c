/* Parameters and gradients whose bytes overlap: a step would update such bytes twice.
 * Next: optimizer.c. */
#include <stdlib.h>

#include <ferry/tensor.h>

#include "train/fail.h"
#include "train/optimizer.h"

typedef struct span {
    uint64_t storage, begin, end; /* bytes of the storage */
    const char *list;
    size_t index;
} span_t;

static int by_begin(const void *left, const void *right)
{
    const span_t *a = left, *b = right;
    if (a->storage != b->storage) return a->storage < b->storage ? -1 : 1;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* Empty tensors have no bytes to overlap; views that are not dense are not compared. */
static fy_status_t add(const char *list, size_t count, fy_tensor_t *const *tensors, span_t *spans,
                       size_t *nspans)
{
    for (size_t i = 0; tensors && i < count; i++) {
        fy_tensor_info_t info = { .struct_size = sizeof info };
        FY_TRY(fy_tensor_query(tensors[i], &info));
        if (info.nbytes == 0 || !info.is_contiguous) continue;
        spans[(*nspans)++] =
            (span_t){ info.storage, info.offset_nbytes, info.offset_nbytes + info.nbytes, list, i };
    }
    return FY_STATUS_OK;
}

static fy_status_t check_sorted(const char *what, const span_t *spans, size_t nspans)
{
    for (size_t i = 1; i < nspans; i++) {
        const span_t *a = &spans[i - 1], *b = &spans[i];
        if (a->storage != b->storage || a->end <= b->begin) continue;
        return FYT_FAIL(INVALID_ARGUMENT,
                        "%s: %s[%zu] and %s[%zu] share %llu bytes, which would be changed twice: "
                        "give each tensor once",
                        what, a->list, a->index, b->list, b->index,
                        (unsigned long long)((a->end < b->end ? a->end : b->end) - b->begin));
    }
    return FY_STATUS_OK;
}

fy_status_t fyt_optimizer_check_overlap(const char *what, size_t count, fy_tensor_t *const *values,
                                        fy_tensor_t *const *grads)
{
    size_t nspans = 0;
    span_t *spans = count > SIZE_MAX / 2 / sizeof *spans ? NULL : malloc(2 * count * sizeof *spans);
    if (!spans) return FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory for %zu tensors", what, count);
    fy_status_t status = add("values", count, values, spans, &nspans);
    if (status == FY_STATUS_OK) status = add("grads", count, grads, spans, &nspans);
    qsort(spans, nspans, sizeof *spans, by_begin);
    if (status == FY_STATUS_OK) status = check_sorted(what, spans, nspans);
    free(spans);
    return status;
}

fy_status_t fyt_optimizer_check_in_place(const char *what, const char *list, size_t index,
                                         const fy_tensor_t *tensor)
{
    fy_tensor_info_t info = { .struct_size = sizeof info };
    FY_TRY(fy_tensor_query(tensor, &info));
    if (info.dtype != FY_DTYPE_F32 && info.dtype != FY_DTYPE_F64 && info.dtype != FY_DTYPE_F16 &&
        info.dtype != FY_DTYPE_BF16)
        return FYT_FAIL(DTYPE_MISMATCH, "%s: %s[%zu] is %s; it must be f32, f64, f16 or bf16", what,
                        list, index, fy_dtype_name(info.dtype));
    int repeats = 0;
    for (int i = 0; i < info.rank; i++) repeats |= info.dims[i] > 1 && info.strides[i] == 0;
    if (!info.is_read_only && !repeats) return FY_STATUS_OK;
    return FYT_FAIL(INVALID_ARGUMENT, "%s: %s[%zu] %s, and is changed in place: give a copy of it",
                    what, list, index, repeats ? "repeats its elements" : "is read-only");
}
