// What moves, makes or converts elements without arithmetic: copy, concat (one source a launch),
// where, cast, fill, arange, gather, packed
// runs.
#include "backends/cuda/kernels/wide.cuh"

// ---- cast ----

template <typename T> __device__ inline void convert(const fy_args &args)
{
    constexpr int W = 4;
    const fy_operand &d = args.dst[0], &s = args.src[0];
    const fy_operand *const operands[2] = { &d, &s };
    const uint64_t groups = args.wide == W ? args.nelem / W : 0;
    for (uint64_t group = first_thread(); group < groups; group += all_threads()) {
        int64_t at[2];
        T x[W];
        locate_group<W>(args, d, operands, group, at);
        load_or_repeat<W>(s, at[1], x);
        store_wide<W>(d, at[0], x);
    }
    for (uint64_t n = groups * W + first_thread(); n < args.nelem; n += all_threads()) {
        int64_t at_d = 0, at_s = 0;
        locate2(d, s, 0, d.rank, n, args.flags, at_d, at_s);
        store(d, at_d, load<T>(s, at_s));
    }
}

__device__ inline void cast(const fy_args &args)
{
    switch (args.src[0].dtype) {
    case FY_DTYPE_F32:
    case FY_DTYPE_F16:
    case FY_DTYPE_BF16: convert<float>(args); break;
    case FY_DTYPE_F64: convert<double>(args); break;
    default: convert<int64_t>(args); break;
    }
}
FY_KERNEL fy_cast(FY_ARGS args) { cast(args); }
FY_KERNEL fy_cast_flat(FY_FLAT flat)
{
    with_flat(flat, [](const fy_args &args) { cast(args); });
}

// ---- fill, arange ----

template <typename S> __device__ inline void generate(const fy_args &args)
{
    using E = typename S::type;
    constexpr int W = 16 / sizeof(E);
    const fy_operand &d = args.dst[0];
    const fy_operand *const operands[1] = { &d };
    const bool floating = d.dtype == FY_DTYPE_F32 || d.dtype == FY_DTYPE_F64 ||
                          d.dtype == FY_DTYPE_F16 || d.dtype == FY_DTYPE_BF16;
    const E value = floating ? S::from(args.attrs.fill.value) : S::from(args.attrs.fill.int_value);
    const uint64_t groups = args.wide == W ? args.nelem / W : 0;
    const auto element_of = [&](uint64_t n) {
        if (args.op == FY_OP_FILL) return value;
        return S::from(FY_MUL_ADD_F64((double)n, args.attrs.arange.step, args.attrs.arange.start));
    };
    for (uint64_t group = first_thread(); group < groups; group += all_threads()) {
        int64_t at[1];
        pack<E, W> p;
        locate_group<W>(args, d, operands, group, at);
        for (int i = 0; i < W; i++) p.at[i] = element_of(group * W + i);
        write_pack<E, W>(d, at[0], p);
    }
    for (uint64_t n = groups * W + first_thread(); n < args.nelem; n += all_threads())
        *element<E>(d, locate(d, 0, d.rank, n, args.flags)) = element_of(n);
}

FY_KERNEL fy_generate(FY_ARGS args)
{
    by_dtype(args.dst[0].dtype, [&](auto as) { generate<decltype(as)>(args); });
}
FY_KERNEL fy_generate_flat(FY_FLAT flat)
{
    with_flat(flat, [](const fy_args &args) {
        by_dtype(args.dst[0].dtype, [&](auto as) { generate<decltype(as)>(args); });
    });
}

// ---- copy, concat, where: elements are bytes ----

template <typename E, int W>
__device__ inline pack<E, W> read_or_repeat(const fy_operand &o, int64_t offset)
{
    if (o.strides[o.rank - 1] != 0) return read_pack<E, W>(o, offset);
    pack<E, W> p;
    const E x = *element<E>(o, offset);
    for (int i = 0; i < W; i++) p.at[i] = x;
    return p;
}

