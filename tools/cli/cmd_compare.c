/* `ferry compare PREDICTED MEASURED`: two JSON documents of one subcommand side by side: the times
 * that a simulated device computed and those that a real one took, or any other numbers, with a
 * bound if one is set. Not here: the content of the documents (docs/cli.md). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/json_tree.h"
#include "tools/cli/text_file.h"
#include "tools/cli/tool.h"

enum { FILE_MOST = 64 << 20, PATH_ROOM = 256 };

typedef struct document {
    const char *path;
    char *text;
    json_tree_t tree;
} document_t;

typedef struct comparison {
    sheet_t *sheet;
    const char *key; /* NULL: times */
    double within;   /* NaN: no bound */
    bool is_model;   /* the first document's times are a model's */
    size_t rows, outside;
} comparison_t;

static fy_status_t load(document_t *document)
{
    size_t line;
    FY_TRY(text_file_read(document->path, "JSON document", "{[", FILE_MOST, &document->text));
    const char *wrong = json_tree_parse(document->text, &document->tree, &line);
    return wrong ? TOOL_FAIL(CORRUPT_DATA, "%s, line %zu: %s", document->path, line, wrong)
                 : FY_STATUS_OK;
}

static double number_of(const json_value_t *value)
{
    return value && value->kind == JSON_NUMBER ? strtod(value->text, NULL) : NAN;
}

/* "total_ns", "ns_per_iter", "step_model_ns"; not what only one run has, its worst round and the
 * model's own figure beside a wall time. */
static bool is_time(const char *key)
{
    const size_t length = strlen(key);
    if (strncmp(key, "worst_", 6) == 0 || strncmp(key, "model_ns", 8) == 0 ||
        strncmp(key, "peer_", 5) == 0)
        return false;
    return strncmp(key, "ns_", 3) == 0 || strcmp(key, "ns") == 0 || strstr(key, "_ns_") ||
           (length > 3 && strcmp(key + length - 3, "_ns") == 0);
}

/* What the first document says for a key of `object`: the model's figure, if it has one beside the
 * wall's. */
static double predicted(const comparison_t *c, const json_value_t *object, const char *key)
{
    char model[80];
    if (c->key) return number_of(json_member(object, key));
    snprintf(model, sizeof model, "model_%s", key);
    const json_value_t *beside = json_member(object, model);
    if (beside) return number_of(beside);
    return c->is_model ? number_of(json_member(object, key)) : NAN;
}

static void add_row(comparison_t *c, const char *path, double first, double second)
{
    if (!isfinite(first) || !isfinite(second)) return;
    const double difference = first != 0 ? second / first - 1 : second == 0 ? 0 : INFINITY;
    const bool outside = !(fabs(difference) <= c->within) && !isnan(c->within);
    sheet_text(c->sheet, path);
    sheet_real(c->sheet, first);
    sheet_real(c->sheet, second);
    sheet_real(c->sheet, first != 0 ? second / first : NAN);
    sheet_text(c->sheet, isnan(c->within) ? NULL : outside ? "outside" : "within");
    c->rows++;
    c->outside += outside;
}

/* What an element of a list is called: its texts, else its place. */
static void name_element(const json_value_t *element, size_t place, char *out_name, size_t room)
{
    size_t used = 0;
    out_name[0] = '\0';
    for (const json_value_t *at = element->kind == JSON_OBJECT ? element->child : NULL; at;
         at = at->next)
        if (at->kind == JSON_STRING && used < room)
            used += (size_t)snprintf(out_name + used, room - used, "%s%s", used > 0 ? " " : "",
                                     at->text);
    if (used == 0) snprintf(out_name, room, "%zu", place);
}

/* The reader bounds the depth. */
static void walk(comparison_t *c, const char *path, const json_value_t *a, const json_value_t *b,
                 bool is_chosen)
{
    char below[PATH_ROOM], name[80];
    size_t place = 0;
    if (a->kind != b->kind) return;
    if (a->kind == JSON_NUMBER && is_chosen) add_row(c, path, number_of(a), number_of(b));
    if (a->kind == JSON_LIST) {
        const json_value_t *y = b->child;
        for (const json_value_t *x = a->child; x && y; x = x->next, y = y->next, place++) {
            name_element(x, place, name, sizeof name);
            snprintf(below, sizeof below, "%s%s%s", path, *path ? "/" : "", name);
            walk(c, below, x, y, is_chosen);
        }
    }
    if (a->kind != JSON_OBJECT) return;
    for (const json_value_t *y = b->child; y; y = y->next) {
        const json_value_t *x = json_member(a, y->key);
        snprintf(below, sizeof below, "%s%s%s", path, *path ? "/" : "", y->key);
        if (!c->key && is_time(y->key) && y->kind == JSON_NUMBER)
            add_row(c, below, predicted(c, a, y->key), number_of(y));
        else if (x)
            walk(c, below, x, y, is_chosen || (c->key && strcmp(y->key, c->key) == 0));
    }
}

