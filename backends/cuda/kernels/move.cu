// What moves, makes or converts elements without arithmetic: copy, concat (one source a launch), where, cast, fill, arange, gather, packed
// runs.
#include "backends/cuda/kernels/common.cuh"

// ---- cast ----

template <typename T> __device__ inline void convert(const fy_args &args)
{
    const fy_operand &d = args.dst[0], &s = args.src[0];
    for (uint64_t n = first_thread(); n < args.nelem; n += all_threads()) {
        int64_t at_d = 0, at_s = 0;
        locate2(d, s, 0, d.rank, n, args.flags, at_d, at_s);
        store(d, at_d, load<T>(s, at_s));
    }
}

FY_KERNEL fy_cast(FY_ARGS args)
{
    switch (args.src[0].dtype) {
    case FY_DTYPE_F32:
    case FY_DTYPE_F16:
    case FY_DTYPE_BF16: convert<float>(args); break;
    case FY_DTYPE_F64: convert<double>(args); break;
    default: convert<int64_t>(args); break;
    }
}

// ---- fill, arange ----

FY_KERNEL fy_generate(FY_ARGS args)
{
    const fy_operand &d = args.dst[0];
    const bool floating = d.dtype == FY_DTYPE_F32 || d.dtype == FY_DTYPE_F64 || d.dtype == FY_DTYPE_F16 || d.dtype == FY_DTYPE_BF16;
    for (uint64_t n = first_thread(); n < args.nelem; n += all_threads()) {
        int64_t at = locate(d, 0, d.rank, n, args.flags);
        if (args.op == FY_OP_ARANGE)
            store(d, at, FY_MUL_ADD_F64((double)n, args.attrs.arange.step, args.attrs.arange.start));
        else if (floating)
            store(d, at, args.attrs.fill.value);
        else
            store(d, at, args.attrs.fill.int_value);
    }
}

// ---- copy, concat, where: elements are bytes ----

template <typename E> __device__ inline void copy_elements(const fy_args &args)
{
    const fy_operand &d = args.dst[0], &s = args.src[0];
    for (uint64_t n = first_thread(); n < args.nelem; n += all_threads()) {
        int64_t at_d = 0, at_s = 0;
        locate2(d, s, 0, d.rank, n, args.flags, at_d, at_s);
        *element<E>(d, at_d) = *element<E>(s, at_s);
    }
}

