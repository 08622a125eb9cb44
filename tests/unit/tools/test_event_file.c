/* The reader of event files: a call site and a signature become keys of the lines that refer to
 * them; a compressed file gives the same lines; no change of its bytes crashes the reader, and one
 * that is cut off is refused. Not here: the writer (conformance/test_events.c). */

#include <zlib.h>

#include "tests/unit/tools/recording.h"
#include "tools/cli/event_file.h"

enum { MOST = 4096 };
static const char text[] =
    "{\"ev\":\"ferry\",\"version\":1}\n"
    "{\"ev\":\"site\",\"id\":1,\"site\":\"step+0x1c\"}\n"
    "{\"ev\":\"signature\",\"id\":9,\"name\":\"add\",\"sources\":2,\"dtypes\":\"f32 f32 f32\","
    "\"shapes\":[[2,3],[2,3],[2,3]]}\n"
    "{\"ev\":\"op\",\"scope\":\"\",\"op\":\"add\",\"site\":1,\"signature\":9,\"src\":[[1,0],[2,0]]}"
    "\n"
    "{\"ev\":\"sync\",\"scope\":\"\",\"what\":\"ticket_wait\",\"site\":1,\"blocked_ns\":7}\n"
    "{\"ev\":\"op\",\"scope\":\"\",\"op\":\"mul\",\"site\":2,\"signature\":70000}\n"
    "{\"ev\":\"collective\",\"scope\":\"step\",\"op\":\"group_all_reduce\",\"bytes\":40,\"site\":1}"
    "\n"
    "{\"ev\":\"exchange\",\"scope\":\"step\",\"bytes\":168,\"messages\":2,\"blocked_ns\":30}\n"
    "{\"ev\":\"collective_ran\",\"scope\":\"step\",\"op\":\"group_all_reduce\",\"rank\":3,"
    "\"number\":17,\"lasted_ns\":90,\"status\":\"OK\"}\n"
    "{\"ev\":\"end\",\"events\":8,\"lost\":0}\n";

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

static void see(void *user, const event_t *event)
{
    unsigned *seen = user;
    if (strcmp(event_text(event, "op"), "add") == 0) {
        assert_string_equal(event_text(event, "site"), "step+0x1c");
        assert_string_equal(event_text(event, "dtypes"), "f32 f32 f32");
        assert_string_equal(event_text(event, "shapes"), "[[2,3],[2,3],[2,3]]");
        assert_int_equal(event->signature->sources, 2);
        assert_false(event_has(event, "strides"));
    } else if (event_is(event, "collective")) {
        assert_string_equal(event_text(event, "site"), "step+0x1c");
        assert_int_equal(event_whole(event, "bytes"), 40);
    } else if (event_is(event, "exchange")) {
        assert_int_equal(event_whole(event, "bytes"), 168);
        assert_int_equal(event_whole(event, "messages"), 2);
    } else if (event_is(event, "collective_ran")) {
        assert_int_equal(event_whole(event, "rank"), 3);
        assert_int_equal(event_whole(event, "number"), 17);
        assert_string_equal(event_text(event, "status"), "OK");
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
    assert_int_equal(seen, 8);
    assert_true(info.is_whole);
}

TS_TEST(references_are_resolved)
{
    write_file(text, sizeof text - 1);
    expect_all();
}

TS_TEST(a_compressed_file_is_the_same)
{
    unsigned char bytes[2 * MOST];
    const size_t nbytes = compress_text(bytes);
    write_file(bytes, nbytes);
    expect_all();
    /* a second member follows the end of the recording */
    unsigned seen = 0;
    event_file_info_t info;
    memcpy(bytes + nbytes, bytes, nbytes);
    write_file(bytes, 2 * nbytes);
    ts_fails_with(event_file_read(path, ignore, &seen, &info), CORRUPT_DATA, "follows the end");
}

/* All lines before the cut are handed out, if the first one is there. */
TS_TEST(a_file_that_is_cut_off_is_read_until_there)
{
    unsigned char bytes[MOST];
    const size_t whole = compress_text(bytes);
    unsigned most = 0;
    for (size_t nbytes = 2; nbytes < whole; nbytes++) {
        unsigned seen = 0;
        event_file_info_t info;
        write_file(bytes, nbytes);
        const fy_status_t status = event_file_read(path, ignore, &seen, &info);
        if (status == FY_STATUS_OK) {
            assert_true(!info.is_whole || seen == 8);
            assert_int_equal(seen, info.events);
            most = seen > most ? seen : most;
        } else {
            assert_false(most);
            ts_fails_with(status, CORRUPT_DATA, "is cut off");
        }
    }
    assert_true(most > 0);
}

/* Each bit of the compressed bytes: read or refused, never more lines than the text has. */
TS_TEST(changed_bytes_do_no_harm)
{
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

static void expect_count(const char *value, bool is_count, uint64_t expected)
{
    char line[128];
    event_t event;
    uint64_t count = 99;
    snprintf(line, sizeof line, "{\"ev\":\"collective_ran\",\"rank\":%s}", value);
    const char *wrong = event_parse(line, &event);
    if (wrong) fail_msg("%s %s", value, wrong);
    if (event_count(&event, "rank", INT32_MAX, &count) != is_count || count != expected)
        fail_msg("%s is %sa count, %llu", value, is_count ? "not " : "", (unsigned long long)count);
    assert_true(event_count(&event, "absent", INT32_MAX, &count));
    assert_int_equal(count, 0);
}

/* Values that are whole numbers from 0 to a limit, and all other values. */
TS_TEST(counts_are_whole_numbers)
{
    static const char *const counts[] = { "0", "-0", "7", "7.0", "2147483647" };
    char others[] = "2147483648 999999999999999 1000000000000000 18446744073709551615 "
                    "18446744073709551616 36893488147419103239 -1 -0.5 0.5 1e3 1e999 -1e999 "
                    "-inf -nan null true false [7] [] \"7\" \"\"";
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        expect_count(counts[i], true, strtoull(counts[i], NULL, 10));
    for (char *rest, *other = strtok_r(others, " ", &rest); other;
         other = strtok_r(NULL, " ", &rest))
        expect_count(other, false, 0);
}

/* Lines of the calls of a group that are changed at each byte: read or refused, no crash. */
TS_TEST(changed_lines_of_groups_do_no_harm)
{
    static const char *const lines[] = {
        "{\"ev\":\"collective\",\"op\":\"group_send\",\"bytes\":40,\"site\":1}",
        "{\"ev\":\"exchange\",\"bytes\":168,\"messages\":2,\"blocked_ns\":30}",
        "{\"ev\":\"collective_ran\",\"op\":\"x\",\"rank\":3,\"number\":17,\"status\":\"OK\"}",
    };
    static const char bytes[] = "\"{}[],:-+.eE0 9\\/u\x01\xff\n";
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        for (size_t at = 0; at < strlen(lines[i]); at++)
            for (size_t b = 0; b < sizeof bytes; b++) { /* the last one ends the line */
                char line[256];
                event_t event;
                uint64_t count;
                snprintf(line, sizeof line, "%s", lines[i]);
                line[at] = bytes[b];
                if (event_parse(line, &event)) continue;
                assert_true(event.count <= EVENT_FIELDS);
                (void)event_count(&event, "rank", INT32_MAX, &count);
                assert_true(count <= INT32_MAX);
                (void)event_count(&event, "bytes", INT64_MAX, &count);
                assert_true(count <= INT64_MAX);
                assert_true(strlen(event_text(&event, "op")) < sizeof line);
            }
}

TS_SUITE(FILE_OF_SUITE);
