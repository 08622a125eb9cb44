/* Lines are found in one buffer of the most that a line may have: a file without line ends takes no
 * more than that. */
#include "tools/cli/text_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tools/cli/tool.h"

static fy_status_t input_failed(const fy__input_t *input)
{
    return input->error == ENOMEM ? TOOL_FAIL(OUT_OF_MEMORY, "%s", input->problem)
                                  : TOOL_FAIL(IO, "%s", input->problem);
}

/* ---- gzip: a file may have several members, one after the other (RFC 1952), with zeros
 * behind each ---- */

enum { ROOM = 1 << 16, GZIP_WINDOW = 15 + 16 };

typedef struct unzip {
    fy__input_t *input;
    z_stream stream;
    bool is_between; /* a member has ended */
    bool is_cut;     /* unzip_read failed because the compressed data have no end */
    unsigned char bytes[ROOM];
} unzip_t;

/* Whether the file that begins with these bytes is compressed. */
static bool unzip_is_packed(const char *bytes, size_t nbytes)
{
    return nbytes >= 2 && memcmp(bytes, "\x1f\x8b", 2) == 0;
}

/* For a file whose first bytes were read already. */
static fy_status_t unzip_open(fy__input_t *input, const char *begin, size_t nbytes,
                              unzip_t **out_unzip)
{
    unzip_t *unzip = calloc(1, sizeof *unzip);
    *out_unzip = NULL;
    if (!unzip || nbytes > ROOM || inflateInit2(&unzip->stream, GZIP_WINDOW) != Z_OK) {
        free(unzip);
        return TOOL_FAIL(OUT_OF_MEMORY, "no host memory to decompress %s", input->path);
    }
    unzip->input = input;
    memcpy(unzip->bytes, begin, nbytes);
    unzip->stream.next_in = unzip->bytes;
    unzip->stream.avail_in = (uInt)nbytes;
    *out_unzip = unzip;
    return FY_STATUS_OK;
}

/* Reads compressed bytes if none are left; *out_is_over: there are no more. */
static fy_status_t refill(unzip_t *unzip, bool *out_is_over)
{
    size_t got;
    *out_is_over = false;
    if (unzip->stream.avail_in) return FY_STATUS_OK;
    if (fy__input_read(unzip->input, unzip->bytes, ROOM, &got))
        return TOOL_FAIL(IO, "%s", unzip->input->problem);
    unzip->stream.next_in = unzip->bytes;
    unzip->stream.avail_in = (uInt)got;
    *out_is_over = !got;
    if (got || unzip->is_between) return FY_STATUS_OK;
    unzip->is_cut = true;
    return TOOL_FAIL(CORRUPT_DATA,
                     "%s is cut off: its compressed data have no end (the process was killed, or "
                     "still runs, or the disk was full)",
                     unzip->input->path);
}

/* The next bytes, at most `room`; *out_nread is 0 at the end only. */
static fy_status_t unzip_read(unzip_t *unzip, void *to, size_t room, size_t *out_nread)
{
    z_stream *stream = &unzip->stream;
    bool is_over;
    *out_nread = 0;
    stream->next_out = to;
    stream->avail_out = (uInt)room;
    while (stream->avail_out == room) {
        FY_TRY(refill(unzip, &is_over));
        if (is_over) return FY_STATUS_OK;
        for (; unzip->is_between && stream->avail_in && !*stream->next_in; stream->avail_in--)
            stream->next_in++; /* padding */
        if (!stream->avail_in) continue;
        if (unzip->is_between) (void)inflateReset(stream);
        const int result = inflate(stream, Z_NO_FLUSH);
        if (result == Z_MEM_ERROR)
            return TOOL_FAIL(OUT_OF_MEMORY, "no host memory to decompress %s", unzip->input->path);
        if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
            return TOOL_FAIL(CORRUPT_DATA, "%s is damaged: its compressed data have %s",
                             unzip->input->path, stream->msg ? stream->msg : "an unknown form");
        unzip->is_between = result == Z_STREAM_END;
    }
    *out_nread = room - stream->avail_out;
    return FY_STATUS_OK;
}

static void unzip_close(unzip_t *unzip)
{
    if (!unzip) return;
    (void)inflateEnd(&unzip->stream);
    free(unzip);
}

/* ---- texts and lines ---- */

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
        const bool may_end = lines->takes_cut && lines->number && lines->unzip->is_cut;
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
    if (*out_line || (lines->most && lines->number >= lines->most)) return FY_STATUS_OK;
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
