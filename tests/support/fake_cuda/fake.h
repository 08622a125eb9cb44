/* A CUDA driver made of host memory, for tests without a GPU. Device addresses are in a reserved
 * range that host code cannot access; their bytes are at a constant distance. Work runs when it is
 * submitted. The portable kernels run each kernel from its arguments, unless FAKE_CUDA_KERNELS
 * selects its PTX. The fake is stricter than the real driver (contexts, handles, bounds).
 * Here: declarations shared by its files. For tests: fake_cuda.h. */
#ifndef FERRY_TESTS_FAKE_CUDA_FAKE_H_
#define FERRY_TESTS_FAKE_CUDA_FAKE_H_

#include <cuda.h>
#include <stdint.h>

#include "backends/cuda/args.h"
#include "backends/cuda/driver.h"
#include "backends/cuda/flat.h"
#include "backends/cuda/lt_library.h"
#ifdef FERRY_HAS_CUDNN
#include "backends/cuda/dnn_library.h"
#endif
#include "backends/cuda/nccl_library.h"
#include "backends/kernels/kernels.h"
#include "runtime/base/dtype.h"
#include "tests/support/fake_cuda/fake_cuda.h"

enum { FAKE_DEVICES = 2, FAKE_PROCESSORS = 4 };

/* Every entry point that is counted and can be made to fail. */
enum fake_entry {
#define X(name, since) FAKE_##name,
    FY__CUDA_DRIVER_LIST(X)
#undef X
#define X(member, name, since) FAKE_##member,
        FY__CUDA_DRIVER_OPTIONAL_LIST(X)
#undef X
#define X(name) FAKE_##name,
            FY__CUBLASLT_LIST(X)
#ifdef FERRY_HAS_CUDNN
                FY__CUDNN_LIST(X)
#endif
#undef X
#define X(name, result, parameters) FAKE_##name,
                    FY__NCCL_LIST(X) FY__NCCL_RANKS_LIST(X)
#undef X
                        FAKE_ENTRIES
};

struct CUctx_st {
    int device;
    int refs;       /* of a primary context; 1 for the test's own; 0: destroyed */
    CUresult lost;  /* a fatal code that every later call returns */
    unsigned peers; /* bits of the devices whose memory it may access */
};

/* One lock for everything; recursive. */
void fake_lock(void);
void fake_unlock(void);

/* Counts the call, and returns the code to fail with, or 0. Locked on return: every entry ends in
 * FAKE_LEAVE. */
int fake_enter(enum fake_entry entry);
/* Like fake_enter; also checks the current context and puts it in *out. */
int fake_enter_context(enum fake_entry entry, CUcontext *out);
/* Like fake_enter_context, for calls that release something: a planted code goes to *out_told and
 * not into the result. The driver reports codes of earlier work from such calls and releases all
 * the same. */
int fake_enter_release(enum fake_entry entry, CUcontext *out, int *out_told);
/* The same for an entry point of the driver, which they begin: they declare `context`, the current
 * one, `code`, and `told`. */
