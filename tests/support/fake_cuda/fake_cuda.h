/* What a test may ask of the fake CUDA driver and cuBLASLt, libfake_cuda.so: found with dlsym,
 * since only the plugin under test and the test itself load it. Names of entry points are as in the
 * driver's documentation, without version: "cuMemAlloc", "cublasLtMatmul". */
#ifndef FERRY_TESTS_FAKE_CUDA_FAKE_CUDA_H_
#define FERRY_TESTS_FAKE_CUDA_FAKE_CUDA_H_

#include <stdint.h>

enum fake_cuda_bytes { FAKE_H2D, FAKE_D2H, FAKE_D2D, FAKE_PEER, FAKE_BYTES };
enum fake_cuda_live {
    FAKE_BLOCKS,
    FAKE_REGISTRATIONS,
    FAKE_STREAMS,
    FAKE_EVENTS,
    FAKE_MODULES,
    FAKE_CONTEXTS,
    FAKE_LT_OBJECTS,
    FAKE_DNN_OBJECTS,
    FAKE_GRAPHS,
    FAKE_GRAPH_EXECS,
    FAKE_LIVE
};

/* X(result, name, parameters) */
#define FAKE_CUDA_LIST(X)                                                                                                                        \
    /* Calls so far; -1: no such entry point. */                                                                                                 \
    X(int64_t, fake_cuda_calls, (const char *name))                                                                                              \
    X(int64_t, fake_cuda_all_calls, (void))                                                                                                      \
    X(uint64_t, fake_cuda_bytes, (int kind))                                                                                                     \
    X(uint64_t, fake_cuda_copies, (int kind))                                                                                                    \
    /* What is alive now; what a context still held when it ended; calls with a destroyed or foreign handle. */                                  \
    X(int64_t, fake_cuda_live, (int kind))                                                                                                       \
    X(uint64_t, fake_cuda_leaked, (void))                                                                                                        \
    X(uint64_t, fake_cuda_misuses, (void))                                                                                                       \
    /* The nth call from now of `name` (NULL: of any) gives `code`; nth 0: none does. Fatal codes stick to the context. */                       \
    X(void, fake_cuda_fail, (const char *name, int64_t nth, int code))                                                                           \
    /* As fake_cuda_fail, and every later call of it fails, too; NULL: of all but cuCtx..., which ask nobody. */                                 \
    X(void, fake_cuda_fail_from, (const char *name, int64_t nth, int code))                                                                      \
    /* As fake_cuda_fail, and the context that is current then is lost by driver code `fatal`: what a library's call does that meets a fault. */ \
    X(void, fake_cuda_break, (const char *name, int64_t nth, int code, int fatal))                                                               \
    /* From now on (1) calls are written down, in order; 0: no more. The names so far, each followed by a space; NULL: they were too many. */    \
    X(void, fake_cuda_trace, (int on))                                                                                                           \
    X(const char *, fake_cuda_traced, (void))                                                                                                    \
    /* While held, events recorded from now on do not happen. */                                                                                 \
    X(void, fake_cuda_hold, (int on))                                                                                                            \
    X(void, fake_cuda_capacity, (uint64_t nbytes_a_device))                                                                                      \
    /* A context of the test's own (what an application may have current). */                                                                    \
    X(void *, fake_cuda_context, (int device))                                                                                                   \
    /* The application makes it current on this thread, above what is; NULL: it takes the topmost off. Not counted. */                           \
    X(void, fake_cuda_application, (void *context))                                                                                              \
    /* What is current on this thread. Not counted. */                                                                                           \
    X(void *, fake_cuda_current, (void))                                                                                                         \
    /* ncclCommGetAsyncError tells this code of all communicators there are now. */                                                              \
    X(void, fake_cuda_nccl_error, (int code))                                                                                                    \
    /* Streams that are being captured now. */                                                                                                   \
    X(int, fake_cuda_captures, (void))                                                                                                           \
    /* A stream in the device's primary context, made as by the runtime API; and its end. Its handle is the next one's. */                       \
    X(void *, fake_cuda_stream, (int device))                                                                                                    \
    X(void, fake_cuda_stream_end, (void *stream))                                                                                                \
    /* Work whose kernel or library ("cudnn") begins so takes so long by the clock of events; nothing else moves it. */                          \
    X(void, fake_cuda_cost, (const char *prefix, double ms))                                                                                     \
    /* How the last kernel was launched. */                                                                                                      \
    X(const char *, fake_cuda_last_kernel, (void))                                                                                               \
    /* The longest arguments of a kernel, in bytes, since this was asked last. */                                                                \
    X(uint64_t, fake_cuda_longest_args, (void))                                                                                                  \
    X(uint64_t, fake_cuda_last_threads, (void))

#define X(result, name, parameters) __attribute__((visibility("default"))) result name parameters;
FAKE_CUDA_LIST(X)
#undef X

#endif