static fy_status_t compare(comparison_t *c, document_t documents[2])
{
    for (int i = 0; i < 2; i++) FY_TRY(load(&documents[i]));
    const char *clock = json_member_text(documents[0].tree.root, "clock");
    c->is_model = clock && strcmp(clock, "model") == 0;
    walk(c, "", documents[0].tree.root, documents[1].tree.root, false);
    if (c->rows > 0) return FY_STATUS_OK;
    return TOOL_FAIL(CORRUPT_DATA, "%s and %s have no %s in common%s", documents[0].path,
                     documents[1].path, c->key ? c->key : "times",
                     c->key ? "" : "; the first must be of a simulated device");
}

static void print(const comparison_t *c, const document_t documents[2], bool as_json)
{
    if (as_json) {
        json_t json = { .file = stdout };
        json_begin_object(&json, NULL);
        json_text(&json, "compare", c->key ? c->key : "times");
        json_text(&json, "version", fy_version());
        json_text(&json, "predicted", documents[0].path);
        json_text(&json, "measured", documents[1].path);
        json_real(&json, "within", c->within);
        json_uint(&json, "outside", c->outside);
        sheet_json(c->sheet, &json, "rows");
        json_end(&json);
        return;
    }
    printf("%s beside %s\n\n", documents[0].path, documents[1].path);
    sheet_print(c->sheet, stdout);
    if (!isnan(c->within))
        printf("\n%zu of %zu differ by more than %g\n", c->outside, c->rows, c->within);
}

int cmd_compare(int argc, char **argv)
{
    static const column_t columns[] = {
        { "what", "what", 0 },         { "predicted", "predicted", 3 },
        { "measured", "measured", 3 }, { "ratio", "measured / predicted", 3 },
        { "verdict", "", 0 },
    };
    bool json = false;
    const char *csv = NULL;
    comparison_t c = { .within = NAN };
    const option_t options[] = {
        { "key", OPTION_TEXT, "NAME", &c.key,
          "numbers of that name, or in lists of that name; default: all times", 0, 0 },
        { "within", OPTION_REAL, "X", &c.within,
          "fail if one differs by more than this share of the first", 0, 1 << 20 },
        { "json", OPTION_FLAG, NULL, &json,
          "print one JSON document on standard output, and nothing else there", 0, 0 },
        { "csv", OPTION_TEXT, "FILE", &csv, "write the rows of the table to FILE", 0, 0 },
    };
    const usage_t usage = {
        "ferry compare PREDICTED MEASURED",
        "Shows the numbers of two JSON documents of one subcommand side by side: by default the "
        "times that a simulated device\n"
        "computed (the model's) and those that another one took.",
        options, sizeof options / sizeof *options,
        "ferry experiment roundtrip --device sim:0 --size 64 --json > predicted.json\n"
        "ferry experiment roundtrip --device host --size 64 --json > measured.json\n"
        "ferry compare predicted.json measured.json\n"
    };
    int nfiles = 0;
    while (nfiles < 2 && argc > nfiles + 1 && argv[nfiles + 1][0] != '-') nfiles++;
    const parse_result_t parsed = options_parse(&usage, argc - nfiles, argv + nfiles);
    if (parsed != PARSE_OK) return parsed == PARSE_HELP ? STATUS_OK : STATUS_USAGE;
    if (nfiles < 2) {
        fprintf(stderr,
                "ferry: compare: two files are needed: the prediction and the measurement\n");
        return STATUS_USAGE;
    }
    document_t documents[2] = { { .path = argv[1] }, { .path = argv[2] } };
    c.sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    fy_status_t status = compare(&c, documents);
    if (status == FY_STATUS_OK && csv) status = sheet_csv(c.sheet, csv);
    if (status == FY_STATUS_OK)
        print(&c, documents, json);
    else
        fprintf(stderr, "ferry: %s: %s\n", fy_status_name(status), fy_error_get()->text);
    for (int i = 0; i < 2; i++) {
        if (documents[i].text) json_tree_free(&documents[i].tree);
        free(documents[i].text);
    }
    sheet_destroy(c.sheet);
    if (status != FY_STATUS_OK) return status_to_exit(status);
    return fflush(stdout) != 0 || c.outside > 0 ? STATUS_FAILED : STATUS_OK;
}
