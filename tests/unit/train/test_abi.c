/* Each struct of libferry_train's headers that callers make, with every size that another version
 * of a header could give it. The rules by themselves: tests/unit/runtime/test_abi.c. */
#include "train/abi.h"

#include "tests/support/abi_sweep.h"
#include "tests/unit/train/fixture.h"
#include "tests/unit/train/layers.h"

static fy_device_t *host;
static fy_dataset_t *digits;
static fy_loader_t *loader;
static fy_model_t *model;
static fy_optimizer_t *optimizer;
static const char *weights;

/* It was read, and its fields refused: the defaults are no layer, no set. */
static fy_status_t refused_for(const char *text, fy_status_t status)
{
    return status != FY_STATUS_OK && strstr(fy_error_get()->text, text) ? FY_STATUS_OK : status;
}
/* Makes an object with the given options, and destroys it. */
#define MAKES(name, type, call)            \
    static fy_status_t name(void *given)   \
    {                                      \
        fy_##type##_t *made;               \
        const fy_status_t status = (call); \
        fy_##type##_destroy(made);         \
        return status;                     \
    }
MAKES(dataset_read, dataset,
      refused_for("/tmp/no-such-file",
                  fy_dataset_read_idx("/tmp/no-such-file", "/tmp/no-such-file", given, &made)))
MAKES(dataset_create, dataset,
      refused_for("classes and", fy_dataset_create(given, NULL, NULL, &made)))
MAKES(table_parse, table, fy_table_parse("1 2\n", 4, NULL, given, &made))
MAKES(loader_create, loader, fy_loader_create(host, digits, given, &made))
MAKES(layer_linear, layer, fy_layer_linear(2, 3, given, &made))
MAKES(layer_conv2d, layer, fy_layer_conv2d(1, 1, 3, 3, given, &made))
MAKES(layer_batch_norm, layer, fy_layer_batch_norm(2, given, &made))
MAKES(layer_layer_norm, layer, fy_layer_layer_norm(2, given, &made))
MAKES(layer_attention, layer, fy_layer_attention(4, 2, given, &made))
MAKES(layer_transformer, layer, fy_layer_transformer_block(4, 2, given, &made))
MAKES(layer_embedding, layer, fy_layer_embedding(2, 3, given, &made))
MAKES(layer_create, layer, refused_for("needs a type", fy_layer_create(given, NULL, &made)))
MAKES(model_create, model, fy_model_create(host, fc(2, 1), FY_DIMS(2), given, &made))
MAKES(optimizer_create, optimizer, fy_optimizer_create_model(given, model, &made))
MAKES(model_open, model, fy_model_open(host, "linear", given, &made))
static fy_status_t loss_scaling_create(void *given)
{
    fy_optimizer_options_t options = FY_OPTIMIZER_OPTIONS_INIT;
    options.loss_scaling = given;
    return optimizer_create(&options);
}
static fy_status_t optimizer_get(void *given) { return fy_optimizer_get(optimizer, given); }
static fy_status_t schedule_check(void *given) { return fy_schedule_check(given); }
static fy_status_t schedule_lr(void *given)
{
    return fy_schedule_lr(given, 0) >= 0 ? FY_STATUS_OK : fy_error_get()->status;
}
static fy_status_t train(const fy_train_options_t *options, fy_train_result_t *result)
{
    return fy_train_run(model, optimizer, loader, NULL, options, result);
}
static fy_status_t train_options(void *given) { return train(given, NULL); }
static fy_status_t train_result(void *given) { return train(NULL, given); }
static fy_status_t train_replicas(void *given)
{
    fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
    options.replicas = given;
    return refused_for("a call of replicas is NULL", train(&options, NULL));
}
static fy_status_t model_sync_norms(void *given)
{
    return refused_for("has 0 ranks", fy_model_sync_norms(model, given));
}
static fy_status_t find_lr(const fy_find_lr_options_t *options, fy_find_lr_result_t *result)
{
    fy_lr_point_t points[100];
    return fy_train_find_lr(model, optimizer, loader, options, points, result);
}
static fy_status_t open_mlp(fy_device_t *device, const fy_model_options_t *options, void *user,
                            fy_model_t **out_model)
{
    (void)user;
    return fy_model_open(device, "mlp", options, out_model);
}
static fy_status_t no_step(fy_model_t *planned, int64_t batch, void *user)
{
    (void)planned, (void)batch, (void)user;
    return FY_STATUS_OK;
}
static fy_status_t segments_fit(void *given)
{
    return fy_segments_fit("sim", open_mlp, no_step, NULL, 1, NULL, given, NULL);
}
static fy_status_t segments_options(void *given)
{
    fy_segments_t segments = FY_SEGMENTS_INIT;
    return fy_segments_fit("sim", open_mlp, no_step, NULL, 1, given, &segments, NULL);
}
static fy_status_t find_lr_options(void *given)
{
    return find_lr(given, &(fy_find_lr_result_t)FY_FIND_LR_RESULT_INIT);
}
static fy_status_t find_lr_result(void *given)
{
    fy_find_lr_options_t options = FY_FIND_LR_OPTIONS_INIT;
    options.steps = 2;
    return find_lr(&options, given);
}
static fy_status_t checkpoint_save(void *given)
{
    return fy_checkpoint_save(folder, model, optimizer, given, 1);
}
static fy_status_t checkpoint_load(void *given)
{
    return fy_checkpoint_load(folder, model, optimizer, given);
}
static fy_status_t dataset_query(void *given) { return fy_dataset_query(digits, given); }
static fy_status_t loader_query(void *given) { return fy_loader_query(loader, given); }
static fy_status_t model_query(void *given) { return fy_model_query(model, given); }
static fy_status_t model_layer(void *given) { return fy_model_layer(model, 0, given); }
static fy_status_t model_param(void *given) { return fy_model_param(model, 0, given); }
static fy_status_t model_find_param(void *given)
{
    fy_param_t first = nth_param(model, 0);
    return fy_model_find_param(model, first.name, given);
}
static fy_status_t safetensors_at(void *given)
{
    fy_safetensors_t *file;
    ts_ok(fy_safetensors_open(weights, &file));
    const fy_status_t status = fy_safetensors_at(file, 0, given);
    fy_safetensors_close(file);
    return status;
}

