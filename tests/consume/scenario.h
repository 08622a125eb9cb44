/* The scenario of each consumer written in C, for every way of loading the library: an add on the
 * host; a product by oneDNN, which is opened for it; one upload, op and download on sim:0 that the
 * ledger counts; a refusal; a check which library provides malloc and operator new.
 * The functions may be real ones or pointers of the same names (dlopen/main.c). Returns the number
 * of failed checks. */
#ifndef FERRY_TESTS_CONSUME_SCENARIO_H_
#define FERRY_TESTS_CONSUME_SCENARIO_H_

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <ferry/ferry.h>

static int disappointments;

#define EXPECT(condition)                                                                \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "%s:%d: not so: %s\n  %s\n", __FILE__, __LINE__, #condition, \
                    fy_error_get()->text);                                               \
            disappointments++;                                                           \
        }                                                                                \
    } while (0)
#define EXPECT_OK(call) EXPECT((call) == FY_STATUS_OK)

/* Returns whether `symbol`, as this program finds it through `handle`, is in a file whose name
 * contains `owner`. */
static int owned_by(void *handle, const char *symbol, const char *owner)
{
    Dl_info info;
    void *address = dlsym(handle, symbol);
    if (!address || !dladdr(address, &info)) {
        fprintf(stderr, "%s: not found\n", symbol);
        return 0;
    }
    const char *base = strrchr(info.dli_fname, '/');
    base = base ? base + 1 : info.dli_fname;
    if (strstr(base, owner)) return 1;
    fprintf(stderr, "%s belongs to %s, not to %s\n", symbol, info.dli_fname, owner);
    return 0;
}

/* malloc_owner: "libc.so", or "libjemalloc.so" if the application links it. */
static int run_scenario(void *handle, const char *malloc_owner, const char *host_allocator)
{
    static float ones[96 * 96];
    const int64_t dims[] = { 4 }, square[] = { 96, 96 };
    const int has_jemalloc = strcmp(malloc_owner, "libc.so") != 0;
    float x_data[] = { 1, 2, 3, 4 }, y_data[] = { 10, 20, 30, 40 };
    fy_tensor_t *x, *y, *sum, *device_x, *twice, *back, *mixed, *matrix, *product;
    fy_download_t *download;
    fy_device_t *sim;
    fy_ledger_totals_t before = FY_LEDGER_TOTALS_INIT, after = FY_LEDGER_TOTALS_INIT;
    void *data;

    /* A result on the host. */
    fy_scope_t scope = fy_scope_begin("consume");
    EXPECT_OK(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, 1, dims, x_data, NULL, NULL, &x));
    EXPECT_OK(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, 1, dims, y_data, NULL, NULL, &y));
    EXPECT_OK(fy_add(x, y, &sum));
    EXPECT_OK(fy_tensor_map(sum, FY_ACCESS_READ, &data));
    for (int i = 0; data && i < 4; i++) EXPECT(((const float *)data)[i] == x_data[i] + y_data[i]);

    for (int i = 0; i < 96 * 96; i++) ones[i] = 1;
    EXPECT_OK(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, 2, square, ones, NULL, NULL, &matrix));
    EXPECT_OK(fy_matmul(matrix, matrix, &product));
    EXPECT_OK(fy_tensor_map(product, FY_ACCESS_READ, &data));
    for (int i = 0; data && i < 96 * 96; i++) EXPECT(((const float *)data)[i] == 96);

    /* One upload, an op on the device, one download. */
    EXPECT_OK(fy_device_open("sim:0", &sim));
    EXPECT_OK(fy_ledger_query(NULL, &before));
    EXPECT_OK(fy_tensor_upload(x, sim, NULL, &device_x));
    EXPECT_OK(fy_add(device_x, device_x, &twice));
    EXPECT_OK(fy_tensor_download(twice, NULL, &download));
    EXPECT_OK(fy_download_wait(download, FY_FOREVER, &back));
    EXPECT_OK(fy_tensor_map(back, FY_ACCESS_READ, &data));
    for (int i = 0; data && i < 4; i++) EXPECT(((const float *)data)[i] == 2 * x_data[i]);
    EXPECT_OK(fy_ledger_query(NULL, &after));
    EXPECT(after.upload.count - before.upload.count == 1 &&
           after.upload.nbytes - before.upload.nbytes == 16);
    EXPECT(after.download.count - before.download.count == 1 &&
           after.download.nbytes - before.download.nbytes == 16);
    EXPECT(after.requests - before.requests == 1);

    /* Mixed devices are refused with a text, and nothing is transferred. */
    EXPECT(fy_add(x, device_x, &mixed) == FY_STATUS_DEVICE_MISMATCH && !mixed);
    EXPECT(strstr(fy_error_get()->text, "sim:0") &&
           strstr(fy_error_get()->text, "fy_tensor_upload"));
    before = after;
    EXPECT_OK(fy_ledger_query(NULL, &after));
    EXPECT(after.upload.nbytes == before.upload.nbytes &&
           after.download.nbytes == before.download.nbytes);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(sim);

    EXPECT(strcmp(fy_version(), "0.1.0") == 0);
    EXPECT(strcmp(fy_memory_host_allocator(), host_allocator) == 0);
    EXPECT(owned_by(RTLD_DEFAULT, "malloc", malloc_owner));
    /* jemalloc, if the application links it, also provides operator new; else libstdc++, which
     * oneDNN needs. */
    EXPECT(owned_by(has_jemalloc ? handle : dlopen("libstdc++.so.6", RTLD_NOW | RTLD_NOLOAD),
                    "_Znwm", has_jemalloc ? malloc_owner : "libstdc++.so"));
    return disappointments;
}

#endif
