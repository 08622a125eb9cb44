/* The functions of the fake CUDA driver and cuBLASLt, libfake_cuda.so, for tests: found with dlsym,
 * since only the plugin under test and the test itself load it. Names of entry points are those of
 * the driver's documentation, without version: "cuMemAlloc", "cublasLtMatmul". */
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
#define FAKE_CUDA_LIST(X)                                                                            \
    /* The number of calls so far; -1: no such entry point. */                                       \
    X(int64_t, fake_cuda_calls, (const char *name))                                                  \
    X(int64_t, fake_cuda_all_calls, (void))                                                          \
    X(uint64_t, fake_cuda_bytes, (int kind))                                                         \
    X(uint64_t, fake_cuda_copies, (int kind))                                                        \
    /* Live resources; resources that a context still had when it ended; calls with a destroyed or
     * foreign handle. */   \
    X(int64_t, fake_cuda_live, (int kind))                                                           \
    X(uint64_t, fake_cuda_leaked, (void))                                                            \
    X(uint64_t, fake_cuda_misuses, (void))                                                           \
    /* Launches since the last call that the PTX machine stopped or refused. */                      \
    X(uint64_t, fake_cuda_faults, (void))                                                            \
    /* The nth call from now of `name` (NULL: of any) returns `code`; nth 0: none does. Fatal codes
     * stay with the context. */  \
    X(void, fake_cuda_fail, (const char *name, int64_t nth, int code))                               \
    /* Like fake_cuda_fail, and every later call of it fails too; NULL: of all except cuCtx...,
     * which use no device. */      \
    X(void, fake_cuda_fail_from, (const char *name, int64_t nth, int code))                          \
    /* Like fake_cuda_fail, and the current context at that moment is lost by driver code `fatal`: a
     * library call that meets a fault. */ \
    X(void, fake_cuda_break, (const char *name, int64_t nth, int code, int fatal))                   \
    /* 1: records calls in order from now on; 0: stops. Returns the names so far, each followed by a
     * space; NULL: too many. */ \
    X(void, fake_cuda_trace, (int on))                                                               \
    X(const char *, fake_cuda_traced, (void))                                                        \
    /* While held, events recorded from now on stay pending. */                                      \
    X(void, fake_cuda_hold, (int on))                                                                \
    X(void, fake_cuda_capacity, (uint64_t nbytes_a_device))                                          \
    /* Bytes of scratch that cuDNN's algorithms need. */                                             \
    X(void, fake_cuda_dnn_scratch, (uint64_t nbytes))                                                \
    /* A context of the test (as an application may have one current). */                            \
    X(void *, fake_cuda_context, (int device))                                                       \
    /* The application pushes it on this thread; NULL: it pops the topmost. Not counted. */          \
    X(void, fake_cuda_application, (void *context))                                                  \
    /* The current context of this thread. Not counted. */                                           \
    X(void *, fake_cuda_current, (void))                                                             \
    /* ncclCommGetAsyncError returns this code for all current communicators. */                     \
    X(void, fake_cuda_nccl_error, (int code))                                                        \
    /* Streams that are being captured now. */                                                       \
    X(int, fake_cuda_captures, (void))                                                               \
    /* A stream in the device's primary context, made as by the runtime API; and its end. The next
     * stream reuses its handle. */   \
    X(void *, fake_cuda_stream, (int device))                                                        \
    X(void, fake_cuda_stream_end, (void *stream))                                                    \
    /* Work whose kernel or library ("cudnn") begins with this text takes so long on the clock of
     * events; no other work advances it. */    \
    X(void, fake_cuda_cost, (const char *prefix, double ms))                                         \
    /* The launch configuration of the last kernel. */                                               \
    X(const char *, fake_cuda_last_kernel, (void))                                                   \
    /* The longest kernel arguments in bytes since the last call. */                                 \
    X(uint64_t, fake_cuda_longest_args, (void))                                                      \
    X(uint64_t, fake_cuda_last_threads, (void))

#define X(result, name, parameters) __attribute__((visibility("default"))) result name parameters;
FAKE_CUDA_LIST(X)
#undef X

#endif
