/* The words that the machine knows: Ferry's kernels have these. */
#include "tests/support/fake_cuda/ptx/words.h"

struct word {
    const char *name;
    uint32_t value;
};

static const struct word types[] = { { "u8", PTX_U8 },     { "s8", PTX_S8 },     { "b8", PTX_B8 },
                                     { "u16", PTX_U16 },   { "s16", PTX_S16 },   { "b16", PTX_B16 },
                                     { "u32", PTX_U32 },   { "s32", PTX_S32 },   { "b32", PTX_B32 },
                                     { "u64", PTX_U64 },   { "s64", PTX_S64 },   { "b64", PTX_B64 },
                                     { "f16", PTX_F16 },   { "f32", PTX_F32 },   { "f64", PTX_F64 },
                                     { "bf16", PTX_BF16 }, { "pred", PTX_PRED }, { NULL, 0 } };
static const struct word pairs[] = { { "f16x2", PTX_F16 }, { "bf16x2", PTX_BF16 }, { NULL, 0 } };
static const struct word spaces[] = { { "global", PTX_GLOBAL },
                                      { "shared", PTX_SHARED },
                                      { "local", PTX_LOCAL },
                                      { "param", PTX_PARAM },
                                      { NULL, 0 } };
static const struct word compares[] = { { "eq", PTX_EQ },   { "ne", PTX_NE },   { "lt", PTX_LT },
                                        { "le", PTX_LE },   { "gt", PTX_GT },   { "ge", PTX_GE },
                                        { "equ", PTX_EQU }, { "neu", PTX_NEU }, { "ltu", PTX_LTU },
                                        { "leu", PTX_LEU }, { "gtu", PTX_GTU }, { "geu", PTX_GEU },
                                        { "num", PTX_NUM }, { "nan", PTX_NAN }, { NULL, 0 } };
static const struct word roundings[] = {
    { "rz", PTX_RZ | PTX_ROUNDED },   { "rm", PTX_RM | PTX_ROUNDED },
    { "rp", PTX_RP | PTX_ROUNDED },   { "rni", PTX_RN | PTX_INTEGRAL },
    { "rzi", PTX_RZ | PTX_INTEGRAL }, { "rmi", PTX_RM | PTX_INTEGRAL },
    { "rpi", PTX_RP | PTX_INTEGRAL }, { NULL, 0 }
};
static const struct word vectors[] = { { "v2", 2 }, { "v4", 4 }, { NULL, 0 } };
static const struct word flags[] = { { "lo", PTX_LO },     { "hi", PTX_HI },
                                     { "wide", PTX_WIDE }, { "ftz", PTX_FTZ },
                                     { "sat", PTX_SAT },   { "approx", PTX_APPROX },
                                     { "cc", PTX_CC },     { "trans", PTX_TRANS },
                                     { "to", PTX_TO },     { "volatile", PTX_VOLATILE },
                                     { "bfly", PTX_BFLY }, { "wait_all", PTX_WAIT },
                                     { NULL, 0 } };
/* They say what the machine does anyway. */
static const struct word plain[] = { { "rn", 0 },       { "uni", 0 },     { "sync", 0 },
                                     { "nc", 0 },       { "aligned", 0 }, { "row", 0 },
                                     { "col", 0 },      { "m8n8", 0 },    { "x4", 0 },
                                     { "m16n8k16", 0 }, { "async", 0 },   { "cg", 0 },
                                     { NULL, 0 } };

/* Types, as bits. */
#define T(type)  (1u << PTX_##type)
#define SIGNED   (T(S16) | T(S32) | T(S64))
#define INTEGERS (SIGNED | T(U16) | T(U32) | T(U64))
#define FLOATS   (T(F32) | T(F64))
#define HALVES   (T(F16) | T(BF16))
#define NUMBERS  (INTEGERS | FLOATS)
#define BITS     (T(B16) | T(B32) | T(B64))
#define BYTES    (T(U8) | T(S8) | T(B8))
#define PRODUCT  (PTX_LO | PTX_HI | PTX_WIDE)

/* Instructions, how many operands they have, the result types and the flags that the machine knows
 * for them. */
