// conv2d and its gradients for dense f32 and f64 operands: implicit matrix products of 64 x 64
// tiles, 16 deep, in shared memory; a thread
// makes 4 x 4 results in registers and reads the next pieces while it multiplies. No image is
// unfolded, nothing is written but results.
// The sum runs over (kh, kw, channel), or over pixels for the weights' gradient, always in the same
// order: same launch, same bits.
// Next: conv_tiles.cuh for the factors of the product; conv_tensor.cu for f16 and bf16; conv.cu for
// any strides.
#include "backends/cuda/kernels/conv_tiles.cuh"

enum { DEPTH = 16, PITCH = SIDE + 4 };

// Shared tiles have the sum as their first axis: [DEPTH][PITCH].
template <typename Loader, typename T>
__device__ inline void keep(T *tile, const piece_t<T> &p, int thread)
{
    if (Loader::ALONG)
        for (int i = 0; i < piece_t<T>::COUNT; i++)
            tile[(thread % 4 * piece_t<T>::COUNT + i) * PITCH + thread / 4] = p.v[i];
    else
        write_piece(tile + depth_of<T>(thread) * PITCH + side_of<T>(thread), p);
}

template <typename T, product_t P>
__device__ inline void write_results(const fy_args &args, const shape_t &s, const extent_t<P> &e,
                                     const tile_t<P> &tile, int row0, int col0, const T (*sums)[4])
{
    const int origin = tile.origin(s), pitch = tile.pitch(s);
    T *dst = (T *)(uintptr_t)args.dst[0].data + origin;
    const bool whole = col0 + 3 < e.cols && pitch % 4 == 0 && origin % 4 == 0 &&
                       args.dst[0].data % 16 == 0;
    for (int i = 0; i < 4 && row0 + i < e.rows; i++) {
        T *line = dst + (row0 + i) * pitch + col0;
        piece_t<T> p;
        for (int j = 0; j < 4; j++)
            p.v[j] = col0 + j < e.cols ? finish<P>(args, s, tile.group, col0 + j, sums[i][j])
                                       : (T)0;
        if (whole) {
            if (args.accumulate) {
                const piece_t<T> old = read_piece(line);
                for (int j = 0; j < 4; j++) p.v[j] += old.v[j];
            }
            write_piece(line, p);
        } else {
            for (int j = 0; j < 4 && col0 + j < e.cols; j++)
                line[j] = args.accumulate ? line[j] + p.v[j] : p.v[j];
        }
    }
}

template <typename T, product_t P>
__device__ inline void conv_gemm(const fy_args &args, T *left_tile, T *right_tile)
{
    const shape_t s = shape_of<P>(args);
    const extent_t<P> e(s);
    const int thread = (int)(threadIdx.y * FY__CUDA_TILE + threadIdx.x);
    const int row = (int)threadIdx.y * 4,
              col = (int)threadIdx.x * 4; // of this thread's results in the tile
    const unsigned ntiles = tile_t<P>::count(args, s, e);
    for (unsigned number = blockIdx.x; number < ntiles; number += gridDim.x) {
        const tile_t<P> tile(args, s, e, number);
        typename loaders_t<T, P>::left left(args, s, tile.group, tile.row0, e.rows, tile.begin,
                                            thread);
        typename loaders_t<T, P>::right right(args, s, tile.group, tile.col0, e.cols, tile.begin,
                                              thread);
        T sums[4][4] = {};
        piece_t<T> a = left.next(s, tile.end), b = right.next(s, tile.end);
        for (int begin = tile.begin; begin < tile.end; begin += DEPTH) {
            __syncthreads(); // the step before has read the tiles
            keep<typename loaders_t<T, P>::left>(left_tile, a, thread);
            keep<typename loaders_t<T, P>::right>(right_tile, b, thread);
            __syncthreads();
            if (begin + DEPTH < tile.end) {
                a = left.next(s, tile.end);
                b = right.next(s, tile.end);
            }
            for (int k = 0; k < DEPTH; k++) {
                const piece_t<T> x = read_piece(left_tile + k * PITCH + row),
                                 y = read_piece(right_tile + k * PITCH + col);
                for (int i = 0; i < 4; i++)
                    for (int j = 0; j < 4; j++) sums[i][j] += x.v[i] * y.v[j];
            }
        }
        write_results<T, P>(args, s, e, tile, tile.row0 + row, tile.col0 + col, sums);
    }
}

template <typename T> __device__ inline void conv_gemm_any(const fy_args &args, T *left, T *right)
{
    switch (args.op) {
    case FY_OP_CONV2D: conv_gemm<T, FORWARD>(args, left, right); break;
    case FY_OP_CONV2D_BACKWARD_INPUT: conv_gemm<T, INPUT>(args, left, right); break;
    default: conv_gemm<T, WEIGHT>(args, left, right); break;
    }
}

FY_KERNEL fy_conv2d_gemm_f32(FY_ARGS args)
{
    alignas(16) __shared__ float left[DEPTH * PITCH], right[DEPTH * PITCH];
    conv_gemm_any<float>(args, left, right);
}
FY_KERNEL fy_conv2d_gemm_f64(FY_ARGS args)
{
    alignas(16) __shared__ double left[DEPTH * PITCH], right[DEPTH * PITCH];
    conv_gemm_any<double>(args, left, right);
}

#define FY_MODULE_conv_gemm ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
