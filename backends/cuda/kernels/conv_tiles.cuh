// What the tiled convolutions share (conv_gemm.cu, conv_tensor.cu): the three products' sizes, and
// who loads which piece of them. A piece is
// 16 or 32 bytes of neighbouring elements in memory; where channels come in multiples of a piece,
// it is one or two 16-byte accesses.
// conv2d           y[pixel, o]       = x[under (pixel, kh, kw), c] w[o, (kh, kw, c)]    pieces of
// both along the sum
// backward_input   dx[pixel, c]      = dy[over (pixel, kh, kw), o] w[o, kh, kw, c]      dy along
// the sum, w along the columns
// backward_weight  dw[o, (kh,kw,c)]  = dy[pixel, o] x[under (pixel, kh, kw), c]         both across
// the sum
// All operands are dense and all counts fit 31 bits (conv.c sees to it). Places in the sum are
// walked, not divided out.
#ifndef FERRY_BACKENDS_CUDA_KERNELS_CONV_TILES_CUH_
#define FERRY_BACKENDS_CUDA_KERNELS_CONV_TILES_CUH_

#include "backends/cuda/kernels/common.cuh"

enum { SIDE = 64, THREADS = FY__CUDA_TILE * FY__CUDA_TILE }; // a tile of the result is SIDE x SIDE
enum product_t { FORWARD, INPUT, WEIGHT };

template <typename E> struct alignas(16) piece_t {
    enum { COUNT = sizeof(E) == 2 ? 8 : 4 };
    E v[COUNT];
};

template <typename E> __device__ inline piece_t<E> zero_piece()
{
    piece_t<E> p;
    for (int i = 0; i < piece_t<E>::COUNT; i++) p.v[i] = (E)0;
    return p;
}
template <typename E> __device__ inline piece_t<E> read_piece(const E *from)
{
    piece_t<E> p;
    for (int i = 0; i < (int)(sizeof p / 16); i++) ((uint4 *)p.v)[i] = ((const uint4 *)from)[i];
    return p;
}
template <typename E> __device__ inline void write_piece(E *to, const piece_t<E> &p)
{
    for (int i = 0; i < (int)(sizeof p / 16); i++) ((uint4 *)to)[i] = ((const uint4 *)p.v)[i];
}

// The convolution in 32-bit numbers.
struct shape_t {
    int n, h, w, c, oh, ow, o, kh, kw, cg, og, groups;
    int stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
};
template <product_t P> __device__ inline shape_t shape_of(const fy_args &args)
{
    const fy_conv2d_attrs_t &a = args.attrs.conv2d;
    const fy_operand &x = P == FORWARD ? args.src[0] : P == WEIGHT ? args.src[1] : args.dst[0];
    const fy_operand &w = P == WEIGHT ? args.dst[0] : args.src[1],
                     &y = P == FORWARD ? args.dst[0] : args.src[0];
    const int first = P == WEIGHT ? w.rank - 4 : 0; // partial sums have an axis in front
    shape_t s;
    s.n = (int)x.dims[0], s.h = (int)x.dims[1], s.w = (int)x.dims[2], s.c = (int)x.dims[3];
    s.oh = (int)y.dims[1], s.ow = (int)y.dims[2], s.o = (int)y.dims[3];
    s.kh = (int)w.dims[first + 1], s.kw = (int)w.dims[first + 2];
    s.groups = a.groups, s.cg = s.c / s.groups, s.og = s.o / s.groups;
    s.stride_h = a.stride_h, s.stride_w = a.stride_w, s.padding_h = a.padding_h,
    s.padding_w = a.padding_w;
    s.dilation_h = a.dilation_h, s.dilation_w = a.dilation_w;
    return s;
}

// A place on three axes, the last one fastest; the first has no end.
struct walk_t {
    int i0, i1, i2;
};
__device__ inline walk_t walk_to(int linear, int d1, int d2)
{
    walk_t at;
    at.i2 = linear % d2;
    at.i1 = linear / d2 % d1;
    at.i0 = linear / d2 / d1;
    return at;
}
__device__ inline void walk_on(walk_t &at, int step, int d1, int d2)
{
    at.i2 += step;
    while (at.i2 >= d2) {
        at.i2 -= d2;
        if (++at.i1 == d1) {
            at.i1 = 0;
            at.i0++;
        }
    }
}

