/* Products: matmul, linear, linear's gradients of parameters. cuBLASLt does them where it takes the
 * layout, Ferry's own kernel where not, and then the log says so once. Next: matmul.h for the plan
 * of one product, linear.c for what follows it. */
#include "backends/cuda/families.h"
#include "backends/cuda/matmul.h"

/* A sum of nothing. */
static fy_status_t launch_zero(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    const fy_fill_attrs_t zero = { 0 };
    fy_launch_t fill = *launch;
    fy__cuda_request_t request;
    if (launch->accumulate & 1) return FY_STATUS_OK;
    fill.op = FY_OP_FILL;
    fill.nsrc = 0;
    fill.attrs = &zero;
    fy__cuda_pack_generate(&fill, &request);
    return fy__cuda_submit(dev, stream, &request);
}

/* A slow path is said, once a device. */
static void tell_slow(fy__cuda_device_t *dev, const char *why)
{
    if (atomic_exchange(&dev->told_slow, 1)) return;
    fy__cuda.host->log(
        FY_LOG_WARNING,
        "cuda:%d: Ferry's own slow kernel runs a matmul instead of cuBLASLt: %s (said once)",
        dev->index, why);
}

fy_status_t fy__cuda_run_matmul(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_matmul_t matmul;
    fy__cuda_request_t request;
    fy__cuda_matmul_plan(launch, &matmul);
    if (matmul.problem.inner == 0) return launch_zero(dev, stream, launch);
    if (matmul.takes_lt && dev->wants_lt) {
        FY_TRY(fy__cuda_lt_load());
        fy_status_t status = fy__cuda_matmul_run(dev, stream, launch, &matmul);
        if (status != FY_STATUS_UNSUPPORTED) return status;
        tell_slow(dev, "it has no algorithm for this shape and alignment");
    } else if (!matmul.takes_lt) {
        tell_slow(
            dev,
            "an operand has no axis of unit stride; fy_copy into a new tensor makes one that has");
    }
    fy__cuda_pack_matmul(launch, &request);
    return fy__cuda_submit(dev, stream, &request);
}

/* Run by run of rows: the product into scratch, then bias and activation. UNSUPPORTED: cuBLASLt
 * refuses a run. A kernel may then write all rows, because linear does not add to dst. */
static fy_status_t run_through_scratch(fy__cuda_device_t *dev, CUstream stream,
                                       const fy_launch_t *launch, const fy_launch_t *product)
{
    fy__cuda_linear_scratch_t s;
    fy__cuda_request_t request;
    if (launch->workspace == NULL ||
        !fy__cuda_linear_scratch(launch, product, launch->workspace, launch->workspace_nbytes, &s))
        return FY_STATUS_UNSUPPORTED;
    const fy__cuda_lt_problem_t *p = &s.matmul.problem;
    const int64_t step = (p->transpose_b ? 1 : p->ldb) * (int64_t)fy__cuda_dtype_nbytes(p->dtype);
    void *behind = (char *)launch->workspace + s.nbytes;
    for (int64_t first = 0; first < s.rows; first += s.at_once) {
        const int64_t count = s.rows - first < s.at_once ? s.rows - first : s.at_once;
        const fy__cuda_lt_problem_t problem = fy__cuda_linear_run_problem(&s, count);
        FY_TRY(fy__cuda_lt_run(dev, stream, &problem, s.matmul.a, s.matmul.b + first * step,
                               s.matmul.d, NULL, behind, launch->workspace_nbytes - s.nbytes));
        fy__cuda_pack_linear_finish(launch, product, &s, first, count, &request);
        FY_TRY(fy__cuda_submit(dev, stream, &request));
    }
    return FY_STATUS_OK;
}

fy_status_t fy__cuda_run_linear(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy_desc_t dst, src[2];
    const fy_launch_t product = fy__cuda_linear_product(launch, &dst, src);
    fy__cuda_matmul_t matmul;
    fy__cuda_request_t request;
    fy_status_t status = FY_STATUS_UNSUPPORTED;
    if (dev->wants_lt) {
        FY_TRY(fy__cuda_lt_load());
        if (fy__cuda_linear_plan(dev, launch, &product, &matmul)) {
            status = fy__cuda_matmul_run(dev, stream, launch, &matmul);
            if (status == FY_STATUS_OK && fy__cuda_pack_linear_activation(dev, launch, &request))
                return fy__cuda_submit(dev, stream, &request);
        }
        if (status == FY_STATUS_UNSUPPORTED)
            status = run_through_scratch(dev, stream, launch, &product);
        if (status != FY_STATUS_UNSUPPORTED) return status;
        tell_slow(dev, "it has no algorithm for a linear of this shape and layout, or the device's "
                       "workspace holds no 64 rows of it");
    }
    fy__cuda_pack_linear(launch, &product, &request);
    return fy__cuda_submit(dev, stream, &request);
}