static const struct instruction {
    const char *name;
    uint8_t code, noperands;
    uint32_t types;
    uint32_t known, always;
} instructions[] = {
    { "mov", PTX_MOV, 2, NUMBERS | BITS | T(PRED), 0, 0 },
    { "add", PTX_ADD, 3, NUMBERS, PTX_CC | PTX_ROUNDED, 0 },
    { "addc", PTX_ADD, 3, INTEGERS, PTX_CC, PTX_FROM_CC },
    { "sub", PTX_SUB, 3, NUMBERS, PTX_CC, 0 },
    { "subc", PTX_SUB, 3, INTEGERS, PTX_CC, PTX_FROM_CC },
    { "mul", PTX_MUL, 3, NUMBERS, PRODUCT, 0 },
    { "mad", PTX_MAD, 4, INTEGERS, PRODUCT | PTX_CC, 0 },
    { "madc", PTX_MAD, 4, INTEGERS, PTX_LO | PTX_HI | PTX_CC, PTX_FROM_CC },
    { "fma", PTX_FMA, 4, FLOATS, PTX_ROUNDED, 0 },
    { "div", PTX_DIV, 3, NUMBERS, 0, 0 },
    { "rem", PTX_REM, 3, INTEGERS, 0, 0 },
    { "min", PTX_MIN, 3, NUMBERS, 0, 0 },
    { "max", PTX_MAX, 3, NUMBERS, 0, 0 },
    { "abs", PTX_ABS, 2, SIGNED | FLOATS, 0, 0 },
    { "neg", PTX_NEG, 2, SIGNED | FLOATS, 0, 0 },
    { "and", PTX_AND, 3, BITS | T(PRED), 0, 0 },
    { "or", PTX_OR, 3, BITS | T(PRED), 0, 0 },
    { "xor", PTX_XOR, 3, BITS | T(PRED), 0, 0 },
    { "not", PTX_NOT, 2, BITS | T(PRED), 0, 0 },
    { "shl", PTX_SHL, 3, BITS, 0, 0 },
    { "shr", PTX_SHR, 3, BITS | INTEGERS, 0, 0 },
    { "selp", PTX_SELP, 4, NUMBERS | BITS, 0, 0 },
    { "setp", PTX_SETP, 3, NUMBERS | BITS, 0, 0 },
    { "cvt", PTX_CVT, 2, NUMBERS | HALVES, PTX_SAT | PTX_ROUNDED | PTX_INTEGRAL | PTX_PAIR, 0 },
    { "ex2", PTX_EX2, 2, T(F32), PTX_APPROX | PTX_FTZ, 0 },
    { "rcp", PTX_RCP, 2, FLOATS, PTX_APPROX | PTX_FTZ, 0 },
    { "sqrt", PTX_SQRT, 2, FLOATS, 0, 0 },
    { "copysign", PTX_COPYSIGN, 3, FLOATS, 0, 0 },
    { "prmt", PTX_PRMT, 4, T(B32), 0, 0 },
    { "bfi", PTX_BFI, 5, T(B32) | T(B64), 0, 0 },
    { "clz", PTX_CLZ, 2, T(B32) | T(B64), 0, 0 },
    { "cvta", PTX_CVTA, 2, T(U64), PTX_TO, 0 },
    { "ld", PTX_LD, 2, NUMBERS | BITS | BYTES, PTX_VOLATILE, 0 },
    { "st", PTX_ST, 2, NUMBERS | BITS | BYTES, PTX_VOLATILE, 0 },
    { "cp", PTX_CP, 4, 0, PTX_WAIT, 0 },
    { "shfl", PTX_SHFL, 5, T(B32), PTX_BFLY, 0 },
    { "ldmatrix", PTX_LDMATRIX, 2, T(B16), PTX_TRANS, 0 },
    { "mma", PTX_MMA, 4, T(F32), 0, 0 },
    { "bra", PTX_BRA, 1, 0, 0, 0 },
    { "bar", PTX_BAR, 1, 0, 0, 0 },
    { "ret", PTX_RET, 0, 0, 0, 0 },
    { "call", PTX_CALL, 3, 0, 0, 0 },
};

/* The types of an instruction, in its order. */
typedef struct types {
    uint8_t at[4];
    unsigned n;
} types_t;

static int look_up(const struct word *words, ptx_span_t name, uint32_t *out)
{
    for (; words->name != NULL; words++)
        if (ptx_span_is(name, words->name)) {
            *out = words->value;
            return 1;
        }
    return 0;
}

int32_t ptx_special_row(ptx_span_t name)
{
    static const struct word specials[] = {
        { "%tid.x", PTX_TID_X },   { "%tid.y", PTX_TID_Y },       { "%ctaid.x", PTX_CTAID_X },
        { "%ntid.x", PTX_NTID_X }, { "%nctaid.x", PTX_NCTAID_X }, { NULL, 0 }
    };
    uint32_t row;
    return look_up(specials, name, &row) ? (int32_t)row : -1;
}

static void take_rounding(ptx_instruction_t *i, uint32_t value)
{
    i->rounding = value & 3;
    i->flags |= value & ~3u;
}

/* Returns whether the machine knows the word. */
static int parse_modifier(ptx_span_t word, ptx_instruction_t *i, types_t *of)
{
    uint32_t value;
    if (of->n < 4 && look_up(types, word, &value))
        of->at[of->n++] = (uint8_t)value;
    else if (i->code == PTX_CVT && of->n < 4 && look_up(pairs, word, &value))
        of->at[of->n++] = (uint8_t)value, i->flags |= PTX_PAIR;
    else if (look_up(spaces, word, &value))
        i->space = (uint8_t)value;
    else if (i->code == PTX_SETP && look_up(compares, word, &value))
        i->compare = (uint8_t)value;
    else if (look_up(roundings, word, &value))
        take_rounding(i, value);
    else if (look_up(flags, word, &value))
        i->flags |= value;
    else if (look_up(vectors, word, &value))
        i->vector = (uint8_t)value;
    else
        return look_up(plain, word, &value);
    return 1;
}

