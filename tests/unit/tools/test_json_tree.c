/* The JSON reader: accepted documents, refused documents with their texts, and no crash for any
 * bytes. */

#include "tests/support/harness.h"
#include "tools/cli/json_tree.h"

static char *text;
static json_tree_t tree;

static const char *parse(const char *json)
{
    size_t line;
    json_tree_free(&tree);
    free(text);
    text = strdup(json); /* so that a sanitizer detects a read past its end */
    return json_tree_parse(text, &tree, &line);
}

TS_TEST(documents_are_accepted)
{
    uint64_t n;
    assert_null(parse(" {\"a\": [1, -2.5e3 ,18446744073709551615], \"b\":{} ,\"c\":null,\"d\" "
                      ":true,\"e\":false,\"f\":\"\"}\n"));
    const json_value_t *a = json_member(tree.root, "a");
    assert_int_equal(a->kind, JSON_LIST);
    assert_true(json_whole(a->child, &n));
    assert_int_equal(n, 1);
    assert_false(json_whole(a->child->next, &n));
    assert_true(json_whole(a->child->next->next, &n));
    assert_true(n == UINT64_MAX);
    assert_null(a->child->next->next->next);
    assert_int_equal(json_member(tree.root, "b")->kind, JSON_OBJECT);
    assert_null(json_member(tree.root, "b")->child);
    assert_int_equal(json_member(tree.root, "c")->kind, JSON_NULL);
    assert_int_equal(json_member(tree.root, "d")->kind, JSON_TRUE);
    assert_int_equal(json_member(tree.root, "e")->kind, JSON_FALSE);
    assert_string_equal(json_member_text(tree.root, "f"), "");
    assert_null(json_member(tree.root, "g"));
    assert_null(json_member_text(tree.root, "a"));
    assert_null(json_member(a, "a"));
    assert_null(json_member(NULL, "a"));
    assert_null(parse("[18446744073709551616, 1.5, 1e2, -1, 7]"));
    for (const json_value_t *value = tree.root->child; value->next; value = value->next)
        assert_false(json_whole(value, &n));
}

TS_TEST(texts_are_decoded)
{
    assert_null(
        parse("[\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00 \\\"\\\\\\/\\b\\f\\n\\r\\t\", 12, \"x\"]"));
    assert_string_equal(tree.root->child->text,
                        "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 \"\\/\b\f\n\r\t");
    assert_string_equal(tree.root->child->next->next->text, "x");
}

TS_TEST(errors_are_explained)
{
    static const char *const cases[][2] = {
        { "", "its end" },
        { "{", "no key" },
        { "[1", "cut off" },
        { "[1 2]", "a ',' or ']' was expected" },
        { "[1,]", "no value" },
        { "{\"a\"}", "key without a value" },
        { "{\"a\":}", "no value" },
        { "{\"a\":1,}", "no key" },
        { "{a:1}", "no key" },
        { "[01]", "begins with 0" },
        { "[1.]", "behind its point" },
        { "[1e]", "exponent" },
        { "[-]", "a number was expected" },
        { "[+1]", "no value" },
        { "nul", "no value" },
        { "1 2", "behind its end" },
        { "\"abc", "without an end" },
        { "\"a\nb\"", "control character" },
        { "\"\\x\"", "escape" },
        { "\"\\", "without an end" },
        { "\"\\u12g4\"", "escape" },
        { "\"\\u0000\"", "escape" },
        { "\"\\ud800\"", "escape" },
        { "\"\\ud800\\u0041\"", "escape" },
        { "\"\\udc00\"", "escape" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *wrong = parse(cases[i][0]);
        if (!wrong || !strstr(wrong, cases[i][1]))
            fail_msg("'%s': %s", cases[i][0], wrong ? wrong : "taken");
    }
    char deep[101] = { 0 };
    memset(deep, '[', 100);
    assert_non_null(strstr(parse(deep), "too deep"));
    size_t line;
    char lines[] = "{\"a\":\"x\\ny\",\n\n\"b\":?}";
    json_tree_t other;
    assert_non_null(json_tree_parse(lines, &other, &line));
    assert_int_equal(line, 3);
    json_tree_free(&other);
}

/* Every prefix of a document, and any byte at any position: the reader returns, and no sanitizer
 * reports. */
TS_TEST(garbage_does_not_crash_the_reader)
{
    static const char json[] = "{\"a\": [1, -2.5e3, \"\\u00e9\\ud83d\\ude00\\n\"], \"b\": {\"c\": "
                               "null, \"d\": [true, false, {}]}, \"e\": 17}";
    static const char bytes[] = "\"\\{}[],:0-eu\x01\x80\xff ";
    char copy[sizeof json];
    for (size_t i = 0; i + 1 < sizeof json; i++) {
        memcpy(copy, json, sizeof json);
        copy[i] = 0;
        assert_non_null(parse(copy));
        for (size_t k = 0; k + 1 < sizeof bytes; k++) {
            memcpy(copy, json, sizeof json);
            copy[i] = bytes[k];
            (void)parse(copy);
        }
    }
    assert_null(parse(json));
    json_tree_free(&tree);
    free(text);
    text = NULL;
}
