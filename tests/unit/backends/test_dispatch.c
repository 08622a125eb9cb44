/* The layer between a launch and a loop: refusals, registered kernels, fork, and results that do
 * not depend on the number of threads. */
#include <sys/wait.h>
#include <unistd.h>

#include "backends/kernels/threads.h"
#include "tests/unit/backends/kernel_fixture.h"

TS_TEST(an_unknown_dtype_is_unsupported)
{
    const int64_t n = 4;
    static const struct {
        fy_op_t op;
        uint16_t nsrc;
        int32_t dtype;
        const char *text;
    } cases[] = {
        { FY_OP_EXP, 1, FY_DTYPE_I32, "exp has no i32" },
        { FY_OP_ADD, 2, FY_DTYPE_BOOL, "add has no bool" },
        { FY_OP_DIV, 2, FY_DTYPE_I64, "div has no i64" },
        { FY_OP_MATMUL, 2, FY_DTYPE_U8, "matmul has no u8" },
        { FY_OP_NEG, 1, 99, "neg has no ?" },
        { FY_OP_BUILTIN_COUNT, 1, FY_DTYPE_F32, "has no kernel" },
        { 4000000000u, 1, FY_DTYPE_F32, "op 4000000000" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        tensor_t dst = make(FY_DTYPE_F64, 1, &n, NULL);
        fy_desc_t src[2] = { dst.desc, dst.desc };
        memset(dst.desc.data, 0x33, dst.nbytes);
        dst.desc.dtype = src[0].dtype = src[1].dtype = cases[i].dtype;
        fy_launch_t launch = launch_of(cases[i].op, 1, &dst.desc, cases[i].nsrc, src, NULL);
        launch.flags = FY_LAUNCH_DENSE;
        last_failure = FY_STATUS_OK;
        assert_int_equal(fy__kernels_supports(&launch), 0);
        assert_int_equal(fy__kernels_workspace(&launch, FY_UNLIMITED), 0);
        assert_int_equal(fy__kernels_launch(&api, &launch), FY_STATUS_UNSUPPORTED);
        assert_int_equal(last_failure, FY_STATUS_UNSUPPORTED);
        if (!strstr(last_text, cases[i].text))
            fail_msg("'%s' does not say '%s'", last_text, cases[i].text);
        for (size_t k = 0; k < dst.nbytes; k++)
            assert_int_equal(((unsigned char *)dst.desc.data)[k], 0x33);
        drop(&dst);
    }
}

static fy_status_t registered(const fy_launch_t *launch, void *stream)
{
    assert_null(stream);
    *(int *)launch->user += 1;
    return FY_STATUS_BAD_VALUE;
}

TS_TEST(a_registered_kernel_is_called)
{
    int calls = 0;
    fy_desc_t desc = { .dtype = FY_DTYPE_F32 };
    fy_launch_t launch = launch_of(FY_OP_BUILTIN_COUNT + 3, 1, &desc, 0, NULL, NULL);
    launch.kernel = registered;
    launch.user = &calls;
    assert_int_equal(fy__kernels_supports(&launch), 1);
    assert_int_equal(fy__kernels_launch(&api, &launch), FY_STATUS_BAD_VALUE);
    assert_int_equal(calls, 1);
}

/* ---- threads and fork ---- */

static void work(fy_op_t op, tensor_t *dst, uint16_t nsrc, const tensor_t *const *src,
                 const void *attrs)
{
    if (op == FY_OP_RANDN) {
        int64_t rng[2] = { 5, 6 };
        fy_desc_t descs[2] = {
            dst->desc,
            { .data = rng, .dtype = FY_DTYPE_I64, .rank = 1, .dims = { 2 }, .strides = { 1 } }
        };
        fy_launch_t launch = launch_of(op, 2, descs, 0, NULL, attrs);
        ts_ok(fy__kernels_launch(&api, &launch));
    } else if (nsrc == 2 && op != FY_OP_MSE_LOSS && op != FY_OP_MATMUL) {
        ts_ok(run_elementwise(op, dst, nsrc, src, attrs, 0));
    } else {
        ts_ok(run(op, dst, nsrc, src, attrs, 0, 0));
    }
}

TS_TEST(thread_count_does_not_change_bits)
{
    const int64_t dims[2] = { 510, 310 }, gaps[2] = { 1, 511 };
    const fy_reduce_attrs_t all = { 0, 0 }, first = { 1, 0 };
    const fy_axis_attrs_t axis = { 1, 0 };
    const fy_randn_attrs_t normal = { 0, 1 };
    const struct {
        fy_op_t op;
        uint16_t nsrc;
        const void *attrs;
        int rank;
        int64_t length;
    } cases[] = {
        { FY_OP_ADD, 2, NULL, 2, 0 },          { FY_OP_POW, 2, NULL, 2, 0 },
        { FY_OP_SUM, 1, &all, 0, 0 },          { FY_OP_SUM, 1, &first, 1, 310 },
        { FY_OP_LOG_SOFTMAX, 1, &axis, 2, 0 }, { FY_OP_MSE_LOSS, 2, NULL, 0, 0 },
        { FY_OP_RANDN, 0, &normal, 2, 0 },
    };
    tensor_t a = make(FY_DTYPE_F32, 2, dims, NULL), b = make(FY_DTYPE_F32, 2, dims, gaps);
    const tensor_t *sources[2] = { &a, &b };
    fill_noise(&a.desc, 1);
    fill_noise(&b.desc, 2);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const int64_t *shape = cases[i].rank == 1 ? &cases[i].length : dims;
        tensor_t one = make(FY_DTYPE_F32, cases[i].rank, shape, NULL),
                 many = make(FY_DTYPE_F32, cases[i].rank, shape, NULL);
        fy__threads_set(1);
        work(cases[i].op, &one, cases[i].nsrc, sources, cases[i].attrs);
        fy__threads_set(3);
        work(cases[i].op, &many, cases[i].nsrc, sources, cases[i].attrs);
        assert_memory_equal(one.desc.data, many.desc.data, one.nbytes);
        DROP(&one, &many);
    }
    fy__threads_set(FY__THREADS_AUTO);
    DROP(&a, &b);
}

/* The thread team of the parent does not exist in the child; large work must still end there. */
TS_TEST(a_forked_child_computes)
{
    const int64_t dims[2] = { 300, 300 };
    const fy_matmul_attrs_t attrs = { 0, 0 };
    tensor_t a = make(FY_DTYPE_F32, 2, dims, NULL), b = make(FY_DTYPE_F32, 2, dims, NULL);
    tensor_t c = make(FY_DTYPE_F32, 2, dims, NULL), want = make(FY_DTYPE_F32, 2, dims, NULL);
    const tensor_t *sources[2] = { &a, &b };
    fill_noise(&a.desc, 1);
    fill_noise(&b.desc, 2);
    fy__threads_set(2);
    work(FY_OP_ADD, &c, 2, sources, NULL);
    work(FY_OP_MATMUL, &want, 2, sources, &attrs);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)alarm(240); /* a hang ends with a signal */
        work(FY_OP_ADD, &c, 2, sources, NULL);
        work(FY_OP_MATMUL, &c, 2, sources, &attrs);
        int differs = 0;
        for (int64_t i = 0; i < 300 * 300; i++)
            differs |= fabs(get(&c.desc, i) - get(&want.desc, i)) > 1e-2;
        _exit(differs);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    DROP(&a, &b, &c, &want);
    fy__threads_set(FY__THREADS_AUTO);
}
