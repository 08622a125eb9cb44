// Elementwise arithmetic: every op that maps one or two numbers to one. For each type that is
// computed in: one kernel with 16-byte accesses,
// where the host found that every operand can be read so (args.wide), and one for any strides. Not
// here: what only moves or converts (move.cu).
#include "backends/cuda/kernels/wide.cuh"

#include "opset/formulas/activation.h"

#define EACH \
    for (int i = 0; i < W; i++) r[i]

// The formula of a row, for each type of computation: f_NAME.
#define DEFINE1(name, sfx, T) \
    __device__ inline T f_##name(T x) { return fy__##name##_##sfx(x); }
#define DEFINE2(name, sfx, T) \
    __device__ inline T f_##name(T x, T y) { return fy__##name##_##sfx(x, y); }
#define DEFINE_SCALED(name, sfx, T) \
    __device__ inline T f_##name(T x, T p, T q) { return fy__##name##_##sfx(x, p, q); }
#define TYPES_FLOAT(DEFINE, name)            DEFINE(name, f32, float) DEFINE(name, f64, double)
#define TYPES_INTEGER(DEFINE, name)          DEFINE(name, i64, int64_t)
#define TYPES_NUMBER(DEFINE, name)           TYPES_FLOAT(DEFINE, name) TYPES_INTEGER(DEFINE, name)
#define UNARY(number, ENUM, name, set, ...)  TYPES_##set(DEFINE1, name)
#define BINARY(number, ENUM, name, set, ...) TYPES_##set(DEFINE2, name)
#define SLOPE(number, ENUM, name, ...)       TYPES_FLOAT(DEFINE2, name)
#define SCALED(number, ENUM, name, ...)      TYPES_FLOAT(DEFINE_SCALED, name)
#include "opset/ops.def"

__device__ inline float f_affine(float x, float p, float q) { return fy__affine_f32(x, p, q); }
__device__ inline double f_affine(double x, double p, double q) { return fy__affine_f64(x, p, q); }
__device__ inline float f_axpy(float y, float p, float x) { return fy__axpy_f32(y, p, x); }
__device__ inline double f_axpy(double y, double p, double x) { return fy__axpy_f64(y, p, x); }
__device__ inline float f_clamp(float x, float p, float q) { return fy__clamp_f32(x, p, q); }
__device__ inline double f_clamp(double x, double p, double q) { return fy__clamp_f64(x, p, q); }
__device__ inline float f_clip(float x, float p, float q) { return fy__clip_f32(x, p, q); }
__device__ inline double f_clip(double x, double p, double q) { return fy__clip_f64(x, p, q); }

#define CASE1(ENUM, name)      \
    case FY_OP_##ENUM:         \
        EACH = f_##name(a[i]); \
        break;
#define CASE2(ENUM, name)            \
    case FY_OP_##ENUM:               \
        EACH = f_##name(a[i], b[i]); \
        break;
#define CASE_SCALED(ENUM, name)                                                  \
    case FY_OP_##ENUM:                                                           \
        EACH = f_##name(a[i], (T)args.attrs.scaled[0], (T)args.attrs.scaled[1]); \
        break;
#define CASE_HOLDS(ENUM, expression) \
    case FY_OP_##ENUM: return expression;
