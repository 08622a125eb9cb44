/* Makes operands in every layout by public calls only and reads them back byte by byte.
 * Strides and offsets are computed here a second time, by hand, so that a view with wrong facts is
 * detected.
 * Not here: values (value.c), expected results (oracle_*.c). */
#include "tests/support/operand.h"

#include "tests/support/harness.h"

enum { GUARD_NBYTES = 256, OFFSET_NELEM = 3 };

const char *ts_layout_name(ts_layout_t layout)
{
    static const char *const names[] = { "contiguous", "transposed", "stepped", "broadcast",
                                         "offset" };
    return layout < TS_LAYOUT_COUNT ? names[layout] : "?";
}

int ts_broadcast_axis(int rank, const int64_t *dims)
{
    for (int axis = 0; axis < rank; axis++) {
        if (dims[axis] > 1) return axis;
    }
    return -1;
}

bool ts_layout_applies(ts_layout_t layout, int rank, const int64_t *dims)
{
    switch (layout) {
    case TS_TRANSPOSED: {
        int longer = 0;
        for (int axis = 0; axis < rank; axis++) longer += dims[axis] > 1;
        return longer >= 2;
    }
    case TS_STEPPED: return rank >= 1 && rank < FY_MAX_RANK;
    case TS_BROADCAST: return ts_broadcast_axis(rank, dims) >= 0;
    default: return true;
    }
}

/* Uploads the image as a rank-1 tensor. A wrapped one would be refused: guards are no bools. */
static fy_tensor_t *upload_image(ts_operand_t *operand, fy_device_t *device)
{
    fy_tensor_t *host, *base;
    int64_t n = (int64_t)operand->buffer_nelem;
    void *bytes;
    ts_ok(fy_tensor_create(fy_device_host(), operand->dtype, 1, &n, &host));
    ts_ok(fy_tensor_map(host, FY_ACCESS_WRITE, &bytes));
    memcpy(bytes, operand->image, operand->buffer_nelem * fy_dtype_size(operand->dtype));
    ts_ok(fy_tensor_upload(host, device, NULL, &base));
    fy_tensor_destroy(host);
    return base;
}

/* Moves index and *at to the next element, in row-major order. */
static void next_element(const ts_operand_t *operand, int64_t *index, int64_t *at)
{
    for (int axis = operand->rank - 1; axis >= 0; axis--) {
        *at += operand->strides[axis];
        if (++index[axis] < operand->dims[axis]) return;
        *at -= index[axis] * operand->strides[axis];
        index[axis] = 0;
    }
}

static void fill_image(ts_operand_t *operand, const ts_array_t *values)
{
    size_t nbytes = operand->buffer_nelem * fy_dtype_size(operand->dtype);
    assert_int_equal(posix_memalign((void **)&operand->image, 64, nbytes + 64), 0);
    memset(operand->image, 0xFF, nbytes);
    int64_t index[FY_MAX_RANK] = { 0 }, at = operand->offset;
    for (uint64_t k = 0; k < values->nelem; k++, next_element(operand, index, &at))
        ts_encode(values, k, operand->image, (uint64_t)at);
}

/* Row-major strides for `dims`; returns the product. */
static int64_t row_major(int rank, const int64_t *dims, int64_t *strides)
{
    int64_t n = 1;
    for (int axis = rank - 1; axis >= 0; axis--) {
        strides[axis] = n;
        n *= dims[axis];
    }
    return n;
}

/* A view of `span` elements of the base from `offset` on, as `dims`. */
static fy_tensor_t *part_of_base(const ts_operand_t *operand, int64_t offset, int64_t span,
                                 int rank, const int64_t *dims)
{
    fy_tensor_t *line, *view;
    ts_ok(fy_slice(operand->base, 0, offset, offset + span, &line));
    ts_ok(fy_reshape(line, rank, dims, &view));
    return view;
}

