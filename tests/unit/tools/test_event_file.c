/* The reader of event files: a call site and a signature become keys of the lines that refer to
 * them; a compressed file gives the same lines; no change of its bytes crashes the reader, and one
 * that is cut off is refused. Not here: the writer (conformance/test_conformance_events.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "tools/cli/event_file.h"

enum { MOST = 4096 };
static char path[] = "/tmp/ferry-events-XXXXXX";
static const char text[] =
    "{\"ev\":\"ferry\",\"version\":1}\n"
    "{\"ev\":\"site\",\"id\":1,\"site\":\"step+0x1c\"}\n"
    "{\"ev\":\"signature\",\"id\":9,\"name\":\"add\",\"sources\":2,\"dtypes\":\"f32 f32 f32\","
    "\"shapes\":[[2,3],[2,3],[2,3]]}\n"
    "{\"ev\":\"op\",\"scope\":\"\",\"op\":\"add\",\"site\":1,\"signature\":9,\"src\":[[1,0],[2,0]]}"
    "\n"
    "{\"ev\":\"sync\",\"scope\":\"\",\"what\":\"ticket_wait\",\"site\":1,\"blocked_ns\":7}\n"
    "{\"ev\":\"op\",\"scope\":\"\",\"op\":\"mul\",\"site\":2,\"signature\":70000}\n"
    "{\"ev\":\"end\",\"events\":5,\"lost\":0}\n";

static size_t compress_text(unsigned char *bytes)
{
    z_stream stream = { .next_in = (Bytef *)(uintptr_t)text, .avail_in = sizeof text - 1 };
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_out = bytes;
    stream.avail_out = MOST;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    return MOST - stream.avail_out;
}

static void write_file(const void *bytes, size_t nbytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, nbytes, file), nbytes);
    assert_int_equal(fclose(file), 0);
}

static void see(void *user, const event_t *event)
{
    unsigned *seen = user;
    if (strcmp(event_text(event, "op"), "add") == 0) {
        assert_string_equal(event_text(event, "site"), "step+0x1c");
        assert_string_equal(event_text(event, "dtypes"), "f32 f32 f32");
        assert_string_equal(event_text(event, "shapes"), "[[2,3],[2,3],[2,3]]");
        assert_int_equal(event->signature->sources, 2);
        assert_false(event_has(event, "strides"));
    } else if (event_is(event, "op")) { /* refers to lines that are not there */
        assert_string_equal(event_text(event, "site"), "");
        assert_null(event->signature);
    } else if (event_is(event, "sync"))
        assert_string_equal(event_text(event, "site"), "step+0x1c");
    ++*seen;
}

static void ignore(void *user, const event_t *event)
{
    (void)event;
    ++*(unsigned *)user;
}

static void expect_all(void)
{
    unsigned seen = 0;
    event_file_info_t info;
    assert_int_equal(event_file_read(path, see, &seen, &info), FY_STATUS_OK);
    assert_int_equal(seen, 5);
    assert_true(info.is_whole);
}

static void references_are_resolved(void **state)
{
    (void)state;
    write_file(text, sizeof text - 1);
    expect_all();
}

static void a_compressed_file_is_the_same(void **state)
{
    (void)state;
    unsigned char bytes[2 * MOST];
    const size_t nbytes = compress_text(bytes);
    write_file(bytes, nbytes);
    expect_all();
    /* a second member follows the end of the recording */
    unsigned seen = 0;
    event_file_info_t info;
    memcpy(bytes + nbytes, bytes, nbytes);
    write_file(bytes, 2 * nbytes);
    assert_int_equal(event_file_read(path, ignore, &seen, &info), FY_STATUS_CORRUPT_DATA);
    assert_non_null(strstr(fy_error_get()->text, "follows the end"));
}

static void a_file_that_is_cut_off_is_refused(void **state)
{
    (void)state;
    unsigned char bytes[MOST];
    const size_t whole = compress_text(bytes);
    for (size_t nbytes = 2; nbytes < whole; nbytes++) {
        unsigned seen = 0;
        event_file_info_t info;
        write_file(bytes, nbytes);
        assert_int_equal(event_file_read(path, ignore, &seen, &info), FY_STATUS_CORRUPT_DATA);
        assert_non_null(strstr(fy_error_get()->text, "is cut off"));
    }
}

/* Each bit of the compressed bytes: read or refused, never more lines than the text has. */
static void changed_bytes_do_no_harm(void **state)
{
    (void)state;
    unsigned char bytes[MOST];
    const size_t nbytes = compress_text(bytes);
    for (size_t bit = 0; bit < 8 * nbytes; bit++) {
        unsigned seen = 0;
        event_file_info_t info;
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        write_file(bytes, nbytes);
        const fy_status_t status = event_file_read(path, ignore, &seen, &info);
        assert_true(status == FY_STATUS_OK || status == FY_STATUS_CORRUPT_DATA);
        assert_true(seen < 64);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(references_are_resolved),
                                        cmocka_unit_test(a_compressed_file_is_the_same),
                                        cmocka_unit_test(a_file_that_is_cut_off_is_refused),
                                        cmocka_unit_test(changed_bytes_do_no_harm) };
    const int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
