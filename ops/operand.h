/* Names of an op's operands in texts: those of <ferry/ops.h>, where they are more telling than a
 * and b.
 * Not here: the texts (refuse.c, shape*.c), names that a program gives to tensors. */
#ifndef FERRY_OPS_OPERAND_H_
#define FERRY_OPS_OPERAND_H_

#include <stdbool.h>

#include <ferry/op.h>

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
