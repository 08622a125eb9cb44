/* One op, both ways: launched on the fake device through the plugin, and run by the portable
 * kernels on equal bytes. The results must agree, and bytes between the elements of a strided
 * result must not change. See test_launch.c. */
#ifndef FERRY_TESTS_UNIT_CUDA_OP_CASE_H_
#define FERRY_TESTS_UNIT_CUDA_OP_CASE_H_

#include <math.h>

#include "opset/formulas/half.h"
#include "runtime/base/dtype.h"
#include "tests/unit/cuda/fixture.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

enum { MAX_OPERANDS = 12, EXACT = 0, CLOSE = 1 };
static const int32_t floats[] = { FY_DTYPE_F32, FY_DTYPE_F64, FY_DTYPE_F16, FY_DTYPE_BF16 };

/* Tolerance between results of different summation orders. f16 and bf16: one unit in the last
 * place. */
static inline double tolerance(int32_t dtype)
{
    switch (dtype) {
    case FY_DTYPE_F64: return 1e-12;
    case FY_DTYPE_F16: return 1.1e-3;
    case FY_DTYPE_BF16: return 8e-3;
    default: return 2e-6;
    }
}

static inline void compare(const char *what, const fy_desc_t *desc, const char *device,
                           const char *host, int close)
{
    const uint64_t span = span_of(desc), size = dtype_nbytes[desc->dtype];
    const int is_float = desc->dtype <= FY_DTYPE_BF16;
    for (uint64_t i = 0; i < span; i++) {
        if (memcmp(device + i * size, host + i * size, size) == 0) continue;
        const double a = fy__dtype_read_f64((fy_dtype_t)desc->dtype, device + i * size),
                     b = fy__dtype_read_f64((fy_dtype_t)desc->dtype, host + i * size);
        if (isnan(a) && isnan(b)) continue;
        if (close && is_float && fabs(a - b) <= tolerance(desc->dtype) * fmax(fabs(b), 1)) continue;
        fail_msg("%s: element %llu is %.17g on cuda, %.17g on the host", what,
                 (unsigned long long)i, a, b);
    }
}

/* last_log keeps the plugin's log lines, not those of the portable kernels that compute the
 * reference. */
static void ignore_log(fy_log_level_t level, const char *format, ...) { (void)level, (void)format; }
static const fy_host_api_t reference_api = { sizeof(fy_host_api_t), FY_BACKEND_ABI, host_fail,
                                             ignore_log, host_record };

static inline fy_status_t host_run(fy_launch_t *launch)
{
    const uint64_t nbytes = fy__kernels_workspace(launch, 64 << 20);
    launch->workspace = nbytes > 0 ? aligned_alloc(64, (nbytes + 63) / 64 * 64) : NULL;
    launch->workspace_nbytes = nbytes;
    fy_status_t status = fy__kernels_launch(&reference_api, launch);
    free(launch->workspace);
    return status;
}

typedef struct op_case {
    fy_op_t op;
    unsigned ndst, nsrc;
    fy_desc_t dst[4], src[MAX_OPERANDS];
    const void *attrs;
    size_t attrs_nbytes; /* where the plugin reads it */
    uint32_t accumulate;
    int close;
    uint64_t workspace_limit;        /* 0: none is granted */
    const void *given[MAX_OPERANDS]; /* bytes of src[i]; NULL: random bytes */
    const void *given_dst[4];
    uint32_t expected_fault;
    /* bit i: operand i (dst first) begins one element behind an aligned address, on the device */
    unsigned shifted;
} op_case_t;
/* The rest: designators of other fields. */
#define OP_CASE(which, dsts, srcs, ...) \
    ((op_case_t){ .op = (which), .ndst = (dsts), .nsrc = (srcs), __VA_ARGS__ })

static const char *const op_names[] = {
#define X(name, text) #text,
    FY_OP_LIST(X)
#undef X
};

/* An operand's bytes on the host, and a copy of them on the device: random, or given by the
 * case. */
static inline void make_operand(const op_case_t *c, unsigned i, fy_desc_t *out_host,
                                fy_desc_t *out_device, char **out_block)
{
    const fy_desc_t *desc = i < c->ndst ? &c->dst[i] : &c->src[i - c->ndst];
    const void *given = i < c->ndst ? c->given_dst[i] : c->given[i - c->ndst];
    const uint64_t span = span_of(desc), size = dtype_nbytes[desc->dtype],
                   skip = (c->shifted >> i & 1) * size;
    char *bytes = malloc(span * size), *shifted = calloc(1, span * size + skip);
    for (uint64_t k = 0; k < span; k++) random_element(bytes + k * size, desc->dtype);
    if (given != NULL) memcpy(bytes, given, span * size);
    memcpy(shifted + skip, bytes, span * size);
    *out_block = device_bytes(shifted, span * size + skip);
    free(shifted);
    *out_host = *out_device = *desc;
    out_host->data = bytes;
    out_device->data = *out_block + skip;
}

