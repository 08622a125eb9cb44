/* Reads options by table. Not here: the tables (cmd_*.c, exp_*.c, bench_*.c). Declarations and the
 * idea: options.h. */
#include "tools/cli/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_LENGTH = 31, HELP_COLUMN = 28 };

/* Levenshtein's distance; words longer than a name are cut. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_LENGTH + 1], n = strnlen(b, NAME_MAX_LENGTH),
                                     m = strnlen(a, NAME_MAX_LENGTH);
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[n];
}

const char *nearest_name(const char *word, const void *names, size_t stride, size_t count)
{
    const char *best = NULL;
    size_t best_distance = 3; /* past two slips of the finger it is a guess */
    for (size_t i = 0; i < count; i++) {
        const char *name = *(const char *const *)((const char *)names + i * stride);
        if (!name) continue;
        size_t distance = edit_distance(word, name);
        if (strlen(word) >= 3 && strncmp(word, name, strlen(word)) == 0) distance = 1;
        if (distance < best_distance && 2 * distance < strlen(name))
            best = name, best_distance = distance;
    }
    return best;
}

/* Sizes in the largest unit that divides them. */
static void write_number(const option_t *option, int64_t value, char *text, size_t room)
{
    static const char *const names[] = { "", "KiB", "MiB", "GiB" };
    size_t unit = 0;
    while (option->kind == OPTION_BYTES && unit < 3 && value >= 1024 && value % 1024 == 0)
        value /= 1024, unit++;
    snprintf(text, room, "%" PRId64 "%s", value, names[unit]);
}

static void print_default(const option_t *option)
{
    if (option->kind == OPTION_INT || option->kind == OPTION_BYTES) {
        char least[32], most[32], value[32];
        write_number(option, option->min, least, sizeof least);
        write_number(option, option->max, most, sizeof most);
        write_number(option, *(const int64_t *)option->value, value, sizeof value);
        if (option->max < INT64_MAX)
            printf(" (%s to %s)", least, most);
        else
            printf(" (%s or more)", least);
        /* what cannot be given means "none" */
        if (*(const int64_t *)option->value >= option->min) printf(" [%s]", value);
    }
    if (option->kind == OPTION_REAL && !isnan(*(const double *)option->value))
        printf(" [%g]", *(const double *)option->value);
    const char *const *text = option->value;
    if (option->kind == OPTION_TEXT && *text && **text) printf(" [%s]", *text);
    if (option->kind == OPTION_CHOICE && option->arg) {
        const char *choice = option->arg;
        for (int i = *(const int *)option->value; i > 0; i--) choice += strcspn(choice, "|") + 1;
        printf(" [%.*s]", (int)strcspn(choice, "|"), choice);
    }
}

static void print_help(const usage_t *usage)
{
    const char *options = strstr(usage->command, "[options]") ? "" : " [options]";
    printf("usage: %s%s\n\n%s\n", usage->command, options, usage->summary);
    if (usage->count && usage->options[0].kind != OPTION_HEADING) printf("\noptions:\n");
    for (size_t i = 0; i < usage->count; i++) {
        const option_t *option = &usage->options[i];
        if (option->kind == OPTION_HEADING) {
            printf("\n%s\n", option->help);
            continue;
        }
        int width = printf("  --%s%s%s", option->name, option->arg ? " " : "",
                           option->arg ? option->arg : "");
        printf("%*s%s", width < HELP_COLUMN ? HELP_COLUMN - width : 2, "", option->help);
        print_default(option);
        printf("\n");
    }
    printf("  --help%*sprint this\n", HELP_COLUMN - 8, "");
    if (usage->print_more) usage->print_more();
    if (usage->examples) printf("\nexamples:\n");
    for (const char *line = usage->examples; line && *line; line = strchr(line, '\n') + 1)
        printf("  %.*s\n", (int)strcspn(line, "\n"), line);
}

static bool read_int(const option_t *option, const char *text)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < option->min || value > option->max)
        return TOOL_REFUSE(false, "--%s: '%s' is not an integer from %" PRId64 " to %" PRId64 "\n",
                           option->name, text, option->min, option->max);
    *(int64_t *)option->value = value;
    return true;
}

static bool read_real(const option_t *option, const char *text)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !(value >= (double)option->min && value <= (double)option->max))
        return TOOL_REFUSE(false, "--%s: '%s' is not a number from %" PRId64 " to %" PRId64 "\n",
                           option->name, text, option->min, option->max);
    *(double *)option->value = value;
    return true;
}

static bool read_share(const option_t *option, const char *text)
{
    char *end;
    const double number = strtod(text, &end), value = *end == '%' ? number / 100 : number;
    const bool is_whole = end != text && !end[*end == '%'];
    if (!is_whole || !(value > (double)option->min && value <= (double)option->max))
        return TOOL_REFUSE(false,
                           "--%s: '%s' is not a share above %" PRId64 "%% to %" PRId64 "%%\n",
                           option->name, text, 100 * option->min, 100 * option->max);
    *(double *)option->value = value;
    return true;
}

