/* nvcuda::wmma as far as the kernels use it (16 x 16 x 16, halves, f32 sums), over the scheduler of simt.c: stands in for the toolkit's mma.h
 * when a kernel's source is compiled for the host. Each of a warp's lanes keeps the factors whole and eight of the 256 sums. Stricter than
 * the hardware: alignment and pitches are checked, and all lanes must arrive. */
#ifndef FERRY_TESTS_FAKE_CUDA_EMULATED_MMA_H_
#define FERRY_TESTS_FAKE_CUDA_EMULATED_MMA_H_

#include <stdint.h>
#include <stdlib.h>

#include "backends/formulas/half.h"

struct __half {
    uint16_t bits;
};
struct __nv_bfloat16 {
    uint16_t bits;
};

namespace nvcuda
{
namespace wmma
{

struct matrix_a {
};
struct matrix_b {
};
struct accumulator {
};
struct row_major {
};
struct col_major {
};
enum layout_t { mem_row_major, mem_col_major };

inline float value_of(__half x) { return fy__f32_from_f16(x.bits); }
inline float value_of(__nv_bfloat16 x) { return fy__f32_from_bf16(x.bits); }
inline bool is_row_major(row_major) { return true; }
inline bool is_row_major(col_major) { return false; }

/* 256-bit alignment, and rows in multiples of 16 bytes, as the programming guide asks for. */
inline void check(const void *at, unsigned pitch_nbytes)
{
    if ((uintptr_t)at % 32 != 0 || pitch_nbytes % 16 != 0) abort();
    simt_sync_warp();
}

template <typename Use, int M, int N, int K, typename T, typename Layout = void> struct fragment {
    float v[16][16];
};
template <int M, int N, int K> struct fragment<accumulator, M, N, K, float, void> {
    float v[8]; /* of row lane / 2, from column lane % 2 * 8 on */
};

template <typename F> inline void fill_fragment(F &f, float x)
{
    for (int i = 0; i < 8; i++) f.v[i] = x;
}

template <typename Use, typename T, typename Layout>
inline void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout> &f, const T *from, unsigned pitch)
{
    check(from, pitch * (unsigned)sizeof(T));
    for (unsigned i = 0; i < 16; i++)
        for (unsigned j = 0; j < 16; j++) f.v[i][j] = value_of(is_row_major(Layout()) ? from[i * pitch + j] : from[j * pitch + i]);
}

template <typename T, typename LayoutA, typename LayoutB>
inline void mma_sync(fragment<accumulator, 16, 16, 16, float> &d, const fragment<matrix_a, 16, 16, 16, T, LayoutA> &a,
                     const fragment<matrix_b, 16, 16, 16, T, LayoutB> &b, const fragment<accumulator, 16, 16, 16, float> &c)
{
    const unsigned row = simt_lane() / 2, first = simt_lane() % 2 * 8;
    for (unsigned i = 0; i < 8; i++) {
        float sum = c.v[i];
        for (unsigned k = 0; k < 16; k++) sum += a.v[row][k] * b.v[k][first + i];
        d.v[i] = sum;
    }
}

inline void store_matrix_sync(float *to, const fragment<accumulator, 16, 16, 16, float> &f, unsigned pitch, layout_t layout)
{
    check(to, pitch * (unsigned)sizeof(float));
    if (layout != mem_row_major) abort();
    for (unsigned i = 0; i < 8; i++) to[simt_lane() / 2 * pitch + simt_lane() % 2 * 8 + i] = f.v[i];
    simt_sync_warp();
}

} // namespace wmma
} // namespace nvcuda
#endif
