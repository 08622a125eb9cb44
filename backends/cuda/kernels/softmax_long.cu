// softmax, log_softmax and their gradients where rows are few and long: a group of threads has one
// piece of one row (pack_rows.c). The first
// kernel makes each piece's partial result in f64, in the second each group joins all partial
// results of its row, in order, and makes
// the results of its piece.
#include "backends/cuda/kernels/rows.cuh"

__device__ inline bool is_backward(const fy_args &args)
{
    return args.op == FY_OP_SOFTMAX_BACKWARD || args.op == FY_OP_LOG_SOFTMAX_BACKWARD;
}

// ---- partial results: forward the largest value and the sum of exponentials relative to it,
// backward sum(dy y) or sum(dy) ----

template <typename R, typename T>
__device__ inline void forward_part(const fy_args &args, const row_piece &p, int64_t npieces,
                                    T *scratch)
{
    const fy_operand &s = args.src[0];
    const int axis = s.rank - 1;
    const int64_t base = locate(s, 0, axis, p.row, args.flags), step = s.strides[axis];
    const int64_t first = p.begin + lane_of(args) * R::n, stride = args.lanes * R::n;
    T top = -(T)INFINITY, sum = 0;
    walk_row<R, 4, T>(args, s, base, step, first, stride, p.end, [&](int64_t, T(&x)[R::n]) {
        for (int i = 0; i < R::n; i++) top = larger(top, x[i]);
    });
    top = group_reduce(args, top, scratch, [](T a, T b) { return larger(a, b); });
    walk_row<R, 4, T>(args, s, base, step, first, stride, p.end, [&](int64_t, T(&x)[R::n]) {
        for (int i = 0; i < R::n; i++) sum += exponential(x[i] - top);
    });
    sum = group_reduce(args, sum, scratch, [](T a, T b) { return a + b; });
    if (lane_of(args) != 0) return;
    const int64_t rows = (int64_t)(args.nelem / 2 / (uint64_t)npieces),
                  at = p.piece * rows + (int64_t)p.row;
    *element<double>(args.dst[0], at) = (double)top;
    *element<double>(args.dst[0], npieces * rows + at) = (double)sum;
}

template <typename R, typename T>
__device__ inline void backward_part(const fy_args &args, const row_piece &p, uint64_t group,
                                     T *scratch)
{
    const fy_operand &g = args.src[0], &y = args.src[1];
    const int axis = g.rank - 1;
    int64_t base_g = 0, base_y = 0;
    locate2(g, y, 0, axis, p.row, args.flags, base_g, base_y);
    const int64_t first = p.begin + lane_of(args) * R::n, stride = args.lanes * R::n;
    T sum = 0;
    if (args.op == FY_OP_LOG_SOFTMAX_BACKWARD)
        walk_row<R, 4, T>(args, g, base_g, g.strides[axis], first, stride, p.end,
                          [&](int64_t, T(&x)[R::n]) {
                              for (int i = 0; i < R::n; i++) sum += x[i];
                          });
    else
        walk_rows<R, 2, T>(args, g, base_g, g.strides[axis], y, base_y, y.strides[axis], first,
                           stride, p.end, [&](int64_t, T(&x)[R::n], T(&r)[R::n]) {
                               for (int i = 0; i < R::n; i++) sum += x[i] * r[i];
                           });
    sum = group_reduce(args, sum, scratch, [](T a, T b) { return a + b; });
    if (lane_of(args) == 0) *element<double>(args.dst[0], (int64_t)group) = (double)sum;
}

template <typename T> __device__ inline void softmax_parts(const fy_args &args, T *scratch)
{
    const int64_t length = args.src[0].dims[args.src[0].rank - 1],
                  npieces = (length + (int64_t)args.count - 1) / (int64_t)args.count;
    const uint64_t groups = is_backward(args) ? args.nelem : args.nelem / 2,
                   rows = groups / (uint64_t)npieces;
    by_reads(T(), args, [&](auto r) {
        using R = decltype(r);
        for (uint64_t group = first_group(args); group < groups; group += all_groups(args)) {
            const row_piece p = piece_of(args, group, rows, length);
            if (is_backward(args))
                backward_part<R, T>(args, p, group, scratch);
            else
                forward_part<R, T>(args, p, npieces, scratch);
        }
    });
}

FY_SHARED_KERNEL(fy_softmax_parts_f32, per_warp<float>, softmax_parts)
FY_SHARED_KERNEL(fy_softmax_parts_f64, per_warp<double>, softmax_parts)

// ---- results ----

