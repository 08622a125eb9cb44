/* See unzip.h. A file may have several members, one after the other (RFC 1952), with zeros behind
 * each. */
#include "tools/cli/unzip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tools/cli/tool.h"

enum { ROOM = 1 << 16, GZIP_WINDOW = 15 + 16 };

struct unzip {
    fy__input_t *input;
    z_stream stream;
    bool is_between; /* a member has ended */
    bool is_cut;
    unsigned char bytes[ROOM];
};

bool unzip_is_packed(const char *bytes, size_t nbytes)
{
    return nbytes >= 2 && memcmp(bytes, "\x1f\x8b", 2) == 0;
}

fy_status_t unzip_open(fy__input_t *input, const char *begin, size_t nbytes, unzip_t **out_unzip)
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

fy_status_t unzip_read(unzip_t *unzip, void *to, size_t room, size_t *out_nread)
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

bool unzip_is_cut(const unzip_t *unzip) { return unzip->is_cut; }

void unzip_close(unzip_t *unzip)
{
    if (!unzip) return;
    (void)inflateEnd(&unzip->stream);
    free(unzip);
}
