/* Arithmetic of a warp: for each lane of the mask, registers to a register. A register row has 64
 * bits a lane; an instruction reads as many as its type has, so the upper ones may be anything.
 * Compiled with -frounding-math: some instructions have a rounding mode. */
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "opset/formulas/formula.h"
#include "tests/support/fake_cuda/ptx/machine.h"

/* For all lanes the compiler makes vectors. */
#define LANES(statement)                                       \
    do {                                                       \
        if (mask == PTX_ALL_LANES)                             \
            for (int l = 0; l < PTX_LANES; l++) { statement; } \
        else                                                   \
            for (int l = 0; l < PTX_LANES; l++)                \
                if (mask >> l & 1) { statement; }              \
    } while (0)

__extension__ typedef __int128 wide_t;
__extension__ typedef unsigned __int128 unsigned_wide_t;

unsigned ptx_type_nbytes(unsigned type)
{
    switch (type) {
    case PTX_U8:
    case PTX_S8:
    case PTX_B8: return 1;
    case PTX_U16:
    case PTX_S16:
    case PTX_B16:
    case PTX_F16:
    case PTX_BF16: return 2;
    case PTX_U32:
    case PTX_S32:
    case PTX_B32:
    case PTX_F32: return 4;
    default: return 8;
    }
}
int ptx_type_is_signed(unsigned type)
{
    return type == PTX_S8 || type == PTX_S16 || type == PTX_S32 || type == PTX_S64;
}

void ptx_set_rounding(unsigned rounding)
{
    static const int modes[] = { FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD };
    fesetround(modes[rounding]);
}

static inline float f32_of(uint64_t bits) { return fy__f32_of_bits((uint32_t)bits); }
static inline uint64_t bits_of_f32(float value) { return fy__bits_of_f32(value); }
static inline double f64_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline uint64_t bits_of_f64(double value) { return fy__bits_of_f64(value); }
static inline float without_subnormals(float x)
{
    return fpclassify(x) == FP_SUBNORMAL ? copysignf(0.0f, x) : x;
}

/* The values of an operand, sign- or zero-extended to 64 bits. */
static void extend(unsigned type, const uint64_t *from, uint64_t to[PTX_LANES])
{
    const uint32_t mask = PTX_ALL_LANES;
    switch (type) {
    case PTX_S16: LANES(to[l] = (uint64_t)(int16_t)from[l]); break;
    case PTX_U16:
    case PTX_B16: LANES(to[l] = (uint16_t)from[l]); break;
    case PTX_S32: LANES(to[l] = (uint64_t)(int32_t)from[l]); break;
    case PTX_U32:
    case PTX_B32: LANES(to[l] = (uint32_t)from[l]); break;
    default: memcpy(to, from, PTX_LANES * sizeof *to);
    }
}

static void multiply(const ptx_instruction_t *i, uint32_t mask, uint64_t *d, const uint64_t *a,
                     const uint64_t *b)
{
    const unsigned nbits = ptx_type_nbytes(i->type) * 8;
    uint64_t x[PTX_LANES], y[PTX_LANES];
    extend(i->type, a, x);
    extend(i->type, b, y);
    if ((i->flags & PTX_HI) == 0)
        LANES(d[l] = x[l] * y[l]);
    else if (nbits < 64)
        LANES(d[l] = x[l] * y[l] >> nbits);
    else if (ptx_type_is_signed(i->type))
        LANES(d[l] = (uint64_t)((wide_t)(int64_t)x[l] * (int64_t)y[l] >> 64));
    else
        LANES(d[l] = (uint64_t)((unsigned_wide_t)x[l] * y[l] >> 64));
}

