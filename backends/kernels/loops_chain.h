/* The chain part of a loop table: an interpreter whose instructions work on a group of elements in
 * vector registers. Ops one after the other then need no load and no store between them. Included
 * by loops_template.h alone.
 * Not here: the instructions of a chain (chain_code.c). */
#if defined(__AVX512F__)
#include <immintrin.h>
enum { CHAIN_NBYTES = 64 };
#define CHAIN_STREAM(to, v) _mm512_stream_ps((float *)(void *)(to), (__m512)(v))
#elif defined(__AVX__)
#include <immintrin.h>
enum { CHAIN_NBYTES = 32 };
#define CHAIN_STREAM(to, v) _mm256_stream_ps((float *)(void *)(to), (__m256)(v))
#elif defined(__SSE2__)
#include <emmintrin.h>
enum { CHAIN_NBYTES = 16 };
#define CHAIN_STREAM(to, v) _mm_stream_ps((float *)(void *)(to), (__m128)(v))
#else
enum { CHAIN_NBYTES = 16 };
#define CHAIN_STREAM(to, v) (*(chain_f32_t *)(void *)(to) = (v))
#endif

typedef float chain_f32_t __attribute__((vector_size(CHAIN_NBYTES)));
typedef int32_t chain_bits_t __attribute__((vector_size(CHAIN_NBYTES)));
/* at any address that is right for a float */
typedef float chain_memory_t __attribute__((vector_size(CHAIN_NBYTES), aligned(4), may_alias));

/* Eight vectors: enough that choosing an instruction costs less than running it. */
#define EACH_VECTOR(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define AT(i)          (*(chain_memory_t *)(void *)(at + (i)*CHAIN_NBYTES))
#define PICK(test, yes, no) \
    (chain_f32_t)(((test) & (chain_bits_t)(yes)) | (~(test) & (chain_bits_t)(no)))
/* `-0.0 - 0` is -0.0, but `0 + -0.0` is not */
#define ALL_LANES(number) ((number) - (chain_f32_t){ 0 })

#define DO_ONE(expression, i)             \
    {                                     \
        const chain_f32_t a = v##i;       \
        v##i = (chain_f32_t)(expression); \
    }
#define DO_TWO(expression, i)                  \
    {                                          \
        const chain_f32_t a = v##i, b = AT(i); \
        v##i = (chain_f32_t)(expression);      \
    }
#define DO_FROM(expression, i)                 \
    {                                          \
        const chain_f32_t a = AT(i), b = v##i; \
        v##i = (chain_f32_t)(expression);      \
    }
#define ALL_OF(DO, e) DO(e, 0) DO(e, 1) DO(e, 2) DO(e, 3) DO(e, 4) DO(e, 5) DO(e, 6) DO(e, 7)
#define CASE(KIND, DO, e)    \
    case FY__CHAIN_##KIND: { \
        ALL_OF(DO, e)        \
        break;               \
    }

static void chain_f32(int64_t n, const fy__chain_code_t *code)
{
    const chain_f32_t zero = { 0 }, three = ALL_LANES(3.0f), six = ALL_LANES(6.0f);
#define DECLARE(i) chain_f32_t v##i = zero;
    EACH_VECTOR(DECLARE)
#undef DECLARE
    for (int64_t first = 0; first < n * (int64_t)sizeof(float); first += 8 * CHAIN_NBYTES) {
        const fy__chain_code_t *step = code;
        for (; step->kind != FY__CHAIN_END; step++) {
            char *at = step->at + first;
            const chain_f32_t p = ALL_LANES(step->p), q = ALL_LANES(step->q);
            switch (step->kind) {
            case FY__CHAIN_LOAD:
#define DO(i) v##i = AT(i);
                EACH_VECTOR(DO)
#undef DO
                break;
            case FY__CHAIN_STORE:
#define DO(i) AT(i) = v##i;
                EACH_VECTOR(DO)
#undef DO
                break;
            case FY__CHAIN_STREAM:
#define DO(i) CHAIN_STREAM(at + (i)*CHAIN_NBYTES, v##i);
                EACH_VECTOR(DO)
#undef DO
                break;
#define ONE(ENUM, e)    CASE(ENUM, DO_ONE, e)
#define SCALED(ENUM, e) CASE(ENUM, DO_ONE, e)
#define TWO(ENUM, e)    CASE(ENUM, DO_TWO, e)
#define FROM(ENUM, e)   CASE(FROM_##ENUM, DO_FROM, e)
#include "backends/kernels/chain.def"
            default: break;
            }
        }
    }
}

#undef EACH_VECTOR
#undef AT
#undef PICK
#undef ALL_LANES
#undef DO_ONE
#undef DO_TWO
#undef DO_FROM
#undef ALL_OF
#undef CASE
