/* ResNet-18, MobileNetV3-Large, a vision transformer and a GPT beside PyTorch: with the same
 * weights and inputs, logits and loss agree to 1e-4, norms of gradients and buffers to 1e-3. Sums
 * of PyTorch's values are in data/models_reference.txt; models_reference.py wrote them from the
 * weights that this program writes with `--write MODEL FILE`: first values are drawn from a seed,
 * so they are the same on every machine. Where PyTorch is installed, that script also compares
 * every element (test unit_train_models_pytorch). */
#include "runtime/base/c_locale.h"
#include "tests/unit/train/fixture.h"

#include <math.h>

enum { BATCH = 4, SEED = 3, MAX_TENSORS = 1024, MAX_LOGITS = 1 << 14 };

static const char *const models[] = { "resnet18:size=16",
                                      "mobilenet_v3_large:classes=10,size=64,dropout=0",
                                      "vit_tiny:classes=10,size=32,patch=8,layers=2",
                                      "gpt:layers=2,heads=2,width=32,context=16,vocab=50" };

/* As Park and Miller (1988), in [0, 1). */
static double draw(uint64_t *state)
{
    *state = *state * 48271 % 2147483647;
    return (double)*state / 2147483647;
}

typedef struct result {
    fy_model_t *model;
    fy_tensor_t *x, *y, *logits, *loss;
} result_t;

static fy_tensor_t *make_x(const char *model)
{
    int64_t sample[FY_MAX_RANK], dims[FY_MAX_RANK + 1] = { BATCH };
    int rank;
    void *data;
    fy_tensor_t *x;
    uint64_t state = 17;
    const int is_text = strncmp(model, "gpt", 3) == 0;
    ts_ok(fy_model_sample_shape(model, &rank, sample));
    memcpy(dims + 1, sample, (size_t)rank * sizeof *dims);
    ts_ok(fy_tensor_create(fy_device_host(), is_text ? FY_DTYPE_I32 : FY_DTYPE_F32, rank + 1, dims,
                           &x));
    ts_ok(fy_tensor_map(x, FY_ACCESS_WRITE, &data));
    for (uint64_t i = 0; i < ts_info(x).nelem; i++) {
        const double value = draw(&state);
        if (is_text)
            ((int32_t *)data)[i] = (int32_t)(50 * value);
        else
            ((float *)data)[i] = (float)(2 * value - 1);
    }
    return x;
}

/* A target a row of logits. */
static fy_tensor_t *make_y(const fy_tensor_t *logits)
{
    const fy_tensor_info_t info = ts_info(logits);
    const int64_t classes = info.dims[info.rank - 1];
    fy_tensor_t *y;
    void *data;
    ts_ok(fy_tensor_create(fy_device_host(), FY_DTYPE_I32, info.rank - 1, info.dims, &y));
    ts_ok(fy_tensor_map(y, FY_ACCESS_WRITE, &data));
    for (uint64_t i = 0; i < ts_info(y).nelem; i++)
        ((int32_t *)data)[i] = (int32_t)((int64_t)(i * 7 + 3) % classes);
    return y;
}

/* One step in training: the gradients are in the model. */
static result_t compute(const char *model)
{
    result_t r = { 0 };
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    options.seed = SEED;
    ts_ok(fy_model_open(fy_device_host(), model, &options, &r.model));
    r.x = make_x(model);
    fy_tape_t *tape = watch(r.model);
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_model_forward(r.model, r.x, &r.logits));
    r.y = make_y(r.logits);
    ts_ok(fy_cross_entropy(r.logits, r.y, FY_REDUCTION_MEAN, &r.loss));
    ts_ok(fy_model_backward(r.model, tape, r.loss, NULL));
    return r;
}

/* ---- for models_reference.py ---- */