/* add, sub, mad of 32 bits with a carry in or out */
static void carry(ptx_warp_t *warp, const ptx_instruction_t *i, uint32_t mask, uint64_t *d,
                  const uint64_t *a, const uint64_t *b)
{
    const uint32_t in = (i->flags & PTX_FROM_CC) != 0 ? warp->carry : 0;
    uint32_t out = 0;
    for (int l = 0; l < PTX_LANES; l++) {
        if ((mask >> l & 1) == 0) continue;
        const uint64_t bit = in >> l & 1, x = (uint32_t)a[l], y = (uint32_t)b[l];
        d[l] = i->code == PTX_SUB ? x - y - bit : x + y + bit;
        out |= (uint32_t)(d[l] >> 32 & 1) << l;
    }
    if ((i->flags & PTX_CC) != 0) warp->carry = (warp->carry & ~mask) | out;
}

static uint64_t quotient(int is_signed, int is_rest, uint64_t x, uint64_t y)
{
    if (y == 0) return is_rest ? x : UINT64_MAX;
    if (is_signed && y == UINT64_MAX) return is_rest ? 0 : 0 - x;
    if (is_signed) return (uint64_t)(is_rest ? (int64_t)x % (int64_t)y : (int64_t)x / (int64_t)y);
    return is_rest ? x % y : x / y;
}

static void compute_integers(ptx_warp_t *warp, const ptx_instruction_t *i, uint32_t mask,
                             uint64_t *d, const uint64_t *a, const uint64_t *b, const uint64_t *c)
{
    const unsigned nbits = ptx_type_nbytes(i->type) * 8;
    const int is_signed = ptx_type_is_signed(i->type),
              carries = (i->flags & (PTX_CC | PTX_FROM_CC)) != 0;
    uint64_t x[PTX_LANES], y[PTX_LANES];
    switch (i->code) {
    case PTX_ADD:
    case PTX_SUB:
        if (carries)
            carry(warp, i, mask, d, a, b);
        else if (i->code == PTX_ADD)
            LANES(d[l] = a[l] + b[l]);
        else
            LANES(d[l] = a[l] - b[l]);
        return;
    case PTX_MUL: multiply(i, mask, d, a, b); return;
    case PTX_MAD:
        multiply(i, PTX_ALL_LANES, x, a, b);
        if (carries)
            carry(warp, i, mask, d, x, c);
        else
            LANES(d[l] = x[l] + c[l]);
        return;
    case PTX_AND: LANES(d[l] = a[l] & b[l]); return;
    case PTX_OR: LANES(d[l] = a[l] | b[l]); return;
    case PTX_XOR: LANES(d[l] = a[l] ^ b[l]); return;
    case PTX_NOT: LANES(d[l] = ~a[l]); return;
    case PTX_NEG: LANES(d[l] = 0 - a[l]); return;
    case PTX_SHL: LANES(d[l] = (uint32_t)b[l] >= nbits ? 0 : a[l] << ((uint32_t)b[l] & 63)); return;
    default: break;
    }
    extend(i->type, a, x);
    switch (i->code) {
    case PTX_SHR:
        if (is_signed)
            LANES(d[l] = (uint64_t)((int64_t)x[l] >> ((uint32_t)b[l] > 63 ? 63 : b[l] & 63)));
        else
            LANES(d[l] = (uint32_t)b[l] >= nbits ? 0 : x[l] >> ((uint32_t)b[l] & 63));
        return;
    case PTX_ABS: LANES(d[l] = (int64_t)x[l] < 0 ? 0 - x[l] : x[l]); return;
    case PTX_CLZ:
        LANES(d[l] = x[l] == 0 ? nbits : (unsigned)__builtin_clzll(x[l]) - (64 - nbits));
        return;
    default: break;
    }
    extend(i->type, b, y);
    switch (i->code) {
    case PTX_DIV:
    case PTX_REM: LANES(d[l] = quotient(is_signed, i->code == PTX_REM, x[l], y[l])); return;
    default: /* PTX_MIN, PTX_MAX */
        if (is_signed)
            LANES(d[l] = ((int64_t)x[l] < (int64_t)y[l]) == (i->code == PTX_MIN) ? x[l] : y[l]);
        else
            LANES(d[l] = (x[l] < y[l]) == (i->code == PTX_MIN) ? x[l] : y[l]);
    }
}

