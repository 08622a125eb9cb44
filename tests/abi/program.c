/* A program that run.sh builds three times: with today's headers, with headers that lack the last
 * fields of some structs (OLDER), and with headers whose structs have one field more (NEWER).
 * Usage: program sizes | program run FOLDER | program plugin SPEC */
#include <ferry/ferry.h>
#include <ferry/train/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed;
#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "line %d: %s\n  %s\n", __LINE__, #condition, fy_error_get()->text); \
            failed = 1;                                                                         \
        }                                                                                       \
    } while (0)
#define OK(expr) CHECK((expr) == FY_STATUS_OK)

static void print_sizes(void)
{
    printf("%zu %zu\n", sizeof(fy_transfer_options_t), sizeof(fy_safetensors_info_t));
}

static void transfers(fy_device_t *sim)
{
    const float values[4] = { 1, 2, 3, 4 };
    double sum = 0;
    fy_tensor_t *host, *x, *y, *wide;
    fy_download_t *download;
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    fy_ledger_totals_t totals = FY_LEDGER_TOTALS_INIT;
    OK(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(4), (void *)values, NULL, NULL,
                      &host));
    OK(fy_tensor_upload(host, sim, &options, &x));
    OK(fy_sum(x, FY_ALL_AXES, 0, &y));
    OK(fy_tensor_download(y, &options, &download));
    OK(fy_download_wait_f64(download, FY_FOREVER, &sum));
    CHECK(sum == 10);
    OK(fy_tensor_query(x, &info));
    CHECK(info.device == sim && info.nbytes == 16 && info.struct_size == sizeof info);
    OK(fy_ledger_query(NULL, &totals));
    CHECK(totals.upload.count == 1 && totals.upload.nbytes == 16);
    /* a field that an older program does not have has its default */
    OK(fy_zeros(sim, FY_DTYPE_F64, FY_DIMS(4), &wide));
    CHECK(fy_tensor_upload_into(wide, host, &options, NULL) == FY_STATUS_DTYPE_MISMATCH);
#ifdef NEWER
    options.from_a_newer_header = 1;
    CHECK(fy_tensor_upload(host, sim, &options, &y) == FY_STATUS_INVALID_ARGUMENT);
    CHECK(strstr(fy_error_get()->text, "a newer Ferry") && !y);
    info.from_a_newer_header = totals.from_a_newer_header = 7;
    OK(fy_tensor_query(x, &info));
    OK(fy_ledger_query(NULL, &totals));
    CHECK(info.from_a_newer_header == 0 && totals.from_a_newer_header == 0);
#endif
}

static void figures(fy_device_t *sim)
{
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", FERRY_VERSION_MAJOR, FERRY_VERSION_MINOR,
             FERRY_VERSION_PATCH);
    CHECK(strcmp(version, fy_version()) == 0);
#if FERRY_VERSION_NUMBER < 100
    CHECK(!"FERRY_VERSION_NUMBER is too small");
#endif
    fy_device_info_t device = FY_DEVICE_INFO_INIT;
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    const fy_guard_options_t guard = FY_GUARD_LIGHT_ONLY;
    fy_pool_options_t options;
    fy_pool_t *pool;
    OK(fy_device_query(sim, &device));
    CHECK(strcmp(device.spec, "sim:0") == 0);
    OK(fy_memory_query(sim, NULL, &stats));
    CHECK(stats.live > 0 && stats.by_category[FY_CATEGORY_ACTIVATIONS] > 0);
    const fy_scope_t scope = fy_scope_begin("light");
    OK(fy_scope_guard(&guard));
    CHECK(fy_device_wait(sim, FY_FOREVER) == FY_STATUS_REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
    fy_pool_options_init(&options, sizeof options);
    CHECK(options.struct_size == sizeof options && options.alignment == 256);
    OK(fy_pool_create(&options, &pool));
    fy_pool_destroy(pool);
}

static void training(const char *folder)
{
    char path[512];
    fy_model_t *model;
    fy_safetensors_t *file;
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    fy_safetensors_info_t first = FY_SAFETENSORS_INFO_INIT;
    fy_optimizer_options_t options;
    fy_optimizer_t *optimizer;
    snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    OK(fy_model_open(fy_device_host(), "mlp", NULL, &model));
    OK(fy_model_query(model, &info));
    CHECK(info.nparams == 4);
    fy_optimizer_defaults(FY_OPTIMIZER_ADAM, &options, sizeof options);
    OK(fy_optimizer_create(&options, 1, &info.values, &info.grads, &optimizer));
    OK(fy_model_save(model, path));
    OK(fy_safetensors_open(path, &file));
    OK(fy_safetensors_at(file, 0, &first));
    CHECK(first.dtype == FY_DTYPE_F32 && first.nbytes > 0 && first.struct_size == sizeof first);
    fy_safetensors_close(file);
    fy_optimizer_destroy(optimizer);
    fy_model_destroy(model);
}

/* The slots that the plugin's table does not have are optional. */
static void plugin(const char *spec)
{
    fy_device_t *device;
    fy_tensor_t *x;
    OK(fy_device_open(spec, &device));
    if (failed) return;
    OK(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(4), &x));
    OK(fy_neg(x, &x));
    OK(fy_device_wait(device, FY_FOREVER));
    fy_tensor_destroy(x);
    fy_device_close(device);
}

int main(int argc, char **argv)
{
    fy_device_t *sim;
    if (argc < 2) return 2;
    if (strcmp(argv[1], "sizes") == 0) {
        print_sizes();
        return 0;
    }
    if (argc != 3) return 2;
    if (strcmp(argv[1], "plugin") == 0) {
        plugin(argv[2]);
        return failed;
    }
    OK(fy_device_open("sim:0", &sim));
    const fy_scope_t scope = fy_scope_begin("program");
    transfers(sim);
    figures(sim);
    training(argv[2]);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(sim);
    return failed;
}
