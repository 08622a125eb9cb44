/* Shared by the tests of the CUDA plugin: the plugin and the fake driver, loaded from the build
 * folder; a host API that records its calls; a device with a stream; operands on both sides.
 * Programs skip (77) with a reason if the plugin was not built, because nvcc is missing. */
#ifndef FERRY_TESTS_UNIT_CUDA_FIXTURE_H_
#define FERRY_TESTS_UNIT_CUDA_FIXTURE_H_

#include <ferry/backend.h>

#include "backends/kernels/kernels.h"
#include "runtime/base/c_locale.h"
#include "tests/support/fake_driver.h"

static const fy_backend_t *cuda;
static char fake_path[1024];

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
    fy__vsnprintf(failure.text, sizeof failure.text, format, args);
    va_end(args);
    return status;
}
static void host_log(fy_log_level_t level, const char *format, ...)
{
    va_list args;
    (void)level;
    va_start(args, format);
    fy__vsnprintf(last_log, sizeof last_log, format, args);
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

/* TS_SUITE(.prepare = load_or_skip): returns 0, or ends the process. */
static inline int load_or_skip(void)
{
    char path[1024];
    fy_backend_open_fn open;
    fake_driver_or_skip();
    snprintf(fake_path, sizeof fake_path, "%s", getenv("FERRY_CUDA_DRIVER"));
    snprintf(path, sizeof path, "%s/libferry_cuda.so", getenv("FERRY_PLUGIN_PATH"));
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL),
         *symbol = plugin != NULL ? dlsym(plugin, FY_BACKEND_OPEN_SYMBOL) : NULL;
    if (symbol == NULL) fail_msg("%s", dlerror());
    memcpy(&open, &symbol, sizeof symbol);
    if (open(&host_api, FY_BACKEND_ABI, &cuda) != FY_STATUS_OK) fail_msg("%s", failure.text);
    return 0;
}

/* A real cuDNN would not know the fake driver; a test may set fake_path. */
static const char *dnn_path = "none";

static inline void use_fake(void)
{
    setenv("FERRY_CUDA_DRIVER", fake_path, 1);
    setenv("FERRY_CUBLASLT", fake_path, 1);
    setenv("FERRY_CUDNN", dnn_path, 1);
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

/* Opens device 0 with an option in its spec; key NULL: without one. */
static inline int open_with(const char *key, const char *value)
{
    const fy_backend_option_t option = { .key = key, .value = value };
    use_fake();
    assert_ok(cuda->device_open(0, key != NULL, &option, &dev));
    assert_ok(cuda->stream_create(dev, FY_STREAM_COMPUTE, 0, NULL, &stream));
    return 0;
}
static inline int open_device(void **state)
{
    (void)state;
    return open_with(NULL, NULL);
}

static inline void assert_nothing_left(void) { fake_driver_is_tidy("afterwards"); }

static inline int close_device(void **state)
{
    (void)state;
    driver.fake_cuda_fail(NULL, 0, 0);
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

/* ---- the output of ferry info ---- */

static char facts[4096];

static inline void note_fact(void *user, const char *key, const char *value)
{
    assert_ptr_equal(user, facts);
    const size_t used = strlen(facts);
    snprintf(facts + used, sizeof facts - used, "%s=%s\n", key, value);
}
static inline void read_facts(void)
{
    facts[0] = '\0';
    assert_ok(cuda->describe(dev, note_fact, facts));
}
static inline void assert_fact(const char *line)
{
    if (strstr(facts, line) == NULL) fail_msg("'%s' is not among the facts:\n%s", line, facts);
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
#define DENSE_OF(dtype, ...)                                                     \
    describe(dtype, (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), \
             (const int64_t[]){ __VA_ARGS__ }, NULL)
#define DENSE(name, ...) DENSE_OF(FY_DTYPE_##name, __VA_ARGS__)

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
