// max_pool2d, avg_pool2d and their gradients: a thread an element of the result, or W neighbouring
// channels. The gradients ask, for a pixel of x, which windows have it,
// so no two threads write one element and the bits are always the same. Sums in T; any strides,
// every float dtype.
#include "backends/cuda/kernels/channels.cuh"

// Along an axis: fewer than 2^31 pixels or windows.
struct range_t {
    int first, end;
};

// The pixels of a window that are inside the image.
__device__ inline range_t window(int at, int stride, int padding, int kernel, int64_t size)
{
    const int first = at * stride - padding;
    return { max(first, 0), (int)min((int64_t)first + kernel, size) };
}

// How many places of a window along one axis divide its sum: padding counts unless it is excluded,
// places beyond the padding never do.
__device__ inline int64_t counted(int64_t at, int64_t stride, int64_t padding, int64_t kernel,
                                  int64_t size, int excludes_padding)
{
    const int64_t edge = excludes_padding ? 0 : padding, first = at * stride - padding,
                  end = first + kernel;
    return (end < size + edge ? end : size + edge) - (first < -edge ? -edge : first);
}

// One over the divisor of window (i, j) of an image of h x w.
template <typename T>
__device__ inline T share_of(const fy_pool2d_attrs_t &a, int64_t i, int64_t j, int64_t h, int64_t w)
{
    const int excludes = a.count_excludes_padding;
    return (T)1 / (T)(counted(i, a.stride_h, a.padding_h, a.kernel_h, h, excludes) *
                      counted(j, a.stride_w, a.padding_w, a.kernel_w, w, excludes));
}

// The windows that have a pixel.
__device__ inline range_t windows_of(int at, int stride, int padding, int kernel, int64_t count)
{
    const int before = at + padding - kernel;
    return { before < 0 ? 0 : before / stride + 1, min((at + padding) / stride + 1, (int)count) };
}

// The largest element of a window, NaN above all, and the first pixel (h * pitch + w, modulo 2^32)
// that has it; for the channels of a group from c on. Walks back: the first of equals, and the
// first NaN, are found last.
template <typename R, typename T>
__device__ inline void largest(const fy_operand &x, int64_t n, const range_t &rows,
                               const range_t &columns, int64_t c, uint32_t pitch, T *best,
                               uint32_t *place)
{
    for (int i = 0; i < R::n; i++) best[i] = -(T)INFINITY, place[i] = 0;
    for (int h = rows.end - 1; h >= rows.first; h--) {
        int64_t from = at4(x, n, h, columns.end - 1, c);
        for (int w = columns.end - 1; w >= columns.first; w--, from -= x.strides[2]) {
            T value[R::n];
            load_channels<R>(x, from, value);
            for (int i = 0; i < R::n; i++) {
                if (!(value[i] >= best[i] || value[i] != value[i])) continue;
                best[i] = value[i];
                place[i] = h * pitch + w;
            }
        }
    }
}

// NaN is not below 0 and stays; a slope at NaN is 1, as in formulas/activation.h.
template <typename T> __device__ inline T relu(T x) { return x < (T)0 ? (T)0 : x; }

struct at_t {
    int64_t n, i, j, c; // of the result: image, row, column, first channel
};

// Pools the window of a pixel of the result.
template <int W, typename T>
__device__ inline void forward(const fy_args &args, const at_t &at, T *sum)
{
    const fy_pool2d_attrs_t &a = args.attrs.pool2d;
    const fy_operand &s = args.src[0];
    const bool of_relu = a.activation == FY_ACTIVATION_RELU;
    const range_t rows = window(at.i, a.stride_h, a.padding_h, a.kernel_h, s.dims[1]);
    const range_t columns = window(at.j, a.stride_w, a.padding_w, a.kernel_w, s.dims[2]);
    if (args.op == FY_OP_MAX_POOL2D) {
        uint32_t place[W];
        largest<reads<-1, W>>(s, at.n, rows, columns, at.c, 1, sum, place);
        for (int i = 0; i < W; i++)
            if (of_relu) sum[i] = relu(sum[i]);
        return;
    }
    const T share = share_of<T>(a, at.i, at.j, s.dims[1], s.dims[2]);
    for (int64_t h = rows.first; h < rows.end; h++) {
        for (int64_t w = columns.first; w < columns.end; w++) {
            T value[W];
            load_group<W>(s, at4(s, at.n, h, w, at.c), value);
            for (int i = 0; i < W; i++) sum[i] += of_relu ? relu(value[i]) : value[i];
        }
    }
    for (int i = 0; i < W; i++) sum[i] *= share;
}

