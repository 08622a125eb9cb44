/* Orders: one random permutation for each seed and epoch.
 * A random state is {seed, counter}, and fy_randperm increments the counter by one. The order of an
 * epoch is drawn by setting the counter, so a resumed run does not repeat the epochs before. */
#include "order.h"

#include <ferry/device.h>
#include <ferry/ops.h>
#include <ferry/scope.h>
#include <string.h>

#include "table.h"

fy_status_t fyt_order_make(fy_device_t *device, int64_t seed, int64_t epoch, uint64_t count,
                           fy_tensor_t **out_order)
{
    fy_tensor_t *rng, *counter;
    *out_order = NULL;
    if (count > UINT32_MAX)
        return FYT_FAIL(INVALID_ARGUMENT, "an order of %llu samples; there may be 2^32 - 1",
                        (unsigned long long)count);
    fy_scope_t scope = fy_scope_begin("order");
    fy_status_t status = fy_rng_create(device, seed, &rng);
    if (status == FY_STATUS_OK && epoch) {
        status = fy_slice(rng, 0, 1, 2, &counter);
        if (status == FY_STATUS_OK) status = fy_fill(counter, (double)epoch);
    }
    if (status == FY_STATUS_OK) status = fy_randperm(rng, (int64_t)count, out_order);
    fy_scope_end(scope, 1, out_order);
    return status;
}

fy_status_t fyt_order_read(int64_t seed, int64_t epoch, uint64_t count, int64_t *out_order)
{
    fy_tensor_t *order;
    void *numbers;
    fy_scope_t scope = fy_scope_begin("order");
    fy_status_t status = fyt_order_make(fy_device_host(), seed, epoch, count, &order);
    if (status == FY_STATUS_OK) status = fy_tensor_map(order, FY_ACCESS_READ, &numbers);
    if (status == FY_STATUS_OK) memcpy(out_order, numbers, count * sizeof *out_order);
    fy_scope_end(scope, 0, NULL);
    return status;
}