bool parse_bytes(const char *text, size_t length, int64_t min, int64_t max, int64_t *out_nbytes)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = { { "", 1 },       { "B", 1 },        { "K", 0x1p10 }, { "KiB", 0x1p10 },
                  { "M", 0x1p20 }, { "MiB", 0x1p20 }, { "G", 0x1p30 }, { "GiB", 0x1p30 },
                  { "kB", 1e3 },   { "MB", 1e6 },     { "GB", 1e9 } };
    char word[64], *end;
    if (length >= sizeof word || !length || *text < '0' || *text > '9') return false;
    memcpy(word, text, length);
    word[length] = 0;
    double value = strtod(word, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(end, units[i].name) != 0) continue;
        value *= units[i].factor;
        if (!(value >= (double)min && value <= (double)max)) return false;
        *out_nbytes = (int64_t)value;
        return true;
    }
    return false;
}

static bool read_bytes(const option_t *option, const char *text)
{
    if (parse_bytes(text, strlen(text), option->min, option->max, option->value)) return true;
    char least[32], most[32];
    write_number(option, option->min, least, sizeof least);
    write_number(option, option->max, most, sizeof most);
    return TOOL_REFUSE(false, "--%s: '%s' is not a size from %s to %s, such as 4096 or 64KiB\n",
                       option->name, text, least, most);
}

static bool read_choice(const option_t *option, const char *text)
{
    int index = 0;
    for (const char *choice = option->arg; choice;
         choice = strchr(choice, '|'), choice += choice != NULL, index++) {
        size_t n = strcspn(choice, "|");
        if (strlen(text) == n && memcmp(text, choice, n) == 0) {
            *(int *)option->value = index;
            return true;
        }
    }
    return TOOL_REFUSE(false, "--%s: '%s' is none of %s\n", option->name, text, option->arg);
}

static bool read_value(const option_t *option, const char *text)
{
    if (option->kind == OPTION_INT) return read_int(option, text);
    if (option->kind == OPTION_REAL) return read_real(option, text);
    if (option->kind == OPTION_SHARE) return read_share(option, text);
    if (option->kind == OPTION_BYTES) return read_bytes(option, text);
    if (option->kind == OPTION_CHOICE) return read_choice(option, text);
    if (!*text) return TOOL_REFUSE(false, "--%s: the argument is empty\n", option->name);
    size_t length = strlen(text);
    if (option->kind == OPTION_SVG && (length < 5 || strcmp(text + length - 4, ".svg") != 0))
        return TOOL_REFUSE(false, "--%s: '%s' does not end in .svg, and SVG is all there is\n",
                           option->name, text);
    *(const char **)option->value = text;
    return true;
}

static const option_t *find_option(const usage_t *usage, const char *name, size_t length)
{
    for (size_t i = 0; i < usage->count; i++) {
        const char *candidate = usage->options[i].name;
        if (candidate && strlen(candidate) == length && memcmp(candidate, name, length) == 0)
            return &usage->options[i];
    }
    return NULL;
}

static parse_result_t complain_unknown(const usage_t *usage, const char *word)
{
    char name[NAME_MAX_LENGTH + 1];
    if (strncmp(word, "--", 2) != 0)
        return TOOL_REFUSE(PARSE_BAD,
                           "unexpected argument '%s'; options begin with --. Try '%s --help'\n",
                           word, usage->command);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    const char *meant =
        nearest_name(name, &usage->options[0].name, sizeof *usage->options, usage->count);
    fprintf(stderr, "ferry: unknown option --%s", name);
    if (meant)
        fprintf(stderr, "; did you mean --%s?\n", meant);
    else
        fprintf(stderr, ". Try '%s --help'\n", usage->command);
    return PARSE_BAD;
}

parse_result_t options_parse(const usage_t *usage, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(usage);
            return PARSE_HELP;
        }
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *equals = strchr(word, '=');
        if (strncmp(word, "--", 2) != 0) return complain_unknown(usage, word);
        const option_t *option =
            find_option(usage, word + 2, equals ? (size_t)(equals - word - 2) : strlen(word + 2));
        if (!option) return complain_unknown(usage, word);
        if (option->kind == OPTION_FLAG) {
            if (equals) return TOOL_REFUSE(PARSE_BAD, "--%s takes no argument\n", option->name);
            *(bool *)option->value = true;
            continue;
        }
        const char *text = equals ? equals + 1 : ++i < argc ? argv[i] : NULL;
        if (!text)
            return TOOL_REFUSE(PARSE_BAD, "--%s needs an argument: %s\n", option->name,
                               option->arg);
        if (!read_value(option, text)) return PARSE_BAD;
    }
    return PARSE_OK;
}

parse_result_t options_parse_named(const usage_t *usage, int argc, char **argv,
                                   const char **out_name)
{
    const int skipped = argc > 1 && argv[1][0] != '-';
    *out_name = skipped ? argv[1] : NULL;
    return options_parse(usage, argc - skipped, argv + skipped);
}

parse_result_t options_parse_front(const usage_t *usage, int argc, char **argv, int *out_count)
{
    int end = 1;
    while (end < argc && argv[end][0] == '-' && strcmp(argv[end], "--") != 0) {
        const option_t *option =
            argv[end][1] == '-' ? find_option(usage, argv[end] + 2, strlen(argv[end] + 2)) : NULL;
        end += option && option->kind != OPTION_FLAG ? 2 : 1;
    }
    if (end > argc) end = argc;
    *out_count = end + (end < argc && strcmp(argv[end], "--") == 0);
    return options_parse(usage, end, argv);
}
