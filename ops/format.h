/* Shapes as error texts show them: "[64x784 f32]", "[scalar i64]". Bounded, no heap. Not here: what
 * the texts say. */
#ifndef FERRY_OPS_FORMAT_H_
#define FERRY_OPS_FORMAT_H_

#include <ferry/op.h>

/* Enough for any descriptor. Eight dims of 19 digits and their separators, a dtype, brackets. */
#define FY__DESC_TEXT_NBYTES 184
/* Enough for a list of all dtypes. */
#define FY__DTYPES_TEXT_NBYTES 48

/* Writes the text to `buf`, cut at nbytes - 1; nbytes > 0. Returns buf, so that it can stand among
 * FY_FAIL's arguments. */
const char *fy__desc_format(const fy_desc_t *desc, char *buf, size_t nbytes);
/* "f32 f64 f16 bf16" for a mask of FY_DTYPE_BITs. */
const char *fy__dtypes_format(uint32_t dtypes, char *buf, size_t nbytes);

/* For FY_FAIL: a text that lives until the end of the enclosing block. */
#define FY__DESC_TEXT(desc) \
    fy__desc_format((desc), (char[FY__DESC_TEXT_NBYTES]){ 0 }, FY__DESC_TEXT_NBYTES)
#define FY__DTYPES_TEXT(dtypes) \
    fy__dtypes_format((dtypes), (char[FY__DTYPES_TEXT_NBYTES]){ 0 }, FY__DTYPES_TEXT_NBYTES)

#endif
