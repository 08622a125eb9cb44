/* The JSON writer: brackets, commas, escapes, numbers that JSON does not have. */

#include <math.h>

#include "tests/support/harness.h"
#include "tools/cli/json.h"

/* Compares the output of `write` without spaces and line ends between tokens (the strings used here
 * contain none). */
static void assert_written(void (*write)(json_t *json), const char *expected)
{
    char *text;
    size_t nbytes;
    json_t json = { .file = open_memstream(&text, &nbytes) };
    assert_non_null(json.file);
    write(&json);
    fclose(json.file);
    char *to = text;
    for (char *from = text; *from; from++)
        if (*from != ' ' && *from != '\n') *to++ = *from;
    *to = 0;
    assert_int_equal(json.depth, 0);
    assert_string_equal(text, expected);
    free(text);
}

static void write_nested(json_t *json)
{
    json_begin_object(json, NULL);
    json_text(json, "name", "x");
    json_begin_array(json, "rows");
    json_int(json, NULL, -3);
    json_begin_object(json, NULL);
    json_end(json);
    json_begin_array(json, NULL);
    json_end(json);
    json_bool(json, NULL, true);
    json_end(json);
    json_uint(json, "max", UINT64_MAX);
    json_end(json);
}

static void write_numbers(json_t *json)
{
    json_begin_array(json, NULL);
    json_real(json, NULL, 0.1);
    json_real(json, NULL, 480000);
    json_real(json, NULL, 1e300);
    json_real(json, NULL, NAN);
    json_real(json, NULL, -INFINITY);
    json_text(json, NULL, NULL);
    json_end(json);
}

static void write_escapes(json_t *json)
{
    json_begin_array(json, NULL);
    json_text(json, NULL, "a\"b\\c\n\x01");
    json_text(json, NULL, "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"); /* two, three, four bytes */
    json_text(json, NULL, "\xFF|\xC3|\xC0\x80|\xED\xA0\x80|\xF5"); /* invalid UTF-8 */
    json_text(json, NULL, "\xE2\x82");                             /* truncated by the end */
    json_end(json);
}

static void write_bytes(json_t *json)
{
    json_begin_array(json, NULL);
    json_bytes(json, NULL, "a\0\"\\\n\xC3\xA9", 7, true);
    json_bytes(json, NULL, "a\0\x7F\xC3\xA9\xFF\x80", 7, false);
    json_bytes(json, NULL, "", 0, true);
    json_end(json);
}

TS_TEST(test_bytes)
{
    assert_written(write_bytes, "[\"a\\u0000\\\"\\\\\\u000a\xC3\xA9\","
                                "\"a\\u0000\x7F\\u00c3\\u00a9\\u00ff\\u0080\",\"\"]");
}

TS_TEST(test_nested)
{
    assert_written(write_nested,
                   "{\"name\":\"x\",\"rows\":[-3,{},[],true],\"max\":18446744073709551615}");
}

TS_TEST(test_numbers) { assert_written(write_numbers, "[0.1,480000,1e+300,null,null,null]"); }

TS_TEST(test_escapes)
{
    assert_written(
        write_escapes,
        "[\"a\\\"b\\\\c\\u000a\\u0001\",\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\","
        "\"\\ufffd|\\ufffd|\\ufffd\\ufffd|\\ufffd\\ufffd\\ufffd|\\ufffd\",\"\\ufffd\\ufffd\"]");
}