static int is_in(uint32_t set, unsigned type) { return (set >> type & 1) != 0; }

/* From an integer the machine rounds to f32 and f64 only; from a float to an integer as it says. */
static int conversion_is_known(const ptx_instruction_t *i)
{
    const int to_float = is_in(FLOATS | HALVES, i->type),
              from_float = is_in(FLOATS | HALVES, i->from), is_integral = i->flags & PTX_INTEGRAL;
    if (!is_in(NUMBERS | HALVES | T(U8) | T(S8), i->from)) return 0;
    if ((i->flags & PTX_PAIR) != 0) return is_in(HALVES, i->type) && i->from == PTX_F32;
    if ((i->flags & PTX_ROUNDED) != 0 && !is_in(FLOATS, i->type)) return 0;
    if ((i->flags & PTX_SAT) != 0 && (i->type != PTX_F32 || i->from != PTX_F32)) return 0;
    if (is_in(HALVES, i->type)) return from_float && !is_integral;
    if (to_float && from_float) return !is_integral || i->type == i->from;
    return from_float ? is_integral : !is_integral;
}

static int types_are_known(const struct instruction *known, const types_t *of)
{
    const unsigned n = known->code == PTX_MMA ? 4 : known->code == PTX_CVT ? 2 : known->types != 0;
    if (of->n != n || (n > 0 && !is_in(known->types, of->at[0]))) return 0;
    return n < 4 || (is_in(HALVES, of->at[1]) && of->at[2] == of->at[1] && of->at[3] == of->at[0]);
}

static int modifiers_are_known(const ptx_instruction_t *i)
{
    const unsigned nbytes = ptx_type_nbytes(i->type), product = i->flags & PRODUCT;
    const int is_float = is_in(FLOATS, i->type), is_access = i->code == PTX_LD || i->code == PTX_ST;
    if (!is_access && (i->vector != 1 || (i->space != PTX_GENERIC && i->code != PTX_CVTA &&
                                          i->code != PTX_CP && i->code != PTX_LDMATRIX)))
        return 0;
    if ((i->flags & (PTX_CC | PTX_FROM_CC)) != 0 && (nbytes != 4 || is_float)) return 0;
    if ((i->flags & PTX_ROUNDED) != 0 && i->type != PTX_F32 && i->code != PTX_CVT) return 0;
    switch (i->code) {
    case PTX_MUL:
    case PTX_MAD: /* one of the three, of integers */
        return is_float ? product == 0
                        : product != 0 && (product & (product - 1)) == 0 &&
                              (product != PTX_WIDE || nbytes < 8);
    case PTX_SETP:
        return i->compare != 0 && (i->compare <= PTX_NE || !is_in(BITS, i->type)) &&
               (i->compare <= PTX_GE || is_float);
    case PTX_CVT: return conversion_is_known(i);
    case PTX_EX2: return (i->flags & PTX_APPROX) != 0;
    case PTX_RCP: /* of f64 both or neither */
        return i->type == PTX_F32 ? (i->flags & (PTX_APPROX | PTX_FTZ)) != PTX_FTZ
                                  : (i->flags & PTX_APPROX) == 0 || (i->flags & PTX_FTZ) != 0;
    case PTX_CVTA: return i->space != PTX_GENERIC;
    case PTX_LDMATRIX: return i->space == PTX_SHARED;
    case PTX_CP: return (i->space == PTX_GLOBAL) != ((i->flags & PTX_WAIT) != 0); /* to shared */
    case PTX_SHFL: return (i->flags & PTX_BFLY) != 0;
    default: return !is_access || nbytes * i->vector <= 16;
    }
}

const char *ptx_parse_words(ptx_span_t words, ptx_instruction_t *i, unsigned *out_noperands)
{
    const struct instruction *known = NULL;
    types_t of = { .n = 0 };
    const ptx_span_t name = ptx_span_cut(words, ".", &words);
    for (size_t k = 0; k < sizeof instructions / sizeof *instructions; k++)
        if (ptx_span_is(name, instructions[k].name)) known = &instructions[k];
    if (known == NULL) return "unknown instruction";
    i->code = known->code;
    *out_noperands = known->noperands;
    while (words.n > 0)
        if (!parse_modifier(ptx_span_cut(words, ".", &words), i, &of)) return "unknown modifier";
    if ((i->flags & PTX_PAIR) != 0) *out_noperands = 3;
    if ((i->flags & PTX_WAIT) != 0) *out_noperands = 0;
    i->type = of.at[0];
    i->from = of.at[1];
    if (!types_are_known(known, &of)) return "unknown types";
    const int only_known = (i->flags & ~known->known) == 0;
    i->flags |= known->always;
    return only_known && modifiers_are_known(i) ? NULL : "unknown combination of modifiers";
}
