/* Lines are found in one buffer of the most that a line may have: a file without line ends takes no
 * more than that. */
#include "tools/cli/text_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

static fy_status_t input_failed(const fy__input_t *input)
{
    return input->error == ENOMEM ? TOOL_FAIL(OUT_OF_MEMORY, "%s", input->problem)
                                  : TOOL_FAIL(IO, "%s", input->problem);
}

fy_status_t text_file_read(const char *path, const char *what, const char *begins,
                           size_t most_nbytes, char **out_text)
{
    fy__input_t input;
    size_t nbytes;
    const int error = fy__input_text(&input, path, begins, most_nbytes, out_text, &nbytes);
    if (error == EFBIG || error == EBADMSG)
        return TOOL_FAIL(CORRUPT_DATA, "%s: that is no %s", input.problem, what);
    if (error) return input_failed(&input);
    if (strlen(*out_text) == nbytes) return FY_STATUS_OK;
    const fy_status_t status = TOOL_FAIL(CORRUPT_DATA, "%s is no %s: there is a zero byte at %zu",
                                         path, what, strlen(*out_text));
    free(*out_text);
    *out_text = NULL;
    return status;
}

fy_status_t text_lines_open(text_lines_t *lines, const char *path, const char *what)
{
    *lines = (text_lines_t){ .what = what };
    if (fy__input_open(&lines->input, path)) return input_failed(&lines->input);
    lines->bytes = malloc(TEXT_LINE_MOST_NBYTES);
    if (lines->bytes) return FY_STATUS_OK;
    fy__input_close(&lines->input);
    return TOOL_FAIL(OUT_OF_MEMORY, "no host memory for the lines of %s", path);
}

/* The first bytes, which say whether the file is compressed. */
static fy_status_t begin(text_lines_t *lines)
{
    enum { FIRST = 1 << 12 };
    size_t got = 1;
    while (got && lines->end < 2) {
        if (fy__input_read(&lines->input, lines->bytes + lines->end, FIRST - lines->end, &got))
            return input_failed(&lines->input);
        lines->end += got;
    }
    lines->is_begun = true;
    if (!unzip_is_packed(lines->bytes, lines->end)) {
        lines->is_over = !got;
        return FY_STATUS_OK;
    }
    FY_TRY(unzip_open(&lines->input, lines->bytes, lines->end, &lines->unzip));
    lines->end = 0;
    return FY_STATUS_OK;
}

/* Moves the remaining bytes to the buffer's begin and reads more after them. */
static fy_status_t fill(text_lines_t *lines)
{
    size_t got;
    if (!lines->is_begun) return begin(lines);
    memmove(lines->bytes, lines->bytes + lines->begin, lines->end - lines->begin);
    lines->end -= lines->begin;
    lines->begin = 0;
    if (lines->end == TEXT_LINE_MOST_NBYTES - 1)
        return TOOL_FAIL(CORRUPT_DATA, "%s is no %s: line %llu has more than %d bytes",
                         lines->input.path, lines->what, (unsigned long long)lines->number + 1,
                         TEXT_LINE_MOST_NBYTES - 1);
    char *to = lines->bytes + lines->end;
    const size_t room = TEXT_LINE_MOST_NBYTES - 1 - lines->end;
    if (lines->unzip) {
        const fy_status_t status = unzip_read(lines->unzip, to, room, &got);
        const bool may_end = lines->takes_cut && lines->number && unzip_is_cut(lines->unzip);
        if (!may_end) FY_TRY(status);
    } else if (fy__input_read(&lines->input, to, room, &got))
        return input_failed(&lines->input);
    if (!got) lines->is_over = true;
    lines->end += got;
    return FY_STATUS_OK;
}

fy_status_t text_lines_next(text_lines_t *lines, char **out_line)
{
    char *end = NULL;
    size_t seen = 0; /* bytes that hold no line's end */
    *out_line = lines->again;
    lines->again = NULL;
    if (*out_line) return FY_STATUS_OK;
    for (;;) {
        const size_t count = lines->end - lines->begin;
        char *line = lines->bytes + lines->begin;
        if (count > seen) end = memchr(line + seen, '\n', count - seen);
        const size_t length = end ? (size_t)(end - line) : count;
        if (memchr(line + seen, 0, length - seen))
            return TOOL_FAIL(CORRUPT_DATA, "%s is no %s: line %llu has a zero byte",
                             lines->input.path, lines->what, (unsigned long long)lines->number + 1);
        seen = length;
        if (!end && !lines->is_over) {
            FY_TRY(fill(lines));
            continue;
        }
        if (!end && !count) return FY_STATUS_OK;
        lines->begin += length + (end != NULL);
        lines->is_partial = !end;
        lines->number++;
        line[length] = 0;
        if (length && line[length - 1] == '\r') line[length - 1] = 0;
        *out_line = lines->last = line;
        return FY_STATUS_OK;
    }
}

void text_lines_back(text_lines_t *lines) { lines->again = lines->last; }

void text_lines_close(text_lines_t *lines)
{
    unzip_close(lines->unzip);
    fy__input_close(&lines->input);
    free(lines->bytes);
}
