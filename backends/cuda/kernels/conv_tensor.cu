// conv2d and its gradients for dense f16 and bf16 operands on tensor cores: implicit matrix products as in conv_gemm.cu, 64 x 64 results and
// 32 deep a step; each of eight warps multiplies 16 x 32 of them in 16 x 16 x 16 fragments that add up in f32. Results are rounded once;
// partial sums of the weights' gradient stay f32. f16 needs compute capability 7.0, bf16 8.0: conv.c does not launch it below.
// Next: conv_tiles.cuh.
#include <mma.h>

#include "backends/cuda/kernels/conv_tiles.cuh"

enum { DEPTH = 32, ALONG_PITCH = DEPTH + 8, ACROSS_PITCH = SIDE + 8, SUM_PITCH = SIDE + 4, TILE = SIDE * ALONG_PITCH, FRAGMENT = 16 };
// load_matrix_sync wants 32-byte aligned fragments and rows in multiples of 16 bytes.
static_assert(ALONG_PITCH * 2 % 16 == 0 && ACROSS_PITCH * 2 % 16 == 0 && SUM_PITCH * 4 % 16 == 0, "");
static_assert(DEPTH * ACROSS_PITCH <= TILE, "");

namespace wmma = nvcuda::wmma;

// A tile lies in shared memory as its pieces come: [side][DEPTH] along the sum, [DEPTH][side] across it.
template <typename Loader> __device__ inline void keep(uint16_t *tile, const piece_t<uint16_t> &p, int thread)
{
    if (Loader::ALONG)
        write_piece(tile + thread / 4 * ALONG_PITCH + thread % 4 * 8, p);
    else
        write_piece(tile + depth_of<uint16_t>(thread) * ACROSS_PITCH + side_of<uint16_t>(thread), p);
}

template <typename Loader> __device__ inline int pitch_of() { return Loader::ALONG ? ALONG_PITCH : ACROSS_PITCH; }
template <typename Loader> __device__ inline int place_of(int side, int k)
{
    return Loader::ALONG ? side * ALONG_PITCH + k : k * ACROSS_PITCH + side;
}

template <bool B> struct order_t {
    using left = wmma::row_major;
    using right = wmma::col_major;
};
template <> struct order_t<false> {
    using left = wmma::col_major;
    using right = wmma::row_major;
};

// One step: this warp's 16 x 32 results += left[16 x DEPTH] right[DEPTH x 32].
template <typename H, typename Left, typename Right, typename Sum>
__device__ inline void multiply(const uint16_t *left_tile, const uint16_t *right_tile, int row, int col, Sum *sums)
{
    wmma::fragment<wmma::matrix_a, FRAGMENT, FRAGMENT, FRAGMENT, H, typename order_t<Left::ALONG != 0>::left> a;
    wmma::fragment<wmma::matrix_b, FRAGMENT, FRAGMENT, FRAGMENT, H, typename order_t<Right::ALONG != 0>::right> b;
    for (int k = 0; k < DEPTH; k += FRAGMENT) {
        wmma::load_matrix_sync(a, (const H *)left_tile + place_of<Left>(row, k), (unsigned)pitch_of<Left>());
        for (int i = 0; i < 2; i++) {
            wmma::load_matrix_sync(b, (const H *)right_tile + place_of<Right>(col + i * FRAGMENT, k), (unsigned)pitch_of<Right>());
            wmma::mma_sync(sums[i], a, b, sums[i]);
        }
    }
}

