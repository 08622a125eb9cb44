/* The op table against the plugin. The slot `supports` accepts every op x dtype that the table
 * promises, or refuses it with a reason that docs/cuda.md repeats. It refuses every other one. The
 * op matrix tests the results: it runs every accepted cell over the fake driver, with the portable
 * kernels (ops_op_matrix_fake_cuda) and with the kernels' PTX (ops_op_matrix_ptx), and fails for a
 * cell that it did not run. */
#include "fixture.h"

/* A launch of `op` whose main operand is of `dtype`; only dtypes and counts matter to
 * `supports`. */
static void make_launch(const fy_op_info_t *info, int32_t dtype, fy_launch_t *launch,
                        fy_desc_t dst[8], fy_desc_t src[8])
{
    static const unsigned char attrs[FY_OP_ATTRS_MAX_NBYTES];
    for (int i = 0; i < 8; i++) src[i] = dst[i] = DENSE_OF(dtype, 4, 4);
    if (info->op == FY_OP_WHERE) src[0].dtype = FY_DTYPE_BOOL;
    *launch = (fy_launch_t){ .struct_size = sizeof *launch,
                             .op = info->op,
                             .nsrc = info->nsrc_min,
                             .ndst = info->ndst,
                             .dst = dst,
                             .src = src,
                             .attrs = attrs,
                             .nelem = 16 };
}

/* Returns whether docs/cuda.md contains the reason of the error text, which follows its last ":
 * ". */
static int is_written_down(const char *text)
{
    static char page[1 << 16];
    const char *reason = strrchr(text, ':');
    FILE *file = fopen("docs/cuda.md", "r");
    assert_non_null(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    return reason != NULL && strstr(page, reason + 2) != NULL;
}

TS_TEST(combinations_of_the_table_are_supported)
{
    int ntaken = 0, nexplained = 0, nholes = 0;
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) {
        const fy_op_info_t *info = fy_op_get(op);
        for (int32_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
            fy_desc_t dst[8], src[8];
            fy_launch_t launch;
            make_launch(info, dtype, &launch, dst, src);
            const int promised = (info->dtypes & FY_DTYPE_BIT(dtype)) != 0,
                      taken = cuda->supports(dev, &launch);
            ntaken += promised && taken;
            if (promised == taken) continue;
            if (promised && cuda->launch(dev, stream, &launch) == FY_STATUS_UNSUPPORTED &&
                is_written_down(failure.text)) {
                nexplained++;
                continue;
            }
            nholes++;
            print_error("%s of %s: the table %s it, the plugin %s it\n", info->name,
                        fy_dtype_name((fy_dtype_t)dtype),
                        promised ? "promises" : "does not promise",
                        taken ? "takes" : "does not take");
        }
    }
    print_message("  %d cells taken, %d explained, %d holes\n", ntaken, nexplained, nholes);
    assert_int_equal(nholes, 0);
    assert_true(ntaken > FY_OP_BUILTIN_COUNT);
}

TS_TEST(refusals_give_a_documented_reason)
{
    fy_desc_t dst[8], src[8];
    fy_launch_t launch;
    make_launch(fy_op_get(FY_OP_EXP), FY_DTYPE_I32, &launch, dst, src);
    const int64_t calls = driver.fake_cuda_all_calls();
    assert_failed(cuda->launch(dev, stream, &launch), FY_STATUS_UNSUPPORTED,
                  "exp has no cuda kernel for i32: the op table promises none");
    assert_int_equal(driver.fake_cuda_all_calls(), calls);
    src[0].dtype = 77;
    assert_failed(cuda->launch(dev, stream, &launch), FY_STATUS_UNSUPPORTED, "an unknown dtype");
    launch.op = FY_OP_BUILTIN_COUNT;
    assert_failed(cuda->launch(dev, stream, &launch), FY_STATUS_UNSUPPORTED,
                  "registered without a kernel");
}

TS_SUITE(.set_up = open_device, .tear_down = close_device, .prepare = load_or_skip);
