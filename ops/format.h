/* Shapes, numbers and operands as error texts show them: "[64x784 f32]", "[scalar i64]", "0.1".
 * Names of operands are those of <ferry/ops.h>, where they are more telling than a and b. Bounded,
 * no heap. Not here: what the texts say, names that a program gives to tensors. */
#ifndef FERRY_OPS_FORMAT_H_
#define FERRY_OPS_FORMAT_H_

#include <stdbool.h>

#include <ferry/op.h>

/* Enough for any descriptor. Eight dims of 19 digits and their separators, a dtype, brackets. */
#define FY__DESC_TEXT_NBYTES 184
/* Enough for a list of all dtypes. */
#define FY__DTYPES_TEXT_NBYTES 48
/* Enough for any number: a sign, 20 digits, or 17 with a point and an exponent. */
#define FY__NUMBER_TEXT_NBYTES 32

/* Writes the text to `buf`, cut at nbytes - 1; nbytes > 0. Returns buf, so that it can stand among
 * FY_FAIL's arguments. */
const char *fy__desc_format(const fy_desc_t *desc, char *buf, size_t nbytes);
/* "f32 f64 f16 bf16" for a mask of FY_DTYPE_BITs. */
const char *fy__dtypes_format(uint32_t dtypes, char *buf, size_t nbytes);

/* A whole number below 2^64 in digits, any other number in the fewest digits that read back as the
 * same number: "3000000000", "0.1", "1.0000001", "1e+30". */
const char *fy__number_format(double value, char *buf, size_t nbytes);

/* For FY_FAIL: a text that lives until the end of the enclosing block. */
#define FY__DESC_TEXT(desc) \
    fy__desc_format((desc), (char[FY__DESC_TEXT_NBYTES]){ 0 }, FY__DESC_TEXT_NBYTES)
#define FY__DTYPES_TEXT(dtypes) \
    fy__dtypes_format((dtypes), (char[FY__DTYPES_TEXT_NBYTES]){ 0 }, FY__DTYPES_TEXT_NBYTES)
#define FY__NUMBER_TEXT(value) \
    fy__number_format((value), (char[FY__NUMBER_TEXT_NBYTES]){ 0 }, FY__NUMBER_TEXT_NBYTES)

#define FY__OPERAND_TEXT_NBYTES 40

/* "step_number"; NULL if the operand has no name, as with registered ops, or if there is no op
 * called `op`. Static. */
const char *fy__operand_name(const char *op, bool is_dst, size_t index);
/* "step_number (dst3)", "src1". Writes to `buf`, of FY__OPERAND_TEXT_NBYTES, and returns it. */
const char *fy__operand_format(const char *op, bool is_dst, size_t index, char *buf);

/* For FY_FAIL: a text that lives until the end of the enclosing block. */
#define FY__SRC_TEXT(op, index) \
    fy__operand_format((op), false, (size_t)(index), (char[FY__OPERAND_TEXT_NBYTES]){ 0 })
#define FY__DST_TEXT(op, index) \
    fy__operand_format((op), true, (size_t)(index), (char[FY__OPERAND_TEXT_NBYTES]){ 0 })

#endif
