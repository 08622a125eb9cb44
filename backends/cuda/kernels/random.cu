// Random draws. Which element takes which lane of which block is written down in
// opset/formulas/random.h; this file only spreads the
// blocks over threads. The counter is moved by a second kernel, after every thread of the first has
// read it.
#include "backends/cuda/kernels/wide.cuh"

#include "opset/formulas/random.h"

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
            store(d, at,
                  FY_MUL_ADD_F32(normal[i], (float)args.attrs.randn.std,
                                 (float)args.attrs.randn.mean));
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
            *element<double>(d, at) =
                FY_MUL_ADD_F64(normal[i], args.attrs.randn.std, args.attrs.randn.mean);
        else
            *element<double>(d, at) = fy__rand_f64(random.lane[2 * i], random.lane[2 * i + 1],
                                                   args.attrs.rand.low, args.attrs.rand.high);
    }
}

FY_KERNEL fy_random(FY_ARGS args)
{
    const fy_operand &d = args.dst[0];
    const int64_t seed = *element<int64_t>(args.dst[1], 0),
                  counter = *element<int64_t>(args.dst[1], 1);
    if (args.op == FY_OP_RANDPERM) {
        const fy__perm_t perm = fy__perm_make(seed, counter, args.nelem);
        for (uint64_t n = first_thread(); n < args.nelem; n += all_threads())
            *element<int64_t>(d, locate(d, 0, d.rank, n, args.flags)) =
                fy__perm_at(&perm, (uint32_t)n);
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
    const uint64_t step = args.op == FY_OP_RANDPERM
                              ? 1
                              : fy__rng_blocks(args.nelem, args.dst[0].dtype == FY_DTYPE_F64);
    int64_t *counter = element<int64_t>(args.dst[1], 1);
    *counter = (int64_t)((uint64_t)*counter + step);
}

// ---- dropout ----

FY_KERNEL fy_dropout_begin(FY_ARGS args)
{
    if (first_thread() != 0) return;
    const fy_operand &rng = args.dst[0], &before = args.dst[1];
    int64_t *counter = element<int64_t>(rng, rng.strides[0]);
    *element<int64_t>(before, 0) = *element<int64_t>(rng, 0);
    *element<int64_t>(before, before.strides[0]) = *counter;
    *counter = (int64_t)((uint64_t)*counter + fy__dropout_blocks(args.nelem));
}

template <typename T>
__device__ inline void drop(const fy_args &args, uint64_t n, bool keeps, T scale)
{
    int64_t at_d = 0, at_s = 0;
    locate2(args.dst[0], args.src[0], 0, args.dst[0].rank, n, args.flags, at_d, at_s);
    store(args.dst[0], at_d, keeps ? load<T>(args.src[0], at_s) * scale : (T)0);
}

// A thread has W neighbouring blocks, and so four times W neighbours; only where groups are whole.
// Returns how many blocks are done.
template <int W, typename T>
__device__ inline uint64_t drop_wide(const fy_args &args, int64_t seed, int64_t counter,
                                     uint32_t threshold, T scale)
{
    static_assert(FY_DROPOUT_BLOCKS % W == 0, "a thread's blocks are of one group");
    const uint64_t blocks = args.nelem / FY_DROPOUT_GROUP * FY_DROPOUT_BLOCKS;
    for (uint64_t block = first_thread() * W; block < blocks; block += all_threads() * W) {
        const int64_t n =
            (int64_t)(block / FY_DROPOUT_BLOCKS * FY_DROPOUT_GROUP + block % FY_DROPOUT_BLOCKS);
        fy__philox_t random[W];
        for (int i = 0; i < W; i++) random[i] = fy__rng_block(seed, counter, block + i);
        for (int k = 0; k < 4; k++) {
            T x[W];
            load_or_repeat<W>(args.src[0], (n + k * FY_DROPOUT_BLOCKS) * args.src[0].strides[0], x);
            for (int i = 0; i < W; i++)
                x[i] = fy__dropout_keeps(random[i].lane[k], threshold) ? x[i] * scale : (T)0;
            store_result<W>(args.dst[0], n + k * FY_DROPOUT_BLOCKS, x);
        }
    }
    return blocks;
}

// A thread has a block, and so four elements 16 apart.
template <typename T>
__device__ inline void drop_elements(const fy_args &args, int64_t seed, int64_t counter,
                                     uint32_t threshold, T scale)
{
    const uint64_t blocks = fy__dropout_blocks(args.nelem);
    uint64_t done = 0;
    by_width(T(), args, [&](auto w) {
        if (decltype(w)::n > 1)
            done = drop_wide<decltype(w)::n>(args, seed, counter, threshold, scale);
    });
    for (uint64_t block = done + first_thread(); block < blocks; block += all_threads()) {
        const fy__philox_t random = fy__rng_block(seed, counter, block);
        uint64_t n = block / FY_DROPOUT_BLOCKS * FY_DROPOUT_GROUP + block % FY_DROPOUT_BLOCKS;
        for (int k = 0; k < 4 && n < args.nelem; k++, n += FY_DROPOUT_BLOCKS)
            drop(args, n, fy__dropout_keeps(random.lane[k], threshold) != 0, scale);
    }
}

// A thread has an element, and looks its channel up.
template <typename T>
__device__ inline void drop_channels(const fy_args &args, int64_t seed, int64_t counter,
                                     uint32_t threshold, T scale)
{
    const uint64_t channels = (uint64_t)args.dst[0].dims[3],
                   image = args.nelem / (uint64_t)args.dst[0].dims[0];
    for (uint64_t n = first_thread(); n < args.nelem; n += all_threads())
        drop(args, n,
             fy__dropout_keeps_at(seed, counter, n / image * channels + n % channels, threshold) !=
                 0,
             scale);
}

// Three blocks a processor at least, which takes 80 registers a thread at most.
extern "C" __global__ void __launch_bounds__(FY__CUDA_BLOCK, 3) fy_dropout(FY_ARGS args)
{
    const fy_operand &state = args.src[1];
    const int64_t seed = *element<int64_t>(state, 0),
                  counter = *element<int64_t>(state, state.strides[0]);
    const uint32_t threshold = fy__dropout_threshold(args.attrs.dropout.p);
    const double scale = fy__dropout_scale(args.attrs.dropout.p);
    const bool channels = args.op == FY_OP_DROPOUT2D_BACKWARD,
               is_f64 = args.dst[0].dtype == FY_DTYPE_F64;
    if (is_f64)
        channels ? drop_channels(args, seed, counter, threshold, scale)
                 : drop_elements(args, seed, counter, threshold, scale);
    else if (channels)
        drop_channels(args, seed, counter, threshold, (float)scale);
    else
        drop_elements(args, seed, counter, threshold, (float)scale);
}

#define FY_MODULE_random ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
