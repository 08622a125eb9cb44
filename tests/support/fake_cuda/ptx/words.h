/* The vocabulary of the decoder: instructions, modifiers, special registers. */
#ifndef FERRY_TESTS_FAKE_CUDA_PTX_WORDS_H_
#define FERRY_TESTS_FAKE_CUDA_PTX_WORDS_H_

#include "tests/support/fake_cuda/ptx/machine.h"
#include "tests/support/fake_cuda/ptx/text.h"

/* Sets code, types and flags by words such as "mul.wide.s32". Returns NULL, or which part is
 * unknown. */
const char *ptx_parse_words(ptx_span_t words, ptx_instruction_t *i, unsigned *out_noperands);
/* The row of a special register; -1: it is none. */
int32_t ptx_special_row(ptx_span_t name);

#endif