// The gradient at a pixel of x: what the windows that have it give to it.
template <int W, typename T>
__device__ inline void backward(const fy_args &args, const at_t &at, T *sum)
{
    const fy_pool2d_attrs_t &a = args.attrs.pool2d;
    const fy_operand &d = args.dst[0], &s = args.src[0], &x = args.src[1];
    const bool is_max = args.op == FY_OP_MAX_POOL2D_BACKWARD,
               of_relu = a.activation == FY_ACTIVATION_RELU,
               varies = a.ceil_mode || a.count_excludes_padding;
    const range_t rows = windows_of(at.i, a.stride_h, a.padding_h, a.kernel_h, s.dims[1]);
    const range_t columns = windows_of(at.j, a.stride_w, a.padding_w, a.kernel_w, s.dims[2]);
    T best[W];
    for (int64_t oh = rows.first; oh < rows.end; oh++) {
        for (int64_t ow = columns.first; ow < columns.end; ow++) {
            T dy[W];
            uint32_t place[W];
            load_group<W>(s, at4(s, at.n, oh, ow, at.c), dy);
            if (!is_max) {
                const T share = varies ? share_of<T>(a, oh, ow, d.dims[1], d.dims[2])
                                       : (T)1 / (T)((int64_t)a.kernel_h * a.kernel_w);
                for (int i = 0; i < W; i++) sum[i] += dy[i] * share;
                continue;
            }
            const range_t in_h = window(oh, a.stride_h, a.padding_h, a.kernel_h, d.dims[1]);
            const range_t in_w = window(ow, a.stride_w, a.padding_w, a.kernel_w, d.dims[2]);
            largest<reads<-1, W>>(x, at.n, in_h, in_w, at.c, (uint32_t)d.dims[2], best, place);
            for (int i = 0; i < W; i++)
                if (place[i] == (uint32_t)(at.i * d.dims[2] + at.j) &&
                    !(of_relu && best[i] <= (T)0))
                    sum[i] += dy[i];
        }
    }
    if (is_max || !of_relu) return;
    load_group<W>(x, at4(x, at.n, at.i, at.j, at.c), best);
    for (int i = 0; i < W; i++)
        if (best[i] <= (T)0) sum[i] = 0;
}

template <int W, typename T> __device__ inline void pool2d(const fy_args &args, T)
{
    const fy_operand &d = args.dst[0];
    const bool is_forward = args.op == FY_OP_MAX_POOL2D || args.op == FY_OP_AVG_POOL2D;
    for (uint64_t k = first_thread(); k < args.nelem / W;
         k += all_threads()) { // W divides the channels
        uint64_t rest = k;
        at_t at;
        at.c = (int64_t)split(rest, d.dims[3] / W, args.flags) * W;
        at.j = (int64_t)split(rest, d.dims[2], args.flags);
        at.i = (int64_t)split(rest, d.dims[1], args.flags);
        at.n = (int64_t)rest;
        T sum[W];
        for (int i = 0; i < W; i++) sum[i] = 0;
        if (is_forward)
            forward<W>(args, at, sum);
        else
            backward<W>(args, at, sum);
        put_group<W>(args, at4(d, at.n, at.i, at.j, at.c), sum);
    }
}

// ---- the gradient of max_pool2d by tiles of x. A block finds the winners of all windows that have
// a pixel of its tile; then each pixel adds up dy of the windows that it won. Indices fit 31 bits,
// and places of a window 7 ----

enum { NO_PLACE = FY__CUDA_POOL_PLACES };
// Places of the winners of W channels in one window.
template <int W> struct alignas(W) places_t {
    uint8_t at[W];
};