static void compute_f32(const ptx_instruction_t *i, uint32_t mask, uint64_t *d, const uint64_t *a,
                        const uint64_t *b, const uint64_t *c)
{
    if (i->rounding != PTX_RN) ptx_set_rounding(i->rounding);
    switch (i->code) {
    case PTX_ADD: LANES(d[l] = bits_of_f32(f32_of(a[l]) + f32_of(b[l]))); break;
    case PTX_SUB: LANES(d[l] = bits_of_f32(f32_of(a[l]) - f32_of(b[l]))); break;
    case PTX_MUL: LANES(d[l] = bits_of_f32(f32_of(a[l]) * f32_of(b[l]))); break;
    case PTX_DIV: LANES(d[l] = bits_of_f32(f32_of(a[l]) / f32_of(b[l]))); break;
    case PTX_FMA: LANES(d[l] = bits_of_f32(fmaf(f32_of(a[l]), f32_of(b[l]), f32_of(c[l])))); break;
    case PTX_MIN: LANES(d[l] = bits_of_f32(fminf(f32_of(a[l]), f32_of(b[l])))); break;
    case PTX_MAX: LANES(d[l] = bits_of_f32(fmaxf(f32_of(a[l]), f32_of(b[l])))); break;
    case PTX_ABS: LANES(d[l] = a[l] & 0x7fffffffu); break;
    case PTX_NEG: LANES(d[l] = a[l] ^ 0x80000000u); break;
    case PTX_SQRT: LANES(d[l] = bits_of_f32(sqrtf(f32_of(a[l])))); break;
    case PTX_COPYSIGN: LANES(d[l] = (a[l] & 0x80000000u) | (b[l] & 0x7fffffffu)); break;
    case PTX_EX2:
    case PTX_RCP:
        LANES({
            float x = f32_of(a[l]);
            if ((i->flags & PTX_FTZ) != 0) x = without_subnormals(x);
            x = (float)(i->code == PTX_EX2 ? exp2((double)x) : 1.0 / (double)x);
            d[l] = bits_of_f32((i->flags & PTX_FTZ) != 0 ? without_subnormals(x) : x);
        });
        break;
    default: break;
    }
    if (i->rounding != PTX_RN) ptx_set_rounding(PTX_RN);
}

static void compute_f64(const ptx_instruction_t *i, uint32_t mask, uint64_t *d, const uint64_t *a,
                        const uint64_t *b, const uint64_t *c)
{
    switch (i->code) {
    case PTX_ADD: LANES(d[l] = bits_of_f64(f64_of(a[l]) + f64_of(b[l]))); break;
    case PTX_SUB: LANES(d[l] = bits_of_f64(f64_of(a[l]) - f64_of(b[l]))); break;
    case PTX_MUL: LANES(d[l] = bits_of_f64(f64_of(a[l]) * f64_of(b[l]))); break;
    case PTX_DIV: LANES(d[l] = bits_of_f64(f64_of(a[l]) / f64_of(b[l]))); break;
    case PTX_FMA: LANES(d[l] = bits_of_f64(fma(f64_of(a[l]), f64_of(b[l]), f64_of(c[l])))); break;
    case PTX_MIN: LANES(d[l] = bits_of_f64(fmin(f64_of(a[l]), f64_of(b[l])))); break;
    case PTX_MAX: LANES(d[l] = bits_of_f64(fmax(f64_of(a[l]), f64_of(b[l])))); break;
    case PTX_ABS: LANES(d[l] = a[l] & INT64_MAX); break;
    case PTX_NEG: LANES(d[l] = a[l] ^ 1ull << 63); break;
    case PTX_SQRT: LANES(d[l] = bits_of_f64(sqrt(f64_of(a[l])))); break;
    case PTX_COPYSIGN: LANES(d[l] = (a[l] & 1ull << 63) | (b[l] & INT64_MAX)); break;
    case PTX_RCP: /* rcp.approx.ftz.f64 has the upper word only */
        LANES(d[l] = bits_of_f64(1.0 / f64_of(a[l])));
        if ((i->flags & PTX_APPROX) != 0) LANES(d[l] &= ~0xffffffffull);
        break;
    default: break;
    }
}

