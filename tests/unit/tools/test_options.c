/* The option table: accepted options, refused options with their texts, the output of --help. */

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "tests/support/harness.h"
#include "tools/cli/options.h"

static bool flag;
static int64_t number;
static const char *text, *figure;
static int64_t nbytes;
static int choice;
static double rate;
static const option_t options[] = {
    { "flag", OPTION_FLAG, NULL, &flag, "a flag", 0, 0 },
    { "size", OPTION_INT, "N", &number, "a number", 1, 100 },
    { NULL, OPTION_HEADING, NULL, NULL, "more:", 0, 0 },
    { "data", OPTION_TEXT, "DIR", &text, "a text", 0, 0 },
    { "most", OPTION_BYTES, "SIZE", &nbytes, "a size", 4, (int64_t)1 << 32 },
    { "plot", OPTION_SVG, "FILE.svg", &figure, "a figure", 0, 0 },
    { "lr", OPTION_REAL, "X", &rate, "a rate", 0, 10 },
    { "init", OPTION_CHOICE, "normal|zero", &choice, "a choice", 0, 0 },
};
static const usage_t usage = { "ferry test", "A summary.", options,
                               sizeof options / sizeof *options };

/* Parses the words. `said` receives the output to `fd`. */
static parse_result_t parse(int fd, char *said, size_t room, int argc, const char *const *argv)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(NULL);
    int saved = dup(fd);
    dup2(fileno(file), fd);
    flag = false, number = 7, text = figure = NULL, nbytes = 65536, choice = 0, rate = NAN;
    parse_result_t result = options_parse(&usage, argc, (char **)(uintptr_t)argv);
    fflush(NULL);
    dup2(saved, fd);
    close(saved);
    rewind(file);
    said[fread(said, 1, room - 1, file)] = 0;
    fclose(file);
    return result;
}

#define WORDS(...)                                                                                 \
    (int)(sizeof((const char *[]){ "test", __VA_ARGS__ }) / sizeof(char *)), (const char *const[]) \
    {                                                                                              \
        "test", __VA_ARGS__, NULL                                                                  \
    }

static void assert_accepted(int argc, const char *const *argv)
{
    char said[2048];
    assert_int_equal(parse(2, said, sizeof said, argc, argv), PARSE_OK);
    assert_string_equal(said, "");
}

TS_TEST(test_accepted)
{
    assert_accepted(1, (const char *const[]){ "test", NULL });
    assert_true(!flag && number == 7 && !text && choice == 0);
    assert_accepted(WORDS("--flag", "--size", "100", "--data=a=b", "--init", "zero"));
    assert_true(flag && number == 100 && choice == 1);
    assert_string_equal(text, "a=b");
    assert_accepted(WORDS("--size=1", "--size=2"));
    assert_int_equal(number, 2);
    assert_accepted(WORDS("--most=4096", "--plot", "a.svg"));
    assert_int_equal(nbytes, 4096);
    assert_string_equal(figure, "a.svg");
    assert_true(isnan(rate));
    assert_accepted(WORDS("--lr", "2.5e-1"));
    assert_true(rate == 0.25);
    assert_accepted(WORDS("--most", "64KiB"));
    assert_int_equal(nbytes, 65536);
    assert_accepted(WORDS("--most", "1.5MB"));
    assert_int_equal(nbytes, 1500000);
    assert_accepted(WORDS("--most", "4GiB"));
    assert_true(nbytes == (int64_t)1 << 32);
}

static void assert_refused(const char *words, int argc, const char *const *argv)
{
    char said[2048];
    assert_int_equal(parse(2, said, sizeof said, argc, argv), PARSE_BAD);
    if (!strstr(said, words)) fail_msg("'%s' does not say '%s'", said, words);
}

TS_TEST(test_refused)
{
    assert_refused("unknown option --sise; did you mean --size?", WORDS("--sise", "3"));
    assert_refused("unknown option --dat; did you mean --data?", WORDS("--dat=x"));
    assert_refused("unknown option --frobnicate. Try 'ferry test --help'", WORDS("--frobnicate"));
    assert_refused("unexpected argument 'x'", WORDS("x"));
    assert_refused("unexpected argument '-x'", WORDS("-x"));
    assert_refused("unknown option --", WORDS("--"));
    assert_refused("'0' is not an integer from 1 to 100", WORDS("--size", "0"));
    assert_refused("'101' is not", WORDS("--size", "101"));
    assert_refused("'3x' is not", WORDS("--size", "3x"));
    assert_refused("'' is not", WORDS("--size="));
    assert_refused("'99999999999999999999' is not", WORDS("--size", "99999999999999999999"));
    assert_refused("--size needs an argument: N", WORDS("--size"));
    assert_refused("--flag takes no argument", WORDS("--flag=1"));
    assert_refused("--init: 'zer' is none of normal|zero", WORDS("--init", "zer"));
    assert_refused("--data: the argument is empty", WORDS("--data="));
    assert_refused("'3x' is not a size from 4 to 4GiB", WORDS("--most", "3x"));
    assert_refused("'5GiB' is not", WORDS("--most", "5GiB"));
    assert_refused("'-1' is not", WORDS("--most", "-1"));
    assert_refused("'' is not", WORDS("--most="));
    assert_refused("'z.png' does not end in .svg", WORDS("--plot", "z.png"));
    assert_refused("'.svg' does not", WORDS("--plot", ".svg"));
}

TS_TEST(test_help)
{
    char said[4096];
    assert_int_equal(parse(1, said, sizeof said, WORDS("--size", "broken", "--help")), PARSE_HELP);
    assert_non_null(strstr(said, "usage: ferry test [options]"));
    assert_non_null(strstr(said, "A summary."));
    assert_non_null(strstr(said, "  --size N                  a number (1 to 100) [7]"));
    assert_non_null(strstr(said, "a size (4 to 4GiB) [64KiB]"));
    assert_non_null(strstr(said, "--init normal|zero"));
    assert_non_null(strstr(said, "[normal]"));
    assert_non_null(strstr(said, "--help"));
}

TS_TEST(test_nearest)
{
    static const char *const names[] = { "roundtrip", "vectorize", NULL, "minibatch" };
    assert_string_equal(nearest_name("rountrip", names, sizeof *names, 4), "roundtrip");
    assert_string_equal(nearest_name("vectorise", names, sizeof *names, 4), "vectorize");
    assert_string_equal(nearest_name("mini", names, sizeof *names, 4), "minibatch");
    /* half of a short name is not treated as a typing error */
    assert_null(nearest_name("go", (const char *const[]){ "gd", "sgd" }, sizeof *names, 2));
    assert_null(nearest_name("x", names, sizeof *names, 4));
    assert_null(nearest_name("", names, sizeof *names, 4));
    assert_null(nearest_name("a-word-much-longer-than-any-name-of-an-option-ever-is", names,
                             sizeof *names, 4));
}