void ts_operand_make(ts_operand_t *operand, fy_device_t *device, const ts_array_t *values,
                     ts_layout_t layout)
{
    memset(operand, 0, sizeof *operand);
    if (!ts_layout_applies(layout, values->rank, values->dims)) layout = TS_CONTIGUOUS;
    operand->dtype = values->dtype;
    operand->layout = layout;
    operand->rank = values->rank;
    operand->nelem = values->nelem;
    memcpy(operand->dims, values->dims, sizeof operand->dims);
    int rank = values->rank;
    const int64_t *dims = values->dims;
    int64_t guard = GUARD_NBYTES / (int64_t)fy_dtype_size(values->dtype), span = 0;
    operand->offset = guard + (layout == TS_OFFSET ? OFFSET_NELEM : 0);

    /* the block in memory, before the last views */
    int64_t inner[FY_MAX_RANK] = { 0 }, inner_strides[FY_MAX_RANK];
    int inner_rank = rank;
    switch (layout) {
    case TS_TRANSPOSED:
        for (int axis = 0; axis < rank; axis++) inner[axis] = dims[rank - 1 - axis];
        span = row_major(rank, inner, inner_strides);
        for (int axis = 0; axis < rank; axis++)
            operand->strides[axis] = inner_strides[rank - 1 - axis];
        break;
    /* [d0 + 2, ..., dn, 2]: rows 1 .. d0 of the first axis, element 0 of the last */
    case TS_STEPPED:
        memcpy(inner, dims, sizeof(int64_t) * (size_t)rank);
        inner[0] += 2;
        inner[rank] = 2;
        inner_rank = rank + 1;
        span = row_major(inner_rank, inner, inner_strides);
        memcpy(operand->strides, inner_strides, sizeof(int64_t) * (size_t)rank);
        operand->offset += inner_strides[0];
        break;
    case TS_BROADCAST:
        memcpy(inner, dims, sizeof(int64_t) * (size_t)rank);
        inner[ts_broadcast_axis(rank, dims)] = 1;
        span = row_major(rank, inner, inner_strides);
        memcpy(operand->strides, inner_strides, sizeof(int64_t) * (size_t)rank);
        operand->strides[ts_broadcast_axis(rank, dims)] = 0;
        break;
    default:
        memcpy(inner, dims, sizeof(int64_t) * (size_t)rank);
        span = row_major(rank, inner, operand->strides);
        break;
    }
    int64_t start = guard + (layout == TS_OFFSET ? OFFSET_NELEM : 0);
    operand->buffer_nelem = (uint64_t)(start + span + guard);
    fill_image(operand, values);
    operand->base = upload_image(operand, device);

    fy_tensor_t *block = part_of_base(operand, start, span, inner_rank, inner);
    switch (layout) {
    case TS_TRANSPOSED: ts_ok(fy_transpose(block, NULL, &operand->view)); break;
    case TS_STEPPED: {
        fy_tensor_t *rows, *evens;
        ts_ok(fy_slice(block, 0, 1, -1, &rows));
        ts_ok(fy_slice(rows, -1, 0, 1, &evens));
        ts_ok(fy_squeeze(evens, -1, &operand->view));
        break;
    }
    case TS_BROADCAST: ts_ok(fy_broadcast(block, rank, dims, &operand->view)); break;
    default: operand->view = block; break;
    }

    fy_tensor_info_t info = ts_info(operand->view);
    assert_ptr_equal(info.device, device);
    assert_int_equal(info.dtype, operand->dtype);
    assert_int_equal(info.rank, rank);
    assert_int_equal(info.nelem, operand->nelem);
    for (int axis = 0; axis < rank; axis++) {
        assert_int_equal(info.dims[axis], dims[axis]);
        if (operand->nelem > 0 && dims[axis] > 1)
            assert_int_equal(info.strides[axis], operand->strides[axis]);
    }
}

void ts_operand_check(const ts_operand_t *operand, bool unchanged, ts_array_t *out,
                      const char *what)
{
    size_t size = fy_dtype_size(operand->dtype), nbytes = operand->buffer_nelem * size;
    unsigned char *now = malloc(nbytes + 1), *is_element = calloc(operand->buffer_nelem + 1, 1);
    assert_non_null(now);
    assert_non_null(is_element);
    ts_read(operand->base, now, nbytes);
    if (out) ts_array_make(out, operand->dtype, operand->rank, operand->dims);
    int64_t index[FY_MAX_RANK] = { 0 }, of_element = operand->offset;
    for (uint64_t k = 0; k < operand->nelem; k++, next_element(operand, index, &of_element)) {
        is_element[of_element] = 1;
        if (out) ts_decode(out, k, now, (uint64_t)of_element);
    }
    const bool is_as_before = memcmp(now, operand->image, nbytes) == 0;
    for (uint64_t at = 0; at < operand->buffer_nelem && !is_as_before; at++) {
        if (is_element[at] && !unchanged) continue;
        if (memcmp(now + at * size, operand->image + at * size, size) != 0) {
            print_error("%s: %s at element %llu of a %llu-element %s buffer (%s, first element at "
                        "%lld) was overwritten\n",
                        what, is_element[at] ? "a source element" : "a guard word",
                        (unsigned long long)at, (unsigned long long)operand->buffer_nelem,
                        fy_dtype_name(operand->dtype), ts_layout_name(operand->layout),
                        (long long)operand->offset);
            fail();
        }
    }
    free(now);
    free(is_element);
}

void ts_operand_free(ts_operand_t *operand)
{
    free(operand->image);
    operand->image = NULL;
}

void ts_result_read(const fy_tensor_t *tensor, fy_device_t *device, ts_array_t *out,
                    const char *what)
{
    fy_tensor_info_t info = ts_info(tensor);
    int64_t strides[FY_MAX_RANK], n = row_major(info.rank, info.dims, strides);
    bool dense = info.is_contiguous && info.nelem == (uint64_t)n;
    for (int axis = 0; axis < info.rank; axis++)
        dense = dense && (n == 0 || info.dims[axis] <= 1 || info.strides[axis] == strides[axis]);
    if (info.device != device || !dense) {
        print_error("%s: the result is on %s, %s\n", what, fy_device_name(info.device),
                    dense ? "dense" : "not dense");
        fail();
    }
    ts_array_make(out, info.dtype, info.rank, info.dims);
    unsigned char *bytes = malloc(info.nbytes + 1);
    assert_non_null(bytes);
    ts_read(tensor, bytes, info.nbytes);
    for (uint64_t k = 0; k < out->nelem; k++) ts_decode(out, k, bytes, k);
    free(bytes);
}
