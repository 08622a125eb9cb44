/* Tensors exchanged by DLPack while host memory fails at each allocation: a failed export gives
 * nothing to delete, and a failed import leaves the producer's tensor with the caller.
 * Not here: which tensors are refused (tests/conformance/test_dlpack.c). */
#include "tests/support/harness.h"
#include "tests/support/sweep.h"

static int ndeleted;

static void count_delete(DLManagedTensorVersioned *self)
{
    (void)self;
    ndeleted++;
}

/* Exports `x`, imports the export and a foreign tensor. */
static fy_status_t exchange(fy_device_t *device, fy_tensor_t *x, DLManagedTensorVersioned *foreign)
{
    DLManagedTensorVersioned *managed;
    fy_tensor_t *again, *other;
    FY_TRY(fy_tensor_to_dlpack(x, FY_ACCESS_READ, NULL, &managed));
    fy_status_t status = fy_tensor_from_dlpack(device, managed, &again);
    if (status != FY_STATUS_OK) {
        managed->deleter(managed);
        return status;
    }
    const int before = ndeleted;
    status = fy_tensor_from_dlpack(device, foreign, &other);
    assert_int_equal(ndeleted, before);
    if (status != FY_STATUS_OK) return status;
    fy_tensor_destroy(other);
    assert_int_equal(ndeleted, before + 1);
    return status;
}

static fy_status_t run(fy_device_t *device)
{
    int64_t dims[] = { 4 };
    float values[4] = { 1, 2, 3, 4 };
    DLManagedTensorVersioned foreign = {
        .version = { 1, 1 },
        .deleter = count_delete,
        .dl_tensor = { .data = values,
                       .device = { kDLCPU, 0 },
                       .ndim = 1,
                       .dtype = { kDLFloat, 32, 1 },
                       .shape = dims },
    };
    fy_tensor_t *x;
    const fy_scope_t scope = fy_scope_begin("exchange");
    fy_status_t status = fy_full(device, FY_DTYPE_F32, FY_DIMS(300000), 2, &x);
    /* enough handles that some come from the heap */
    for (int i = 0; i < 100 && status == FY_STATUS_OK; i++) status = exchange(device, x, &foreign);
    fy_scope_end(scope, 0, NULL);
    return status;
}

TS_TEST(host_memory_fails_at_each_place) { ts_sweep_host_memory("host", 4000, run); }