// Adds dy of the channels that `place` won. A zero elsewhere changes no sum, since none is -0.
template <typename R, typename T>
__device__ inline void add_won(const fy_operand &dy, int64_t offset, const places_t<R::n> &won,
                               uint32_t place, T *sum)
{
    if constexpr (R::n == 8) {
        uint32_t halves[4], bytes[2];
        const pack<uint16_t, 8> p = read_pack<uint16_t, 8>(dy, offset);
        memcpy(halves, &p, sizeof p);
        memcpy(bytes, &won, sizeof won);
        for (int i = 0; i < 4; i++) {
            // the high bit of each byte that is equal; then, twice each, all bits of two bytes
            const uint32_t equal = 0x80808080u - (bytes[i / 2] ^ place * 0x01010101u);
            float two[2];
            uint32_t mask;
            asm("prmt.b32 %0, %1, 0, %2;" : "=r"(mask) : "r"(equal), "r"(i % 2 ? 0xbbaa : 0x9988));
            widen_two<R::dtype>(halves[i] & mask, two);
            sum[2 * i] += two[0];
            sum[2 * i + 1] += two[1];
        }
    } else {
        T x[R::n];
        load_channels<R>(dy, offset, x);
        for (int i = 0; i < R::n; i++)
            if (won.at[i] == place) sum[i] += x[i];
    }
}

template <typename R, typename T>
__device__ inline places_t<R::n> winners(const fy_args &args, int64_t n, int oh, int ow, int64_t c)
{
    const fy_pool2d_attrs_t &a = args.attrs.pool2d;
    const fy_operand &x = args.src[1];
    const uint32_t first = (uint32_t)(oh * a.stride_h - a.padding_h) * (uint32_t)a.kernel_w +
                           (uint32_t)(ow * a.stride_w - a.padding_w);
    T best[R::n];
    uint32_t place[R::n];
    places_t<R::n> out;
    largest<R>(x, n, window(oh, a.stride_h, a.padding_h, a.kernel_h, x.dims[1]),
               window(ow, a.stride_w, a.padding_w, a.kernel_w, x.dims[2]), c, a.kernel_w, best,
               place);
    for (int i = 0; i < R::n; i++) out.at[i] = (uint8_t)(place[i] - first);
    if (a.activation == FY_ACTIVATION_RELU)
        for (int i = 0; i < R::n; i++)
            if (best[i] <= (T)0) out.at[i] = NO_PLACE;
    return out;
}

// A tile's pixels, the windows that have one of them, and groups of channels; it has args.count
// rows and columns of pixels, and the host chose them so that `places` holds the windows.
struct tile_t {
    int64_t n;
    range_t h, w, oh, ow;
    unsigned group, ngroups;
};

template <int W> __device__ inline tile_t tile_of(const fy_args &args, unsigned number)
{
    const fy_pool2d_attrs_t &a = args.attrs.pool2d;
    const fy_operand &d = args.dst[0], &s = args.src[0];
    const unsigned side = (unsigned)args.count, groups = (unsigned)d.dims[3] / W;
    const auto cut = [&](unsigned n, unsigned piece) {
        const unsigned pieces = (n + piece - 1) / piece, first = number % pieces * piece;
        number /= pieces;
        return range_t{ (int)first, (int)min(first + piece, n) };
    };
    tile_t t;
    const range_t g = cut(groups, FY__CUDA_POOL_GROUPS);
    t.group = g.first, t.ngroups = g.end - g.first;
    t.w = cut((unsigned)d.dims[2], side);
    t.h = cut((unsigned)d.dims[1], side);
    t.n = number;
    const auto rows = [&](int h) {
        return windows_of(h, a.stride_h, a.padding_h, a.kernel_h, s.dims[1]);
    };
    const auto columns = [&](int w) {
        return windows_of(w, a.stride_w, a.padding_w, a.kernel_w, s.dims[2]);
    };
    t.oh = { rows(t.h.first).first, rows(t.h.end - 1).end };
    t.ow = { columns(t.w.first).first, columns(t.w.end - 1).end };
    return t;
}