/* Compares the bytes of an operand on both sides and frees them. Sources too: they are only
 * read. */
static inline void judge_operand(const op_case_t *c, unsigned i, const char *what,
                                 const fy_desc_t *on_host, const fy_desc_t *on_device, void *block)
{
    /* The kernels' PTX computes exp and similar functions by other instructions. */
    const char *kernels = getenv("FAKE_CUDA_KERNELS");
    const uint64_t nbytes = span_of(on_host) * dtype_nbytes[on_host->dtype];
    char *back = malloc(nbytes);
    fetch(back, on_device->data, nbytes);
    compare(what, on_host, back, on_host->data, i < c->ndst && (c->close || kernels != NULL));
    free(back);
    cuda->free(dev, block, nbytes + (c->shifted >> i & 1) * dtype_nbytes[on_host->dtype]);
    free(on_host->data);
}

static inline void launch_case(const op_case_t *c, const char *what, fy_launch_t *launch)
{
    assert_int_equal(cuda->supports(dev, launch), 1);
    const uint64_t nbytes = cuda->workspace(dev, launch, c->workspace_limit);
    assert_true(nbytes <= c->workspace_limit);
    void *workspace = NULL;
    if (nbytes > 0) assert_ok(cuda->alloc(dev, nbytes, &workspace));
    launch->workspace = workspace;
    launch->workspace_nbytes = nbytes;
    fy_status_t status = cuda->launch(dev, stream, launch);
    if (status != FY_STATUS_OK) fail_msg("%s: %s", what, failure.text);
    if (workspace != NULL) cuda->free(dev, workspace, nbytes);
}

static inline void run_case(const op_case_t *c)
{
    char what[96], *block[MAX_OPERANDS + 2];
    fy_desc_t on_host[MAX_OPERANDS + 2], on_device[MAX_OPERANDS + 2];
    const unsigned n = c->ndst + c->nsrc;
    static uint32_t flag __attribute__((aligned(64)));
    uint32_t host_flag = 0;
    for (unsigned i = 0; i < n; i++) make_operand(c, i, &on_host[i], &on_device[i], &block[i]);
    fy_launch_t launch = { .struct_size = sizeof launch,
                           .op = c->op,
                           .nsrc = (uint16_t)c->nsrc,
                           .ndst = (uint16_t)c->ndst,
                           .accumulate = c->accumulate,
                           .dst = on_device,
                           .src = on_device + c->ndst,
                           .attrs = c->attrs,
                           .attrs_nbytes = c->attrs_nbytes,
                           .nelem = nelem_of(&c->dst[0]) };
    fy_launch_t reference = launch;
    snprintf(what, sizeof what, "%s, dtype %d, rank %d", op_names[c->op],
             c->nsrc > 0 ? c->src[0].dtype : c->dst[0].dtype,
             c->nsrc > 0 ? c->src[0].rank : c->dst[0].rank);
    if (c->op == FY_OP_GATHER) {
        flag = 0;
        assert_ok(cuda->register_host(dev, &flag, sizeof flag));
        launch.fault = &flag;
        reference.fault = &host_flag;
    }
    launch_case(c, what, &launch);
    if (c->op == FY_OP_GATHER) {
        cuda->unregister_host(dev, &flag, sizeof flag);
        assert_int_equal(flag, c->expected_fault);
    }
    reference.dst = on_host;
    reference.src = on_host + c->ndst;
    assert_ok(host_run(&reference));
    for (unsigned i = 0; i < n; i++)
        judge_operand(c, i, what, &on_host[i], &on_device[i], block[i]);
}

static inline int64_t kernels(void) { return driver.fake_cuda_calls("cuLaunchKernel"); }
static inline int64_t products(void) { return driver.fake_cuda_calls("cublasLtMatmul"); }
static inline int64_t heuristics(void)
{
    return driver.fake_cuda_calls("cublasLtMatmulAlgoGetHeuristic");
}

/* Runs the case and checks the number of its kernels. */
static inline void run_in(const op_case_t *c, int64_t nkernels)
{
    const int64_t before = kernels();
    run_case(c);
    if (kernels() - before != nkernels)
        fail_msg("%s took %lld kernels, not %lld", op_names[c->op], (long long)(kernels() - before),
                 (long long)nkernels);
}
/* Runs the case and checks its last kernel. */
static inline void run_by(const op_case_t *c, const char *kernel)
{
    run_case(c);
    assert_string_equal(driver.fake_cuda_last_kernel(), kernel);
}

#endif