static int write_all(const char *model, const char *path)
{
    static fy_safetensors_entry_t entries[MAX_TENSORS];
    static char names[MAX_TENSORS][96];
    size_t count = 0;
    fy_scope_t scope = fy_scope_begin("write");
    result_t r = compute(model);
    const fy_model_info_t info = model_info(r.model);
    fy_tensor_t *const own[] = { r.x, r.y, r.logits, r.loss };
    static const char *const own_names[] = { "x", "y", "logits", "loss" };
    for (size_t i = 0; i < 4; i++)
        entries[count++] = (fy_safetensors_entry_t){ own_names[i], own[i] };
    for (size_t i = 0; i < info.nparams; i++) {
        fy_param_t param = nth_param(r.model, i);
        snprintf(names[count], sizeof *names, "grad.%s", param.name);
        entries[count] = (fy_safetensors_entry_t){ names[count], param.grad };
        count++;
        entries[count++] = (fy_safetensors_entry_t){ param.name, param.value };
    }
    for (size_t i = 0; i < info.nbuffers; i++) {
        fy_param_t buffer = FY_PARAM_INIT;
        ts_ok(fy_model_buffer(r.model, i, &buffer));
        entries[count++] = (fy_safetensors_entry_t){ buffer.name, buffer.value };
    }
    const fy_safetensors_pair_t pair = { "model", model };
    const fy_status_t status = fy_safetensors_write(path, count, entries, 1, &pair);
    if (status != FY_STATUS_OK) fprintf(stderr, "%s\n", fy_error_get()->text);
    fy_model_destroy(r.model);
    fy_scope_end(scope, 0, NULL);
    return status != FY_STATUS_OK;
}

/* ---- beside the recorded values ---- */

static double norm_of(const fy_tensor_t *tensor)
{
    fy_tensor_t *norm;
    ts_ok(fy_norm(tensor, FY_ALL_AXES, 0, &norm));
    return ts_value(norm);
}

static double weight_of(int place) { return 1 + place / 16.0; }

/* The weighted sum of log(0.001 + norm) of the gradients, or buffers, whose names begin with
 * `block`; so 0.001 of the sum is 0.001 of a norm, or 1e-6 of one near 0. Gradients up to `small`
 * are rounding errors. */
static double sum_of_logs(const fy_model_t *model, const char *block, int is_buffer, double small)
{
    const fy_model_info_t info = model_info(model);
    const size_t length = strlen(block), count = is_buffer ? info.nbuffers : info.nparams;
    double sum = 0;
    int place = 0;
    for (size_t i = 0; i < count; i++) {
        fy_param_t param = FY_PARAM_INIT;
        ts_ok((is_buffer ? fy_model_buffer : fy_model_param)(model, i, &param));
        if (strncmp(param.name, block, length) != 0 || !strchr(".", param.name[length])) continue;
        const double norm = norm_of(is_buffer ? param.value : param.grad);
        if (is_buffer || norm > small) sum += weight_of(place) * log(0.001 + norm);
        place++;
    }
    return sum;
}

static double largest_grad(const fy_model_t *model)
{
    double largest = 0;
    for (size_t i = 0; i < model_info(model).nparams; i++) {
        fy_param_t param = nth_param(model, i);
        largest = fmax(largest, norm_of(param.grad));
    }
    return largest;
}

/* Lines "MODEL logits FIRST SUM" of ten logits, "MODEL loss - VALUE", "MODEL norms BLOCK SUM" and
 * "MODEL buffers BLOCK SUM". The weights of a sum are 1 or more: terms that err to one side
 * differ in it by no less than alone. */
static void check_model(const char *model)
{
    static float logits[MAX_LOGITS];
    char line[256], name[128], what[16], key[96];
    int seen = 0, used;
    result_t r = compute(model);
    ts_read(r.logits, logits, ts_info(r.logits).nbytes);
    const double small = 1e-4 * largest_grad(r.model);
    FILE *file = fopen("tests/unit/train/data/models_reference.txt", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        double got = 0, bound = 1e-3;
        if (sscanf(line, "%127s %15s %95s %n", name, what, key, &used) != 3 ||
            strcmp(name, model) != 0)
            continue;
        const double want = fy__strtod(line + used, NULL);
        seen++;
        if (strcmp(what, "logits") == 0) {
            for (int i = 0; i < 10; i++) got += weight_of(i) * logits[atoi(key) + i];
            bound = 1e-4;
        } else if (strcmp(what, "loss") == 0) {
            got = ts_value(r.loss);
            bound = 1e-4 * fmax(1, want);
        } else {
            got = sum_of_logs(r.model, key, strcmp(what, "buffers") == 0, small);
        }
        if (!(fabs(got - want) <= bound))
            fail_msg("%s, %s %s: %.9g, PyTorch has %.9g, bound %.3g", model, what, key, got, want,
                     bound);
    }
    fclose(file);
    print_message("%s: %d values\n", model, seen);
    assert_true(seen > 10);
    fy_model_destroy(r.model);
}

TS_DEVICE_TEST(test_recorded_values)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) check_model(models[i]);
}

/* `models_reference MODEL FOLDER` writes files for models_reference.py. */
static int prepare(void)
{
    if (*ts_arguments) exit(write_all(ts_arguments[0], ts_arguments[1]));
    return 0;
}

TS_SUITE(.prepare = prepare);
