/* What the driver's codes mean to Ferry: every CUresult that the toolkit's cuda.h knows, in one
 * table. tests/unit/cuda/test_codes.c reads cuda.h and fails if a code is missing here, so a newer
 * toolkit's codes are decided about and not forgotten. Numbers, not the toolkit's names: an older
 * toolkit lacks some. Not here: cuBLASLt's codes (lt_library.c). Next: codes.c for the texts. */
#ifndef FERRY_BACKENDS_CUDA_CODES_H_
#define FERRY_BACKENDS_CUDA_CODES_H_

/* After one of these thirteen, the driver's manual states, the process cannot use CUDA any more.
 * The other codes of DEVICE_LOST (214, 220: memory or a link returned wrong bits; 709: another
 * process reset the device) end this opening of the device. */
#define FY__CUDA_PROCESS_FATAL_LIST(X) \
    X(226) X(700) X(702) X(710) X(714) X(715) X(716) X(717) X(718) X(719) X(721) X(810) X(911)

/* X(number, name after CUDA_ERROR_, fy_status_t after FY_STATUS_). INTERNAL: only a mistake of ours
 * gives it. */
#define FY__CUDA_CODE_LIST(X)                            \
    X(1, INVALID_VALUE, INVALID_ARGUMENT)                \
    X(2, OUT_OF_MEMORY, OUT_OF_MEMORY)                   \
    X(3, NOT_INITIALIZED, UNAVAILABLE)                   \
    X(4, DEINITIALIZED, UNAVAILABLE)                     \
    X(5, PROFILER_DISABLED, INTERNAL)                    \
    X(6, PROFILER_NOT_INITIALIZED, INTERNAL)             \
    X(7, PROFILER_ALREADY_STARTED, INTERNAL)             \
    X(8, PROFILER_ALREADY_STOPPED, INTERNAL)             \
    X(34, STUB_LIBRARY, UNAVAILABLE)                     \
    X(36, CALL_REQUIRES_NEWER_DRIVER, UNAVAILABLE)       \
    X(46, DEVICE_UNAVAILABLE, UNAVAILABLE)               \
    X(100, NO_DEVICE, UNAVAILABLE)                       \
    X(101, INVALID_DEVICE, UNAVAILABLE)                  \
    X(102, DEVICE_NOT_LICENSED, UNAVAILABLE)             \
    X(200, INVALID_IMAGE, UNSUPPORTED)                   \
    X(201, INVALID_CONTEXT, INTERNAL)                    \
    X(202, CONTEXT_ALREADY_CURRENT, INTERNAL)            \
    X(205, MAP_FAILED, INTERNAL)                         \
    X(206, UNMAP_FAILED, INTERNAL)                       \
    X(207, ARRAY_IS_MAPPED, INTERNAL)                    \
    X(208, ALREADY_MAPPED, INTERNAL)                     \
    X(209, NO_BINARY_FOR_GPU, UNSUPPORTED)               \
    X(210, ALREADY_ACQUIRED, INTERNAL)                   \
    X(211, NOT_MAPPED, INTERNAL)                         \
    X(212, NOT_MAPPED_AS_ARRAY, INTERNAL)                \
    X(213, NOT_MAPPED_AS_POINTER, INTERNAL)              \
    X(214, ECC_UNCORRECTABLE, DEVICE_LOST)               \
    X(215, UNSUPPORTED_LIMIT, UNSUPPORTED)               \
    X(216, CONTEXT_ALREADY_IN_USE, UNAVAILABLE)          \
    X(217, PEER_ACCESS_UNSUPPORTED, UNSUPPORTED)         \
    X(218, INVALID_PTX, UNSUPPORTED)                     \
    X(219, INVALID_GRAPHICS_CONTEXT, INTERNAL)           \
    X(220, NVLINK_UNCORRECTABLE, DEVICE_LOST)            \
    X(221, JIT_COMPILER_NOT_FOUND, UNSUPPORTED)          \
    X(222, UNSUPPORTED_PTX_VERSION, UNSUPPORTED)         \
    X(223, JIT_COMPILATION_DISABLED, UNSUPPORTED)        \
    X(224, UNSUPPORTED_EXEC_AFFINITY, UNSUPPORTED)       \
    X(225, UNSUPPORTED_DEVSIDE_SYNC, UNSUPPORTED)        \
    X(226, CONTAINED, DEVICE_LOST)                       \
    X(300, INVALID_SOURCE, INTERNAL)                     \
    X(301, FILE_NOT_FOUND, UNAVAILABLE)                  \
    X(302, SHARED_OBJECT_SYMBOL_NOT_FOUND, UNAVAILABLE)  \
    X(303, SHARED_OBJECT_INIT_FAILED, UNAVAILABLE)       \
    X(304, OPERATING_SYSTEM, UNAVAILABLE)                \
    X(400, INVALID_HANDLE, INTERNAL)                     \
    X(401, ILLEGAL_STATE, INTERNAL)                      \
    X(402, LOSSY_QUERY, UNSUPPORTED)                     \
    X(500, NOT_FOUND, INTERNAL)                          \
    X(600, NOT_READY, TIMEOUT)                           \
    X(700, ILLEGAL_ADDRESS, DEVICE_LOST)                 \
    X(701, LAUNCH_OUT_OF_RESOURCES, UNSUPPORTED)         \
    X(702, LAUNCH_TIMEOUT, DEVICE_LOST)                  \
    X(703, LAUNCH_INCOMPATIBLE_TEXTURING, INTERNAL)      \
    X(704, PEER_ACCESS_ALREADY_ENABLED, INTERNAL)        \
    X(705, PEER_ACCESS_NOT_ENABLED, INTERNAL)            \
    X(708, PRIMARY_CONTEXT_ACTIVE, INTERNAL)             \
    X(709, CONTEXT_IS_DESTROYED, DEVICE_LOST)            \
    X(710, ASSERT, DEVICE_LOST)                          \
    X(711, TOO_MANY_PEERS, UNSUPPORTED)                  \
    X(712, HOST_MEMORY_ALREADY_REGISTERED, BUSY)         \
    X(713, HOST_MEMORY_NOT_REGISTERED, INVALID_ARGUMENT) \
    X(714, HARDWARE_STACK_ERROR, DEVICE_LOST)            \
    X(715, ILLEGAL_INSTRUCTION, DEVICE_LOST)             \
    X(716, MISALIGNED_ADDRESS, DEVICE_LOST)              \
    X(717, INVALID_ADDRESS_SPACE, DEVICE_LOST)           \
    X(718, INVALID_PC, DEVICE_LOST)                      \
    X(719, LAUNCH_FAILED, DEVICE_LOST)                   \
    X(720, COOPERATIVE_LAUNCH_TOO_LARGE, UNSUPPORTED)    \
    X(721, TENSOR_MEMORY_LEAK, DEVICE_LOST)              \
    X(800, NOT_PERMITTED, UNSUPPORTED)                   \
    X(801, NOT_SUPPORTED, UNSUPPORTED)                   \
    X(802, SYSTEM_NOT_READY, UNAVAILABLE)                \
    X(803, SYSTEM_DRIVER_MISMATCH, UNAVAILABLE)          \
    X(804, COMPAT_NOT_SUPPORTED_ON_DEVICE, UNAVAILABLE)  \
    X(805, MPS_CONNECTION_FAILED, UNAVAILABLE)           \
    X(806, MPS_RPC_FAILURE, UNAVAILABLE)                 \
    X(807, MPS_SERVER_NOT_READY, UNAVAILABLE)            \
    X(808, MPS_MAX_CLIENTS_REACHED, UNAVAILABLE)         \
    X(809, MPS_MAX_CONNECTIONS_REACHED, UNAVAILABLE)     \
    X(810, MPS_CLIENT_TERMINATED, DEVICE_LOST)           \
    X(811, CDP_NOT_SUPPORTED, UNSUPPORTED)               \
    X(812, CDP_VERSION_MISMATCH, UNSUPPORTED)            \
    X(900, STREAM_CAPTURE_UNSUPPORTED, UNSUPPORTED)      \
    X(901, STREAM_CAPTURE_INVALIDATED, INTERNAL)         \
    X(902, STREAM_CAPTURE_MERGE, INTERNAL)               \
    X(903, STREAM_CAPTURE_UNMATCHED, INTERNAL)           \
    X(904, STREAM_CAPTURE_UNJOINED, INTERNAL)            \
    X(905, STREAM_CAPTURE_ISOLATION, UNSUPPORTED)        \
    X(906, STREAM_CAPTURE_IMPLICIT, UNSUPPORTED)         \
    X(907, CAPTURED_EVENT, UNSUPPORTED)                  \
    X(908, STREAM_CAPTURE_WRONG_THREAD, INTERNAL)        \
    X(909, TIMEOUT, TIMEOUT)                             \
    X(910, GRAPH_EXEC_UPDATE_FAILURE, UNSUPPORTED)       \
    X(911, EXTERNAL_DEVICE, DEVICE_LOST)                 \
    X(912, INVALID_CLUSTER_SIZE, UNSUPPORTED)            \
    X(913, FUNCTION_NOT_LOADED, INTERNAL)                \
    X(914, INVALID_RESOURCE_TYPE, INTERNAL)              \
    X(915, INVALID_RESOURCE_CONFIGURATION, INTERNAL)     \
    X(916, KEY_ROTATION, UNAVAILABLE)                    \
    X(999, UNKNOWN, INTERNAL)

#endif
