// A chain of elementwise ops (FY_LAUNCH_CHAIN) in one pass: a thread has four neighbours, or one,
// and runs all ops of the program on them. The program is in the arguments, so every thread of a
// warp takes the same branches and reads them from constant memory. The result of the last op stays
// in registers, as do values that a later op reads; others go to memory as the op alone stores
// them.
// Everything is computed in f32. Not here: which chains these are (pack_chain.c).
#include "backends/cuda/kernels/formulas.cuh"

using fy_chain = fy__cuda_chain_t;

// The running state of a thread: elements first .. first + W - 1.
template <int W> struct lane_state {
    float last[W], kept[FY__CUDA_CHAIN_KEPT][W];
    uint32_t held; // the operand that `last` is
    uint64_t first;
};

__device__ inline fy_operand plain_operand(const fy__cuda_chain_operand_t &o)
{
    fy_operand plain;
    plain.data = o.data;
    plain.dtype = o.dtype;
    return plain;
}

// Offset of element `first`.
__device__ inline int64_t place_of(const fy_chain &chain, const fy__cuda_chain_operand_t &o,
                                   uint64_t first)
{
    int64_t offset = 0;
    for (int axis = o.rank - 1; axis > 0; axis--)
        offset += (int64_t)split(first, o.dims[axis], chain.flags) * o.strides[axis];
    return offset + (int64_t)first * o.strides[0];
}

template <int W> __device__ inline void load_any(const fy_operand &o, int64_t offset, float *out)
{
    if (o.dtype == FY_DTYPE_BOOL) {
        const pack<uint8_t, W> p = read_pack<uint8_t, W>(o, offset);
        for (int i = 0; i < W; i++) out[i] = (float)(p.at[i] != 0);
    } else {
        load_group<W>(o, offset, out);
    }
}

// Operand `number` of an op: held, kept, or in memory.
template <int W>
__device__ inline void fetch(const fy_chain &chain, const lane_state<W> &state, uint32_t number,
                             float *out)
{
    const uint32_t noperands = (uint32_t)chain.ndst + chain.nsrc;
    if (number == state.held) {
        for (int i = 0; i < W; i++) out[i] = state.last[i];
    } else if (number >= noperands) {
        for (uint32_t k = 0; k < FY__CUDA_CHAIN_KEPT; k++)
            if (number - noperands == k)
                for (int i = 0; i < W; i++) out[i] = state.kept[k][i];
    } else {
        const fy__cuda_chain_operand_t &o = chain.operands[number];
        const int64_t offset = place_of(chain, o, state.first);
        const fy_operand plain = plain_operand(o);
        if (W == 1 || o.strides[o.rank - 1] != 0) {
            load_any<W>(plain, offset, out);
        } else {
            float one;
            load_any<1>(plain, offset, &one);
            for (int i = 0; i < W; i++) out[i] = one;
        }
    }
}

// As a store and a load of this dtype leave it.
template <int W> __device__ inline void round_to(int32_t dtype, float *x)
{
    switch (dtype) {
    case FY_DTYPE_F16:
        for (int i = 0; i < W; i++) x[i] = widen_f16(narrow_f16(x[i]));
        break;
    case FY_DTYPE_BF16:
        for (int i = 0; i < W; i++) x[i] = fy__f32_from_bf16(narrow_bf16(x[i]));
        break;
    case FY_DTYPE_BOOL:
        for (int i = 0; i < W; i++) x[i] = (float)fy__bool_from_f32(x[i]);
        break;
    default: break;
    }
}

template <int W>
__device__ inline void set_result(const fy_chain &chain, const fy__cuda_chain_op_t &op,
                                  lane_state<W> &state)
{
    const uint32_t noperands = (uint32_t)chain.ndst + chain.nsrc;
    state.held = op.dst;
    round_to<W>(op.dst_dtype, state.last);
    if (op.dst < chain.ndst) {
        const fy_operand plain = plain_operand(chain.operands[op.dst]);
        if constexpr (W > 1)
            store_result<W>(plain, (int64_t)state.first, state.last);
        else
            store(plain, (int64_t)state.first, state.last[0]);
    } else if (op.is_kept) {
        for (uint32_t k = 0; k < FY__CUDA_CHAIN_KEPT; k++)
            if (op.dst - noperands == k)
                for (int i = 0; i < W; i++) state.kept[k][i] = state.last[i];
    }
}

template <int W> __device__ inline void run_program(const fy_chain &chain, uint64_t first)
{
    lane_state<W> state = {};
    state.held = FY__CUDA_CHAIN_NONE;
    state.first = first;
    for (uint32_t k = 0; k < chain.nops; k++) {
        const fy__cuda_chain_op_t &op = chain.ops[k];
        const bool selects = op.op == FY_OP_WHERE;
        float a[W], b[W], y[W], r[W];
        for (int i = 0; i < W; i++) b[i] = y[i] = 0;
        fetch<W>(chain, state, op.src[0], a);
        if (op.nsrc > 1) fetch<W>(chain, state, op.src[1], b);
        if (selects)
            fetch<W>(chain, state, op.src[2], y);
        else if (updates(op.op) || op.accumulate)
            fetch<W>(chain, state, op.dst, y);
        if (selects)
            for (int i = 0; i < W; i++) r[i] = a[i] != 0 ? b[i] : y[i];
        else
            apply<W>(op.op, op.numbers, a, b, y, r);
        for (int i = 0; i < W; i++) state.last[i] = op.accumulate ? r[i] + y[i] : r[i];
        set_result<W>(chain, op, state);
    }
}

FY_KERNEL fy_chain_f32(FY_CHAIN chain)
{
    constexpr int W = FY__CUDA_CHAIN_WIDE;
    const uint64_t groups = chain.flags & FY__CUDA_ALIGNED ? chain.nelem / W : 0;
    for (uint64_t group = first_thread(); group < groups; group += all_threads())
        run_program<W>(chain, group * W);
    for (uint64_t n = groups * W + first_thread(); n < chain.nelem; n += all_threads())
        run_program<1>(chain, n);
}

#define FY_MODULE_chain ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
