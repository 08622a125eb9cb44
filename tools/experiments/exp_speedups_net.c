/* The small network that rows of `ferry experiment speedups` train, and ways to look at numbers.
 * Not here: the rows (exp_speedups_*.c). */
#include <stdlib.h>
#include <string.h>

#include "tools/experiments/exp_parallel.h"
#include "tools/experiments/exp_speedups.h"

static fy_status_t fill_batch(int64_t batch, fy_tensor_t *x, fy_tensor_t *y)
{
    fy_dataset_t *digits;
    FY_TRY(fy_dataset_synthetic_digits((uint64_t)batch, 3, &digits));
    const fy_status_t status = fill_digits(digits, 0, batch, x, y);
    fy_dataset_destroy(digits);
    return status;
}

fy_status_t net_open(fy_device_t *device, int64_t batch, net_t *net)
{
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    fy_tensor_t *x, *y;
    *net = (net_t){ .device = device, .batch = batch };
    FY_TRY(fy_model_open(device, "mlp", NULL, &net->model));
    FY_TRY(fy_model_query(net->model, &info));
    net->values = info.values;
    net->grads = info.grads;
    FY_TRY(fy_tape_create(&net->tape));
    FY_TRY(fy_model_watch(net->model, net->tape));
    FY_TRY(fy_tensor_create(fy_device_host(), FY_DTYPE_F32, FY_DIMS(batch, 28, 28, 1), &x));
    FY_TRY(fy_tensor_create(fy_device_host(), FY_DTYPE_I32, FY_DIMS(batch), &y));
    FY_TRY(fill_batch(batch, x, y));
    FY_TRY(fy_tensor_upload(x, device, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &net->x));
    FY_TRY(fy_tensor_upload(y, device, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &net->y));
    fy_tensor_destroy(x);
    fy_tensor_destroy(y);
    return FY_STATUS_OK;
}

/* Tensors and the tape belong to the scope. */
void net_close(net_t *net)
{
    fy_model_destroy(net->model);
    net->model = NULL;
}

fy_status_t net_gradient(net_t *net, int64_t begin, int64_t end,
                         const fy_backward_options_t *options, fy_tensor_t **out_loss)
{
    fy_tensor_t *x, *y, *logits, *sum;
    const fy_scope_t scope = fy_scope_begin("gradient");
    FY_TRY(fy_slice(net->x, 0, begin, end, &x));
    FY_TRY(fy_slice(net->y, 0, begin, end, &y));
    FY_TRY(fy_tape_begin(net->tape));
    FY_TRY(fy_model_forward(net->model, x, &logits));
    FY_TRY(fy_cross_entropy(logits, y, FY_REDUCTION_SUM, &sum));
    FY_TRY(fy_affine(sum, 1 / (double)net->batch, 0, out_loss));
    FY_TRY(fy_model_backward(net->model, net->tape, *out_loss, options));
    fy_scope_end(scope, 1, out_loss);
    return FY_STATUS_OK;
}

fy_status_t net_descend(net_t *net, double lr) { return fy_axpy(net->values, -lr, net->grads); }

fy_status_t fetch_f64(const fy_tensor_t *tensor, double *out_value)
{
    fy_download_t *download;
    FY_TRY(fy_tensor_download(tensor, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &download));
    return fy_download_wait_f64(download, FY_FOREVER, out_value);
}

fy_status_t fetch_f32(const fy_tensor_t *tensor, float **out_values, uint64_t *out_count)
{
    fy_download_t *download;
    fy_tensor_t *host;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    void *data;
    FY_TRY(fy_tensor_download(tensor, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &download));
    FY_TRY(fy_download_wait(download, FY_FOREVER, &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_READ, &data));
    FY_TRY(fy_tensor_query(host, &info));
    *out_values = tool_alloc(info.nbytes + 1);
    memcpy(*out_values, data, info.nbytes);
    *out_count = info.nelem;
    fy_tensor_destroy(host);
    return FY_STATUS_OK;
}

double relative_distance(const float *a, const float *b, uint64_t n)
{
    return add_difference(a, b, n, (double[2]){ 0 });
}

fy_status_t clock_ns(session_t *session, double *out_ns)
{
    FY_TRY(session_wait(session));
    *out_ns = session->info.is_simulated ? session_model_ns(session) : wall_ns();
    return FY_STATUS_OK;
}
