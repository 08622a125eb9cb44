/* gzip by zlib at its fastest level: the writer's thread must keep up with all others, and lines
 * repeat so much that more effort gains little. */
#include "runtime/record/event_write.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { ROOM = 1 << 16, GZIP_WINDOW = 15 + 16 };

typedef struct fy__event_gzip {
    z_stream stream;
    unsigned char room[ROOM];
} gzip_t;

bool fy__event_sink_is_packed(const char *path)
{
    const size_t n = strlen(path);
    return n > 3 && strcmp(path + n - 3, ".gz") == 0;
}

bool fy__event_sink_open(fy__event_sink_t *sink, int fd, bool is_packed)
{
    *sink = (fy__event_sink_t){ .fd = fd };
    if (!is_packed) return true;
    gzip_t *gzip = calloc(1, sizeof *gzip);
    if (!gzip || deflateInit2(&gzip->stream, Z_BEST_SPEED, Z_DEFLATED, GZIP_WINDOW, MAX_MEM_LEVEL,
                              Z_DEFAULT_STRATEGY) != Z_OK) {
        free(gzip);
        return false;
    }
    sink->gzip = gzip;
    return true;
}

static void write_all(fy__event_sink_t *sink, const void *bytes, size_t nbytes)
{
    for (size_t done = 0; done < nbytes && !sink->failed;) {
        const ssize_t n = write(sink->fd, (const char *)bytes + done, nbytes - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            sink->failed = errno;
    }
}

void fy__event_sink_put(fy__event_sink_t *sink, const char *bytes, size_t nbytes, bool ends)
{
    gzip_t *gzip = sink->gzip;
    if (!gzip) {
        write_all(sink, bytes, nbytes);
        return;
    }
    z_stream *stream = &gzip->stream;
    stream->next_in = (Bytef *)(uintptr_t)bytes;
    stream->avail_in = (uInt)nbytes;
    do {
        stream->next_out = gzip->room;
        stream->avail_out = ROOM;
        (void)deflate(stream, ends ? Z_FINISH : Z_NO_FLUSH);
        write_all(sink, gzip->room, ROOM - stream->avail_out);
    } while (!stream->avail_out && !sink->failed);
}

int fy__event_sink_close(fy__event_sink_t *sink)
{
    if (sink->gzip) {
        (void)deflateEnd(&sink->gzip->stream);
        free(sink->gzip);
    }
    if (close(sink->fd) != 0 && !sink->failed) sink->failed = errno;
    return sink->failed;
}
