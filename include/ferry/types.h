/* The vocabulary: dtypes, opaque handles, limits. No function here has a side effect. */
#ifndef FERRY_TYPES_H_
#define FERRY_TYPES_H_

#include <ferry/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The value of an _INIT macro: struct_size, and the fields whose default is not 0. In C++, which
 * has no designated initialisers before C++20, it is what the struct's _init function gives. */
#ifdef __cplusplus
#define FY_CHANGED_(name, changes)                    \
    ([] {                                             \
        fy_##name##_t changed_;                       \
        fy_##name##_init(&changed_, sizeof changed_); \
        changes return changed_;                      \
    }())
#define FY_DEFAULTS_(name, ...) FY_CHANGED_(name, )
#define FY_ZEROED_(name)                      \
    ([] {                                     \
        fy_##name##_t zeroed_ = {};           \
        zeroed_.struct_size = sizeof zeroed_; \
        return zeroed_;                       \
    }())
#else
#define FY_DEFAULTS_(name, ...)                           \
    {                                                     \
        .struct_size = sizeof(fy_##name##_t), __VA_ARGS__ \
    }
#define FY_ZEROED_(name)                     \
    {                                        \
        .struct_size = sizeof(fy_##name##_t) \
    }
#endif

/* X(name, text, bytes per element, is floating point). The order is part of the ABI.
 * A bool with another byte than 0 and 1 gives undefined values, not memory faults. Host memory that
 * is wrapped or imported is checked once; later writes to it, and memory of cards, are not. */
#define FY_DTYPE_LIST(X)                             \
    X(F32, "f32", 4, 1)                              \
    X(F64, "f64", 8, 1)                              \
    X(F16, "f16", 2, 1)   /* IEEE 754 binary16 */    \
    X(BF16, "bf16", 2, 1) /* upper half of an f32 */ \
    X(I32, "i32", 4, 0)                              \
    X(I64, "i64", 8, 0)                              \
    X(U8, "u8", 1, 0)                                \
    X(BOOL, "bool", 1, 0) /* one byte, 0 or 1 */

typedef enum fy_dtype {
#define X(name, text, nbytes, is_float) FY_DTYPE_##name,
    FY_DTYPE_LIST(X)
#undef X
    /* how many this header has; it grows, so no struct and no file contains it */
    FY_DTYPE_COUNT,
    FY_DTYPE_SAME = 255 /* in options: the dtype of the source */
} fy_dtype_t;
/* Numbers of dtypes to come. Ferry refuses them until it has them in FY_DTYPE_LIST. */
enum fy_dtype_reserved {
    FY_DTYPE_I8 = 8,
    FY_DTYPE_I16 = 9,
    FY_DTYPE_U16 = 10,
    FY_DTYPE_U32 = 11,
    FY_DTYPE_U64 = 12,
    FY_DTYPE_F8E4M3 = 13,
    FY_DTYPE_F8E5M2 = 14
};

/* "f32" for FY_DTYPE_F32; "?" for an undefined dtype. Static. */
FY_API const char *fy_dtype_name(fy_dtype_t dtype);
/* Bytes of one element; 0 for an undefined dtype. */
FY_API size_t fy_dtype_size(fy_dtype_t dtype);

typedef struct fy_device fy_device_t;     /* a place where data lives: "host", "sim:0", "cuda:1" */
typedef struct fy_stream fy_stream_t;     /* a queue of one device; requests in it run in order */
typedef struct fy_tensor fy_tensor_t;     /* a strided view of bytes on one device */
typedef struct fy_download fy_download_t; /* bytes that are being copied to the host */
typedef struct fy_graph fy_graph_t;       /* a recorded step */
typedef struct fy_tape fy_tape_t;         /* the recorded calls from which gradients are computed */

/* The purpose of bytes on a device. Memory figures and plans are grouped by it. fy_scope_memory
 * sets the category of tensors that are made in a scope; Ferry sets it for memory that it allocates
 * itself. X(name, text). The order is part of the ABI. */
#define FY_CATEGORY_LIST(X)                                                        \
    X(ACTIVATIONS, activations) /* results of ops, batches, all else by default */ \
    X(WEIGHTS, weights)                                                            \
    X(GRADIENTS, gradients)                                                        \
    X(OPTIMIZER_STATE, optimizer_state) /* momenta, step numbers */                \
    X(WORKSPACE, workspace)             /* scratch of one op or library call */    \
    X(STAGING, staging)                 /* device buffers of transfers */
typedef enum fy_category {
#define X(name, text) FY_CATEGORY_##name,
    FY_CATEGORY_LIST(X)
#undef X
        FY_CATEGORY_COUNT /* how many this header has */
} fy_category_t;
#define FY_CATEGORY_CAPACITY 16 /* length of arrays indexed by category; never changes */

/* "optimizer_state"; "?" for an undefined category. Static. */
FY_API const char *fy_category_name(fy_category_t category);

/* Receives one fact as text. Both texts are valid during the call only. It must not call Ferry. */
typedef void (*fy_fact_fn)(void *user, const char *key, const char *value);

#define FY_MAX_RANK  8
#define FY_FOREVER   UINT64_MAX /* as a timeout */
#define FY_UNLIMITED UINT64_MAX /* as a limit */

/* FY_DIMS(64, 784) expands to the two arguments `rank, dims`; a scalar is `0, NULL`. C only (C++
 * has no compound literals). */
#define FY_DIMS(...) \
    (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }
/* FY_AXES(0, -1) expands to `naxes, axes` for reductions; FY_ALL_AXES reduces to a scalar. C
 * only. */
#define FY_AXES(...) \
    (int)(sizeof((int[]){ __VA_ARGS__ }) / sizeof(int)), (const int[]) { __VA_ARGS__ }
#define FY_ALL_AXES 0, NULL

/* Calls of communicator.h, of tensors src and dst; n is the number of ranks. The first two are in
 * place: src is dst or NULL. */
typedef enum fy_collective {
    /* dst becomes the sum, or the mean, over the ranks. F32, F64; sums I32, I64 */
    FY_COLLECTIVE_ALL_REDUCE,
    FY_COLLECTIVE_BROADCAST, /* dst becomes that of rank `option` */
    /* dst [k, ...] becomes part `rank` of the sum, or the mean, of src [n * k, ...] */
    FY_COLLECTIVE_REDUCE_SCATTER,
    /* dst [n * k, ...] becomes the src [k, ...] of all ranks; option is not used */
    FY_COLLECTIVE_ALL_GATHER,
    FY_COLLECTIVE_SEND,   /* src to rank `option`, which receives; dst is NULL */
    FY_COLLECTIVE_RECEIVE /* dst from rank `option`, which sends; src is NULL */
} fy_collective_t;
#define FY_COMMUNICATOR_ID_NBYTES 128
enum { FY_COLLECTIVE_SUM, FY_COLLECTIVE_MEAN }; /* `option` of a reduction */

#ifdef __cplusplus
}
#endif
#endif
