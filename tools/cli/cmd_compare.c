/* `ferry compare FIRST SECOND`: the figures of two JSON documents of one subcommand side by side,
 * each pair by one clock, with their intervals: which differ, and by how much. --prediction pairs
 * the times that a simulated device computed with those that a real one took. Not here: figures of
 * a document (figures.c), its content (docs/cli.md). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/figures.h"
#include "tools/cli/text_file.h"
#include "tools/cli/tool.h"

enum { FILE_MOST = 64 << 20 };

typedef struct comparison {
    sheet_t *sheet;
    const char *key; /* NULL: times, and what has an interval */
    double within;   /* NaN: no bound */
    bool is_prediction;
    size_t rows, outside, other_clock;
} comparison_t;

static fy_status_t load(document_t *document, const char *key)
{
    char *text;
    FY_TRY(text_file_read(document->path, "JSON document", "{[", FILE_MOST, &text));
    return document_parse(document, text, key);
}

static bool have_intervals(const figure_t *a, const figure_t *b)
{
    return isfinite(a->low) && isfinite(a->high) && isfinite(b->low) && isfinite(b->high);
}

/* By the bound, if there is one; else by the intervals. */
static const char *verdict_of(const comparison_t *c, const figure_t *a, const figure_t *b,
                              bool is_outside)
{
    if (!isnan(c->within)) return is_outside ? "outside" : "within";
    if (!have_intervals(a, b)) return NULL;
    return a->high < b->low || b->high < a->low ? "differs" : "not told apart";
}

static void add_row(comparison_t *c, const figure_t *a, const figure_t *b)
{
    const double difference = a->value != 0   ? b->value / a->value - 1
                              : b->value == 0 ? 0
                                              : INFINITY;
    const bool is_outside = !isnan(c->within) && !(fabs(difference) <= c->within);
    const bool is_sure = have_intervals(a, b) && a->low > 0;
    sheet_text(c->sheet, b->path);
    sheet_text(c->sheet, c->is_prediction ? NULL : figure_clock(b));
    sheet_real(c->sheet, a->value);
    sheet_real(c->sheet, a->low);
    sheet_real(c->sheet, a->high);
    sheet_real(c->sheet, b->value);
    sheet_real(c->sheet, b->low);
    sheet_real(c->sheet, b->high);
    sheet_real(c->sheet, a->value != 0 ? b->value / a->value : NAN);
    /* between the ends that are farthest apart */
    sheet_real(c->sheet, is_sure ? b->low / a->high : NAN);
    sheet_real(c->sheet, is_sure ? b->high / a->low : NAN);
    sheet_text(c->sheet, verdict_of(c, a, b, is_outside));
    c->rows++;
    c->outside += is_outside;
}

/* The model's figure that predicts `measured`: the one with "model_" before its name, or the one of
 * its name in a document on the model clock. */
static const figure_t *prediction_of(document_t *first, const figure_t *measured)
{
    char path[320];
    const char *leaf = strrchr(measured->path, '/');
    const int folder = leaf ? (int)(leaf + 1 - measured->path) : 0;
    snprintf(path, sizeof path, "%.*smodel_%s", folder, measured->path, measured->path + folder);
    const figure_t *beside = document_find(first, path);
    if (beside) return beside;
    const figure_t *same = document_find(first, measured->path);
    return same && same->is_model ? same : NULL;
}

static void pair(comparison_t *c, document_t documents[2])
{
    for (size_t i = 0; i < documents[1].count; i++) {
        const figure_t *b = &documents[1].figures[i], *a;
        const bool predicts = c->is_prediction && !c->key;
        if (predicts && (b->is_model || !b->has_clock)) continue;
        a = predicts ? prediction_of(&documents[0], b) : document_find(&documents[0], b->path);
        if (!a) continue;
        if (!predicts && !c->key && !figures_agree(a, b))
            c->other_clock++;
        else
            add_row(c, a, b);
    }
}

static fy_status_t refuse_other_kinds(const document_t documents[2])
{
    char texts[2][128];
    const char *first = document_kind(&documents[0], texts[0], sizeof texts[0]),
               *second = document_kind(&documents[1], texts[1], sizeof texts[1]);
    if (!first || !second || strcmp(first, second) == 0) return FY_STATUS_OK;
    return TOOL_FAIL(INVALID_ARGUMENT,
                     "%s is of %s, %s of %s: only documents of one subcommand are compared",
                     documents[0].path, first, documents[1].path, second);
}

static fy_status_t compare(comparison_t *c, document_t documents[2])
{
    for (int i = 0; i < 2; i++) FY_TRY(load(&documents[i], c->key));
    FY_TRY(refuse_other_kinds(documents));
    pair(c, documents);
    if (c->rows > 0) return FY_STATUS_OK;
    if (c->other_clock)
        return TOOL_FAIL(
            INVALID_ARGUMENT,
            "%s and %s have no times by the same clock: one is by the model clock, the "
            "other by the wall clock; --prediction pairs them",
            documents[0].path, documents[1].path);
    return TOOL_FAIL(CORRUPT_DATA, "%s and %s have no %s in common%s", documents[0].path,
                     documents[1].path, c->key ? c->key : "times",
                     c->is_prediction ? "; the first must be of a simulated device" : "");
}

/* Adds what differs in two objects at `folder` ("" or with a slash at its end), and the texts that
 * differ in objects inside them. */