// The row's largest value and its sum of exponentials. A piece of nothing but -inf has a sum of NaN
// and adds nothing.
__device__ inline double join_forward(const fy_args &args, const row_piece &p, int64_t npieces,
                                      int64_t rows, double *scratch, double *out_top)
{
    const fy_operand &partial = args.src[1];
    double top = -INFINITY, sum = 0;
    for (int64_t i = lane_of(args); i < npieces; i += args.lanes)
        top = larger(top, *element<double>(partial, i * rows + (int64_t)p.row));
    top = group_reduce(args, top, scratch, [](double a, double b) { return larger(a, b); });
    for (int64_t i = lane_of(args); i < npieces; i += args.lanes) {
        const double its_top = *element<double>(partial, i * rows + (int64_t)p.row);
        if (its_top == -INFINITY) continue;
        sum += *element<double>(partial, (npieces + i) * rows + (int64_t)p.row) *
               exponential(its_top - top);
    }
    *out_top = top;
    return group_reduce(args, sum, scratch, [](double a, double b) { return a + b; });
}

template <typename R, typename T>
__device__ inline void forward_piece(const fy_args &args, const row_piece &p, int64_t npieces,
                                     int64_t rows, double *scratch)
{
    const fy_operand &s = args.src[0], &d = args.dst[0];
    const int axis = s.rank - 1;
    int64_t base_s = 0, base_d = 0;
    double wide_top;
    const double wide_sum = join_forward(args, p, npieces, rows, scratch, &wide_top);
    const T top = (T)wide_top, factor = (T)(1 / wide_sum),
            log_sum = (T)logarithm(wide_sum); // a sum is 1 at least, or NaN
    locate2(s, d, 0, axis, p.row, args.flags, base_s, base_d);
    walk_row<R, 2, T>(args, s, base_s, s.strides[axis], p.begin + lane_of(args) * R::n,
                      args.lanes * R::n, p.end, [&](int64_t k, T(&x)[R::n]) {
                          for (int i = 0; i < R::n; i++)
                              x[i] = args.op == FY_OP_LOG_SOFTMAX
                                         ? x[i] - top - log_sum
                                         : exponential(x[i] - top) * factor;
                          store_row<R::n>(args, d, base_d + k * d.strides[axis], x);
                      });
}

template <typename R, typename T>
__device__ inline void backward_piece(const fy_args &args, const row_piece &p, int64_t npieces,
                                      int64_t rows, double *scratch)
{
    const fy_operand &g = args.src[0], &y = args.src[1], &partial = args.src[2], &d = args.dst[0];
    const int axis = g.rank - 1;
    const bool is_log = args.op == FY_OP_LOG_SOFTMAX_BACKWARD;
    int64_t base_g = 0, base_y = 0;
    double wide_sum = 0;
    for (int64_t i = lane_of(args); i < npieces; i += args.lanes)
        wide_sum += *element<double>(partial, i * rows + (int64_t)p.row);
    const T sum =
        (T)group_reduce(args, wide_sum, scratch, [](double a, double b) { return a + b; });
    locate2(g, y, 0, axis, p.row, args.flags, base_g, base_y);
    const int64_t base_d = locate(d, 0, axis, p.row, args.flags);
    walk_rows<R, 2, T>(args, g, base_g, g.strides[axis], y, base_y, y.strides[axis],
                       p.begin + lane_of(args) * R::n, args.lanes * R::n, p.end,
                       [&](int64_t k, T(&x)[R::n], T(&r)[R::n]) {
                           for (int i = 0; i < R::n; i++)
                               x[i] = is_log ? x[i] - exponential(r[i]) * sum : r[i] * (x[i] - sum);
                           put_row<R::n>(args, base_d + k * d.strides[axis], x);
                       });
}

template <typename T> __device__ inline void softmax_join(const fy_args &args, double *scratch)
{
    const int64_t length = args.src[0].dims[args.src[0].rank - 1],
                  npieces = (length + (int64_t)args.count - 1) / (int64_t)args.count;
    const uint64_t rows = args.nelem / (uint64_t)length, groups = rows * (uint64_t)npieces;
    by_reads(T(), args, [&](auto r) {
        using R = decltype(r);
        for (uint64_t group = first_group(args); group < groups; group += all_groups(args)) {
            const row_piece p = piece_of(args, group, rows, length);
            if (is_backward(args))
                backward_piece<R, T>(args, p, npieces, (int64_t)rows, scratch);
            else
                forward_piece<R, T>(args, p, npieces, (int64_t)rows, scratch);
        }
    });
}

FY_SHARED_KERNEL(fy_softmax_join_f32, per_warp<double>, softmax_join<float>)
FY_SHARED_KERNEL(fy_softmax_join_f64, per_warp<double>, softmax_join<double>)

#define FY_MODULE_softmax_long ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
