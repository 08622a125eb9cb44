/* Pieces of a PTX text: statements, words, numbers. Nothing here knows an instruction. */
#ifndef FERRY_TESTS_FAKE_CUDA_PTX_TEXT_H_
#define FERRY_TESTS_FAKE_CUDA_PTX_TEXT_H_

#include <stddef.h>
#include <stdint.h>

typedef struct ptx_span {
    const char *at;
    size_t n;
} ptx_span_t;

int ptx_span_is(ptx_span_t span, const char *word);
int ptx_span_equals(ptx_span_t a, ptx_span_t b);
int ptx_span_begins(ptx_span_t span, const char *word);
ptx_span_t ptx_span_trim(ptx_span_t span);
/* The part before the first of `separators` outside brackets; *rest gets the part behind it. */
ptx_span_t ptx_span_cut(ptx_span_t span, const char *separators, ptx_span_t *rest);
/* An integer, or the bits of 0fXXXXXXXX or 0dXXXXXXXXXXXXXXXX. 0: it is no number. */
int ptx_span_number(ptx_span_t span, uint64_t *out);

/* The next statement from *at: "{", "}", a label with its colon, a line ".loc ...", or what a
 * semicolon ends, without it. Empty: the text has ended. */
ptx_span_t ptx_next_statement(const char **at);

/* A declaration such as ".shared .align 8 .b8 name[64]" or ".param .b64 name". */
typedef struct ptx_variable {
    ptx_span_t name;
    uint64_t nbytes, alignment;
} ptx_variable_t;
int ptx_parse_variable(ptx_span_t text, ptx_variable_t *out);

#endif
