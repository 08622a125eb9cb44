// Attention and its gradient: a warp has one row of queries, or for dk and dv one key, and goes
// through the others in order, with the running maximum and sum of the softmax. Lanes share the
// elements of a head; scores are joined by shuffles. No scores are stored, and nothing is added by
// atomics, so the bits are the same every time. A head wider than 256 takes several passes.
#include "backends/cuda/kernels/attention_heads.cuh"
#include "backends/cuda/kernels/rows.cuh"

enum { KEPT_COLUMNS = 8, PASS = 32 * KEPT_COLUMNS }; // of a lane, of a warp

// The row attends to no key from this one on.
__device__ inline int64_t end_of_keys(const fy_args &args, int64_t row, int64_t keys)
{
    return args.attrs.attention.is_causal && row < keys ? row + 1 : keys;
}

// For the group: the product of two rows of a head.
template <typename T>
__device__ inline T dot(const fy_args &args, const fy_operand &a, int64_t at_a, const fy_operand &b,
                        int64_t at_b, T *scratch)
{
    T sum = 0;
    for (int64_t d = lane_of(args); d < a.dims[3]; d += args.lanes)
        sum += load<T>(a, at_a + d * a.strides[3]) * load<T>(b, at_b + d * b.strides[3]);
    return group_reduce(args, sum, scratch, [](T x, T y) { return x + y; });
}

// sums += factor * (a row's elements of this lane, from `first` on)
template <typename T>
__device__ inline void add_row(const fy_args &args, const fy_operand &o, int64_t at, int64_t first,
                               T factor, T (&sums)[KEPT_COLUMNS])
{
    for (int i = 0; i < KEPT_COLUMNS; i++) {
        const int64_t d = first + lane_of(args) + i * 32;
        if (d < o.dims[3]) sums[i] += factor * load<T>(o, at + d * o.strides[3]);
    }
}

template <typename T>
__device__ inline void put_row(const fy_args &args, const fy_operand &o, int64_t at, int64_t first,
                               T factor, const T (&sums)[KEPT_COLUMNS])
{
    for (int i = 0; i < KEPT_COLUMNS; i++) {
        const int64_t d = first + lane_of(args) + i * 32;
        if (d < o.dims[3]) store(o, at + d * o.strides[3], sums[i] * factor);
    }
}

template <typename T> __device__ inline void attention(const fy_args &args, T *scratch)
{
    const fy_operand &q = args.src[0], &k = args.src[1], &v = args.src[2], &y = args.dst[0];
    const int64_t rows = q.dims[1], keys = k.dims[1], heads = q.dims[2], width = q.dims[3];
    const T scale = scale_of<T>(args, width);
    for (uint64_t item = first_group(args); item < args.count; item += all_groups(args)) {
        const head h = head_of(item, heads, rows);
        const int64_t at = row_at(q, h, h.row);
        for (int64_t first = 0; first < width; first += PASS) {
            T sums[KEPT_COLUMNS] = {}, top = -(T)INFINITY, total = 0;
            for (int64_t key = 0; key < end_of_keys(args, h.row, keys); key++) {
                if (!may(args, 3, h, h.row, key)) continue;
                const T score = dot<T>(args, q, at, k, row_at(k, h, key), scratch) * scale,
                        most = larger(top, score);
                if (most == -(T)INFINITY) continue;
                const T less = top == most           ? (T)1
                               : top == -(T)INFINITY ? (T)0
                                                     : exponential(top - most),
                        part = exponential(score - most);
                total = total * less + part;
                for (int i = 0; i < KEPT_COLUMNS; i++) sums[i] *= less;
                add_row(args, v, row_at(v, h, key), first, part, sums);
                top = most;
            }
            put_row(args, y, row_at(y, h, h.row), first, total == 0 ? (T)0 : 1 / total, sums);
            if (first == 0 && lane_of(args) == 0)
                store(args.dst[1], sum_at(args.dst[1], h, h.row),
                      total == 0 ? -(double)INFINITY : (double)top + fy__log_f64((double)total));
        }
    }
}

