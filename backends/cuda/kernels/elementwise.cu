// Elementwise arithmetic: every op that maps one or two numbers to one. For each type that is
// computed in: one kernel with 16-byte accesses,
// where the host found that every operand can be read so (args.wide), and one for any strides. Not
// here: what only moves or converts (move.cu).
#include "backends/cuda/kernels/formulas.cuh"

// Any strides, any dtypes of T's class.
template <typename T> __device__ inline void walk(const fy_args &args)
{
    const fy_operand &d = args.dst[0], &sa = args.src[0], &sb = args.src[1];
    const bool two = args.nsrc == 2, reads_dst = updates(args.op);
    for (uint64_t n = first_thread(); n < args.nelem; n += all_threads()) {
        int64_t at_d = 0, at_a = 0, at_b = 0;
        uint64_t linear = n;
        for (int axis = d.rank - 1; axis >= 0; axis--) {
            int64_t i = (int64_t)(axis > 0 ? split(linear, d.dims[axis], args.flags) : linear);
            at_d += i * d.strides[axis];
            at_a += i * sa.strides[axis];
            at_b += i * sb.strides[axis];
        }
        T a = load<T>(sa, at_a), b = two ? load<T>(sb, at_b) : (T)0,
          y = reads_dst ? load<T>(d, at_d) : (T)0, r;
        apply<1>(args.op, args.attrs.scaled, &a, &b, &y, &r);
        put(args, at_d, r);
    }
}

FY_KERNEL fy_elementwise_f32(FY_ARGS args) { walk<float>(args); }
FY_KERNEL fy_elementwise_f64(FY_ARGS args) { walk<double>(args); }
FY_KERNEL fy_elementwise_int(FY_ARGS args) { walk<int64_t>(args); }

// ---- W at once (wide.cuh) ----

// Elements from `first` on, of one axis.
template <typename T> __device__ inline void one_by_one(const fy_args &args, uint64_t first)
{
    const fy_operand &d = args.dst[0], &sa = args.src[0], &sb = args.src[1];
    const bool two = args.nsrc == 2;
    for (uint64_t n = first + first_thread(); n < args.nelem; n += all_threads()) {
        const int64_t at = (int64_t)n;
        T a = load<T>(sa, at * sa.strides[0]), b = two ? load<T>(sb, at * sb.strides[0]) : (T)0,
          y = updates(args.op) ? load<T>(d, at) : (T)0, r;
        apply<1>(args.op, args.attrs.scaled, &a, &b, &y, &r);
        put(args, at, r);
    }
}

template <typename T, int W> __device__ inline void wide(const fy_args &args)
{
    const fy_operand &d = args.dst[0], &sa = args.src[0],
                     &sb = args.src[1]; // without one, src[1] is not read
    const fy_operand *const operands[3] = { &d, &sa, &sb };
    const bool two = args.nsrc == 2, reads_dst = updates(args.op) || args.accumulate;
    const uint64_t groups = args.wide ? args.nelem / W : 0;
    for (uint64_t group = first_thread(); group < groups; group += all_threads()) {
        T a[W], b[W], y[W], r[W]; // b, y: not read by an op that has none
        int64_t at[3];
        locate_group<W>(args, d, operands, group, at);
        load_or_repeat<W>(sa, at[1], a);
        if (two) load_or_repeat<W>(sb, at[2], b);
        if (reads_dst) load_wide<W>(d, at[0], y);
        apply<W>(args.op, args.attrs.scaled, a, b, y, r);
        if (args.accumulate)
            for (int i = 0; i < W; i++) r[i] += y[i];
        store_result<W>(d, at[0], r);
    }
    one_by_one<T>(args, groups * W);
}

// 16 bytes of u8 or bool, computed 4 at a time: as i64 all of them would take 100 registers, and
// half the threads.
__device__ inline void bytes_or_repeat(const fy_operand &o, int64_t offset, pack<uint8_t, 16> &p)
{
    if (o.strides[o.rank - 1] != 0) {
        p = read_pack<uint8_t, 16>(o, offset);
        return;
    }
    const uint8_t x = *element<uint8_t>(o, offset);
    for (int i = 0; i < 16; i++) p.at[i] = x;
}
__device__ inline void wide_bytes(const fy_args &args)
{
    constexpr int W = 16, N = 4;
    const fy_operand &d = args.dst[0], &sa = args.src[0], &sb = args.src[1];
    const fy_operand *const operands[3] = { &d, &sa, &sb };
    const bool two = args.nsrc == 2, is_bool = d.dtype == FY_DTYPE_BOOL;
    const uint64_t groups = args.wide ? args.nelem / W : 0;
    for (uint64_t group = first_thread(); group < groups; group += all_threads()) {
        pack<uint8_t, W> a, b = {}, y = {};
        int64_t at[3];
        locate_group<W>(args, d, operands, group, at);
        bytes_or_repeat(sa, at[1], a);
        if (two) bytes_or_repeat(sb, at[2], b);
        if (args.accumulate) y = read_pack<uint8_t, W>(d, at[0]);
        for (int first = 0; first < W; first += N) {
            int64_t x[N], z[N], r[N];
            for (int i = 0; i < N; i++) x[i] = a.at[first + i], z[i] = b.at[first + i];
            apply<N>(args.op, args.attrs.scaled, x, z, nullptr, r);
            for (int i = 0; i < N; i++) {
                if (args.accumulate) r[i] += y.at[first + i];
                y.at[first + i] = is_bool ? (uint8_t)(r[i] != 0) : (uint8_t)r[i];
            }
        }
        write_pack<uint8_t, W>(d, at[0], y);
    }
    one_by_one<int64_t>(args, groups * W);
}

FY_KERNEL fy_elementwise_wide_f32(FY_ARGS args) { wide<float, 4>(args); }
FY_KERNEL fy_elementwise_wide_f64(FY_ARGS args) { wide<double, 2>(args); }
FY_KERNEL fy_elementwise_wide_half(FY_ARGS args) { wide<float, 8>(args); }
__device__ inline void wide_int(const fy_args &args)
{
    switch (args.wide) {
    case 2: wide<int64_t, 2>(args); break;
    case 4: wide<int64_t, 4>(args); break;
    default: wide_bytes(args); break;
    }
}
FY_KERNEL fy_elementwise_wide_int(FY_ARGS args) { wide_int(args); }

// ---- one axis, in the short arguments ----

FY_KERNEL fy_elementwise_flat_f32(FY_FLAT flat)
{
    with_flat(flat, [](const fy_args &args) { wide<float, 4>(args); });
}
FY_KERNEL fy_elementwise_flat_f64(FY_FLAT flat)
{
    with_flat(flat, [](const fy_args &args) { wide<double, 2>(args); });
}
FY_KERNEL fy_elementwise_flat_half(FY_FLAT flat)
{
    with_flat(flat, [](const fy_args &args) { wide<float, 8>(args); });
}
FY_KERNEL fy_elementwise_flat_int(FY_FLAT flat)
{
    with_flat(flat, [](const fy_args &args) { wide_int(args); });
}

#define FY_MODULE_elementwise ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