/* dw as a product, db as a sum. */
static fy_launch_t params_product(const fy_launch_t *launch)
{
    static const fy_matmul_attrs_t transposed = { 1, 0 };
    fy_launch_t product = *launch;
    product.op = FY_OP_MATMUL;
    product.ndst = 1;
    product.accumulate = launch->accumulate & 1;
    product.attrs = &transposed;
    product.attrs_nbytes = sizeof transposed;
    return product;
}

static fy_launch_t params_sum(const fy_launch_t *launch)
{
    static const fy_reduce_attrs_t over_rows = { 1, 0 };
    fy_launch_t sum = *launch;
    sum.op = FY_OP_SUM;
    sum.nsrc = sum.ndst = 1;
    sum.dst = launch->dst + 1;
    sum.accumulate = launch->accumulate >> 1 & 1;
    sum.attrs = &over_rows;
    sum.attrs_nbytes = sizeof over_rows;
    sum.nelem = (uint64_t)launch->src[0].dims[1];
    return sum;
}

fy_status_t fy__cuda_run_linear_params(fy__cuda_device_t *dev, CUstream stream,
                                       const fy_launch_t *launch)
{
    const fy_launch_t product = params_product(launch), sum = params_sum(launch);
    fy__cuda_matmul_t matmul;
    if (sum.nelem == 0) return FY_STATUS_OK;
    if (launch->nelem > 0 && dev->wants_lt &&
        fy__cuda_linear_params_plan(launch, &product, &matmul)) {
        FY_TRY(fy__cuda_lt_load());
        const fy_status_t status = fy__cuda_matmul_run(dev, stream, launch, &matmul);
        if (status != FY_STATUS_UNSUPPORTED) return status;
    }
    if (launch->nelem > 0) FY_TRY(fy__cuda_run_matmul(dev, stream, &product));
    return fy__cuda_submit_several(dev, stream, &sum, fy__cuda_pack_reduce);
}

/* Scratch of a product; it is used before the next launch's. 0: cuBLASLt refuses it. */
static int product_workspace(fy__cuda_device_t *dev, const fy__cuda_matmul_t *matmul,
                             uint64_t limit, uint64_t *out_nbytes)
{
    *out_nbytes = 0;
    if (matmul->problem.inner == 0 || !matmul->takes_lt || !dev->wants_lt) return 1;
    return fy__cuda_lt_workspace(dev, &matmul->problem, limit, out_nbytes);
}

uint64_t fy__cuda_matmul_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch,
                                   uint64_t limit)
{
    fy__cuda_matmul_t matmul;
    uint64_t nbytes;
    fy__cuda_matmul_plan(launch, &matmul);
    (void)product_workspace(dev, &matmul, limit, &nbytes);
    return nbytes;
}

uint64_t fy__cuda_linear_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch,
                                   uint64_t limit)
{
    fy_desc_t dst, src[2];
    const fy_launch_t product = fy__cuda_linear_product(launch, &dst, src);
    fy__cuda_matmul_t matmul;
    fy__cuda_linear_scratch_t s;
    uint64_t nbytes;
    if (!dev->wants_lt) return 0;
    if (fy__cuda_linear_plan(dev, launch, &product, &matmul) &&
        product_workspace(dev, &matmul, limit, &nbytes))
        return nbytes;
    if (!fy__cuda_linear_scratch(launch, &product, NULL, limit, &s)) return 0;
    s.matmul.problem = fy__cuda_linear_run_problem(&s, s.at_once);
    if (!product_workspace(dev, &s.matmul, limit - s.nbytes, &nbytes)) return 0;
    if (s.at_once == s.rows) return s.nbytes + nbytes;
    s.matmul.problem = fy__cuda_linear_run_problem(&s, s.rows % s.at_once);
    /* the last run's plan, if it is shorter */
    const int has_all = s.rows % s.at_once == 0 ||
                        product_workspace(dev, &s.matmul, limit - s.nbytes, &nbytes);
    /* of which the launch makes the same runs */
    return has_all ? limit : 0;
}

uint64_t fy__cuda_linear_params_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch,
                                          uint64_t limit)
{
    const fy_launch_t product = params_product(launch), sum = params_sum(launch);
    fy__cuda_matmul_t matmul;
    uint64_t nbytes[3] = { fy__cuda_several_workspace(dev, &sum, limit, fy__cuda_pack_reduce) };
    fy__cuda_matmul_plan(&product, &matmul);
    (void)product_workspace(dev, &matmul, limit, &nbytes[1]);
    if (fy__cuda_linear_params_plan(launch, &product, &matmul))
        (void)product_workspace(dev, &matmul, limit, &nbytes[2]);
    for (int i = 1; i < 3; i++)
        if (nbytes[i] > nbytes[0]) nbytes[0] = nbytes[i];
    return nbytes[0];
}