// The product of a row's gradient and result, which all its scores' gradients need.
template <typename T>
__device__ inline T delta_of(const fy_args &args, const head &h, int64_t row, T *scratch)
{
    const fy_operand &dy = args.src[0], &y = args.src[4];
    return dot<T>(args, dy, row_at(dy, h, row), y, row_at(y, h, row), scratch);
}

// The probability of the row's key, and the gradient of its score.
template <typename T>
__device__ inline void slope(const fy_args &args, const head &h, int64_t row, int64_t key, T scale,
                             T delta, T *scratch, T *out_p, T *out_ds)
{
    const fy_operand &dy = args.src[0], &q = args.src[1], &k = args.src[2], &v = args.src[3],
                     &lse = args.src[5];
    const T sum = load<T>(lse, sum_at(lse, h, row)),
            score = dot<T>(args, q, row_at(q, h, row), k, row_at(k, h, key), scratch) * scale,
            dp = dot<T>(args, dy, row_at(dy, h, row), v, row_at(v, h, key), scratch);
    *out_p = sum == -(T)INFINITY ? (T)0 : exponential(score - sum);
    *out_ds = *out_p * (dp - delta);
}

template <typename T> __device__ inline void attention_rows(const fy_args &args, T *scratch)
{
    const fy_operand &q = args.src[1], &k = args.src[2], &dq = args.dst[0];
    const T scale = scale_of<T>(args, q.dims[3]);
    for (uint64_t item = first_group(args); item < args.count; item += all_groups(args)) {
        const head h = head_of(item, q.dims[2], q.dims[1]);
        const T delta = delta_of<T>(args, h, h.row, scratch);
        for (int64_t first = 0; first < q.dims[3]; first += PASS) {
            T sums[KEPT_COLUMNS] = {};
            for (int64_t key = 0; key < end_of_keys(args, h.row, k.dims[1]); key++) {
                T p, ds;
                if (!may(args, 6, h, h.row, key)) continue;
                slope<T>(args, h, h.row, key, scale, delta, scratch, &p, &ds);
                add_row(args, k, row_at(k, h, key), first, ds, sums);
            }
            put_row(args, dq, row_at(dq, h, h.row), first, scale, sums);
        }
    }
}

template <typename T> __device__ inline void attention_keys(const fy_args &args, T *scratch)
{
    const fy_operand &dy = args.src[0], &q = args.src[1], &k = args.src[2], &dk = args.dst[1],
                     &dv = args.dst[2];
    const T scale = scale_of<T>(args, q.dims[3]);
    for (uint64_t item = first_group(args); item < args.count; item += all_groups(args)) {
        const head h = head_of(item, k.dims[2], k.dims[1]);
        for (int64_t first = 0; first < k.dims[3]; first += PASS) {
            T keys[KEPT_COLUMNS] = {}, values[KEPT_COLUMNS] = {};
            const int64_t begin = args.attrs.attention.is_causal ? h.row : 0;
            for (int64_t row = begin; row < q.dims[1]; row++) {
                T p, ds;
                if (!may(args, 6, h, row, h.row)) continue;
                const T delta = delta_of<T>(args, h, row, scratch);
                slope<T>(args, h, row, h.row, scale, delta, scratch, &p, &ds);
                add_row(args, q, row_at(q, h, row), first, ds, keys);
                add_row(args, dy, row_at(dy, h, row), first, p, values);
            }
            put_row(args, dk, row_at(dk, h, h.row), first, scale, keys);
            put_row(args, dv, row_at(dv, h, h.row), first, (T)1, values);
        }
    }
}

FY_SHARED_KERNEL(fy_attention_f32, per_warp<float>, attention)
FY_SHARED_KERNEL(fy_attention_f64, per_warp<double>, attention)
FY_SHARED_KERNEL(fy_attention_rows_f32, per_warp<float>, attention_rows)
FY_SHARED_KERNEL(fy_attention_rows_f64, per_warp<double>, attention_rows)
FY_SHARED_KERNEL(fy_attention_keys_f32, per_warp<float>, attention_keys)
FY_SHARED_KERNEL(fy_attention_keys_f64, per_warp<double>, attention_keys)

#define FY_MODULE_attention ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