// Number of the pixel of x under place (kh, kw) of the window that begins at (h, w); -1 outside the
// image.
__device__ inline int under(const shape_t &s, int n, int h, int w, int kh, int kw)
{
    h += kh * s.dilation_h;
    w += kw * s.dilation_w;
    return (unsigned)h < (unsigned)s.h && (unsigned)w < (unsigned)s.w ? (n * s.h + h) * s.w + w
                                                                      : -1;
}

// Number of the pixel of y whose window has pixel (h, w) - padding of x in place (kh, kw); -1 if
// there is none.
__device__ inline int over(const shape_t &s, int n, int h, int w, int kh, int kw)
{
    h -= kh * s.dilation_h;
    w -= kw * s.dilation_w;
    if (h < 0 || w < 0) return -1;
    const int y = s.stride_h == 1 ? h : h / s.stride_h, x = s.stride_w == 1 ? w : w / s.stride_w;
    return y < s.oh && x < s.ow && y * s.stride_h == h && x * s.stride_w == w
               ? (n * s.oh + y) * s.ow + x
               : -1;
}

// Rows, columns and sum of one group's product.
template <product_t P> struct extent_t {
    int rows, cols, sum;
    __device__ inline explicit extent_t(const shape_t &s)
    {
        rows = P == FORWARD ? s.n * s.oh * s.ow : P == INPUT ? s.n * s.h * s.w : s.og;
        cols = P == FORWARD ? s.og : P == INPUT ? s.cg : s.kh * s.kw * s.cg;
        sum = P == FORWARD ? s.kh * s.kw * s.cg
              : P == INPUT ? s.kh * s.kw * s.og
                           : s.n * s.oh * s.ow;
    }
};

// ---- loaders: one piece a thread and step. `k` is the piece's place in the sum, `end` where the
// sum ends ----

// conv2d, backward_input, left: row = a pixel of the result; pieces along (kh, kw, channel).
template <typename E, product_t P> struct image_loader_t {
    enum { DEPTH = 4 * piece_t<E>::COUNT, ALONG = 1 };
    const E *image;
    walk_t at; // kh, kw, channel
    int n, h, w, k;
    bool inside, whole;
    __device__ inline image_loader_t(const fy_args &args, const shape_t &s, int group, int row0,
                                     int rows, int begin, int thread)
    {
        const int row = row0 + thread / 4, channels = P == FORWARD ? s.cg : s.og;
        const walk_t pixel = P == FORWARD ? walk_to(row, s.oh, s.ow) : walk_to(row, s.h, s.w);
        image = (const E *)(uintptr_t)args.src[0].data + group * channels;
        k = begin + thread % 4 * piece_t<E>::COUNT;
        at = walk_to(k, s.kw, channels);
        n = pixel.i0;
        h = P == FORWARD ? pixel.i1 * s.stride_h - s.padding_h : pixel.i1 + s.padding_h;
        w = P == FORWARD ? pixel.i2 * s.stride_w - s.padding_w : pixel.i2 + s.padding_w;
        inside = row < rows;
        whole = channels % piece_t<E>::COUNT == 0 && args.src[0].data % 16 == 0;
    }
    __device__ inline int pixel_at(const shape_t &s, const walk_t &p) const
    {
        return P == FORWARD ? under(s, n, h, w, p.i0, p.i1) : over(s, n, h, w, p.i0, p.i1);
    }
    __device__ inline piece_t<E> next(const shape_t &s, int end)
    {
        const int all = P == FORWARD ? s.c : s.o, channels = P == FORWARD ? s.cg : s.og;
        piece_t<E> p = zero_piece<E>();
        if (inside && k < end) {
            if (whole) {
                const int pixel = pixel_at(s, at);
                if (pixel >= 0) p = read_piece(image + pixel * all + at.i2);
            } else {
                walk_t one = at;
                for (int i = 0; i < piece_t<E>::COUNT; i++) {
                    const int pixel = k + i < end ? pixel_at(s, one) : -1;
                    if (pixel >= 0) p.v[i] = image[pixel * all + one.i2];
                    walk_on(one, 1, s.kw, channels);
                }
            }
        }
        k += DEPTH;
        walk_on(at, DEPTH, s.kw, channels);
        return p;
    }
};

