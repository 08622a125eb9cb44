/* A consumer that does not link Ferry: dlopen with RTLD_LOCAL or RTLD_GLOBAL, and dlclose while a
 * thread that used the library still runs.
 * Usage: main local|global PATH-OF-LIBFERRY */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>

#include <ferry/ferry.h>

/* clang-format off */
#define FUNCTIONS(X) \
    X(fy_error_get) X(fy_scope_begin) X(fy_scope_end) X(fy_tensor_wrap) X(fy_tensor_map) X(fy_tensor_upload) X(fy_tensor_download) \
    X(fy_download_wait) X(fy_add) X(fy_device_host) X(fy_device_open) X(fy_device_close) X(fy_ledger_query) X(fy_version) \
    X(fy_memory_host_allocator) X(fy_transfer_options_init) X(fy_matmul)
/* clang-format on */
#define X(name) static __typeof__(name) *name##_;
FUNCTIONS(X)
#undef X
#define fy_error_get             fy_error_get_
#define fy_scope_begin           fy_scope_begin_
#define fy_scope_end             fy_scope_end_
#define fy_tensor_wrap           fy_tensor_wrap_
#define fy_tensor_map            fy_tensor_map_
#define fy_tensor_upload         fy_tensor_upload_
#define fy_tensor_download       fy_tensor_download_
#define fy_download_wait         fy_download_wait_
#define fy_add                   fy_add_
#define fy_matmul                fy_matmul_
#define fy_device_host           fy_device_host_
#define fy_device_open           fy_device_open_
#define fy_device_close          fy_device_close_
#define fy_ledger_query          fy_ledger_query_
#define fy_version               fy_version_
#define fy_memory_host_allocator fy_memory_host_allocator_

#include "../scenario.h"

static pthread_barrier_t used, closed;

/* Uses the library, then ends after it was closed: its thread-local destructors run then. */
static void *outlive(void *ignored)
{
    (void)ignored;
    fy_scope_end(fy_scope_begin("thread"), 0, NULL);
    (void)fy_error_get();
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&closed);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    void *handle =
        dlopen(argv[2], RTLD_NOW | (strcmp(argv[1], "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
#define LOAD(name)                                    \
    *(void **)&name##_ = dlsym(handle, #name);        \
    if (!name##_) {                                   \
        fprintf(stderr, "%s: not exported\n", #name); \
        return 1;                                     \
    }
    FUNCTIONS(LOAD)
    int failed = run_scenario(handle, "libc.so", "mmap");
    const fy_transfer_options_t same = FY_TRANSFER_OPTIONS_INIT;
    fy_transfer_options_t options;
    fy_transfer_options_init_(&options, sizeof options);
    failed += options.struct_size != sizeof options || options.dtype != same.dtype ||
              options.contract != same.contract;

    pthread_t thread;
    pthread_barrier_init(&used, NULL, 2);
    pthread_barrier_init(&closed, NULL, 2);
    if (pthread_create(&thread, NULL, outlive, NULL) != 0) return 1;
    pthread_barrier_wait(&used);
    if (dlclose(handle) != 0) failed++;
    pthread_barrier_wait(&closed);
    pthread_join(thread, NULL);
    return failed != 0;
}
