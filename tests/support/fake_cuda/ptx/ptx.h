/* A machine that executes PTX, the code that nvcc makes of a kernel, with checks that neither a
 * host compiler nor a card makes. It knows the instructions that Ferry's kernels have; the decoder
 * refuses any other one by name. Not its job: ptxas, timing, atomics, more than one axis of blocks.
 * Source of all semantics: "Parallel Thread Execution ISA", version 9.0.
 * Used by fake_ptx.c and by tests/unit/cuda/test_ptx.c; its own files share machine.h. */
#ifndef FERRY_TESTS_FAKE_CUDA_PTX_PTX_H_
#define FERRY_TESTS_FAKE_CUDA_PTX_PTX_H_

#include <stddef.h>
#include <stdint.h>

typedef struct ptx_kernel ptx_kernel_t;

/* The kernel `name` of a module's text, which must live as long as the kernel. NULL: the text has
 * no such kernel, or an instruction that the machine does not know; `report` says which. */
enum { PTX_REPORT_NBYTES = 1024 };
ptx_kernel_t *ptx_kernel_create(const char *file, const char *text, const char *name,
                                char report[PTX_REPORT_NBYTES]);
void ptx_kernel_destroy(ptx_kernel_t *kernel);

typedef enum ptx_fault {
    PTX_OK,
    PTX_MISALIGNED,   /* an access is no multiple of its size */
    PTX_OUTSIDE,      /* an access is outside any allocation, array or argument */
    PTX_SHARED_RACE,  /* two threads use a byte between two barriers, and one writes it */
    PTX_GLOBAL_RACE,  /* two blocks use a byte in one launch, and one writes it */
    PTX_UNWRITTEN,    /* a byte of shared memory is read that the block has not written */
    PTX_ABSENT_LANES, /* an instruction of the whole warp without some of its lanes */
    PTX_BARRIER,      /* threads of a block wait at different barriers, or have ended */
    PTX_ENDLESS,      /* a block runs more instructions than any kernel needs */
    PTX_ARGUMENTS,    /* the launch has other arguments than the kernel */
    PTX_UNKNOWN       /* the machine does not know this */
} ptx_fault_t;

typedef struct ptx_counts {
    uint64_t launches, instructions; /* of warps */
    uint64_t sectors_read, sectors_written;
    uint64_t bank_conflicts; /* further passes of accesses to shared memory */
} ptx_counts_t;

typedef struct ptx_launch {
    const ptx_kernel_t *kernel;
    unsigned grid, block_x, block_y;
    const void *arguments;
    size_t arguments_nbytes;
    int device;
    /* The host address of the bytes, or NULL: the device may not use them. */
    void *(*translate)(int device, uint64_t address, uint64_t nbytes);
    ptx_counts_t *counts; /* may be NULL; adds to them */
} ptx_launch_t;

/* Runs all blocks, one after the other; stops at the first fault, which `report` explains. One
 * launch at a time: the caller locks. */
ptx_fault_t ptx_run(const ptx_launch_t *launch, char report[PTX_REPORT_NBYTES]);

#endif