template <typename E> __device__ inline void copy_elements(const fy_args &args)
{
    constexpr int W = 16 / sizeof(E);
    const fy_operand &d = args.dst[0], &s = args.src[0];
    const fy_operand *const operands[2] = { &d, &s };
    const uint64_t groups = args.wide == W ? args.nelem / W : 0;
    for (uint64_t group = first_thread(); group < groups; group += all_threads()) {
        int64_t at[2];
        locate_group<W>(args, d, operands, group, at);
        write_pack<E, W>(d, at[0], read_or_repeat<E, W>(s, at[1]));
    }
    for (uint64_t n = groups * W + first_thread(); n < args.nelem; n += all_threads()) {
        int64_t at_d = 0, at_s = 0;
        locate2(d, s, 0, d.rank, n, args.flags, at_d, at_s);
        *element<E>(d, at_d) = *element<E>(s, at_s);
    }
}

template <typename E> __device__ inline void select_elements(const fy_args &args)
{
    constexpr int W = 16 / sizeof(E);
    const fy_operand &d = args.dst[0], &cond = args.src[0], &a = args.src[1], &b = args.src[2];
    const fy_operand *const operands[4] = { &d, &cond, &a, &b };
    const uint64_t groups = args.wide == W ? args.nelem / W : 0;
    for (uint64_t group = first_thread(); group < groups; group += all_threads()) {
        int64_t at[4];
        locate_group<W>(args, d, operands, group, at);
        const pack<uint8_t, W> chosen = read_or_repeat<uint8_t, W>(cond, at[1]);
        const pack<E, W> yes = read_or_repeat<E, W>(a, at[2]), no = read_or_repeat<E, W>(b, at[3]);
        pack<E, W> p;
        for (int i = 0; i < W; i++) p.at[i] = chosen.at[i] ? yes.at[i] : no.at[i];
        write_pack<E, W>(d, at[0], p);
    }
    for (uint64_t n = groups * W + first_thread(); n < args.nelem; n += all_threads()) {
        int64_t at_d = 0, at_cond = 0, at_a = 0, at_b = 0;
        uint64_t linear = n;
        for (int axis = d.rank - 1; axis >= 0; axis--) {
            int64_t i = (int64_t)(axis > 0 ? split(linear, d.dims[axis], args.flags) : linear);
            at_d += i * d.strides[axis];
            at_cond += i * cond.strides[axis];
            at_a += i * a.strides[axis];
            at_b += i * b.strides[axis];
        }
        *element<E>(d, at_d) = *element<uint8_t>(cond, at_cond) ? *element<E>(a, at_a)
                                                                : *element<E>(b, at_b);
    }
}

__device__ inline int size_of(int dtype)
{
    switch (dtype) {
    case FY_DTYPE_F64:
    case FY_DTYPE_I64: return 8;
    case FY_DTYPE_F32:
    case FY_DTYPE_I32: return 4;
    case FY_DTYPE_F16:
    case FY_DTYPE_BF16: return 2;
    default: return 1;
    }
}

__device__ inline void copy(const fy_args &args)
{
    const bool select = args.op == FY_OP_WHERE;
    switch (size_of(args.dst[0].dtype)) {
    case 1: select ? select_elements<uint8_t>(args) : copy_elements<uint8_t>(args); break;
    case 2: select ? select_elements<uint16_t>(args) : copy_elements<uint16_t>(args); break;
    case 4: select ? select_elements<uint32_t>(args) : copy_elements<uint32_t>(args); break;
    default: select ? select_elements<uint64_t>(args) : copy_elements<uint64_t>(args); break;
    }
}
FY_KERNEL fy_copy(FY_ARGS args) { copy(args); }
FY_KERNEL fy_copy_flat(FY_FLAT flat)
{
    with_flat(flat, [](const fy_args &args) { copy(args); });
}

// ---- gather: dst[i..., j...] = table[indices[i...], j...] ----

