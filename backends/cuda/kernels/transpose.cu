// Copies where neighbours in the source lie along the last axis but one and neighbours in the
// result along the last (pack_copy.c moved them
// there): a block takes a square tile through shared memory, so that both sides are accessed along
// their neighbours. A row of the tile is
// padded by a bank, so that its columns lie in different banks. Elements are bytes.
#include "backends/cuda/kernels/common.cuh"

template <typename E> __device__ inline void transpose(const fy_args &args)
{
    constexpr int TILE = FY__CUDA_TRANSPOSE_TILE(sizeof(E)),
                  PAD = sizeof(E) < 4 ? 4 / sizeof(E) : 1;
    constexpr int STEP = FY__CUDA_BLOCK / TILE,
                  N = TILE / STEP; // rows of the tile at once; elements a thread
    __shared__ E tile[TILE][TILE + PAD];
    const fy_operand &d = args.dst[0], &s = args.src[0];
    const int last = d.rank - 1;
    const int64_t rows = d.dims[last - 1],
                  columns = d.dims[last]; // of the result; the source is dense along rows
    const int64_t step_s = s.strides[last], step_d = d.strides[last - 1];
    const uint64_t across = (uint64_t)(columns + TILE - 1) / TILE,
                   down = (uint64_t)(rows + TILE - 1) / TILE;
    const uint64_t tiles = args.nelem / (uint64_t)(rows * columns) * across * down;
    const int x = (int)threadIdx.x % TILE, y = (int)threadIdx.x / TILE;
    for (uint64_t n = blockIdx.x; n < tiles; n += gridDim.x) {
        uint64_t rest = n;
        const int64_t column = (int64_t)split(rest, (int64_t)across, args.flags) * TILE;
        const int64_t row = (int64_t)split(rest, (int64_t)down, args.flags) * TILE;
        int64_t base_s = 0, base_d = 0;
        locate2(s, d, 0, last - 1, rest, args.flags, base_s, base_d);
        E read[N];
        for (int i = 0; i < N; i++)
            if (row + x < rows && column + y + i * STEP < columns)
                read[i] = *element<E>(s, base_s + row + x + (column + y + i * STEP) * step_s);
        for (int i = 0; i < N; i++)
            if (row + x < rows && column + y + i * STEP < columns) tile[y + i * STEP][x] = read[i];
        __syncthreads();
        for (int i = 0; i < N; i++)
            if (column + x < columns && row + y + i * STEP < rows)
                *element<E>(d, base_d + column + x + (row + y + i * STEP) * step_d) =
                    tile[x][y + i * STEP];
        __syncthreads(); // before the next tile
    }
}

FY_KERNEL fy_transpose(FY_ARGS args)
{
    switch (args.dst[0].dtype) {
    case FY_DTYPE_F64:
    case FY_DTYPE_I64: transpose<uint64_t>(args); break;
    case FY_DTYPE_F32:
    case FY_DTYPE_I32: transpose<uint32_t>(args); break;
    case FY_DTYPE_F16:
    case FY_DTYPE_BF16: transpose<uint16_t>(args); break;
    default: transpose<uint8_t>(args); break;
    }
}

#define FY_MODULE_transpose ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
