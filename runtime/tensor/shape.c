/* Shapes: valid shapes, contiguity, and their text in errors. Declared in tensor.h. Not here: the
 * shapes of results (ops/shape*.c). */
#include <stdio.h>

#include "runtime/base/checked.h"
#include "runtime/base/fail.h"
#include "runtime/tensor/tensor.h"

fy_status_t fy__shape_check(const char *what, fy_dtype_t dtype, int rank, const int64_t *dims,
                            uint64_t *out_nelem, uint64_t *out_nbytes)
{
    uint64_t extent = 1; /* as if no dim were 0, so that strides cannot overflow either */
    bool empty = false;
    if ((unsigned)dtype >= FY_DTYPE_COUNT)
        return FY_FAIL(INVALID_ARGUMENT, "%s: %d is no dtype", what, (int)dtype);
    if (rank < 0 || rank > FY_MAX_RANK)
        return FY_FAIL(INVALID_ARGUMENT, "%s: rank %d; a tensor has 0 to %d axes", what, rank,
                       FY_MAX_RANK);
    if (rank && !dims)
        return FY_FAIL(INVALID_ARGUMENT, "%s: dims is NULL but rank is %d", what, rank);
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0)
            return FY_FAIL(INVALID_ARGUMENT, "%s: dims[%d] is %lld", what, i, (long long)dims[i]);
        if (dims[i] == 0)
            empty = true;
        else if (!fy__mul_u64(extent, (uint64_t)dims[i], &extent))
            return FY_FAIL(INVALID_ARGUMENT,
                           "%s: the product of the dims up to dims[%d]=%lld is past 2^64", what, i,
                           (long long)dims[i]);
    }
    if (!fy__mul_u64(extent, fy__dtype_sizes[dtype], &extent) || extent > INT64_MAX)
        return FY_FAIL(INVALID_ARGUMENT, "%s: more than 2^63 bytes", what);
    *out_nbytes = empty ? 0 : extent;
    *out_nelem = *out_nbytes / fy__dtype_sizes[dtype];
    return FY_STATUS_OK;
}

/* The index of the first of `count` bytes, `stride` apart, that is neither 0 nor 1; if there is
 * none, `count`. */
static uint64_t first_wrong(const void *data, uint64_t count, int64_t stride)
{
    enum { RUN = 64 };
    const unsigned char *bytes = data;
    uint64_t i = 0;
    for (; stride == 1 && count - i >= RUN; i += RUN) {
        unsigned char all = 0;
        for (int k = 0; k < RUN; k++) all |= bytes[i + k];
        if (all > 1) break;
    }
    while (i < count && bytes[i * (uint64_t)stride] <= 1) i++;
    return i;
}

/* A repeated axis is read once. */
fy_status_t fy__bools_check(const char *what, int rank, const int64_t *dims, const int64_t *strides,
                            const void *data)
{
    static const int64_t one = 1;
    uint64_t lengths[FY_MAX_RANK], runs = 1;
    if (rank == 0) return fy__bools_check(what, 1, &one, &one, data);
    for (int i = 0; i < rank; i++) {
        lengths[i] = strides[i] || !dims[i] ? (uint64_t)dims[i] : 1;
        if (i < rank - 1) runs *= lengths[i];
    }
    for (uint64_t run = 0; run < runs; run++) {
        uint64_t offset = 0, rest = run;
        for (int i = rank - 2; i >= 0; rest /= lengths[i--])
            offset += rest % lengths[i] * (uint64_t)strides[i];
        const unsigned char *bytes = (const unsigned char *)data + offset;
        const uint64_t wrong = first_wrong(bytes, lengths[rank - 1], strides[rank - 1]);
        if (wrong == lengths[rank - 1]) continue;
        offset = wrong * (uint64_t)strides[rank - 1];
        return FY_FAIL(
            BAD_VALUE,
            "%s: byte %llu of the data [bool] is %d, not 0 or 1\n  Make a mask of it, such "
            "as x != 0, or write 0 first where it is undefined",
            what, (unsigned long long)(bytes + offset - (const unsigned char *)data),
            bytes[offset]);
    }
    return FY_STATUS_OK;
}

bool fy__is_contiguous(int rank, const int64_t *dims, const int64_t *strides)
{
    int64_t expected = 1;
    for (int i = rank - 1; i >= 0; i--) {
        if (dims[i] == 0) return true;
        if (dims[i] != 1 && strides[i] != expected) {
            for (int j = 0; j < i; j++)
                if (dims[j] == 0) return true;
            return false;
        }
        expected *= dims[i];
    }
    return true;
}

const char *fy__tensor_format(const fy_tensor_t *tensor, char *buffer, size_t size)
{
    size_t used = 0;
    if (fy__tensor_name(tensor)[0])
        used += (size_t)snprintf(buffer, size, "'%s' ", fy__tensor_name(tensor));
    if (used < size) used += (size_t)snprintf(buffer + used, size - used, "[");
    for (int i = 0; i < tensor->rank && used < size; i++)
        used += (size_t)snprintf(buffer + used, size - used, "%s%lld", i ? "x" : "",
                                 (long long)tensor->dims[i]);
    if (used < size)
        snprintf(buffer + used, size - used, "%s%s]", tensor->rank ? " " : "scalar ",
                 fy_dtype_name((fy_dtype_t)tensor->dtype));
    return buffer;
}
