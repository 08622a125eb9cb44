/* Shared by the tests of the CUDA plugin: the plugin and the fake driver, loaded from the build
 * folder; a host API that records its calls; a device with a stream; operands on both sides.
 * Programs skip (77) with a reason if the plugin was not built, because nvcc is missing. */
#ifndef FERRY_TESTS_UNIT_CUDA_FIXTURE_H_
#define FERRY_TESTS_UNIT_CUDA_FIXTURE_H_

#include <dlfcn.h>
#include <unistd.h>

#include <ferry/backend.h>

#include "backends/kernels/kernels.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/harness.h"

static struct {
#define X(result, name, parameters) result(*name) parameters;
    FAKE_CUDA_LIST(X)
#undef X
} fake;
static const fy_backend_t *cuda;
static char fake_path[1024], plugin_path[1024];
static void *fake_library;

/* ---- the host API ---- */

static _Thread_local struct {
    fy_status_t status;
    char text[1024];
} failure;
static char last_log[1024];
static void (*on_log)(void); /* called for each log line, unless NULL */
static uint64_t recorded[4];

static fy_status_t host_fail(fy_status_t status, const char *file, int line, const char *format,
                             ...)
{
    va_list args;
    (void)line;
    assert_non_null(file);
    failure.status = status;
    va_start(args, format);
    vsnprintf(failure.text, sizeof failure.text, format, args);
    va_end(args);
    return status;
}
static void host_log(fy_log_level_t level, const char *format, ...)
{
    va_list args;
    (void)level;
    va_start(args, format);
    vsnprintf(last_log, sizeof last_log, format, args);
    va_end(args);
    if (on_log != NULL) on_log();
}
static void host_record(fy_copy_kind_t kind, uint64_t nbytes)
{
    __atomic_fetch_add(&recorded[kind], nbytes, __ATOMIC_RELAXED);
}
static const fy_host_api_t host_api = { sizeof(fy_host_api_t), FY_BACKEND_ABI, host_fail, host_log,
                                        host_record };

/* ---- loading ---- */

static void *need_symbol(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        fprintf(stderr, "%s is missing\n", name);
        exit(1);
    }
    return symbol;
}