/* Comparisons of x and y; a number that is none makes the second row's true. */
#define COMPARE(T, from)                              \
    for (int l = 0; l < PTX_LANES; l++) {             \
        const T x = from(a[l]), y = from(b[l]);       \
        less |= (uint32_t)(x < y) << l;               \
        equal |= (uint32_t)(x == y) << l;             \
        ordered |= (uint32_t)(x == x && y == y) << l; \
    }

static uint32_t compare(const ptx_instruction_t *i, const uint64_t *a, const uint64_t *b)
{
    uint32_t less = 0, equal = 0, ordered = 0;
    switch (i->type) {
    case PTX_F32: COMPARE(float, f32_of) break;
    case PTX_F64: COMPARE(double, f64_of) break;
    case PTX_S16: COMPARE(int16_t, (int16_t)) break;
    case PTX_S32: COMPARE(int32_t, (int32_t)) break;
    case PTX_S64: COMPARE(int64_t, (int64_t)) break;
    case PTX_U16:
    case PTX_B16: COMPARE(uint16_t, (uint16_t)) break;
    case PTX_U32:
    case PTX_B32: COMPARE(uint32_t, (uint32_t)) break;
    default: COMPARE(uint64_t, ) break;
    }
    switch (i->compare) {
    case PTX_EQ: return equal;
    case PTX_NE: return ordered & ~equal;
    case PTX_LT: return less;
    case PTX_LE: return less | equal;
    case PTX_GT: return ordered & ~less & ~equal;
    case PTX_GE: return ordered & ~less;
    case PTX_EQU: return ~ordered | equal;
    case PTX_NEU: return ~equal;
    case PTX_LTU: return ~ordered | less;
    case PTX_LEU: return ~ordered | less | equal;
    case PTX_GTU: return ~less & ~equal;
    case PTX_GEU: return ~less;
    case PTX_NUM: return ordered;
    default: return ~ordered; /* PTX_NAN */
    }
}

/* A predicate operand; a constant one is false or true. */
static uint32_t predicate_of(const ptx_machine_t *m, const ptx_warp_t *warp, int32_t row)
{
    if (row >= 0) return warp->predicates[row];
    return m->kernel->constants[~row][0] != 0 ? PTX_ALL_LANES : 0;
}

static void compute_predicate(ptx_machine_t *m, ptx_warp_t *warp, const ptx_instruction_t *i,
                              uint32_t mask)
{
    const uint32_t a = predicate_of(m, warp, i->operands[1].row),
                   b = i->code == PTX_MOV || i->code == PTX_NOT
                           ? 0
                           : predicate_of(m, warp, i->operands[2].row),
                   result = i->code == PTX_AND   ? a & b
                            : i->code == PTX_OR  ? a | b
                            : i->code == PTX_XOR ? a ^ b
                            : i->code == PTX_NOT ? ~a
                                                 : a;
    uint32_t *d = &warp->predicates[i->operands[0].row];
    *d = (*d & ~mask) | (result & mask);
}

