// Random draws. Which element takes which lane of which block is written down in backends/formulas/random.h; this file only spreads the
// blocks over threads. The counter is moved by a second kernel, after every thread of the first has read it.
#include "backends/cuda/kernels/common.cuh"

#include "backends/formulas/random.h"

// One block of four lanes: elements 4 * block .. + 3.
__device__ inline void draw4(const fy_args &args, const fy__philox_t &random, uint64_t block)
{
    const fy_operand &d = args.dst[0];
    float normal[4] = { 0, 0, 0, 0 };
    if (args.op == FY_OP_RANDN) {
        fy__box_muller_f32(random.lane[0], random.lane[1], normal);
        fy__box_muller_f32(random.lane[2], random.lane[3], normal + 2);
    }
    for (int i = 0; i < 4 && block * 4 + i < args.nelem; i++) {
        int64_t at = locate(d, 0, d.rank, block * 4 + i, args.flags);
        if (args.op == FY_OP_RANDN) {
            store(d, at, FY_MUL_ADD_F32(normal[i], (float)args.attrs.randn.std, (float)args.attrs.randn.mean));
            continue;
        }
        float low = (float)args.attrs.rand.low, high = (float)args.attrs.rand.high;
        if (d.dtype == FY_DTYPE_F32)
            *element<float>(d, at) = fy__rand_f32(random.lane[i], low, high);
        else if (d.dtype == FY_DTYPE_F16)
            *element<uint16_t>(d, at) = fy__rand_f16(random.lane[i], low, high);
        else
            *element<uint16_t>(d, at) = fy__rand_bf16(random.lane[i], low, high);
    }
}

// f64: elements 2 * block, + 1.
__device__ inline void draw2(const fy_args &args, const fy__philox_t &random, uint64_t block)
{
    const fy_operand &d = args.dst[0];
    double normal[2] = { 0, 0 };
    if (args.op == FY_OP_RANDN) fy__box_muller_f64(random.lane, normal);
    for (int i = 0; i < 2 && block * 2 + i < args.nelem; i++) {
        int64_t at = locate(d, 0, d.rank, block * 2 + i, args.flags);
        if (args.op == FY_OP_RANDN)
            *element<double>(d, at) = FY_MUL_ADD_F64(normal[i], args.attrs.randn.std, args.attrs.randn.mean);
        else
            *element<double>(d, at) = fy__rand_f64(random.lane[2 * i], random.lane[2 * i + 1], args.attrs.rand.low, args.attrs.rand.high);
    }
}

FY_KERNEL fy_random(FY_ARGS args)
{
    const fy_operand &d = args.dst[0];
    const int64_t seed = *element<int64_t>(args.dst[1], 0), counter = *element<int64_t>(args.dst[1], 1);
    if (args.op == FY_OP_RANDPERM) {
        const fy__perm_t perm = fy__perm_make(seed, counter, args.nelem);
        for (uint64_t n = first_thread(); n < args.nelem; n += all_threads())
            *element<int64_t>(d, locate(d, 0, d.rank, n, args.flags)) = fy__perm_at(&perm, (uint32_t)n);
        return;
    }
    const bool is_f64 = d.dtype == FY_DTYPE_F64;
    const uint64_t blocks = fy__rng_blocks(args.nelem, is_f64);
    for (uint64_t block = first_thread(); block < blocks; block += all_threads()) {
        const fy__philox_t random = fy__rng_block(seed, counter, block);
        if (is_f64)
            draw2(args, random, block);
        else
            draw4(args, random, block);
    }
}

FY_KERNEL fy_random_advance(FY_ARGS args)
{
    if (first_thread() != 0) return;
    const uint64_t step = args.op == FY_OP_RANDPERM ? 1 : fy__rng_blocks(args.nelem, args.dst[0].dtype == FY_DTYPE_F64);
    int64_t *counter = element<int64_t>(args.dst[1], 1);
    *counter = (int64_t)((uint64_t)*counter + step);
}

FY_KERNEL_EXISTS(fy_random)
FY_KERNEL_EXISTS(fy_random_advance)
