/* Codes of the toolkit: each code of its headers has a decision; each fatal code, in each kind of
 * call, loses the device permanently; and the text of a loss names the last requests of the
 * streams. */
#include "visit.h"

#include <ctype.h>

#include "backends/cuda/codes.h"

/* ---- the tables are complete ---- */

/* Calls `found` for each `<prefix>NAME = NUMBER` that begins a line of the header. Returns their
 * number. */
static int each_code(const char *path, const char *prefix,
                     void (*found)(const char *name, int number))
{
    char line[512], name[96];
    int n = 0, number;
    FILE *file = fopen(path, "r");
    if (file == NULL) fail_msg("cannot read %s", path);
    while (fgets(line, sizeof line, file) != NULL) {
        const char *at = line;
        while (isspace((unsigned char)*at)) at++;
        if (strncmp(at, prefix, strlen(prefix)) != 0 ||
            sscanf(at, "%95[A-Z_0-9] = %d", name, &number) != 2)
            continue;
        found(name, number);
        n++;
    }
    fclose(file);
    return n;
}

static void in_the_table(const char *name, int number)
{
    switch (number) {
#define X(code, text, status) \
    case code: assert_string_equal(name, "CUDA_ERROR_" #text); return;
        FY__CUDA_CODE_LIST(X)
#undef X
    }
    fail_msg("%s = %d is not in backends/cuda/codes.h: decide what it means to Ferry", name,
             number);
}

TS_TEST(every_code_of_the_header_has_a_decision)
{
    assert_true(each_code(FERRY_CUDA_INCLUDE_DIR "/cuda.h", "CUDA_ERROR_", in_the_table) > 80);
}

/* Reads status and text of a code through the plugin. */
TS_TEST(every_code_reaches_the_caller)
{
    static const struct {
        int code;
        fy_status_t status;
        const char *name;
    } codes[] = {
#define X(code, text, status) { code, FY_STATUS_##status, "CUDA_ERROR_" #text },
        FY__CUDA_CODE_LIST(X)
#undef X
            { 12345, FY_STATUS_INTERNAL, "newer than this Ferry (12345" },
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        void *memory;
        open_device(NULL);
        driver.fake_cuda_fail("cuMemAlloc", 1, codes[i].code);
        assert_failed(cuda->alloc(dev, 4096, &memory), codes[i].status, codes[i].name);
        assert_null(memory);
        if (codes[i].status != FY_STATUS_DEVICE_LOST) { /* other codes have no lasting effect */
            assert_ok(cuda->alloc(dev, 4096, &memory));
            cuda->free(dev, memory, 4096);
        }
        close_device(NULL);
    }
}

static void lt_says_its_name(const char *name, int number)
{
    void *memory = NULL;
    if (number == 0) return;
    open_device(NULL);
    assert_ok(cuda->alloc(dev, 4096, &memory));
    fy_desc_t a = DENSE(F32, 4, 4), ab[2], c = a;
    const fy_matmul_attrs_t product = { 0 };
    a.data = memory;
    ab[0] = ab[1] = a;
    c.data = (char *)memory + 2048;
    fy_launch_t matmul = launch_of(FY_OP_MATMUL, 2, &c, ab, &product);
    driver.fake_cuda_fail("cublasLtCreate", 1, number);
    const fy_status_t status = cuda->launch(dev, stream, &matmul);
    /* this card or product is not supported by cuBLASLt: Ferry's kernel runs it */
    if (number == 8 || number == 15) {
        assert_ok(status);
    } else {
        assert_int_not_equal(status, FY_STATUS_OK);
        if (strstr(failure.text, name) == NULL)
            fail_msg("'%s' does not say %s", failure.text, name);
    }
    cuda->free(dev, memory, 4096);
    close_device(NULL);
}

TS_TEST(every_code_of_cublas_has_a_name)
{
    assert_true(each_code(FERRY_CUBLASLT_INCLUDE_DIR "/cublas_api.h", "CUBLAS_STATUS_",
                          lt_says_its_name) >= 10);
}

/* ---- the thirteen fatal codes ---- */

/* by hand: the fake driver has the plugin's list */
static const int fatal[] = { 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911 };
enum { NFATAL = sizeof fatal / sizeof *fatal };

/* Every later call reports the first cause, at once. */
static void assert_stays_lost(visit_t *v, const char *number)
{
    const int64_t calls = driver.fake_cuda_all_calls();
    void *more;
    int done;
    fy_backend_info_t info;
    fy_desc_t x = DENSE(F32, 4);
    fy_launch_t launch = launch_of(FY_OP_NEG, 1, &x, &x, NULL);
    assert_failed(cuda->device_query(v->dev, &info), FY_STATUS_DEVICE_LOST, number);
    assert_failed(cuda->alloc(v->dev, 4096, &more), FY_STATUS_DEVICE_LOST,
                  "cuda:0 is lost: an earlier call gave");
    assert_failed(cuda->register_host(v->dev, pinned, sizeof pinned), FY_STATUS_DEVICE_LOST,
                  number);
    assert_failed(cuda->stream_create(v->dev, FY_STREAM_UPLOAD, 0, NULL, &more),
                  FY_STATUS_DEVICE_LOST, number);
    assert_failed(cuda->event_create(v->dev, &more), FY_STATUS_DEVICE_LOST, number);
    if (v->memory != NULL) {
        fy_copy_t up = { FY_COPY_UPLOAD, 0, v->memory, pinned, 16 };
        x.data = v->memory;
        assert_failed(cuda->copy(v->dev, v->stream, &up), FY_STATUS_DEVICE_LOST, number);
        assert_failed(cuda->fill(v->dev, v->stream, v->memory, 0, 16), FY_STATUS_DEVICE_LOST,
                      number);
        assert_failed(cuda->launch(v->dev, v->stream, &launch), FY_STATUS_DEVICE_LOST, number);
    }
    if (v->event != NULL) {
        assert_failed(cuda->event_record(v->dev, v->event, v->stream), FY_STATUS_DEVICE_LOST,
                      number);
        assert_failed(cuda->event_wait(v->dev, v->stream, v->event), FY_STATUS_DEVICE_LOST, number);
        assert_failed(cuda->event_query(v->dev, v->event, &done), FY_STATUS_DEVICE_LOST, number);
        assert_failed(cuda->event_sync(v->dev, v->event, FY_FOREVER), FY_STATUS_DEVICE_LOST,
                      number);
        assert_failed(cuda->event_sync(v->dev, v->event, 1000), FY_STATUS_DEVICE_LOST, number);
    }
    assert_int_equal(driver.fake_cuda_all_calls(), calls);
}

static void end_visit(visit_t *v)
{
    give_back(v);
    driver.fake_cuda_fail(NULL, 0, 0);
    assert_nothing_left();
}

TS_TEST(fatal_codes_lose_the_device_in_each_call)
{
    int points = 0;
    use_fake();
    assert_int_equal(NFATAL, 13);
    for (int i = 0; i < NFALLIBLE; i++) {
        /* codes of cuBLASLt; they lead to the driver's codes, below */
        if (strncmp(fallible[i], "cublas", 6) == 0) continue;
        for (int k = 0; k < NFATAL; k++, points++) {
            visit_t v = { 0 };
            char number[16];
            snprintf(number, sizeof number, "(%d: ", fatal[k]);
            failure.text[0] = '\0';
            driver.fake_cuda_fail(fallible[i], 1, fatal[k]);
            const fy_status_t status = use(&v);
            if (status != FY_STATUS_DEVICE_LOST || strstr(failure.text, number) == NULL ||
                strstr(failure.text, "restart") == NULL)
                fail_msg("code %d in %s: status %d, %s", fatal[k], fallible[i], (int)status,
                         failure.text);
            /* otherwise the other device failed to open */
            if (v.dev != NULL && v.other != NULL) assert_stays_lost(&v, number);
            end_visit(&v);
        }
        assert_ok(visit()); /* the fake driver lets a process start again */
    }
    assert_true(points > 250);
}

/* A product that fails because the context broke before it: the driver reports it, cuBLASLt does
 * not. */
TS_TEST(a_failed_product_queries_the_driver)
{
    visit_t v = { 0 };
    use_fake();
    driver.fake_cuda_break("cublasLtMatmul", 1, 13 /* CUBLAS_STATUS_EXECUTION_FAILED */, 700);
    assert_failed(use(&v), FY_STATUS_DEVICE_LOST, "CUDA_ERROR_ILLEGAL_ADDRESS (700");
    assert_stays_lost(&v, "(700: ");
    end_visit(&v);
}

/* After these, a device that is opened again can work. */
TS_TEST(other_losses_do_not_end_the_process)
{
    static const int codes[] = { 214, 220, 709 };
    for (int k = 0; k < 3; k++) {
        visit_t v = { 0 };
        use_fake();
        driver.fake_cuda_fail("cuEventQuery", 1, codes[k]);
        assert_failed(use(&v), FY_STATUS_DEVICE_LOST, "close this device and open it again");
        end_visit(&v);
    }
}

/* ---- the recent-request log ---- */

TS_TEST(a_loss_names_the_recent_requests)
{
    void *event, *memory, *uploads, *idle;
    int done;
    char bytes[1024] = { 0 };
    open_device(NULL);
    assert_ok(cuda->stream_create(dev, FY_STREAM_UPLOAD, 0, NULL, &uploads));
    assert_ok(cuda->stream_create(dev, FY_STREAM_DOWNLOAD, 0, NULL, &idle));
    assert_ok(cuda->event_create(dev, &event));
    assert_ok(cuda->alloc(dev, 4096, &memory));
    fy_desc_t x = DENSE(F32, 1024);
    fy_launch_t launch = launch_of(FY_OP_NEG, 1, &x, &x, NULL);
    x.data = memory;
    fy_copy_t up = { FY_COPY_UPLOAD, 0, memory, bytes, 1000 };
    assert_ok(cuda->copy(dev, uploads, &up));
    for (int i = 0; i < 100; i++) assert_ok(cuda->launch(dev, stream, &launch));
    launch.op = FY_OP_ABS;
    assert_ok(cuda->launch(dev, stream, &launch));
    assert_ok(cuda->event_record(dev, event, stream));
    /* after the event: not known to be done */
    assert_ok(cuda->fill(dev, stream, memory, 0, 64));
    assert_ok(cuda->event_query(dev, event, &done));
    driver.fake_cuda_fail("cuLaunchKernel", 1, 700);
    launch.op = FY_OP_EXP;
    assert_failed(cuda->launch(dev, stream, &launch), FY_STATUS_DEVICE_LOST,
                  "running exp over 1024 elements on cuda:0: cuLaunchKernel gave");
    char first[1024];
    snprintf(first, sizeof first, "%s", failure.text);
    assert_true(strlen(first) < 512); /* an error record's text */
    assert_non_null(strstr(first, "\n  compute 1: last submitted #102 fill (64 bytes); known done: "
                                  "#101 abs (1024 elements)"));
    assert_non_null(
        strstr(first, "\n  upload 2: last submitted #1 upload (1000 bytes); known done: nothing"));
    assert_null(strstr(first, "download"));
    /* Reported again; the failed request is not among them. */
    assert_failed(cuda->event_record(dev, event, stream), FY_STATUS_DEVICE_LOST,
                  "last submitted #102 fill (64 bytes)");
    cuda->free(dev, memory, 4096);
    cuda->event_destroy(dev, event);
    cuda->stream_destroy(dev, uploads);
    cuda->stream_destroy(dev, idle);
    close_device(NULL);
}

/* An event of a closed stream gives no information about the stream that reuses its slot. */
TS_TEST(an_old_event_does_not_count_for_a_new_stream)
{
    void *event, *memory, *other;
    int done;
    open_device(NULL);
    assert_ok(cuda->alloc(dev, 4096, &memory));
    assert_ok(cuda->event_create(dev, &event));
    assert_ok(cuda->stream_create(dev, FY_STREAM_COMPUTE, 0, NULL, &other));
    for (int i = 0; i < 5; i++) assert_ok(cuda->fill(dev, other, memory, 0, 64));
    assert_ok(cuda->event_record(dev, event, other));
    cuda->stream_destroy(dev, other);
    assert_ok(cuda->stream_create(dev, FY_STREAM_COMPUTE, 0, NULL, &other));
    for (int i = 0; i < 7; i++) assert_ok(cuda->fill(dev, other, memory, 0, 64));
    assert_ok(cuda->event_query(dev, event, &done));
    assert_int_equal(done, 1);
    driver.fake_cuda_fail("cuMemsetD8Async", 1, 719);
    assert_failed(cuda->fill(dev, other, memory, 0, 64), FY_STATUS_DEVICE_LOST,
                  "compute 3: last submitted #7 fill (64 bytes); known done: nothing");
    cuda->free(dev, memory, 4096);
    cuda->event_destroy(dev, event);
    cuda->stream_destroy(dev, other);
    close_device(NULL);
}

TS_SUITE(.prepare = load_or_skip);
