/* Checkpoints of optimizers that have a part of the state: the file has the whole state, under the
 * names and shapes of an optimizer with all of it, so that any number of processes can load it.
 * Not here: which process sends its part to which (fy_train_replicas_t.collect). */
#include <stdio.h>
#include <string.h>

#include <ferry/device.h>

#include "train/checkpoint.h"

/* State `state` of range `range`: an optimizer lists its pairs one after another. */
static size_t block_of(const fyt_pieces_t *p, size_t range, size_t state)
{
    return p->first_state + range * p->nstates + state;
}

void fyt_shards_name(const fyt_pieces_t *p, size_t state, char *name, size_t size)
{
    const char *first = NULL;
    fy_tensor_t *tensor;
    fy_optimizer_state(p->optimizer, state, &first, &tensor);
    const char *dot = p->ranges->count > 1 ? strrchr(first, '.') : NULL;
    snprintf(name, size, "%.*s", dot ? (int)(dot - first) : (int)strlen(first), first);
}

/* The number of a step is one element, which all ranges have. */
static int is_counter(const fy_tensor_info_t *info) { return info->rank == 0; }

fy_status_t fyt_shards_make(fyt_pieces_t *p)
{
    for (size_t k = 0; p->ranges && k < p->nstates; k++) {
        fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
        const int64_t length = (int64_t)p->ranges->whole;
        FY_TRY(fy_tensor_query(p->device[block_of(p, 0, k)], &info));
        FY_TRY(fy_zeros(fy_device_host(), info.dtype, is_counter(&info) ? 0 : 1, &length,
                        &p->whole[k]));
    }
    return FY_STATUS_OK;
}

/* Between host tensors, from byte `from` to byte `to`. */
static fy_status_t copy_bytes(fy_tensor_t *dst, size_t to, fy_tensor_t *src, size_t from,
                              size_t nbytes)
{
    void *dst_data, *src_data;
    FY_TRY(fy_tensor_map(dst, FY_ACCESS_WRITE, &dst_data));
    FY_TRY(fy_tensor_map(src, FY_ACCESS_READ, &src_data));
    if (nbytes) memcpy((char *)dst_data + to, (const char *)src_data + from, nbytes);
    return FY_STATUS_OK;
}

/* The parts of all ranges, one behind the other. */
static fy_status_t join(const fyt_pieces_t *p, size_t state, fy_tensor_t **out_part)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    const int64_t length = (int64_t)p->ranges->nelem;
    size_t at = 0;
    FY_TRY(fy_tensor_query(p->host[block_of(p, 0, state)], &info));
    FY_TRY(fy_tensor_create(fy_device_host(), info.dtype, 1, &length, out_part));
    for (size_t i = 0; i < p->ranges->count; i++) {
        fy_tensor_t *part = p->host[block_of(p, i, state)];
        FY_TRY(fy_tensor_query(part, &info));
        FY_TRY(copy_bytes(*out_part, at, part, 0, info.nbytes));
        at += info.nbytes;
    }
    return FY_STATUS_OK;
}

static fy_status_t collect_state(fyt_pieces_t *p, size_t state, const fyt_collect_t *collect)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    fy_tensor_t *first = p->host[block_of(p, 0, state)], *part;
    FY_TRY(fy_tensor_query(first, &info));
    if (is_counter(&info))
        return collect->is_writer ? copy_bytes(p->whole[state], 0, first, 0, info.nbytes)
                                  : FY_STATUS_OK;
    FY_TRY(join(p, state, &part));
    return collect->collect(collect->user, part, collect->is_writer ? p->whole[state] : NULL);
}

fy_status_t fyt_shards_collect(fyt_pieces_t *p, const fyt_collect_t *collect)
{
    if (!p->ranges) return FY_STATUS_OK;
    if (collect->is_writer) FY_TRY(fyt_shards_make(p));
    for (size_t k = 0; k < p->nstates; k++) FY_TRY(collect_state(p, k, collect));
    return FY_STATUS_OK;
}

static fy_status_t divide_state(fyt_pieces_t *p, size_t state)
{
    for (size_t i = 0; i < p->ranges->count; i++) {
        fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
        fy_tensor_t *part = p->host[block_of(p, i, state)];
        FY_TRY(fy_tensor_query(part, &info));
        const size_t begin = is_counter(&info) ? 0 : (size_t)p->ranges->list[i].begin;
        FY_TRY(
            copy_bytes(part, 0, p->whole[state], begin * fy_dtype_size(info.dtype), info.nbytes));
    }
    return FY_STATUS_OK;
}

fy_status_t fyt_shards_divide(fyt_pieces_t *p)
{
    for (size_t k = 0; p->ranges && k < p->nstates; k++) FY_TRY(divide_state(p, k));
    return FY_STATUS_OK;
}
