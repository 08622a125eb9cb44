/* The text of a file of tuned convolutions: a header, then one choice a line. Strict: one space
 * between words, decimal digits, no other line.
 * Not here: reading and replacing the file (conv_tune.c). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/kernels/conv_tune.h"
#include "backends/kernels/onednn.h"

const char fy__tune_header[] = "ferry-tune 1\n";

static const struct {
    const char *name;
    int64_t op, half;
} ops[] = { { "conv2d", FY_OP_CONV2D, 0 },
            { "conv2d_backward_input", FY_OP_CONV2D_BACKWARD_INPUT, 0 },
            { "conv2d_backward_weight", FY_OP_CONV2D_BACKWARD_WEIGHT, 0 },
            { "conv2d/f16", FY_OP_CONV2D, FY_DTYPE_F16 },
            { "conv2d_backward_input/f16", FY_OP_CONV2D_BACKWARD_INPUT, FY_DTYPE_F16 },
            { "conv2d_backward_weight/f16", FY_OP_CONV2D_BACKWARD_WEIGHT, FY_DTYPE_F16 },
            { "conv2d/bf16", FY_OP_CONV2D, FY_DTYPE_BF16 },
            { "conv2d_backward_input/bf16", FY_OP_CONV2D_BACKWARD_INPUT, FY_DTYPE_BF16 },
            { "conv2d_backward_weight/bf16", FY_OP_CONV2D_BACKWARD_WEIGHT, FY_DTYPE_BF16 } };
enum { OPS = sizeof ops / sizeof *ops };

static const char *const ways[FY__TUNE_WAYS] = { "fixed",    "plain",    "product", "onednn-1",
                                                 "onednn-2", "onednn-3", "onednn-4" };

/* The shape's numbers behind `op` and `half`; `choice`, the last, is no part of the problem. */
enum { FIRST = 2, NUMBERS = sizeof(fy__conv_shape_t) / sizeof(int64_t) - FIRST - 1 };

void fy__tune_machine(char machine[FY__TUNE_MACHINE])
{
    fy__onednn_machine(machine, FY__TUNE_MACHINE);
}

int fy__tune_line(const fy__tune_choice_t *choice, char text[FY__TUNE_LINE])
{
    int64_t numbers[NUMBERS];
    int used = 0;
    memcpy(numbers, (const char *)&choice->shape + FIRST * sizeof *numbers, sizeof numbers);
    for (int i = 0; i < OPS; i++)
        if (ops[i].op == choice->shape.op && ops[i].half == choice->shape.half)
            used = snprintf(text, FY__TUNE_LINE, "%s", ops[i].name);
    for (int i = 0; i < NUMBERS; i++)
        used += snprintf(text + used, (size_t)(FY__TUNE_LINE - used), " %" PRId64, numbers[i]);
    return used + snprintf(text + used, (size_t)(FY__TUNE_LINE - used),
                           " %" PRId64 " %s %s %" PRIu64 "\n", choice->threads, choice->machine,
                           ways[choice->way], choice->ns);
}

/* ---- reading ---- */

/* The next word of a line; its length, 0 at the end or where a space is doubled. */
static size_t take(const char **at, const char *end, char last, const char **out_word)
{
    const char *begin = *at;
    while (*at < end && **at != ' ' && **at != '\n') ++*at;
    const size_t length = (size_t)(*at - begin);
    *out_word = begin;
    if (*at == end || **at != last) return 0;
    ++*at;
    return length;
}

static int is_word(const char *word, size_t length, const char *text)
{
    return strlen(text) == length && memcmp(word, text, length) == 0;
}

/* At most 15 digits, none before the first that counts. */
static int read_number(const char *word, size_t length, int64_t *out)
{
    *out = 0;
    if (length < 1 || length > 15 || (length > 1 && word[0] == '0')) return 0;
    for (size_t i = 0; i < length; i++) {
        if (word[i] < '0' || word[i] > '9') return 0;
        *out = *out * 10 + (word[i] - '0');
    }
    return 1;
}

static const char *read_line(const char **at, const char *end, fy__tune_choice_t *out)
{
    const char *word;
    int64_t numbers[NUMBERS], ns;
    size_t length = take(at, end, ' ', &word);
    *out = (fy__tune_choice_t){ .shape.op = -1, .way = -1 };
    for (int i = 0; i < OPS; i++)
        if (is_word(word, length, ops[i].name)) {
            out->shape.op = ops[i].op;
            out->shape.half = ops[i].half;
        }
    if (out->shape.op < 0) return "no known op begins it";
    for (int i = 0; i < NUMBERS; i++)
        if (!(length = take(at, end, ' ', &word)) || !read_number(word, length, &numbers[i]))
            return "a number of its shape is missing or malformed";
    memcpy((char *)&out->shape + FIRST * sizeof *numbers, numbers, sizeof numbers);
    if (!(length = take(at, end, ' ', &word)) || !read_number(word, length, &out->threads) ||
        out->threads < 1)
        return "its number of threads is missing or malformed";
    length = take(at, end, ' ', &word);
    if (length < 1 || length >= FY__TUNE_MACHINE) return "its machine is missing or too long";
    for (size_t i = 0; i < length; i++)
        if (word[i] < '!' || word[i] > '~') return "its machine has a character that is not ASCII";
    memcpy(out->machine, word, length);
    length = take(at, end, ' ', &word);
    for (int i = 0; i < FY__TUNE_WAYS; i++)
        if (is_word(word, length, ways[i])) out->way = i;
    if (out->way < 0) return "its way is none of fixed, plain, onednn-1 to onednn-4";
    if (!(length = take(at, end, '\n', &word)) || !read_number(word, length, &ns))
        return "its time is missing or malformed, or the line has no end";
    out->ns = (uint64_t)ns;
    return NULL;
}

int fy__tune_parse(const char *text, size_t nbytes,
                   void (*add)(void *user, const fy__tune_choice_t *choice), void *user,
                   const char **out_problem)
{
    const size_t header = strlen(fy__tune_header);
    const char *at = text + header, *end = text + nbytes;
    *out_problem = "it is not 'ferry-tune 1', the version that this library reads";
    if (nbytes < header || memcmp(text, fy__tune_header, header) != 0) return 1;
    for (int line = 2; at < end; line++) {
        fy__tune_choice_t choice;
        *out_problem = line > FY__TUNE_CAPACITY + 1 ? "there are more than 1024 choices"
                                                    : read_line(&at, end, &choice);
        if (*out_problem) return line;
        add(user, &choice);
    }
    return 0;
}