template <typename E> __device__ inline void select_elements(const fy_args &args)
{
    const fy_operand &d = args.dst[0], &cond = args.src[0], &a = args.src[1], &b = args.src[2];
    for (uint64_t n = first_thread(); n < args.nelem; n += all_threads()) {
        int64_t at_d = 0, at_cond = 0, at_a = 0, at_b = 0;
        uint64_t linear = n;
        for (int axis = d.rank - 1; axis >= 0; axis--) {
            int64_t i = (int64_t)(axis > 0 ? split(linear, d.dims[axis], args.flags) : linear);
            at_d += i * d.strides[axis];
            at_cond += i * cond.strides[axis];
            at_a += i * a.strides[axis];
            at_b += i * b.strides[axis];
        }
        *element<E>(d, at_d) = *element<uint8_t>(cond, at_cond) ? *element<E>(a, at_a) : *element<E>(b, at_b);
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

// Both ends without gaps: 16 bytes a thread, then the rest byte by byte.
__device__ inline void copy_bytes(const fy_operand &d, const fy_operand &s, uint64_t nbytes)
{
    const uint64_t wide = ((d.data | s.data) & 15) == 0 ? nbytes / 16 : 0;
    for (uint64_t n = first_thread(); n < wide; n += all_threads()) element<uint4>(d, 0)[n] = element<uint4>(s, 0)[n];
    for (uint64_t n = wide * 16 + first_thread(); n < nbytes; n += all_threads()) element<uint8_t>(d, 0)[n] = element<uint8_t>(s, 0)[n];
}

FY_KERNEL fy_copy(FY_ARGS args)
{
    const fy_operand &d = args.dst[0], &s = args.src[0];
    const bool select = args.op == FY_OP_WHERE;
    const int size = size_of(d.dtype);
    if (!select && d.rank == 1 && d.strides[0] == 1 && s.strides[0] == 1 && ((d.data | s.data) & 15) == 0) {
        copy_bytes(d, s, args.nelem * size);
        return;
    }
    switch (size) {
    case 1: select ? select_elements<uint8_t>(args) : copy_elements<uint8_t>(args); break;
    case 2: select ? select_elements<uint16_t>(args) : copy_elements<uint16_t>(args); break;
    case 4: select ? select_elements<uint32_t>(args) : copy_elements<uint32_t>(args); break;
    default: select ? select_elements<uint64_t>(args) : copy_elements<uint64_t>(args); break;
    }
}

// ---- gather: dst[i..., j...] = table[indices[i...], j...] ----

template <typename E> __device__ inline void gather_elements(const fy_args &args)
{
    const fy_operand &d = args.dst[0], &table = args.src[0], &indices = args.src[1];
    const int64_t rows = table.dims[0];
    for (uint64_t n = first_thread(); n < args.nelem; n += all_threads()) {
        int64_t at_d = 0, at_index = 0, at_table = 0;
        uint64_t linear = n;
        for (int axis = d.rank - 1; axis >= 0; axis--) {
            int64_t i = (int64_t)(axis > 0 ? split(linear, d.dims[axis], args.flags) : linear);
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
        *element<E>(d, at_d) = *element<E>(table, at_table + row * table.strides[0]);
    }
}

FY_KERNEL fy_gather(FY_ARGS args)
{
    switch (size_of(args.dst[0].dtype)) {
    case 1: gather_elements<uint8_t>(args); break;
    case 2: gather_elements<uint16_t>(args); break;
    case 4: gather_elements<uint32_t>(args); break;
    default: gather_elements<uint64_t>(args); break;
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
        const int64_t asked = load<int64_t>(indices, at_index), index = asked < 0 ? 0 : asked >= classes ? classes - 1 : asked;
        if (index != asked && args.fault) *(volatile uint32_t *)(uintptr_t)args.fault = 1;
        store(d, at_d, (int64_t)(column == index));
    }
}

// ---- packed runs: a block a piece ----

FY_KERNEL fy_packed(FY_ARGS args)
{
    const bool gather = args.op == FY_LAUNCH_GATHER;
    const uint64_t run = gather ? args.dst[0].data : args.src[0].data;
    const fy_packed_entry_t *table = (const fy_packed_entry_t *)(uintptr_t)(args.src[0].data + args.attrs.packed.table_offset);
    for (uint32_t i = blockIdx.x; i < args.attrs.packed.count; i += gridDim.x) {
        const uint64_t piece = table[i].address, in_run = run + table[i].offset, nbytes = table[i].nbytes;
        const uint64_t wide = ((piece | in_run) & 15) == 0 ? nbytes / 16 : 0;
        char *to = (char *)(uintptr_t)(gather ? in_run : piece);
        const char *from = (const char *)(uintptr_t)(gather ? piece : in_run);
        for (uint64_t n = threadIdx.x; n < wide; n += blockDim.x) ((uint4 *)to)[n] = ((const uint4 *)from)[n];
        for (uint64_t n = wide * 16 + threadIdx.x; n < nbytes; n += blockDim.x) to[n] = from[n];
    }
}

FY_KERNEL_EXISTS(fy_cast)
FY_KERNEL_EXISTS(fy_generate)
FY_KERNEL_EXISTS(fy_copy)
FY_KERNEL_EXISTS(fy_gather)
FY_KERNEL_EXISTS(fy_one_hot)
FY_KERNEL_EXISTS(fy_packed)