/* TS_SUITE(.prepare = load_or_skip): returns 0, or ends the process. */
static inline int load_or_skip(void)
{
    const char *build = getenv("FERRY_BUILD_DIR");
    snprintf(plugin_path, sizeof plugin_path, "%s/lib/ferry/libferry_cuda.so",
             build != NULL ? build : "build");
    snprintf(fake_path, sizeof fake_path, "%s/lib/tests/libfake_cuda.so",
             build != NULL ? build : "build");
    if (access(plugin_path, R_OK) != 0 || access(fake_path, R_OK) != 0) {
        printf(
            "SKIP: the CUDA plugin was not built (%s is not there): no nvcc, or FERRY_CUDA=OFF\n",
            plugin_path);
        exit(77);
    }
    fake_library = dlopen(fake_path, RTLD_NOW | RTLD_LOCAL);
    void *plugin = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL);
    if (fake_library == NULL || plugin == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    void *symbol;
#define X(result, name, parameters)            \
    symbol = need_symbol(fake_library, #name); \
    memcpy(&fake.name, &symbol, sizeof symbol);
    FAKE_CUDA_LIST(X)
#undef X
    fy_backend_open_fn open;
    symbol = need_symbol(plugin, FY_BACKEND_OPEN_SYMBOL);
    memcpy(&open, &symbol, sizeof symbol);
    if (open(&host_api, FY_BACKEND_ABI, &cuda) != FY_STATUS_OK) {
        fprintf(stderr, "fy_backend_open: %s\n", failure.text);
        exit(1);
    }
    return 0;
}

static inline void use_fake(void)
{
    setenv("FERRY_CUDA_DRIVER", fake_path, 1);
    setenv("FERRY_CUBLASLT", fake_path, 1);
    /* a real library would not know the fake driver; test_conv.c names the fake one */
    setenv("FERRY_CUDNN", "none", 1);
    setenv("FERRY_NCCL", fake_path, 0); /* a setting of "none" stays */
}

/* ---- a device ---- */

static void *dev, *stream;

static inline void assert_ok(fy_status_t status)
{
    if (status != FY_STATUS_OK) fail_msg("status %d: %s", (int)status, failure.text);
}
static inline void assert_failed(fy_status_t status, fy_status_t expected, const char *part)
{
    if (status != expected)
        fail_msg("status %d, expected %d: %s", (int)status, (int)expected, failure.text);
    if (strstr(failure.text, part) == NULL) fail_msg("'%s' does not say '%s'", failure.text, part);
}

static inline int open_device(void **state)
{
    (void)state;
    use_fake();
    assert_ok(cuda->device_open(0, 0, NULL, &dev));
    assert_ok(cuda->stream_create(dev, FY_STREAM_COMPUTE, 0, NULL, &stream));
    return 0;
}

static inline void assert_nothing_left(void)
{
    /* the process keeps one reference to a device's context */
    for (int kind = 0; kind < FAKE_LIVE; kind++)
        if (fake.fake_cuda_live(kind) > (kind == FAKE_CONTEXTS ? 2 : 0))
            fail_msg("%lld objects of kind %d are left", (long long)fake.fake_cuda_live(kind),
                     kind);
    assert_int_equal(fake.fake_cuda_leaked(), 0);
    assert_int_equal(fake.fake_cuda_misuses(), 0);
    assert_int_equal(fake.fake_cuda_faults(), 0);
}

static inline int close_device(void **state)
{
    (void)state;
    fake.fake_cuda_fail(NULL, 0, 0);
    cuda->stream_destroy(dev, stream);
    cuda->device_close(dev);
    assert_nothing_left();
    return 0;
}

/* Opens the device again, with this environment variable set. */
static inline void reopen(const char *variable, const char *value)
{
    close_device(NULL);
    use_fake();
    setenv(variable, value, 1);
    assert_ok(cuda->device_open(0, 0, NULL, &dev));
    assert_ok(cuda->stream_create(dev, FY_STREAM_COMPUTE, 0, NULL, &stream));
}

static inline void *device_bytes(const void *data, uint64_t nbytes)
{
    void *address = NULL;
    assert_ok(cuda->alloc(dev, nbytes, &address));
    fy_copy_t up = { FY_COPY_UPLOAD, 0, address, data, nbytes };
    assert_ok(cuda->copy(dev, stream, &up));
    return address;
}
static inline void fetch(void *out, const void *address, uint64_t nbytes)
{
    fy_copy_t down = { FY_COPY_DOWNLOAD, 0, out, address, nbytes };
    assert_ok(cuda->copy(dev, stream, &down));
}

/* ---- operands ---- */

static const uint64_t dtype_nbytes[] = {
#define X(name, text, nbytes, is_float) nbytes,
    FY_DTYPE_LIST(X)
#undef X
};

static inline uint64_t random_bits(void)
{
    static uint64_t state = 0x9E3779B97F4A7C15u;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* One element that every op accepts: positive, not large, exact in f16. */
static inline void random_element(void *at, int32_t dtype)
{
    uint64_t r = random_bits() >> 20;
    float x = (float)(r % 1000 + 200) / 512.0f;
    switch (dtype) {
    case FY_DTYPE_F32: *(float *)at = x; break;
    case FY_DTYPE_F64: *(double *)at = x; break;
    case FY_DTYPE_F16: *(uint16_t *)at = (uint16_t)(0x3800 + r % 0x0800); break;  /* 0.5 .. 2 */
    case FY_DTYPE_BF16: *(uint16_t *)at = (uint16_t)(0x3f00 + r % 0x0100); break; /* 0.5 .. 2 */
    case FY_DTYPE_I32: *(int32_t *)at = (int32_t)(r % 2000) - 1000; break;
    case FY_DTYPE_I64: *(int64_t *)at = (int64_t)(r % 2000) - 1000; break;
    case FY_DTYPE_U8: *(uint8_t *)at = (uint8_t)r; break;
    default: *(uint8_t *)at = r & 1; break;
    }
}

/* A descriptor; strides NULL: dense. */
static inline fy_desc_t describe(int32_t dtype, int rank, const int64_t *dims,
                                 const int64_t *strides)
{
    fy_desc_t desc = { .dtype = dtype, .rank = rank };
    int64_t dense = 1;
    for (int axis = rank - 1; axis >= 0; axis--) {
        desc.dims[axis] = dims[axis];
        desc.strides[axis] = strides != NULL ? strides[axis] : dense;
        dense *= dims[axis];
    }
    return desc;
}
#define DENSE(dtype, ...)                                                                   \
    describe(FY_DTYPE_##dtype, (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), \
             (const int64_t[]){ __VA_ARGS__ }, NULL)

static inline uint64_t nelem_of(const fy_desc_t *desc)
{
    uint64_t n = 1;
    for (int axis = 0; axis < desc->rank; axis++) n *= (uint64_t)desc->dims[axis];
    return n;
}
/* A launch with one result. */
static inline fy_launch_t launch_of(fy_op_t op, unsigned nsrc, fy_desc_t *dst, fy_desc_t *src,
                                    const void *attrs)
{
    return (fy_launch_t){ .struct_size = sizeof(fy_launch_t),
                          .op = op,
                          .nsrc = (uint16_t)nsrc,
                          .ndst = 1,
                          .dst = dst,
                          .src = src,
                          .attrs = attrs,
                          .nelem = nelem_of(dst) };
}
/* Elements from the first to the last in memory; strides are not negative here. */
static inline uint64_t span_of(const fy_desc_t *desc)
{
    uint64_t span = 1;
    for (int axis = 0; axis < desc->rank; axis++) {
        if (desc->dims[axis] == 0) return 1;
        span += (uint64_t)((desc->dims[axis] - 1) * desc->strides[axis]);
    }
    return span;
}

#endif
