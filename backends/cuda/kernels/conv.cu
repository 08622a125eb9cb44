// conv2d and its gradients as implicit matrix products: no image is unfolded in memory, the index
// of a row or column of the product says
// which element to read. Shared-memory tiles as in matmul.cu, any strides, every float dtype;
// correct first.
//   conv2d           y[pixel, o]      = sum over (kh, kw, c)      x[...] * w[o, kh, kw, c]
//   backward_input   dx[pixel, c]     = sum over (kh, kw, o)      dy[...] * w[o, kh, kw, c]
//   backward_weight  dw[o, (kh,kw,c)] = sum over (n, oh, ow)      dy[n, oh, ow, o] * x[...]
// dst[0] is the result, src as in the launch. Each of these once for a group; tiles are numbered
// group by group.
#include "backends/cuda/kernels/common.cuh"

struct shape_t {
    const fy_operand *x, *w, *y;
    int64_t groups, cg, og; // channels of x and of y in a group
};

__device__ inline shape_t shape_of(const fy_args &args)
{
    shape_t s;
    const bool forward = args.op == FY_OP_CONV2D, weight = args.op == FY_OP_CONV2D_BACKWARD_WEIGHT;
    s.x = forward ? &args.src[0] : weight ? &args.src[1] : &args.dst[0];
    s.w = weight ? &args.dst[0] : &args.src[1];
    s.y = forward ? &args.dst[0] : &args.src[0];
    s.groups = args.attrs.conv2d.groups;
    s.cg = s.x->dims[3] / s.groups;
    s.og = s.y->dims[3] / s.groups;
    return s;
}

// The element of x under place (kh, kw) of the window of pixel (oh, ow); 0 outside the image.
template <typename T>
__device__ inline T under(const fy_args &args, const shape_t &s, int64_t n, int64_t oh, int64_t ow,
                          int64_t kh, int64_t kw, int64_t c)
{
    const fy_conv2d_attrs_t &a = args.attrs.conv2d;
    const int64_t h = oh * a.stride_h - a.padding_h + kh * a.dilation_h,
                  w = ow * a.stride_w - a.padding_w + kw * a.dilation_w;
    if (h < 0 || h >= s.x->dims[1] || w < 0 || w >= s.x->dims[2]) return (T)0;
    return load<T>(*s.x, at4(*s.x, n, h, w, c));
}

// The element of dy whose window has pixel (h, w) of x in place (kh, kw); 0 if there is none.
template <typename T>
__device__ inline T over(const fy_args &args, const shape_t &s, int64_t n, int64_t h, int64_t w,
                         int64_t kh, int64_t kw, int64_t o)
{
    const fy_conv2d_attrs_t &a = args.attrs.conv2d;
    const int64_t y = h + a.padding_h - kh * a.dilation_h, x = w + a.padding_w - kw * a.dilation_w;
    if (y < 0 || x < 0 || y % a.stride_h != 0 || x % a.stride_w != 0) return (T)0;
    if (y / a.stride_h >= s.y->dims[1] || x / a.stride_w >= s.y->dims[2]) return (T)0;
    return load<T>(*s.y, at4(*s.y, n, y / a.stride_h, x / a.stride_w, o));
}

// `linear` split by three dims, the last one fastest: the rest, then the three.
struct places_t {
    int64_t i[4];
};
__device__ inline places_t places(const fy_args &args, int64_t linear, int64_t d1, int64_t d2,
                                  int64_t d3)
{
    places_t p;
    uint64_t rest = (uint64_t)linear;
    p.i[3] = (int64_t)split(rest, d3, args.flags);
    p.i[2] = (int64_t)split(rest, d2, args.flags);
    p.i[1] = (int64_t)split(rest, d1, args.flags);
    p.i[0] = (int64_t)rest;
    return p;
}

// The three products: element (row, k) of the left matrix, (k, col) of the right one, and where
// (row, col) of the result lies.
template <typename T>
__device__ inline T left(const fy_args &args, const shape_t &s, int64_t group, int64_t row,
                         int64_t k)
{
    if (args.op == FY_OP_CONV2D_BACKWARD_WEIGHT) {
        const places_t p = places(args, k, s.y->dims[0], s.y->dims[1], s.y->dims[2]);
        return load<T>(*s.y, at4(*s.y, p.i[1], p.i[2], p.i[3], group * s.og + row));
    }
    const bool forward = args.op == FY_OP_CONV2D;
    const fy_operand &image = forward ? *s.y : *s.x;
    const places_t pixel = places(args, row, image.dims[0], image.dims[1], image.dims[2]);
    const places_t at = places(args, k, s.w->dims[1], s.w->dims[2], forward ? s.cg : s.og);
    if (forward)
        return under<T>(args, s, pixel.i[1], pixel.i[2], pixel.i[3], at.i[1], at.i[2],
                        group * s.cg + at.i[3]);
    return over<T>(args, s, pixel.i[1], pixel.i[2], pixel.i[3], at.i[1], at.i[2],
                   group * s.og + at.i[3]);
}