/* mov between a register and a list of its parts, or of a whole one */
static void move(ptx_machine_t *m, ptx_warp_t *warp, const ptx_instruction_t *i, uint32_t mask)
{
    const ptx_operand_t *to = &i->operands[0], *from = &i->operands[1];
    const int32_t *lists = m->kernel->lists;
    const uint32_t n = to->count + from->count; /* one of them is 0 */
    const unsigned nbits = n == 0 ? 64 : ptx_type_nbytes(i->type) * 8 / n;
    const uint64_t part = nbits == 64 ? UINT64_MAX : (1ull << nbits) - 1;
    if (n == 0) {
        uint64_t *d = ptx_row(m, warp, to->row);
        const uint64_t *a = ptx_row(m, warp, from->row);
        LANES(d[l] = a[l]);
    }
    for (uint32_t k = 0; k < to->count; k++) {
        uint64_t *d = ptx_row(m, warp, lists[(uint32_t)to->row + k]);
        const uint64_t *a = ptx_row(m, warp, from->row);
        LANES(d[l] = a[l] >> (nbits * k) & part);
    }
    uint64_t whole[PTX_LANES] = { 0 };
    for (uint32_t k = 0; k < from->count; k++) {
        const uint64_t *a = ptx_row(m, warp, lists[(uint32_t)from->row + k]);
        LANES(whole[l] |= (a[l] & part) << (nbits * k));
    }
    if (from->count > 0) {
        uint64_t *d = ptx_row(m, warp, to->row);
        LANES(d[l] = whole[l]);
    }
}

static uint32_t permute(uint64_t bytes, uint32_t select)
{
    uint32_t result = 0;
    for (int k = 0; k < 4; k++) {
        const uint32_t part = select >> 4 * k & 15;
        uint32_t byte = bytes >> 8 * (part & 7) & 0xff;
        if ((part & 8) != 0) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << 8 * k;
    }
    return result;
}

static uint64_t insert_bits(uint64_t bits, uint64_t into, unsigned at, unsigned n)
{
    uint64_t field = n >= 64 ? UINT64_MAX : (1ull << n) - 1;
    field = at >= 64 ? 0 : field << at;
    return (into & ~field) | (at >= 64 ? 0 : bits << at & field);
}

static uint64_t convert_address(const ptx_instruction_t *i, uint64_t address)
{
    const uint64_t window = i->space == PTX_SHARED  ? PTX_WINDOW(PTX_WINDOW_SHARED)
                            : i->space == PTX_LOCAL ? PTX_WINDOW(PTX_WINDOW_LOCAL)
                            : i->space == PTX_PARAM ? PTX_WINDOW(PTX_WINDOW_PARAM)
                                                    : 0;
    return (i->flags & PTX_TO) != 0 ? address - window : address + window;
}

void ptx_compute(ptx_machine_t *m, ptx_warp_t *warp, const ptx_instruction_t *i, uint32_t mask)
{
    if (i->type == PTX_PRED) {
        compute_predicate(m, warp, i, mask);
        return;
    }
    if (i->code == PTX_MOV) {
        move(m, warp, i, mask);
        return;
    }
    const uint64_t *a = ptx_row(m, warp, i->operands[1].row),
                   *b = ptx_row(m, warp, i->operands[2].row);
    if (i->code == PTX_SETP) {
        uint32_t *p = &warp->predicates[i->operands[0].row];
        *p = (*p & ~mask) | (compare(i, a, b) & mask);
        return;
    }
    uint64_t *d = ptx_row(m, warp, i->operands[0].row);
    if (i->code == PTX_SELP) {
        const uint32_t p = predicate_of(m, warp, i->operands[3].row);
        LANES(d[l] = p >> l & 1 ? a[l] : b[l]);
        return;
    }
    const uint64_t *c = ptx_row(m, warp, i->operands[3].row);
    switch (i->code) {
    case PTX_CVT: ptx_convert(i, mask, d, a, b); return;
    case PTX_CVTA: LANES(d[l] = convert_address(i, a[l])); return;
    case PTX_PRMT: LANES(d[l] = permute((uint32_t)a[l] | b[l] << 32, (uint32_t)c[l])); return;
    case PTX_BFI: {
        const uint64_t *n = ptx_row(m, warp, i->operands[4].row);
        LANES(d[l] = insert_bits(a[l], b[l], c[l] & 255, n[l] & 255));
        return;
    }
    default: break;
    }
    if (i->type == PTX_F32)
        compute_f32(i, mask, d, a, b, c);
    else if (i->type == PTX_F64)
        compute_f64(i, mask, d, a, b, c);
    else
        compute_integers(warp, i, mask, d, a, b, c);
}