static const ts_abi_case_t cases[] = {
    TS_ABI_OPTIONS(dataset_options, dataset_read),
    TS_ABI_OPTIONS(table_options, table_parse),
    TS_ABI_OPTIONS(loader_options, loader_create),
    TS_ABI_OPTIONS(linear_options, layer_linear),
    TS_ABI_OPTIONS(conv2d_options, layer_conv2d),
    TS_ABI_OPTIONS(attention_options, layer_attention),
    TS_ABI_OPTIONS(transformer_options, layer_transformer),
    TS_ABI_OPTIONS(embedding_options, layer_embedding),
    TS_ABI_OPTIONS(batch_norm_options, layer_batch_norm),
    TS_ABI_OPTIONS(layer_norm_options, layer_layer_norm),
    TS_ABI_OPTIONS(layer_def, layer_create),
    TS_ABI_OPTIONS(model_options, model_open),
    TS_ABI_OPTIONS(model_options, model_create),
    TS_ABI_OPTIONS(optimizer_options, optimizer_create),
    TS_ABI_FACTS(optimizer_options, optimizer_get),
    TS_ABI_OPTIONS(loss_scaling_options, loss_scaling_create),
    TS_ABI_OPTIONS(schedule, schedule_check),
    TS_ABI_OPTIONS(schedule, schedule_lr),
    TS_ABI_OPTIONS(train_options, train_options),
    TS_ABI_FACTS(train_result, train_result),
    TS_ABI_OPTIONS(train_replicas, train_replicas),
    TS_ABI_OPTIONS(norm_exchange, model_sync_norms),
    TS_ABI_OPTIONS(find_lr_options, find_lr_options),
    TS_ABI_FACTS(find_lr_result, find_lr_result),
    TS_ABI_FACTS(segments, segments_fit),
    TS_ABI_OPTIONS(model_options, segments_options),
    TS_ABI_OPTIONS(progress, checkpoint_save),
    TS_ABI_FACTS(progress, checkpoint_load),
    TS_ABI_OPTIONS(dataset_info, dataset_create),
    TS_ABI_FACTS(dataset_info, dataset_query),
    TS_ABI_FACTS(loader_info, loader_query),
    TS_ABI_FACTS(model_info, model_query),
    TS_ABI_FACTS(model_layer_info, model_layer),
    TS_ABI_FACTS(param, model_param),
    TS_ABI_FACTS(param, model_find_param),
    TS_ABI_FACTS(safetensors_info, safetensors_at),
};
enum { CASES = sizeof cases / sizeof *cases };

