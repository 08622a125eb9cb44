/* Compiles a .cu file of backends/cuda/kernels as plain C++: CUDA's qualifiers and built-ins, over
 * the scheduler of simt.c. With it the source of a kernel runs on the host, thread by thread, so
 * its indices, bounds, barriers and shuffles are tested without a card.
 * It proves the source, not nvcc's code, nor speed. Passed to the compiler with -include, for tests
 * only. */
#ifndef FERRY_TESTS_FAKE_CUDA_SIMT_H_
#define FERRY_TESTS_FAKE_CUDA_SIMT_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct simt_dim {
    unsigned x, y, z;
} simt_dim_t;
/* of the running thread */
extern simt_dim_t simt_thread, simt_block, simt_block_dim, simt_grid_dim;

/* All threads of the block (or of the warp) arrive before one continues. */
void simt_sync_block(void);
void simt_sync_warp(void);
/* The number of the running thread in its block; two sets of slots, and the set that a thread
 * uses. */
enum { SIMT_MOST = 256, SIMT_WARP = 32 };
extern unsigned simt_now;
extern int simt_sets[SIMT_MOST];
extern char simt_slots[2][SIMT_MOST][32];
static inline unsigned simt_lane(void) { return simt_now % SIMT_WARP; }
/* The slot of warp lane `lane` for one exchanged value, 32 bytes. Each exchange of a thread uses
 * the other one of two sets, so that no lane writes what another has yet to read. */
static inline void *simt_slot(unsigned lane)
{
    return simt_slots[simt_sets[simt_now]][simt_now / SIMT_WARP * SIMT_WARP + lane];
}
static inline void simt_next_slots(void) { simt_sets[simt_now] ^= 1; }
/* An access was unaligned for its size: a fault on a card. Ends the thread. */
void simt_misaligned(void);

#ifdef __cplusplus
}

#include <string.h>

#define __global__
#define __device__
#define __host__
#define __shared__ static /* one block runs at a time */
#define __grid_constant__
#define __launch_bounds__(...)
#define FY_CHECK_ALIGNED(pointer, nbytes) \
    ((uintptr_t)(pointer) % (nbytes) != 0 ? simt_misaligned() : (void)0)
#define threadIdx simt_thread
#define blockIdx  simt_block
#define blockDim  simt_block_dim
#define gridDim   simt_grid_dim

inline void __syncthreads() { simt_sync_block(); }

template <typename T> inline T __shfl_xor_sync(unsigned, T value, int step)
{
    static_assert(sizeof(T) <= 32, "");
    T result;
    memcpy(simt_slot(simt_lane()), &value, sizeof value);
    simt_sync_warp();
    memcpy(&result, simt_slot(simt_lane() ^ (unsigned)step), sizeof result);
    simt_next_slots();
    return result;
}

/* Kernels read any type in such pieces. */
struct __attribute__((may_alias, aligned(16))) uint4 {
    unsigned x, y, z, w;
};

#endif
#endif