// conv2d, right: column = an output channel, whose weights lie one after the other.
template <typename E> struct filter_loader_t {
    enum { DEPTH = 4 * piece_t<E>::COUNT, ALONG = 1 };
    const E *line;
    int k;
    bool inside, whole;
    __device__ inline filter_loader_t(const fy_args &args, const shape_t &s, int group, int col0,
                                      int cols, int begin, int thread)
    {
        const int col = col0 + thread / 4, sum = s.kh * s.kw * s.cg;
        line = (const E *)(uintptr_t)args.src[1].data + (group * s.og + col) * sum;
        k = begin + thread % 4 * piece_t<E>::COUNT;
        inside = col < cols;
        whole = sum % piece_t<E>::COUNT == 0 && args.src[1].data % 16 == 0;
    }
    __device__ inline piece_t<E> next(const shape_t &, int end)
    {
        piece_t<E> p = zero_piece<E>();
        if (inside && whole && k < end)
            p = read_piece(line + k);
        else if (inside)
            for (int i = 0; i < piece_t<E>::COUNT; i++)
                if (k + i < end) p.v[i] = line[k + i];
        k += DEPTH;
        return p;
    }
};

// A loader across the sum: a thread has a separate position in the sum and a piece of the side.
template <typename E> __device__ inline int side_of(int thread)
{
    return thread % (SIDE / piece_t<E>::COUNT) * piece_t<E>::COUNT;
}
template <typename E> __device__ inline int depth_of(int thread)
{
    return thread / (SIDE / piece_t<E>::COUNT);
}

// backward_input, right: pieces along the channels of w[o, kh, kw, :], the sum goes over (kh, kw,
// o).
template <typename E> struct filter_across_t {
    enum { DEPTH = 4 * piece_t<E>::COUNT, ALONG = 0 };
    const E *filter;
    walk_t at; // 0, kh * kw, o
    int k, col, left;
    bool whole;
    __device__ inline filter_across_t(const fy_args &args, const shape_t &s, int group, int col0,
                                      int cols, int begin, int thread)
    {
        col = col0 + side_of<E>(thread);
        left = cols - col;
        filter = (const E *)(uintptr_t)args.src[1].data + group * s.og * s.kh * s.kw * s.cg + col;
        k = begin + depth_of<E>(thread);
        at = walk_to(k, s.kh * s.kw, s.og);
        whole = s.cg % piece_t<E>::COUNT == 0 && args.src[1].data % 16 == 0;
    }
    __device__ inline piece_t<E> next(const shape_t &s, int end)
    {
        const E *from = filter + (at.i2 * s.kh * s.kw + at.i1) * s.cg;
        piece_t<E> p = zero_piece<E>();
        if (k < end && left > 0) {
            if (whole)
                p = read_piece(from);
            else
                for (int i = 0; i < piece_t<E>::COUNT; i++)
                    if (i < left) p.v[i] = from[i];
        }
        k += DEPTH;
        walk_on(at, DEPTH, s.kh * s.kw, s.og);
        return p;
    }
};

// backward_weight, left: pieces along the channels of dy, the sum goes over its pixels.
template <typename E> struct slope_across_t {
    enum { DEPTH = 4 * piece_t<E>::COUNT, ALONG = 0 };
    const E *slope;
    int k, left;
    bool whole;
    __device__ inline slope_across_t(const fy_args &args, const shape_t &s, int group, int row0,
                                     int rows, int begin, int thread)
    {
        const int row = row0 + side_of<E>(thread);
        left = rows - row;
        slope = (const E *)(uintptr_t)args.src[0].data + group * s.og + row;
        k = begin + depth_of<E>(thread);
        whole = s.og % piece_t<E>::COUNT == 0 && args.src[0].data % 16 == 0;
    }
    __device__ inline piece_t<E> next(const shape_t &s, int end)
    {
        const E *from = slope + k * s.o;
        piece_t<E> p = zero_piece<E>();
        if (k < end && left > 0) {
            if (whole)
                p = read_piece(from);
            else
                for (int i = 0; i < piece_t<E>::COUNT; i++)
                    if (i < left) p.v[i] = from[i];
        }
        k += DEPTH;
        return p;
    }
};