// The pixels of a tile. A thread keeps its column; neighbouring threads have columns with equal
// numbers of windows, which lie stride_w apart.
template <typename R, typename T>
__device__ inline void add_windows(const fy_args &args, const tile_t &t,
                                   const places_t<R::n> *places)
{
    const fy_pool2d_attrs_t &a = args.attrs.pool2d;
    const fy_operand &d = args.dst[0], &s = args.src[0];
    const unsigned width = t.w.end - t.w.first, step = min((unsigned)a.stride_w, width),
                   cells = (width + step - 1) / step, span = cells * step * t.ngroups;
    const unsigned group = threadIdx.x % t.ngroups,
                   order = threadIdx.x / t.ngroups % (cells * step), row = threadIdx.x / span,
                   at_once = FY__CUDA_BLOCK / span; // span < the block
    const int w = t.w.first + order % cells * step + order / cells;
    const int64_t c = (int64_t)(t.group + group) * R::n;
    if (w >= t.w.end || row >= at_once) return;
    const range_t columns = windows_of(w, a.stride_w, a.padding_w, a.kernel_w, s.dims[2]);
    const int from_left = w + a.padding_w - columns.first * a.stride_w;
    for (int h = t.h.first + row; h < t.h.end; h += at_once) {
        const range_t rows = windows_of(h, a.stride_h, a.padding_h, a.kernel_h, s.dims[1]);
        T sum[R::n];
        for (int i = 0; i < R::n; i++) sum[i] = 0;
        for (int oh = rows.first; oh < rows.end; oh++) {
            int place = (h + a.padding_h - oh * a.stride_h) * a.kernel_w + from_left,
                slot = (oh - t.oh.first) * (t.ow.end - t.ow.first) + columns.first - t.ow.first;
            int64_t from = at4(s, t.n, oh, columns.first, c);
            slot = slot * t.ngroups + group;
#pragma unroll 1
            for (int ow = columns.first; ow < columns.end; ow++) {
                add_won<R>(s, from, places[slot], (uint32_t)place, sum);
                place -= a.stride_w, slot += t.ngroups, from += s.strides[2];
            }
        }
        put_group<R::n>(args, at4(d, t.n, h, w, c), sum);
    }
}

template <typename R, typename T>
__device__ inline void max_backward(const fy_args &args, places_t<R::n> *places)
{
    for (unsigned number = blockIdx.x;; number += gridDim.x) {
        const tile_t t = tile_of<R::n>(args, number);
        if (t.n >= args.dst[0].dims[0]) return; // all threads of the block
        const unsigned across = max(0, t.ow.end - t.ow.first),
                       nwindows = max(0, t.oh.end - t.oh.first) * across;
        for (unsigned i = threadIdx.x; i < nwindows * t.ngroups; i += FY__CUDA_BLOCK) {
            const unsigned window = i / t.ngroups;
            places[i] = winners<R, T>(args, t.n, t.oh.first + window / across,
                                      t.ow.first + window % across,
                                      (int64_t)(t.group + i % t.ngroups) * R::n);
        }
        __syncthreads();
        add_windows<R, T>(args, t, places);
        __syncthreads(); // all have read the places
    }
}

// W: the most channels of a group.
template <typename T, int W> __device__ inline void max_backward_tiles(const fy_args &args)
{
    __shared__ alignas(W) uint8_t places[FY__CUDA_POOL_WINDOWS * FY__CUDA_POOL_GROUPS * W];
    by_channels(T(), args, [&](auto r) {
        max_backward<decltype(r), T>(args, (places_t<decltype(r)::n> *)places);
    });
}

// Three blocks a processor at least, which takes 80 registers a thread at most.
extern "C" __global__ void __launch_bounds__(FY__CUDA_BLOCK, 3) fy_pool2d_f32(FY_ARGS args)
{
    by_width(float(), args, [&](auto w) { pool2d<decltype(w)::n>(args, float()); });
}
FY_KERNEL fy_pool2d_f64(FY_ARGS args)
{
    by_width(double(), args, [&](auto w) { pool2d<decltype(w)::n>(args, double()); });
}
extern "C" __global__ void __launch_bounds__(FY__CUDA_BLOCK, 3) fy_pool2d_tiles_f32(FY_ARGS args)
{
    max_backward_tiles<float, 8>(args);
}
FY_KERNEL fy_pool2d_tiles_f64(FY_ARGS args) { max_backward_tiles<double, 2>(args); }

#define FY_MODULE_pool ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
