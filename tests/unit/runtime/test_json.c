/* Pieces of JSON: what is accepted, what is refused with which text, and that no byte after the end
 * is read. Whole documents: test_json_tree.c, test_profile_file.c, test_safetensors_rejects.c. */

#include "runtime/base/json.h"
#include "tests/support/harness.h"

/* A reader of a copy that ends with its last byte, so that a sanitizer detects a read past it. */
static fy__json_t reader_of(const char *text, size_t nbytes)
{
    char *copy = malloc(nbytes ? nbytes : 1);
    assert_non_null(copy);
    memcpy(copy, text, nbytes);
    return (fy__json_t){ .begin = copy, .at = copy, .end = copy + nbytes };
}

typedef struct piece {
    const char *text, *wrong; /* NULL: it is accepted, to its end */
} piece_t;

TS_TEST(numbers_are_checked)
{
    static const piece_t pieces[] = {
        { "0", NULL },
        { "-0", NULL },
        { "18446744073709551616", NULL },
        { "-12.50e+3", NULL },
        { " \n1E-9", NULL },
        { "", "a number was expected" },
        { "-", "a number was expected" },
        { "+1", "a number was expected" },
        { ".5", "a number was expected" },
        { "00", "begins with 0" },
        { "-01", "begins with 0" },
        { "1.", "behind its point" },
        { "1.e5", "behind its point" },
        { "1e", "in its exponent" },
        { "1e+", "in its exponent" },
    };
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        fy__json_t json = reader_of(pieces[i].text, strlen(pieces[i].text));
        const char *number;
        const int is_one = fy__json_number(&json, &number);
        assert_int_equal(is_one, pieces[i].wrong == NULL);
        if (pieces[i].wrong)
            assert_non_null(strstr(json.wrong, pieces[i].wrong));
        else
            assert_ptr_equal(json.at, json.end);
        free(json.begin);
    }
}

TS_TEST(whole_numbers_are_exact)
{
    uint64_t n;
    fy__json_t json = reader_of("18446744073709551615", 20);
    assert_true(fy__json_whole(&json, &n));
    assert_true(n == UINT64_MAX);
    free(json.begin);
    json = reader_of("18446744073709551616", 20);
    assert_false(fy__json_whole(&json, &n));
    assert_non_null(strstr(json.wrong, "past 2^64 - 1"));
    free(json.begin);
}

TS_TEST(words_and_lines_are_taken)
{
    int more;
    fy__json_t json = reader_of("[true,\n\n \"a\\nb\", nul", 20);
    char *text;
    assert_true(fy__json_take(&json, '['));
    assert_false(fy__json_word(&json, "null"));
    assert_true(fy__json_word(&json, "true"));
    assert_true(fy__json_more(&json, ']', &more));
    assert_int_equal(more, 1);
    assert_true(fy__json_string(&json, &text));
    assert_string_equal(text, "a\nb");
    assert_int_equal(json.newlines, 2); /* a line end inside a text is not one of the file */
    assert_true(fy__json_more(&json, ']', &more));
    assert_false(fy__json_word(&json, "null"));
    free(json.begin);
}

/* A text that is written and read again is the same, or has U+FFFD for bytes that are not UTF-8. */
TS_TEST(quoted_texts_are_read_again)
{
    static const char *const texts[][2] = {
        { "", "" },
        { "a\"b\\c\n\x01", "a\"b\\c\n\x01" },
        { "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80" },
        { "\xFF|\xC3", "\xEF\xBF\xBD|\xEF\xBF\xBD" },
        { "\xE2\x82", "\xEF\xBF\xBD\xEF\xBF\xBD" },
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char quoted[100], *text;
        const size_t n = fy__json_quote(texts[i][0], quoted, sizeof quoted);
        assert_true(fy__utf8_is_valid(quoted, n));
        fy__json_t json = reader_of(quoted, n);
        assert_true(fy__json_string(&json, &text));
        assert_string_equal(text, texts[i][1]);
        assert_ptr_equal(json.at, json.end);
        free(json.begin);
    }
    char small[6];
    assert_int_equal(fy__json_quote("abcdefgh", small, sizeof small), 6);
    assert_memory_equal(small, "\"abcd\"", 6);
}