#define FAKE_ENTER(entry) \
    CUcontext context;    \
    int code = fake_enter_context(FAKE_##entry, &context)
#define FAKE_ENTER_RELEASE(entry) \
    CUcontext context;            \
    int told, code = fake_enter_release(FAKE_##entry, &context, &told)
/* One of the thirteen codes that end a context. */
int fake_is_fatal(int code);
/* Returns whether the current context of this thread has a fault. */
void fake_lose_current(int code);
int fake_leave(int code);

/* ---- memory ---- */
int fake_memory_init(void);
/* The host address of `nbytes` at `address` that kernels of `device` may use, or NULL. */
void *fake_translate(int device, uint64_t address, uint64_t nbytes);
void fake_memory_close(int device, int lost);
/* Takes physical memory that belongs to no block (0: not enough), or releases it. */
int fake_memory_take(int device, uint64_t nbytes);
void fake_memory_give(int device, uint64_t nbytes);
/* The first address of virtual memory, and the number of addresses. */
enum { FAKE_VIRTUAL_GIB = 64 };
uint64_t fake_virtual_base(void);
/* Returns whether all of the range is mapped and accessible to `device`. */
int fake_virtual_holds(int device, uint64_t address, uint64_t nbytes);
void fake_virtual_clear(uint64_t address, uint64_t nbytes);
/* Reservations, and memory that is not released. */
int64_t fake_virtual_live(void);
/* ---- handles ---- */
int fake_stream_is_valid(CUstream stream, CUcontext context);
void fake_handles_close(CUcontext context, int lost);
void fake_events_close(CUcontext context, int lost);
int64_t fake_events_live(void);
/* This kernel or library advances the clock of events by its cost (fake_cuda_cost). */
void fake_spend(const char *name);
const char *fake_kernel_name(CUfunction function, CUcontext context);
/* Returns the retained primary context of a device, or NULL. */
CUcontext fake_primary(int device);
int64_t fake_nccl_live(void);
void fake_count_misuse(void);
void fake_count_leak(uint64_t n);
/* ---- graphs ---- */
typedef CUresult (*fake_run_fn)(CUcontext context, const void *work);
/* Runs `work`, or keeps a copy of it for a graph if `stream` is being captured. All work of a
 * stream passes here. */
CUresult fake_submit(CUcontext context, CUstream stream, fake_run_fn run, const void *work,
                     size_t nbytes);
/* The code to fail with, or 0: for a call on a captured stream that no graph can hold; for a call
 * that no thread may make during the capture. */
int fake_capture_refuses(CUstream stream);
int fake_capture_forbids(enum fake_entry entry);
void fake_capture_drop(CUstream stream);
int64_t fake_graphs_live(int is_exec);
void fake_graphs_close(CUcontext context, int lost);
/* ---- kernels ---- */
/* Element i of float dtype; `fake_write` rounds once. */
double fake_read(fy_dtype_t dtype, const void *data, int64_t i);
void fake_write(fy_dtype_t dtype, void *data, int64_t i, double x);
/* Dense, uninitialised, with the dims of `like`; the caller frees data. */
fy_desc_t fake_temporary(const fy_desc_t *like, int32_t dtype);
/* The operand with host addresses. 0: an element of it is not in memory that the device may use. */
int fake_rebuild(int device, const fy__cuda_operand_t *operand, fy_desc_t *out);
/* Runs a launch with the portable kernels. */
fy_status_t fake_run_launch(fy_launch_t *launch);
/* Runs one op with the portable kernels. */
fy_status_t fake_run_op(fy_op_t op, fy_desc_t *dst, unsigned nsrc, const fy_desc_t *src,
                        const void *attrs);
/* The mean of the rows' losses, which dst[1] has; without a dst[1] the number by which it divides:
 * the sum of the weights of the targets that count. */
fy_status_t fake_mean_of_losses(const fy__cuda_args_t *args, fy_desc_t *dst, const fy_desc_t *src);
/* fake_linear.c: dst = activation(sums + bias), rounded once; added to dst if the launch
 * accumulates. */
fy_status_t fake_finish_linear(const fy__cuda_args_t *args, fy_desc_t *dst, fy_desc_t *src);
/* fake_wide.c: kept axes first, reduced ones last; dst has 1 there. */
int fake_axes_fit(const fy__cuda_args_t *args);
/* The winners of a tile's windows fit shared memory. */
int fake_tiles_fit(const fy__cuda_args_t *args);
int64_t fake_cudnn_live(void);
/* Bytes of scratch that its algorithms need. */
extern uint64_t fake_cudnn_scratch;
/* Returns whether a cuDNN handle is bound to it. */
int fake_cudnn_holds(CUstream stream);
/* fake_conv.c: whether this kernel accepts this convolution; and weight gradients in slices. */
int fake_conv_fits(const char *kernel, const fy__cuda_args_t *args);
fy_status_t fake_conv_slices(const fy__cuda_args_t *args, const fy_desc_t *dst,
                             const fy_desc_t *src);
/* Checks the promises of args->wide and FY__CUDA_ALIGNED about the operands. */
int fake_wide_is_right(const char *kernel, const fy__cuda_args_t *args);
/* fake_ptx.c: runs the kernel's PTX with its arguments as the plugin packed them. */
CUresult fake_run_ptx(int device, const char *name, const void *arguments, size_t nbytes,
                      unsigned grid, unsigned block_x, unsigned block_y);
/* Returns whether FAKE_CUDA_KERNELS is "ptx". */
int fake_kernels_are_ptx(void);
/* fake_chain.c: checks the arguments of fy_chain_f32 and runs the chain. */
CUresult fake_run_chain(int device, const fy__cuda_chain_t *chain, unsigned grid, unsigned block_x);

#define X(name, since) __typeof__(*(PFN_##name##_v##since)0) fake_##name;
FY__CUDA_DRIVER_LIST(X)
#undef X
#define X(member, name, since) __typeof__(*(PFN_##name##_v##since)0) fake_##member;
FY__CUDA_DRIVER_OPTIONAL_LIST(X)
#undef X

#endif