template <typename T>
__device__ inline T right(const fy_args &args, const shape_t &s, int64_t group, int64_t k,
                          int64_t col)
{
    if (args.op == FY_OP_CONV2D_BACKWARD_WEIGHT) {
        const places_t pixel = places(args, k, s.y->dims[0], s.y->dims[1], s.y->dims[2]);
        const places_t at = places(args, col, s.w->dims[1], s.w->dims[2], s.cg);
        return under<T>(args, s, pixel.i[1], pixel.i[2], pixel.i[3], at.i[1], at.i[2],
                        group * s.cg + at.i[3]);
    }
    const bool forward = args.op == FY_OP_CONV2D;
    const places_t at = places(args, k, s.w->dims[1], s.w->dims[2], forward ? s.cg : s.og);
    if (forward) return load<T>(*s.w, at4(*s.w, group * s.og + col, at.i[1], at.i[2], at.i[3]));
    return load<T>(*s.w, at4(*s.w, group * s.og + at.i[3], at.i[1], at.i[2], col));
}

__device__ inline int64_t result_at(const fy_args &args, const shape_t &s, int64_t group,
                                    int64_t row, int64_t col)
{
    const fy_operand &d = args.dst[0];
    if (args.op == FY_OP_CONV2D_BACKWARD_WEIGHT) {
        const places_t at = places(args, col, d.dims[1], d.dims[2], s.cg);
        return at4(d, group * s.og + row, at.i[1], at.i[2], at.i[3]);
    }
    const places_t pixel = places(args, row, d.dims[0], d.dims[1], d.dims[2]);
    return at4(d, pixel.i[1], pixel.i[2], pixel.i[3],
               group * (args.op == FY_OP_CONV2D ? s.og : s.cg) + col);
}

template <typename T>
__device__ inline void conv2d(const fy_args &args, T (*tile_a)[FY__CUDA_TILE + 1],
                              T (*tile_b)[FY__CUDA_TILE + 1])
{
    const shape_t s = shape_of(args);
    const fy_operand &d = args.dst[0];
    const bool weight = args.op == FY_OP_CONV2D_BACKWARD_WEIGHT, forward = args.op == FY_OP_CONV2D;
    const int64_t kernel = s.w->dims[1] * s.w->dims[2], pixels = d.dims[0] * d.dims[1] * d.dims[2];
    const int64_t m = weight ? s.og : pixels, n = weight ? kernel * s.cg : forward ? s.og : s.cg;
    const int64_t depth = weight ? s.y->dims[0] * s.y->dims[1] * s.y->dims[2]
                                 : kernel * (forward ? s.cg : s.og);
    const uint64_t tiles_m = (m + FY__CUDA_TILE - 1) / FY__CUDA_TILE,
                   tiles_n = (n + FY__CUDA_TILE - 1) / FY__CUDA_TILE;
    const int x = threadIdx.x, y = threadIdx.y;
    for (uint64_t tile = blockIdx.x; tile < tiles_m * tiles_n * (uint64_t)s.groups;
         tile += gridDim.x) {
        const int64_t group = (int64_t)(tile / (tiles_m * tiles_n));
        const uint64_t within = tile % (tiles_m * tiles_n);
        const int64_t row = (int64_t)(within / tiles_n) * FY__CUDA_TILE + y,
                      col = (int64_t)(within % tiles_n) * FY__CUDA_TILE + x;
        T sum = 0;
        for (int64_t begin = 0; begin < depth; begin += FY__CUDA_TILE) {
            tile_a[y][x] = row < m && begin + x < depth ? left<T>(args, s, group, row, begin + x)
                                                        : (T)0;
            tile_b[y][x] = begin + y < depth && col < n ? right<T>(args, s, group, begin + y, col)
                                                        : (T)0;
            __syncthreads();
            for (int i = 0; i < FY__CUDA_TILE; i++) sum += tile_a[y][i] * tile_b[i][x];
            __syncthreads();
        }
        if (row < m && col < n) {
            if (forward && args.nsrc == 3)
                sum += load<T>(args.src[2], (group * s.og + col) * args.src[2].strides[0]);
            if (forward && args.attrs.conv2d.activation == FY_ACTIVATION_RELU && sum < (T)0)
                sum = 0; // NaN stays
            put(args, result_at(args, s, group, row, col), sum);
        }
    }
}

FY_KERNEL fy_conv2d_f32(FY_ARGS args)
{
    __shared__ float tile_a[FY__CUDA_TILE][FY__CUDA_TILE + 1],
        tile_b[FY__CUDA_TILE][FY__CUDA_TILE + 1];
    conv2d<float>(args, tile_a, tile_b);
}
FY_KERNEL fy_conv2d_f64(FY_ARGS args)
{
    __shared__ double tile_a[FY__CUDA_TILE][FY__CUDA_TILE + 1],
        tile_b[FY__CUDA_TILE][FY__CUDA_TILE + 1];
    conv2d<double>(args, tile_a, tile_b);
}

#define FY_MODULE_conv ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