template <typename T> __device__ inline bool holds(uint32_t op, T a)
{
    switch (op) {
#define TESTS_FLOAT                                    CASE_HOLDS
#define TESTS_ANY                                      CASE_HOLDS
#define TEST(number, ENUM, name, set, expression, ...) TESTS_##set(ENUM, expression)
#include "opset/ops.def"
    default: return false;
    }
}
template <typename T> __device__ inline bool holds(uint32_t op, T a, T b)
{
    switch (op) {
#define COMPARE(number, ENUM, name, expression, ...) CASE_HOLDS(ENUM, expression)
#include "opset/ops.def"
    default: return false;
    }
}
#define CASE_TEST(ENUM)                      \
    case FY_OP_##ENUM:                       \
        EACH = holds<T>(FY_OP_##ENUM, a[i]); \
        break;
#define CASE_COMPARE(ENUM) \
    case FY_OP_##ENUM: EACH = holds<T>(FY_OP_##ENUM, a[i], b[i]); break;

// r = op(a, b) for W elements at once, so that the switch is paid once for all of them. y: dst as
// it was (axpy, clip_by_norm).
template <int W, typename T>
__device__ inline void apply(const fy_args &args, const T *a, const T *b, const T *y, T *r)
{
    switch (args.op) {
    case FY_OP_AFFINE:
        EACH = f_affine(a[i], (T)args.attrs.affine.scale, (T)args.attrs.affine.shift);
        break;
    case FY_OP_AXPY: EACH = f_axpy(y[i], (T)args.attrs.axpy.alpha, a[i]); break;
    case FY_OP_CLAMP:
        EACH = f_clamp(a[i], (T)args.attrs.clamp.low, (T)args.attrs.clamp.high);
        break;
    case FY_OP_CLIP_BY_NORM: EACH = f_clip(y[i], a[i], (T)args.attrs.clip.max_norm); break;
#define UNARY(number, ENUM, name, ...) CASE1(ENUM, name)
#define CASE2F_FLOAT                   CASE2
#define CASE2F_NUMBER                  CASE2
#define CASE2F_INTEGER(ENUM, name)
#define BINARY(number, ENUM, name, set, ...) CASE2F_##set(ENUM, name)
#define TEST(number, ENUM, name, ...)        CASE_TEST(ENUM)
#define SLOPE(number, ENUM, name, ...)       CASE2(ENUM, name)
#define SCALED(number, ENUM, name, ...)      CASE_SCALED(ENUM, name)
#define COMPARE(number, ENUM, name, ...)     CASE_COMPARE(ENUM)
#include "opset/ops.def"
    default: EACH = a[i]; break; // copy that accumulates
    }
}

// i64 and then narrowing is exact for i32, u8 and bool: integers wrap around.
template <int W>
__device__ inline void apply(const fy_args &args, const int64_t *a, const int64_t *b,
                             const int64_t *, int64_t *r)
{
    typedef int64_t T;
#define CASE1_FLOAT(ENUM, name)
#define CASE2_FLOAT(ENUM, name)
#define CASE1_NUMBER  CASE1
#define CASE2_NUMBER  CASE2
#define CASE2_INTEGER CASE2
    switch (args.op) {
#define UNARY(number, ENUM, name, set, ...)  CASE1_##set(ENUM, name)
#define BINARY(number, ENUM, name, set, ...) CASE2_##set(ENUM, name)
#define SLOPE(...)
#define SCALED(...)
#define TEST(number, ENUM, name, ...)    CASE_TEST(ENUM)
#define COMPARE(number, ENUM, name, ...) CASE_COMPARE(ENUM)
#include "opset/ops.def"
    default: EACH = a[i]; break;
    }
}

// dst is one more operand.
__device__ inline bool updates(const fy_args &args)
{
    return args.op == FY_OP_AXPY || args.op == FY_OP_CLIP_BY_NORM;
}

// Any strides, any dtypes of T's class.
template <typename T> __device__ inline void walk(const fy_args &args)
{
    const fy_operand &d = args.dst[0], &sa = args.src[0], &sb = args.src[1];
    const bool two = args.nsrc == 2, reads_dst = updates(args);
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
        apply<1>(args, &a, &b, &y, &r);
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
          y = updates(args) ? load<T>(d, at) : (T)0, r;
        apply<1>(args, &a, &b, &y, &r);
        put(args, at, r);
    }
}

template <typename T, int W> __device__ inline void wide(const fy_args &args)
{
    const fy_operand &d = args.dst[0], &sa = args.src[0],
                     &sb = args.src[1]; // without one, src[1] is not read
    const fy_operand *const operands[3] = { &d, &sa, &sb };
    const bool two = args.nsrc == 2, reads_dst = updates(args) || args.accumulate;
    const uint64_t groups = args.wide ? args.nelem / W : 0;
    for (uint64_t group = first_thread(); group < groups; group += all_threads()) {
        T a[W], b[W], y[W], r[W];
        int64_t at[3];
        locate_group<W>(args, d, operands, group, at);
        for (int i = 0; i < W; i++) b[i] = y[i] = (T)0;
        load_or_repeat<W>(sa, at[1], a);
        if (two) load_or_repeat<W>(sb, at[2], b);
        if (reads_dst) load_wide<W>(d, at[0], y);
        apply<W>(args, a, b, y, r);
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
            apply<N>(args, x, z, nullptr, r);
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

FY_KERNEL_EXISTS(fy_elementwise_wide_f32)
FY_KERNEL_EXISTS(fy_elementwise_wide_f64)
FY_KERNEL_EXISTS(fy_elementwise_wide_half)
FY_KERNEL_EXISTS(fy_elementwise_wide_int)
FY_KERNEL_EXISTS(fy_elementwise_flat_f32)
FY_KERNEL_EXISTS(fy_elementwise_flat_f64)
FY_KERNEL_EXISTS(fy_elementwise_flat_half)
FY_KERNEL_EXISTS(fy_elementwise_flat_int)
FY_KERNEL_EXISTS(fy_elementwise_f32)
FY_KERNEL_EXISTS(fy_elementwise_f64)
FY_KERNEL_EXISTS(fy_elementwise_int)
