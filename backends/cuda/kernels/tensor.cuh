// Tensor cores by their instructions: 8 x 8 matrices of halves from shared memory into fragments
// (ldmatrix), and one product of fragments
// (mma.m16n8k16, sums in f32). What lies in which register of which lane: PTX ISA, "Matrix
// Fragments for mma.m16n8k16".
#ifndef FERRY_BACKENDS_CUDA_KERNELS_TENSOR_CUH_
#define FERRY_BACKENDS_CUDA_KERNELS_TENSOR_CUH_

// Four matrices, to all lanes of the warp. Lane 8 i + r gives the address of row r of matrix i: 16
// bytes, a multiple of 16. out[i] gets two
// neighbours of a row of matrix i, or, transposed, of a column.
template <bool TRANSPOSED>
__device__ inline void load_matrices(uint32_t at, uint32_t (&out)[4]) // in shared memory
{
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(at)
                     : "memory");
}

template <bool TRANSPOSED>
__device__ inline void load_matrices(const uint16_t *row, uint32_t (&out)[4])
{
    load_matrices<TRANSPOSED>((uint32_t)__cvta_generic_to_shared(row), out);
}

// sums (16 x 8) += a (16 x 16) b (16 x 8).
template <bool BF16>
__device__ inline void multiply_fragments(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                                          uint32_t b1)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 800 // f16 only: two products of half the depth
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, "
                 "{%6}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, "
                 "{%6}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[2]), "r"(a[3]), "r"(b1));
#else
    const float c0 = sums[0], c1 = sums[1], c2 = sums[2], c3 = sums[3]; // often zeros
    if (BF16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, "
                     "%5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c0),
                       "f"(c1), "f"(c2), "f"(c3));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, "
                     "%6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c0),
                       "f"(c1), "f"(c2), "f"(c3));
#endif
}

#endif