static void add_settings(sheet_t *sheet, const json_value_t *a, const json_value_t *b,
                         const char *folder)
{
    for (const json_value_t *x = a->kind == JSON_OBJECT ? a->child : NULL; x; x = x->next) {
        const json_value_t *y = json_member(b, x->key);
        char path[320];
        const int n = snprintf(path, sizeof path - 1, "%s%s", folder, x->key);
        if (!y || x->kind != y->kind || n < 0 || (size_t)n >= sizeof path - 1) continue;
        if (x->kind == JSON_OBJECT) {
            memcpy(path + n, "/", 2);
            add_settings(sheet, x, y, path);
        }
        /* numbers inside objects are mostly results */
        const bool is_setting = x->kind == JSON_STRING || (x->kind == JSON_NUMBER && !*folder);
        if (!is_setting || strcmp(x->text, y->text) == 0) continue;
        sheet_text(sheet, path);
        sheet_text(sheet, x->text);
        sheet_text(sheet, y->text);
    }
}

/* Settings and facts outside lists that are not the same: what else may explain a difference. */
static sheet_t *list_settings(const document_t documents[2])
{
    static const column_t columns[] = { { "what", "not the same", 0 },
                                        { "first", "first", 0 },
                                        { "second", "second", 0 } };
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    add_settings(sheet, documents[0].tree.root, documents[1].tree.root, "");
    return sheet;
}

static void print(const comparison_t *c, const document_t documents[2], bool as_json)
{
    sheet_t *settings = list_settings(documents);
    if (as_json) {
        json_t json = { .file = stdout };
        json_begin_object(&json, NULL);
        json_text(&json, "compare", c->key ? c->key : "times");
        json_text(&json, "version", fy_version());
        json_text(&json, "first", documents[0].path);
        json_text(&json, "second", documents[1].path);
        json_bool(&json, "prediction", c->is_prediction);
        json_real(&json, "within", c->within);
        json_uint(&json, "outside", c->outside);
        json_uint(&json, "other_clock", c->other_clock);
        sheet_json(settings, &json, "settings");
        sheet_json(c->sheet, &json, "rows");
        json_end(&json);
    } else {
        printf("%s, then %s\n\n", documents[0].path, documents[1].path);
        sheet_print(settings, stdout);
        printf("\n");
        sheet_print(c->sheet, stdout);
        if (c->other_clock)
            printf("\n%zu left out: one by the model clock, one by the wall clock\n",
                   c->other_clock);
        if (!isnan(c->within))
            printf("\n%zu of %zu differ by more than %g\n", c->outside, c->rows, c->within);
    }
    sheet_destroy(settings);
}

int cmd_compare(int argc, char **argv)
{
    static const column_t columns[] = {
        { "what", "what", 0 },      { "clock", "clock", 0 },    { "first", "first", 3 },
        { "first_low", NULL, 3 },   { "first_high", NULL, 3 },  { "second", "second", 3 },
        { "second_low", NULL, 3 },  { "second_high", NULL, 3 }, { "ratio", "second / first", 3 },
        { "ratio_low", "from", 3 }, { "ratio_high", "to", 3 },  { "verdict", "", 0 },
    };
    bool json = false;
    const char *csv = NULL;
    comparison_t c = { .within = NAN };
    const option_t options[] = {
        { "key", OPTION_TEXT, "NAME", &c.key,
          "numbers of that name, or in lists of that name; default: all times, and what has an "
          "interval" },
        { "prediction", OPTION_FLAG, NULL, &c.is_prediction,
          "the model's times in FIRST with the wall times in SECOND" },
        { "within", OPTION_REAL, "X", &c.within,
          "fail if one differs by more than this share of the first", 0, 1 << 20 },
        { "json", OPTION_FLAG, NULL, &json,
          "print one JSON document on standard output, and nothing else there" },
        { "csv", OPTION_TEXT, "FILE", &csv, "write the rows of the table to FILE" },
    };
    const usage_t usage = {
        "ferry compare FIRST SECOND",
        "Pairs the figures of two JSON documents of one subcommand, by the same clock, and says "
        "which differ: medians\n"
        "whose intervals do not overlap.",
        options, sizeof options / sizeof *options,
        "ferry experiment roundtrip --device host --size 64 --json > first.json\n"
        "ferry experiment roundtrip --device sim:0 --size 64 --json > second.json\n"
        "ferry compare first.json second.json\n"
        "ferry compare second.json first.json --prediction\n"
    };
    int nfiles = 0;
    while (nfiles < 2 && argc > nfiles + 1 && argv[nfiles + 1][0] != '-') nfiles++;
    OPTIONS_TRY(options_parse(&usage, argc - nfiles, argv + nfiles));
    if (nfiles < 2) return TOOL_REFUSE(STATUS_USAGE, "compare: two files are needed\n");
    document_t documents[2] = { { .path = argv[1] }, { .path = argv[2] } };
    c.sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    fy_status_t status = compare(&c, documents);
    if (status == FY_STATUS_OK && csv) status = sheet_csv(c.sheet, csv);
    if (status == FY_STATUS_OK) print(&c, documents, json);
    const int exit_status = tool_end(status);
    for (int i = 0; i < 2; i++) document_close(&documents[i]);
    sheet_destroy(c.sheet);
    return exit_status == STATUS_OK && c.outside > 0 ? STATUS_FAILED : exit_status;
}
