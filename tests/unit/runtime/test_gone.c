/* Destroyed handles: every call that takes one refuses it until the handle is reused. An
 * AddressSanitizer build really frees handles, and there the sanitizer reports more than these
 * refusals do. */

#include "tests/support/harness.h"

static int warnings;
static void count_warning(void *user, fy_log_level_t level, const char *text)
{
    (void)user;
    warnings += level == FY_LOG_WARNING && strstr(text, "destroyed before") != NULL;
}

/* A tensor whose scope has ended. */
static fy_tensor_t *make_gone(void)
{
    fy_tensor_t *tensor;
    fy_scope_t scope = fy_scope_begin("short");
    assert_int_equal(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(4), 1, &tensor), FY_STATUS_OK);
    fy_scope_end(scope, 0, NULL);
    return tensor;
}

static void assert_gone(fy_status_t status)
{
    assert_int_equal(status, FY_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(fy_error_get()->text, "was destroyed"));
}

TS_TEST(calls_refuse_a_destroyed_handle)
{
    fy_tensor_t *gone = make_gone(), *out, *good;
    fy_download_t *download;
    void *bytes;
    assert_gone(fy_neg(gone, &out));
    assert_null(out);
    assert_gone(fy_add(gone, gone, &out));
    assert_gone(fy_fill(gone, 1));
    assert_gone(fy_tensor_map(gone, FY_ACCESS_READ, &bytes));
    assert_gone(fy_slice(gone, 0, 0, 1, &out));
    assert_gone(fy_tensor_upload(gone, fy_device_host(), NULL, &out));
    assert_gone(fy_tensor_download(gone, NULL, &download));
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    assert_gone(fy_tensor_query(gone, &info));
    assert_null(info.device);
    fy_tensor_keep(gone);
    /* The cache returns it again: now it is the new tensor. */
    assert_int_equal(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(2), 1, &good), FY_STATUS_OK);
    assert_ptr_equal(good, gone);
    fy_tensor_destroy(good);
}

TS_TEST(a_second_destroy_is_ignored)
{
    fy_tensor_t *gone = make_gone(), *first, *second;
    warnings = 0;
    fy_log_set(count_warning, NULL);
    fy_tensor_destroy(gone);
    fy_log_set(NULL, NULL);
    assert_int_equal(warnings, 1);
    /* The cache is intact: two new tensors are distinct. */
    assert_int_equal(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(4), 1, &first), FY_STATUS_OK);
    assert_int_equal(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(4), 2, &second), FY_STATUS_OK);
    assert_ptr_not_equal(first, second);
    fy_tensor_destroy(first);
    fy_tensor_destroy(second);
}

static int prepare(void)
{
#ifdef __SANITIZE_ADDRESS__
    print_message(
        "skipped: with AddressSanitizer handles are freed, and it reports what this test does\n");
    return 77;
#endif
    return 0;
}

TS_SUITE(.prepare = prepare);