// backward_weight, right: pieces along the columns (kh, kw, c) of x's windows, the sum goes over
// the pixels of dy.
template <typename E> struct image_across_t {
    enum { DEPTH = 4 * piece_t<E>::COUNT, ALONG = 0 };
    const E *image;
    walk_t at, column; // n, oh, ow; kh, kw, c
    int k, left;
    bool whole;
    __device__ inline image_across_t(const fy_args &args, const shape_t &s, int group, int col0,
                                     int cols, int begin, int thread)
    {
        const int col = col0 + side_of<E>(thread);
        left = cols - col;
        column = walk_to(col, s.kw, s.cg);
        image = (const E *)(uintptr_t)args.src[1].data + group * s.cg;
        k = begin + depth_of<E>(thread);
        at = walk_to(k, s.oh, s.ow);
        whole = s.cg % piece_t<E>::COUNT == 0 && args.src[1].data % 16 == 0;
    }
    __device__ inline piece_t<E> next(const shape_t &s, int end)
    {
        const int h = at.i1 * s.stride_h - s.padding_h, w = at.i2 * s.stride_w - s.padding_w;
        piece_t<E> p = zero_piece<E>();
        if (k < end && left > 0) {
            walk_t one = column;
            if (whole) {
                const int pixel = under(s, at.i0, h, w, one.i0, one.i1);
                if (pixel >= 0) p = read_piece(image + pixel * s.c + one.i2);
            } else {
                for (int i = 0; i < piece_t<E>::COUNT; i++) {
                    const int pixel = i < left ? under(s, at.i0, h, w, one.i0, one.i1) : -1;
                    if (pixel >= 0) p.v[i] = image[pixel * s.c + one.i2];
                    walk_on(one, 1, s.kw, s.cg);
                }
            }
        }
        k += DEPTH;
        walk_on(at, DEPTH, s.oh, s.ow);
        return p;
    }
};

template <typename E, product_t P> struct loaders_t {
    using left = image_loader_t<E, P>;
    using right = filter_loader_t<E>;
};
template <typename E> struct loaders_t<E, INPUT> {
    using left = image_loader_t<E, INPUT>;
    using right = filter_across_t<E>;
};
template <typename E> struct loaders_t<E, WEIGHT> {
    using left = slope_across_t<E>;
    using right = image_across_t<E>;
};

// ---- which tile, and where its results go ----

// Tiles are numbered slice by slice, group by group. A slice is a run of images: slice i of `n` has
// images N i / n .. N (i + 1) / n.
template <product_t P> struct tile_t {
    int slice, group, row0, col0, begin, end;
    __device__ inline tile_t(const fy_args &args, const shape_t &s, const extent_t<P> &e,
                             unsigned number)
    {
        const unsigned across = (unsigned)(e.cols + SIDE - 1) / SIDE,
                       down = (unsigned)(e.rows + SIDE - 1) / SIDE;
        const int slices = P == WEIGHT && args.dst[0].rank == 5 ? (int)args.dst[0].dims[0] : 1;
        col0 = (int)(number % across) * SIDE;
        number /= across;
        row0 = (int)(number % down) * SIDE;
        number /= down;
        group = (int)(number % (unsigned)s.groups);
        slice = (int)(number / (unsigned)s.groups);
        begin = 0;
        end = e.sum;
        if (slices > 1) {
            begin = (int)((int64_t)s.n * slice / slices) * s.oh * s.ow;
            end = (int)((int64_t)s.n * (slice + 1) / slices) * s.oh * s.ow;
        }
    }
    __device__ static inline unsigned count(const fy_args &args, const shape_t &s,
                                            const extent_t<P> &e)
    {
        const int slices = P == WEIGHT && args.dst[0].rank == 5 ? (int)args.dst[0].dims[0] : 1;
        return (unsigned)((e.cols + SIDE - 1) / SIDE) * (unsigned)((e.rows + SIDE - 1) / SIDE) *
               (unsigned)(s.groups * slices);
    }
    // Where row 0, column 0 of the group's product lies in dst[0], and the step from a row to the
    // next.
    __device__ inline int origin(const shape_t &s) const
    {
        const int filters = s.kh * s.kw * s.cg;
        return P == FORWARD ? group * s.og
               : P == INPUT ? group * s.cg
                            : (slice * s.o + group * s.og) * filters;
    }
    __device__ static inline int pitch(const shape_t &s)
    {
        return P == FORWARD ? s.o : P == INPUT ? s.c : s.kh * s.kw * s.cg;
    }
};

// What conv2d adds and applies.
template <product_t P, typename T>
__device__ inline T finish(const fy_args &args, const shape_t &s, int group, int col, T sum)
{
    if (P != FORWARD) return sum;
    if (args.nsrc == 3)
        sum += load<T>(args.src[2], (int64_t)(group * s.og + col) * args.src[2].strides[0]);
    if (args.attrs.conv2d.activation == FY_ACTIVATION_RELU && sum < (T)0) sum = 0; // NaN stays
    return sum;
}

#endif