template <typename E, int W> __device__ inline void gather_elements(const fy_args &args)
{
    const fy_operand &d = args.dst[0], &table = args.src[0], &indices = args.src[1];
    const int64_t rows = table.dims[0];
    const int last = d.rank - 1;
    for (uint64_t n = first_thread(); n < args.nelem / W;
         n += all_threads()) { // W divides the last axis, and so nelem
        int64_t at_d = 0, at_index = 0, at_table = 0;
        uint64_t linear = n;
        for (int axis = last; axis >= 0; axis--) {
            const int64_t scale = axis == last ? W : 1;
            const int64_t i =
                scale *
                (int64_t)(axis > 0 ? split(linear, d.dims[axis] / scale, args.flags) : linear);
            at_d += i * d.strides[axis];
            if (axis >= indices.rank)
                at_table += i * table.strides[axis - indices.rank + 1];
            else
                at_index += i * indices.strides[axis];
        }
        int64_t row = load<int64_t>(indices, at_index);
        if (row < 0 || row >= rows) {
            if (args.fault) *(volatile uint32_t *)(uintptr_t)args.fault = 1;
            row = row < 0 ? 0 : rows - 1;
        }
        at_table += row * table.strides[0];
        if (W > 1)
            write_pack<E, W>(d, at_d, read_pack<E, W>(table, at_table));
        else
            *element<E>(d, at_d) = *element<E>(table, at_table);
    }
}

template <typename E> __device__ inline void gather(const fy_args &args)
{
    if (args.wide)
        gather_elements<E, 16 / sizeof(E)>(args);
    else
        gather_elements<E, 1>(args);
}

FY_KERNEL fy_gather(FY_ARGS args)
{
    switch (size_of(args.dst[0].dtype)) {
    case 1: gather<uint8_t>(args); break;
    case 2: gather<uint16_t>(args); break;
    case 4: gather<uint32_t>(args); break;
    default: gather<uint64_t>(args); break;
    }
}

// ---- one_hot: an element a thread ----

FY_KERNEL fy_one_hot(FY_ARGS args)
{
    const fy_operand &d = args.dst[0], &indices = args.src[0];
    const int axis = indices.rank; // of the classes
    const int64_t classes = d.dims[axis];
    for (uint64_t n = first_thread(); n < args.nelem; n += all_threads()) {
        uint64_t linear = n;
        const int64_t column = (int64_t)split(linear, classes, args.flags);
        int64_t at_d = column * d.strides[axis], at_index = 0;
        locate2(d, indices, 0, axis, linear, args.flags, at_d, at_index);
        const int64_t asked = load<int64_t>(indices, at_index), index = asked < 0 ? 0
                                                                        : asked >= classes
                                                                            ? classes - 1
                                                                            : asked;
        if (index != asked && args.fault) *(volatile uint32_t *)(uintptr_t)args.fault = 1;
        store(d, at_d, (int64_t)(column == index));
    }
}

// ---- packed runs: a block a piece ----

FY_KERNEL fy_packed(FY_ARGS args)
{
    const bool gather = args.op == FY_LAUNCH_GATHER;
    const uint64_t run = gather ? args.dst[0].data : args.src[0].data;
    const fy_packed_entry_t *table =
        (const fy_packed_entry_t *)(uintptr_t)(args.src[0].data + args.attrs.packed.table_offset);
    for (uint32_t i = blockIdx.x; i < args.attrs.packed.count; i += gridDim.x) {
        const uint64_t piece = table[i].address, in_run = run + table[i].offset,
                       nbytes = table[i].nbytes;
        const uint64_t wide = ((piece | in_run) & 15) == 0 ? nbytes / 16 : 0;
        char *to = (char *)(uintptr_t)(gather ? in_run : piece);
        const char *from = (const char *)(uintptr_t)(gather ? piece : in_run);
        for (uint64_t n = threadIdx.x; n < wide; n += blockDim.x)
            ((uint4 *)to)[n] = ((const uint4 *)from)[n];
        for (uint64_t n = wide * 16 + threadIdx.x; n < nbytes; n += blockDim.x) to[n] = from[n];
    }
}

#define FY_MODULE_move ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
