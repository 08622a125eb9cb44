// conv2d and its gradients for dense f16 and bf16 operands on tensor cores: implicit matrix
// products as in conv_gemm.cu, 64 x 64 results and
// 32 deep a step; each of eight warps multiplies 16 x 32 of them in products of 16 x 8 x 16 that
// add up in f32. Results are rounded once;
// partial sums of the weights' gradient stay f32. f16 needs compute capability 7.5, bf16 8.0:
// conv.c does not launch it below.
// Next: conv_tiles.cuh, tensor.cuh.
#include "backends/cuda/kernels/conv_tiles.cuh"
#include "backends/cuda/kernels/tensor.cuh"

// The eight rows of a matrix that one ldmatrix reads lie in different banks: pitches are 5 and 9
// times 16 bytes.
enum {
    DEPTH = 32,
    ALONG_PITCH = DEPTH + 8,
    ACROSS_PITCH = SIDE + 8,
    SUM_PITCH = SIDE + 4,
    TILE = SIDE * ALONG_PITCH
};
enum {
    ROWS = 16,
    COLS = 32,
    PART = 8,
    STEP = 16
}; // of a warp's results; columns of one product, and how deep it is
static_assert(ALONG_PITCH * 2 % 16 == 0 && ACROSS_PITCH * 2 % 16 == 0 && SUM_PITCH % 2 == 0, "");
static_assert(DEPTH * ACROSS_PITCH <= TILE, "");

// A tile lies in shared memory as its pieces come: [side][DEPTH] along the sum, [DEPTH][side]
// across it.
template <typename Loader>
__device__ inline void keep(uint16_t *tile, const piece_t<uint16_t> &p, int thread)
{
    if (Loader::ALONG)
        write_piece(tile + thread / 4 * ALONG_PITCH + thread % 4 * 8, p);
    else
        write_piece(tile + depth_of<uint16_t>(thread) * ACROSS_PITCH + side_of<uint16_t>(thread),
                    p);
}

// Where the 8 halves lie that a lane gives to ldmatrix: along the sum a row is a line of the tile,
// across it a place in the sum, and then the
// matrices come out transposed.
template <typename Loader>
__device__ inline const uint16_t *line_of(const uint16_t *tile, int side, int k, int line)
{
    return Loader::ALONG ? tile + (side + line) * ALONG_PITCH + k
                         : tile + (k + line) * ACROSS_PITCH + side;
}

// One step: this warp's 16 x 32 results += left[16 x DEPTH] right[DEPTH x 32].
template <bool BF16, typename Left, typename Right>
__device__ inline void multiply(const uint16_t *left_tile, const uint16_t *right_tile, int row,
                                int col, int lane, float (&sums)[COLS / PART][4])
{
    const int matrix = lane / 8, line = lane % 8;
    for (int k = 0; k < DEPTH; k += STEP) {
        uint32_t a[4], b[4];
        load_matrices<!Left::ALONG>(
            line_of<Left>(left_tile, row + matrix % 2 * 8, k + matrix / 2 * 8, line), a);
        for (int i = 0; i < COLS / PART; i += 2) {
            load_matrices<!Right::ALONG>(
                line_of<Right>(right_tile, col + (i + matrix / 2) * PART, k + matrix % 2 * 8, line),
                b);
            multiply_fragments<BF16>(sums[i], a, b[0], b[1]);
            multiply_fragments<BF16>(sums[i + 1], a, b[2], b[3]);
        }
    }
}

// A lane has two neighbours of row lane / 4 of each product, and two eight rows below.
__device__ inline void keep_sums(float *results, int row, int col, int lane,
                                 const float (&sums)[COLS / PART][4])
{
    for (int i = 0; i < COLS / PART; i++)
        for (int part = 0; part < 4; part++)
            results[(row + lane / 4 + part / 2 * 8) * SUM_PITCH + col + i * PART + lane % 4 * 2 +
                    part % 2] = sums[i][part];
}

// A thread finishes 16 neighbours of one row: two pieces of halves.
template <product_t P>
__device__ inline void write_results(const fy_args &args, const shape_t &s, const extent_t<P> &e,
                                     const tile_t<P> &tile, const float *sums, int thread)
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
            x[i] = col + i < e.cols ? finish<P>(args, s, tile.group, col + i,
                                                sums[thread / 4 * SUM_PITCH + within + i])
                                    : 0.0f;
        if (half && !args.accumulate && col + 7 < e.cols && pitch % 8 == 0 && origin % 8 == 0 &&
            args.dst[0].data % 16 == 0) {
            for (int i = 0; i < 8; i++)
                p.v[i] = args.dst[0].dtype == FY_DTYPE_F16 ? fy__f16_from_f32(x[i])
                                                           : fy__bf16_from_f32(x[i]);
            write_piece((uint16_t *)(uintptr_t)args.dst[0].data + at, p);
        } else {
            for (int i = 0; i < 8 && col + i < e.cols; i++) put(args, at + i, x[i]);
        }
    }
}

template <bool BF16, product_t P>
__device__ inline void conv_tensor(const fy_args &args, uint16_t *left_tile, uint16_t *right_tile,
                                   float *results)
{
    using left_t = typename loaders_t<uint16_t, P>::left;
    using right_t = typename loaders_t<uint16_t, P>::right;
    const shape_t s = shape_of<P>(args);
    const extent_t<P> e(s);
    const int thread = (int)(threadIdx.y * FY__CUDA_TILE + threadIdx.x), warp = thread / 32,
              lane = thread % 32;
    const int row = warp / 2 * ROWS, col = warp % 2 * COLS;
    const unsigned ntiles = tile_t<P>::count(args, s, e);
    for (unsigned number = blockIdx.x; number < ntiles; number += gridDim.x) {
        const tile_t<P> tile(args, s, e, number);
        left_t left(args, s, tile.group, tile.row0, e.rows, tile.begin, thread);
        right_t right(args, s, tile.group, tile.col0, e.cols, tile.begin, thread);
        float sums[COLS / PART][4] = {};
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
            multiply<BF16, left_t, right_t>(left_tile, right_tile, row, col, lane, sums);
        }
        keep_sums(results, row, col, lane, sums);
        __syncthreads();
        write_results<P>(args, s, e, tile, results, thread);
        __syncthreads();
    }
}

template <bool BF16>
__device__ inline void conv_tensor_any(const fy_args &args, uint16_t *left, uint16_t *right,
                                       float *results)
{
    switch (args.op) {
    case FY_OP_CONV2D: conv_tensor<BF16, FORWARD>(args, left, right, results); break;
    case FY_OP_CONV2D_BACKWARD_INPUT: conv_tensor<BF16, INPUT>(args, left, right, results); break;
    default: conv_tensor<BF16, WEIGHT>(args, left, right, results); break;
    }
}

FY_KERNEL fy_conv2d_tensor_f16(FY_ARGS args)
{
    alignas(32) __shared__ uint16_t left[TILE], right[TILE];
    alignas(32) __shared__ float results[SIDE * SUM_PITCH];
    conv_tensor_any<false>(args, left, right, results);
}
FY_KERNEL fy_conv2d_tensor_bf16(FY_ARGS args)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    alignas(32) __shared__ uint16_t left[TILE], right[TILE];
    alignas(32) __shared__ float results[SIDE * SUM_PITCH];
    conv_tensor_any<true>(args, left, right, results);
#endif
}

#define FY_MODULE_conv_tensor ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