TS_TEST(every_size_of_every_struct)
{
    for (size_t i = 0; i < CASES; i++) {
        const fy_scope_t scope = fy_scope_begin("sweep");
        ts_abi_sweep(&cases[i]);
        fy_scope_end(scope, 0, NULL);
    }
}

/* Not refused by one rule for all: switches, which are on if they are not 0; seeds; fields that the
 * call of the table does not use. */
static const ts_abi_signed_t may_be_negative[] = {
    { "fy_model_options.recompute", FY_RECOMPUTE_SQRT },
    { "fy_model_options.offload", FY_RECOMPUTE_SQRT },
/* clang-format off */
#define X(field) { "fy_" #field, INT64_MIN },
    X(loader_options.seed) X(model_options.seed) X(progress.seed)
    X(schedule.step_size) X(schedule.total_steps) /* the default kind ignores them */
    X(train_replicas.rank) X(train_replicas.ranks) /* they are compared with the loader's */
    X(dataset_info.classes) X(dataset_info.targets) X(dataset_info.labels) /* test_dataset.c */
    X(attention_options.is_causal) X(attention_options.no_bias) X(conv2d_options.no_bias)
    X(layer_norm_options.no_bias) X(layer_norm_options.no_affine) X(linear_options.no_bias)
    X(loader_options.drop_last) X(loader_options.shuffle) X(loader_options.resident)
    X(loader_options.flip) X(loader_options.augment)
    X(model_options.recompute_cheap) X(model_options.drop_bias)
    X(optimizer_options.nesterov) X(optimizer_options.centered)
    X(schedule.three_phase) X(schedule.linear)
    X(train_options.graph) X(train_options.resume)
    X(train_replicas.shards_optimizer) X(train_replicas.syncs_norms)
    X(transformer_options.is_causal) X(transformer_options.is_exact_gelu)
#undef X
    /* clang-format on */
    { NULL, 0 },
};

TS_TEST(negative_numbers_are_refused)
{
    ts_abi_refuse_negative("tests/abi/libferry_train.abi", cases, CASES, may_be_negative);
}

TS_TEST(no_struct_is_left_out)
{
#define X(name, NAME, last) &fy__abi_##name,
    const fy__abi_t *const structs[] = { FYT_ABI_OPTIONS(X) FYT_ABI_FACTS(X) };
#undef X
    for (size_t i = 0; i < sizeof structs / sizeof *structs; i++) {
        size_t n = 0;
        while (n < CASES && cases[n].abi != structs[i]) n++;
        if (n == CASES) fail_msg("no call with %s", structs[i]->name);
    }
}

TS_TEST(defaults_write_what_the_caller_has_room_for)
{
    struct {
        fy_optimizer_options_t own;
        uint64_t newer;
    } large = { .newer = 5 };
    fy_optimizer_defaults(FY_OPTIMIZER_ADAM, &large.own, sizeof large);
    assert_int_equal(large.own.struct_size, sizeof large);
    assert_int_equal(large.newer, 0);
    size_t only = 9;
    fy_schedule_defaults(FY_SCHEDULE_STEP, 1, 0, (fy_schedule_t *)(void *)&only, sizeof only);
    assert_int_equal(only, sizeof only);
}

static int begin(void **state)
{
    fy_optimizer_options_t options = FY_OPTIMIZER_OPTIONS_INIT;
    fy_loader_options_t scaled = FY_LOADER_OPTIONS_INIT;
    scaled.scale = 1.0 / 255;
    host = fy_device_host();
    if (make_folder(state)) return 1;
    weights = in_folder("weights.safetensors");
    ts_ok(fy_dataset_synthetic_digits(64, 1, &digits));
    ts_ok(fy_loader_create(host, digits, &scaled, &loader));
    ts_ok(fy_model_open(host, "mlp", NULL, &model));
    const fy_model_info_t info = model_info(model);
    ts_ok(fy_optimizer_create(&options, 1, &info.values, &info.grads, &optimizer));
    ts_ok(fy_model_save(model, weights));
    return 0;
}

static int end(void **state)
{
    fy_optimizer_destroy(optimizer);
    fy_model_destroy(model);
    fy_loader_destroy(loader);
    fy_dataset_destroy(digits);
    return drop_folder(state);
}

TS_SUITE(.begin = begin, .end = end);
