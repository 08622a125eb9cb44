/* Timed choice on the CUDA plugin (autotune=on): the first launches of a shape run each kernel in
 * turn, with the right result. Then the fastest one is used and no launch is measured any more. No
 * call waits, and launches that cannot be measured are not. */
#include "op_case.h"

static const fy_conv2d_attrs_t plain_attrs = { 1, 1, 1, 1, 1, 1, 1, FY_ACTIVATION_NONE };
static const fy_conv2d_backward_attrs_t weight_attrs = { 1, 1, 1, 1, 1, 1, 1, 3, 3 };

static int open_tuned(void **state)
{
    (void)state;
    open_with("autotune", "on");
    driver.fake_cuda_cost("fy_conv2d_f", 5);
    driver.fake_cuda_cost("fy_conv2d_gemm", 1);
    driver.fake_cuda_cost("fy_conv2d_depthwise", 2);
    driver.fake_cuda_cost("cudnn", 3);
    return 0;
}

static op_case_t forward(int64_t channels)
{
    op_case_t c = OP_CASE(FY_OP_CONV2D, 1, 2, .attrs = &plain_attrs, .close = CLOSE,
                          .workspace_limit = 1 << 20);
    c.dst[0] = DENSE(F32, 2, 5, 5, 8);
    c.src[0] = DENSE(F32, 2, 5, 5, channels);
    c.src[1] = DENSE(F32, 8, 3, 3, channels);
    return c;
}

static int64_t events(void)
{
    static const char *const names[] = { "cuEventCreate", "cuEventRecord", "cuEventQuery",
                                         "cuEventElapsedTime", "cuEventSynchronize" };
    int64_t n = 0;
    for (int i = 0; i < 5; i++) n += driver.fake_cuda_calls(names[i]);
    return n;
}

TS_TEST(the_fastest_kernel_is_kept)
{
    op_case_t c = forward(4);
    last_log[0] = '\0';
    for (int i = 0; i < 4; i++) { /* gemm and the plain kernel, twice each */
        const int64_t before = driver.fake_cuda_calls("cuEventRecord");
        run_case(&c);
        assert_int_equal(driver.fake_cuda_calls("cuEventRecord") - before, 2);
        assert_string_equal(driver.fake_cuda_last_kernel(),
                            i % 2 == 0 ? "fy_conv2d_f32" : "fy_conv2d_gemm_f32");
    }
    run_case(&c); /* polls the last measurement, and chooses */
    assert_non_null(strstr(last_log, "'gemm' is the shortest of those timed, 1.000 ms"));
    const int64_t settled = events();
    for (int i = 0; i < 3; i++) {
        run_case(&c);
        assert_string_equal(driver.fake_cuda_last_kernel(), "fy_conv2d_gemm_f32");
    }
    assert_int_equal(events(), settled);
    c = forward(5); /* another shape is another choice */
    driver.fake_cuda_cost("fy_conv2d_f", 0.5);
    for (int i = 0; i < 6; i++) run_case(&c);
    assert_string_equal(driver.fake_cuda_last_kernel(), "fy_conv2d_f32");
    assert_int_equal(driver.fake_cuda_calls("cuEventSynchronize"), 0);
}

/* The choice of each shape is kept: of 95 shapes in turn, as in a step, none is measured again. */
TS_TEST(choices_of_a_step_are_kept)
{
    for (int round = 0; round < 6; round++) {
        const int64_t before = events();
        for (int64_t channels = 2; channels < 97; channels++) {
            op_case_t c = forward(channels);
            run_case(&c);
        }
        if (round == 5) assert_int_equal(events(), before);
    }
}

static int nreaders;

static void launch_another(void)
{
    op_case_t c = forward(5);
    on_log = NULL;
    nreaders++;
    run_case(&c);
}

/* No lock is held while the log function runs. */
TS_TEST(the_log_function_may_launch)
{
    op_case_t c = forward(4);
    on_log = launch_another;
    alarm(240); /* with a lock held, this would wait for itself */
    for (int i = 0; i < 5; i++) run_case(&c);
    alarm(0);
    assert_int_equal(nreaders, 1);
}

/* The device is behind: no call waits for it, and meanwhile the launches are those without
 * autotune. */
TS_TEST(no_launch_waits_for_a_measurement)
{
    op_case_t c = forward(4);
    driver.fake_cuda_hold(1);
    run_case(&c);
    const int64_t taken = driver.fake_cuda_calls("cuEventRecord");
    for (int i = 0; i < 3; i++) {
        run_case(&c);
        assert_string_equal(driver.fake_cuda_last_kernel(), "fy_conv2d_gemm_f32");
    }
    assert_int_equal(driver.fake_cuda_calls("cuEventRecord"), taken);
    assert_int_equal(driver.fake_cuda_calls("cuEventSynchronize"), 0);
    driver.fake_cuda_hold(0);
    run_case(&c);
    assert_int_equal(driver.fake_cuda_calls("cuEventRecord"), taken + 2);
}

/* Without an event, a record or a time, launches continue. */
TS_TEST(failures_of_events_do_not_fail_launches)
{
    static const char *const names[] = { "cuEventCreate", "cuEventRecord", "cuEventQuery",
                                         "cuEventElapsedTime" };
    for (int i = 0; i < 4; i++)
        for (int nth = 1; nth <= 2; nth++) {
            op_case_t c = forward(4 + 2 * i + nth);
            if (i == 0) assert_int_equal(close_device(state) | open_tuned(state), 0);
            driver.fake_cuda_fail(names[i], nth, 1);
            for (int k = 0; k < 6; k++) run_case(&c);
            driver.fake_cuda_fail(NULL, 0, 0);
        }
}

/* Last: they load the fake cuDNN. */
TS_TEST(the_option_is_checked)
{
    const fy_backend_option_t wrong = { .key = "autotune", .value = "yes" };
    void *other = NULL;
    assert_failed(cuda->device_open(1, 1, &wrong, &other), FY_STATUS_INVALID_ARGUMENT,
                  "autotune=yes: autotune may be off, on");
    assert_null(other);
}

/* Each launch of a gradient adds to dx exactly once, with each kernel; cuDNN is the third one. */
TS_TEST(measured_launches_add_once)
{
    op_case_t c = OP_CASE(FY_OP_CONV2D_BACKWARD_WEIGHT, 1, 2, .attrs = &weight_attrs,
                          .close = CLOSE, .accumulate = 1, .workspace_limit = 1 << 20);
    c.dst[0] = DENSE(F32, 8, 3, 3, 4);
    c.src[0] = DENSE(F32, 4, 12, 12, 8);
    c.src[1] = DENSE(F32, 4, 12, 12, 4);
    close_device(state);
    dnn_path = fake_path;
    assert_int_equal(open_tuned(state), 0);
    driver.fake_cuda_cost("cudnn", 0.25);
    const int64_t before = driver.fake_cuda_calls("cudnnConvolutionBackwardFilter");
    for (int i = 0; i < 8; i++) run_case(&c);
    if (before >= 0) { /* built with cudnn.h */
        assert_int_equal(driver.fake_cuda_calls("cudnnConvolutionBackwardFilter") - before, 2 + 2);
        assert_non_null(strstr(last_log, "'cuDNN' is the shortest"));
        c.shifted = 1; /* unaligned, so cuDNN cannot run, however fast it was elsewhere */
        for (int i = 0; i < 6; i++) run_case(&c);
        assert_int_equal(driver.fake_cuda_calls("cudnnConvolutionBackwardFilter") - before, 2 + 2);
    }
}

TS_SUITE(.set_up = open_tuned, .tear_down = close_device, .prepare = load_or_skip);
