/* libferry_train's structs with a struct_size that callers make: one row each.
 * Next: runtime/base/abi.h. */
#ifndef FERRY_TRAIN_ABI_INTERNAL_H_
#define FERRY_TRAIN_ABI_INTERNAL_H_

#include "runtime/base/abi.h"

/* X(name, NAME, last): as in runtime/base/abi_structs.h. */
#define FYT_ABI_OPTIONS(X)                                         \
    X(dataset_options, DATASET_OPTIONS, max_samples)               \
    X(table_options, TABLE_OPTIONS, max_values)                    \
    X(loader_options, LOADER_OPTIONS, std)                         \
    X(linear_options, LINEAR_OPTIONS, bias)                        \
    X(conv2d_options, CONV2D_OPTIONS, bias)                        \
    X(batch_norm_options, BATCH_NORM_OPTIONS, activation)          \
    X(attention_options, ATTENTION_OPTIONS, proj_weight)           \
    X(transformer_options, TRANSFORMER_OPTIONS, proj_weight)       \
    X(layer_norm_options, LAYER_NORM_OPTIONS, no_affine)           \
    X(embedding_options, EMBEDDING_OPTIONS, weight)                \
    X(model_options, MODEL_OPTIONS, seed)                          \
    X(optimizer_options, OPTIMIZER_OPTIONS, eps)                   \
    X(loss_scaling_options, LOSS_SCALING_OPTIONS, growth_interval) \
    X(schedule, SCHEDULE, max_momentum)                            \
    X(train_options, TRAIN_OPTIONS, stop)                          \
    X(find_lr_options, FIND_LR_OPTIONS, stop)                      \
    X(progress, PROGRESS, note)
/* fy_layer_def_t is read like options; it has no macro of fields. */
#define FYT_ABI_FACTS(X)                             \
    X(dataset_info, DATASET_INFO, targets)           \
    X(loader_info, LOADER_INFO, targets)             \
    X(model_info, MODEL_INFO, is_training)           \
    X(param, PARAM, grad)                            \
    X(model_layer_info, MODEL_LAYER_INFO, out_dims)  \
    X(segments, SEGMENTS, saved_nbytes)              \
    X(safetensors_info, SAFETENSORS_INFO, offset)    \
    X(train_result, TRAIN_RESULT, graph_path)        \
    X(find_lr_result, FIND_LR_RESULT, is_stopped)    \
    X(train_replicas, TRAIN_REPLICAS, share_buffers) \
    X(norm_exchange, NORM_EXCHANGE, sum)             \
    X(layer_def, LAYER_DEF, destroy)

FYT_ABI_OPTIONS(FY__ABI_DECLARATION)
FYT_ABI_FACTS(FY__ABI_DECLARATION)

#endif
