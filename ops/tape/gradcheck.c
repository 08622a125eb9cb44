/* Gradients against central differences: (f(x + h) - f(x - h)) / 2h for each element x, where f is
 * the result seen along a fixed random direction, so that results of any shape are checked by one
 * number. For tests; slow on purpose. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <ferry/ops.h>
#include <ferry/tape.h>
#include <ferry/transfer.h>

#include "runtime/base/fail.h"
#include "runtime/base/abi_structs.h"
#include "runtime/tensor/tensor.h"

typedef struct check {
    fy_gradcheck_fn fn;
    void *user;
    size_t count;
    fy_tensor_t *const *inputs;
    const fy_gradcheck_options_t *options;
    fy_gradcheck_result_t *result;
    fy_tensor_t *direction; /* of the result's shape; NULL until the first call */
} check_t;

/* sum(result * direction), on the device. */
static fy_status_t project(check_t *check, fy_tensor_t **out_loss)
{
    fy_tensor_t *result, *product;
    FY_TRY(check->fn(check->user, check->count, check->inputs, &result));
    if (!result)
        return FY_FAIL(INVALID_ARGUMENT, "gradcheck: the function was OK and gave no result");
    if (!check->direction) {
        fy_tensor_t *rng;
        FY_TRY(fy_rng_create(result->storage->device, check->options->seed, &rng));
        FY_TRY(fy_rand(rng, (fy_dtype_t)result->dtype, result->rank, result->dims, 0.5, 1.5,
                       &check->direction));
        fy_tensor_keep(check->direction);
    }
    FY_TRY(fy_mul(result, check->direction, &product));
    return fy_sum(product, FY_ALL_AXES, 0, out_loss);
}

/* Blocks. */
static fy_status_t read_scalar(const fy_tensor_t *tensor, double *out_value)
{
    fy_download_t *download;
    FY_TRY(fy_tensor_download(tensor, NULL, &download));
    return fy_download_wait_f64(download, FY_FOREVER, out_value);
}

/* A view of one element; `element` counts row-major. */
static fy_status_t element_of(fy_tensor_t *tensor, uint64_t element, fy_tensor_t **out_view)
{
    fy_tensor_t *view = tensor;
    for (int axis = tensor->rank - 1; axis >= 0; axis--) {
        const int64_t at = (int64_t)(element % (uint64_t)tensor->dims[axis]);
        element /= (uint64_t)tensor->dims[axis];
        FY_TRY(fy_slice(view, axis, at, at + 1, &view));
    }
    *out_view = view;
    return FY_STATUS_OK;
}

static fy_status_t value_at(check_t *check, fy_tensor_t *place, double value, double *out_loss)
{
    fy_tensor_t *loss;
    FY_TRY(fy_fill(place, value));
    fy_scope_t scope = fy_scope_begin("gradcheck");
    fy_status_t status = project(check, &loss);
    if (status == FY_STATUS_OK) status = read_scalar(loss, out_loss);
    fy_scope_end(scope, 0, NULL);
    return status;
}

static fy_status_t check_element(check_t *check, size_t input, uint64_t element, fy_tensor_t *grad)
{
    const fy_gradcheck_options_t *options = check->options;
    fy_tensor_t *place, *slope;
    double tape = 0, value, up, down;
    FY_TRY(element_of(check->inputs[input], element, &place));
    FY_TRY(read_scalar(place, &value));
    if (grad) {
        FY_TRY(element_of(grad, element, &slope));
        FY_TRY(read_scalar(slope, &tape));
    }
    fy_status_t status = value_at(check, place, value + options->step, &up);
    if (status == FY_STATUS_OK) status = value_at(check, place, value - options->step, &down);
    const fy_status_t restored = fy_fill(place, value);
    FY_TRY(status);
    FY_TRY(restored);
    const double numeric = (up - down) / (2 * options->step);
    const double excess = fabs(tape - numeric) - options->rtol * fabs(numeric);
    check->result->checked++;
    if (check->result->checked > 1 && !(excess > check->result->worst) && !isnan(excess))
        return FY_STATUS_OK;
    *check->result = (fy_gradcheck_result_t){
        sizeof *check->result, check->result->checked, excess, input, element, tape, numeric
    };
    return FY_STATUS_OK;
}

static fy_status_t check_all(check_t *check, fy_tape_t *tape)
{
    fy_tensor_t *loss;
    for (size_t i = 0; i < check->count; i++) FY_TRY(fy_tape_watch(tape, check->inputs[i], NULL));
    FY_TRY(fy_tape_begin(tape));
    FY_TRY(project(check, &loss));
    FY_TRY(fy_tape_backward(tape, loss, NULL));
    for (size_t i = 0; i < check->count; i++) {
        fy_tensor_t *grad;
        FY_TRY(fy_tape_grad(tape, check->inputs[i], &grad));
        for (uint64_t element = 0; element < check->inputs[i]->nelem; element++) {
            fy_scope_t scope = fy_scope_begin("element");
            const fy_status_t status = check_element(check, i, element, grad);
            fy_scope_end(scope, 0, NULL);
            FY_TRY(status);
            if (isnan(check->result->worst)) break;
        }
    }
    const fy_gradcheck_result_t *result = check->result;
    if (!result->checked || result->worst <= check->options->atol) return FY_STATUS_OK;
    return FY_FAIL(BAD_VALUE,
                   "gradcheck: element %" PRIu64
                   " of input %zu: the tape says %.9g, differences say %.9g (atol %g, rtol %g)",
                   result->element, result->input, result->tape, result->numeric,
                   check->options->atol, check->options->rtol);
}

fy_status_t fy_gradcheck(fy_gradcheck_fn fn, void *user, size_t count, fy_tensor_t *const *inputs,
                         const fy_gradcheck_options_t *options, fy_gradcheck_result_t *out_result)
{
    fy_gradcheck_options_t own;
    fy_gradcheck_result_t result = FY_GRADCHECK_RESULT_INIT;
    char text[112];
    fy_tape_t *tape;
    if (!fn || !inputs || !count)
        return FY_FAIL(INVALID_ARGUMENT, "gradcheck: %s", fn ? "no inputs" : "fn is NULL");
    FY_TRY(FY__CHECK_OUT(gradcheck_result, "gradcheck", out_result));
    FY_TRY(FY__READ(gradcheck_options, "gradcheck", options, &own));
    for (size_t i = 0; i < count; i++) {
        if (!inputs[i]) return FY_FAIL(INVALID_ARGUMENT, "gradcheck: inputs[%zu] is NULL", i);
        if (fy__tensor_is_gone(inputs[i])) return fy__refuse_gone("gradcheck", "an input");
        if (inputs[i]->dtype != FY_DTYPE_F64)
            return FY_FAIL(DTYPE_MISMATCH, "gradcheck: inputs[%zu] is %s; differences need f64", i,
                           fy__tensor_format(inputs[i], text, sizeof text));
    }
    check_t check = { fn, user, count, inputs, &own, &result, NULL };
    fy_scope_t scope = fy_scope_begin("gradcheck");
    fy_status_t status = fy_tape_create(&tape);
    if (status == FY_STATUS_OK) status = check_all(&check, tape);
    if (check.direction) fy_tensor_destroy(check.direction);
    fy_scope_end(scope, 0, NULL);
    FY__WRITE(out_result, &result);
    return status;
}
