/* The image part of a loop table: pooling of dense f32, a row of windows at a time, channels in
 * vectors of the instruction set's width (WIDE), the rest in fours and ones. gcc computes a vector
 * wider than the processor's one element at a time, up to ten times slower.
 * Included by loops_template.h alone; all that is said there holds here. Not here: which rows there
 * are (pool.c). */

/* Values, and the same in memory, where it is aligned as its elements are. No function takes or
 * returns one: how would depend on the instruction set. */
#define POOL_TYPES(N, nbytes)                                     \
    typedef float f32x##N __attribute__((vector_size(nbytes)));   \
    typedef int32_t i32x##N __attribute__((vector_size(nbytes))); \
    typedef float f32x##N##_at __attribute__((vector_size(nbytes), aligned(4), may_alias));
#ifdef __AVX512F__
#define WIDE 16
POOL_TYPES(16, 64)
#elif defined(__AVX__)
#define WIDE 8
POOL_TYPES(8, 32)
#else
#define WIDE 4
#endif
POOL_TYPES(4, 16)
POOL_TYPES(1, 4)

#define LOAD(N, at)           ((f32x##N)(*(const f32x##N##_at *)(const void *)(at)))
#define STORE(N, at, value)   (*(f32x##N##_at *)(void *)(at) = (value))
#define KEEP(N, mask, a)      ((f32x##N)((mask) & (i32x##N)(a))) /* mask is 0 or -1 */
#define SELECT(N, mask, a, b) ((f32x##N)(((mask) & (i32x##N)(a)) | (~(mask) & (i32x##N)(b))))
#define BETTER(N, x, best)     \
    ((i32x##N)((x) > (best)) | \
     ((i32x##N)((x) != (x)) & (i32x##N)((best) == (best)))) /* NaN above all */
#define RELU(N, x) KEEP(N, ~(i32x##N)((x) < 0.0f), x)
#define RELU_SLOPE(N, dy, x) \
    KEEP(N, ~(i32x##N)((x) <= 0.0f), dy) /* as fy__relu_backward_f32: NaN passes */

#define POOL_VECTORS(N)                                                                       \
    static inline void max_pool_##N(const fy__pool_row_t *p, const float *x, float *y)        \
    {                                                                                         \
        f32x##N best = LOAD(N, x);                                                            \
        for (int64_t h = 0; h < p->kernel_h; h++)                                             \
            for (int64_t w = 0; w < p->kernel_w; w++) {                                       \
                const f32x##N value = LOAD(N, x + h * p->row + w * p->channels);              \
                best = SELECT(N, BETTER(N, value, best), value, best);                        \
            }                                                                                 \
        STORE(N, y, p->relu ? RELU(N, best) : best);                                          \
    }                                                                                         \
    static inline void avg_pool_##N(const fy__pool_row_t *p, const float *x, float *y)        \
    {                                                                                         \
        f32x##N sum = { 0 };                                                                  \
        for (int64_t h = 0; h < p->kernel_h; h++)                                             \
            for (int64_t w = 0; w < p->kernel_w; w++) {                                       \
                const f32x##N value = LOAD(N, x + h * p->row + w * p->channels);              \
                sum += p->relu ? RELU(N, value) : value;                                      \
            }                                                                                 \
        STORE(N, y, sum / (float)(p->kernel_h * p->kernel_w));                                \
    }                                                                                         \
    static inline void max_pool_backward_##N(const fy__pool_row_t *p, const float *x,         \
                                             const float *dy, float *dx)                      \
    {                                                                                         \
        f32x##N best = LOAD(N, x), grad = LOAD(N, dy);                                        \
        i32x##N place = { 0 };                                                                \
        for (int64_t h = 0; h < p->kernel_h; h++)                                             \
            for (int64_t w = 0; w < p->kernel_w; w++) {                                       \
                const f32x##N value = LOAD(N, x + h * p->row + w * p->channels);              \
                const i32x##N is_better = BETTER(N, value, best),                             \
                              here = (i32x##N){ 0 } + (int32_t)(h * p->kernel_w + w);         \
                best = SELECT(N, is_better, value, best);                                     \
                place = (is_better & here) | (~is_better & place);                            \
            }                                                                                 \
        if (p->relu) grad = RELU_SLOPE(N, grad, best);                                        \
        for (int64_t h = 0; h < p->kernel_h; h++)                                             \
            for (int64_t w = 0; w < p->kernel_w; w++) {                                       \
                float *to = dx + h * p->row + w * p->channels;                                \
                const f32x##N share = KEEP(N, place == (int32_t)(h * p->kernel_w + w), grad); \
                STORE(N, to, p->accumulate ? LOAD(N, to) + share : share);                    \
            }                                                                                 \
    }                                                                                         \
    static inline void avg_pool_backward_##N(const fy__pool_row_t *p, const float *x,         \
                                             const float *dy, float *dx)                      \
    {                                                                                         \
        const f32x##N grad = LOAD(N, dy) / (float)(p->kernel_h * p->kernel_w);                \
        for (int64_t h = 0; h < p->kernel_h; h++)                                             \
            for (int64_t w = 0; w < p->kernel_w; w++) {                                       \
                const int64_t at = h * p->row + w * p->channels;                              \
                const f32x##N share = p->relu ? RELU_SLOPE(N, grad, LOAD(N, x + at)) : grad;  \
                STORE(N, dx + at, p->accumulate ? LOAD(N, dx + at) + share : share);          \
            }                                                                                 \
    }
#if WIDE == 16
POOL_VECTORS(16)
#elif WIDE == 8
POOL_VECTORS(8)
#endif
POOL_VECTORS(4)
POOL_VECTORS(1)

/* All windows of a row, all channels. */
#define WITH_WIDTH_2(name, width) name##_##width
#define WITH_WIDTH(name, width)   WITH_WIDTH_2(name, width)
#define POOL_FORWARD(name)                                                                      \
    static void name##_f32(const fy__pool_row_t *p)                                             \
    {                                                                                           \
        const float *x = p->x;                                                                  \
        float *y = p->out;                                                                      \
        for (int64_t i = 0; i < p->count; i++, x += p->step, y += p->channels) {                \
            int64_t c = 0;                                                                      \
            for (; c + WIDE <= p->channels; c += WIDE) WITH_WIDTH(name, WIDE)(p, x + c, y + c); \
            for (; c + 4 <= p->channels; c += 4) name##_4(p, x + c, y + c);                     \
            for (; c < p->channels; c++) name##_1(p, x + c, y + c);                             \
        }                                                                                       \
    }
#define POOL_BACKWARD(name)                                                                      \
    static void name##_f32(const fy__pool_row_t *p)                                              \
    {                                                                                            \
        const float *x = p->x, *dy = p->dy;                                                      \
        float *dx = p->out;                                                                      \
        for (int64_t i = 0; i < p->count; i++, x += p->step, dx += p->step, dy += p->channels) { \
            int64_t c = 0;                                                                       \
            for (; c + WIDE <= p->channels; c += WIDE)                                           \
                WITH_WIDTH(name, WIDE)(p, x + c, dy + c, dx + c);                                \
            for (; c + 4 <= p->channels; c += 4) name##_4(p, x + c, dy + c, dx + c);             \
            for (; c < p->channels; c++) name##_1(p, x + c, dy + c, dx + c);                     \
        }                                                                                        \
    }
POOL_FORWARD(max_pool)
POOL_FORWARD(avg_pool)
POOL_BACKWARD(max_pool_backward)
POOL_BACKWARD(avg_pool_backward)