// A thread finishes 16 neighbours of one row: two pieces of halves.
template <product_t P>
__device__ inline void write_results(const fy_args &args, const shape_t &s, const extent_t<P> &e, const tile_t<P> &tile, const float *sums,
                                     int thread)
{
    const int origin = tile.origin(s), pitch = tile.pitch(s), row = tile.row0 + thread / 4;
    if (row >= e.rows) return;
    for (int part = 0; part < 2; part++) {
        const int within = thread % 4 * 16 + part * 8, col = tile.col0 + within;
        const int64_t at = (int64_t)origin + row * pitch + col;
        const bool half = args.dst[0].dtype != FY_DTYPE_F32;
        piece_t<uint16_t> p;
        float x[8];
        for (int i = 0; i < 8; i++)
            x[i] = col + i < e.cols ? finish<P>(args, s, tile.group, col + i, sums[thread / 4 * SUM_PITCH + within + i]) : 0.0f;
        if (half && !args.accumulate && col + 7 < e.cols && pitch % 8 == 0 && origin % 8 == 0 && args.dst[0].data % 16 == 0) {
            for (int i = 0; i < 8; i++) p.v[i] = args.dst[0].dtype == FY_DTYPE_F16 ? fy__f16_from_f32(x[i]) : fy__bf16_from_f32(x[i]);
            write_piece((uint16_t *)(uintptr_t)args.dst[0].data + at, p);
        } else {
            for (int i = 0; i < 8 && col + i < e.cols; i++) put(args, at + i, x[i]);
        }
    }
}

template <typename H, product_t P>
__device__ inline void conv_tensor(const fy_args &args, uint16_t *left_tile, uint16_t *right_tile, float *results)
{
    using left_t = typename loaders_t<uint16_t, P>::left;
    using right_t = typename loaders_t<uint16_t, P>::right;
    const shape_t s = shape_of<P>(args);
    const extent_t<P> e(s);
    const int thread = (int)(threadIdx.y * FY__CUDA_TILE + threadIdx.x), warp = thread / 32;
    const int row = warp / 2 * FRAGMENT, col = warp % 2 * 2 * FRAGMENT;
    const unsigned ntiles = tile_t<P>::count(args, s, e);
    for (unsigned number = blockIdx.x; number < ntiles; number += gridDim.x) {
        const tile_t<P> tile(args, s, e, number);
        left_t left(args, s, tile.group, tile.row0, e.rows, tile.begin, thread);
        right_t right(args, s, tile.group, tile.col0, e.cols, tile.begin, thread);
        wmma::fragment<wmma::accumulator, FRAGMENT, FRAGMENT, FRAGMENT, float> sums[2];
        for (int i = 0; i < 2; i++) wmma::fill_fragment(sums[i], 0.0f);
        piece_t<uint16_t> a = left.next(s, tile.end), b = right.next(s, tile.end);
        for (int begin = tile.begin; begin < tile.end; begin += DEPTH) {
            __syncthreads(); // the step before, or the tile before, has been read
            keep<left_t>(left_tile, a, thread);
            keep<right_t>(right_tile, b, thread);
            __syncthreads();
            if (begin + DEPTH < tile.end) {
                a = left.next(s, tile.end);
                b = right.next(s, tile.end);
            }
            multiply<H, left_t, right_t>(left_tile, right_tile, row, col, sums);
        }
        for (int i = 0; i < 2; i++)
            wmma::store_matrix_sync(results + row * SUM_PITCH + col + i * FRAGMENT, sums[i], SUM_PITCH, wmma::mem_row_major);
        __syncthreads();
        write_results<P>(args, s, e, tile, results, thread);
        __syncthreads();
    }
}

template <typename H> __device__ inline void conv_tensor_any(const fy_args &args, uint16_t *left, uint16_t *right, float *results)
{
    switch (args.op) {
    case FY_OP_CONV2D: conv_tensor<H, FORWARD>(args, left, right, results); break;
    case FY_OP_CONV2D_BACKWARD_INPUT: conv_tensor<H, INPUT>(args, left, right, results); break;
    default: conv_tensor<H, WEIGHT>(args, left, right, results); break;
    }
}

FY_KERNEL fy_conv2d_tensor_f16(FY_ARGS args)
{
    alignas(32) __shared__ uint16_t left[TILE], right[TILE];
    alignas(32) __shared__ float results[SIDE * SUM_PITCH];
    conv_tensor_any<__half>(args, left, right, results);
}
FY_KERNEL fy_conv2d_tensor_bf16(FY_ARGS args)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    alignas(32) __shared__ uint16_t left[TILE], right[TILE];
    alignas(32) __shared__ float results[SIDE * SUM_PITCH];
    conv_tensor_any<__nv_bfloat16>(args, left, right, results);
#endif
}

FY_KERNEL_EXISTS(fy_conv2d_tensor_f16)
FY_KERNEL_EXISTS(fy_conv2d_tensor_bf16)
