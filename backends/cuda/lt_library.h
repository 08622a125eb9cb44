/* The entry points of cuBLASLt that lt.c calls, in one table filled by dlsym. Types are those of
 * cublasLt.h, names are stable since 11. */
#ifndef FERRY_BACKENDS_CUDA_LT_LIBRARY_H_
#define FERRY_BACKENDS_CUDA_LT_LIBRARY_H_

#include <cublasLt.h>

#include <ferry/backend.h>

#define FY__CUBLASLT_LIST(X)                \
    X(cublasLtGetVersion)                   \
    X(cublasLtCreate)                       \
    X(cublasLtDestroy)                      \
    X(cublasLtMatmul)                       \
    X(cublasLtMatmulDescCreate)             \
    X(cublasLtMatmulDescDestroy)            \
    X(cublasLtMatmulDescSetAttribute)       \
    X(cublasLtMatrixLayoutCreate)           \
    X(cublasLtMatrixLayoutDestroy)          \
    X(cublasLtMatrixLayoutSetAttribute)     \
    X(cublasLtMatmulPreferenceCreate)       \
    X(cublasLtMatmulPreferenceDestroy)      \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatmulAlgoGetHeuristic)

typedef struct fy__cublaslt {
    void *library;
#define X(name) __typeof__(&name) name;
    FY__CUBLASLT_LIST(X)
#undef X
} fy__cublaslt_t;

/* Filled by fy__cuda_lt_load, read without a lock after it succeeded. */
extern fy__cublaslt_t fy__cublaslt;

fy_status_t fy__cublaslt_status(cublasStatus_t code);
const char *fy__cublaslt_name(cublasStatus_t code);

#endif
