/* How much C reads or writes behind a pointer, where no parameter has it. The generated tables
 * name these functions. Too large to count: the largest number, which no buffer has. */
#include "bind.h"

static uint64_t product(uint64_t a, uint64_t b)
{
    uint64_t result;
    return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

uint64_t bind_rank(const fy_tensor_t *tensor)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    return api.fy_tensor_query(tensor, &info) == FY_STATUS_OK ? (uint64_t)info.rank : 0;
}

uint64_t bind_table(uint64_t rows, uint64_t cols) { return product(rows, cols); }

uint64_t bind_dataset(const fy_dataset_info_t *info, uint64_t samples, int is_label)
{
    if (!info) return 0;
    uint64_t nbytes = product(samples, is_label ? 4 : api.fy_dtype_size(info->dtype));
    if (is_label)
        return product(nbytes, (uint64_t)(info->targets > 0  ? info->targets
                                          : info->labels > 0 ? info->labels
                                                             : 1));
    for (int i = 0; i < info->rank && i < FY_MAX_RANK; i++)
        nbytes = product(nbytes, info->dims[i] > 0 ? (uint64_t)info->dims[i] : 0);
    return nbytes;
}

uint64_t bind_steps(const fy_find_lr_options_t *options)
{
    const fy_find_lr_options_t defaults = FY_FIND_LR_OPTIONS_INIT;
    const int64_t steps = options ? options->steps : defaults.steps;
    return steps > 0 ? (uint64_t)steps : 0;
}

uint64_t bind_layer_params(void *user)
{
    const fy_layer_def_t *def = (fy_layer_def_t *)(void *)((bind_struct_object *)user)->bytes;
    return def->nparams + def->nbuffers;
}
