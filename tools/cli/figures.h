/* The figures of a JSON document of the command, each with a path, its clock, and its interval if
 * it has one: `ferry compare` pairs them, and several --device put them side by
 * side. Not here: texts about pairs (cmd_compare.c, cmd_experiment.c). Next: figures.c. */
#ifndef FERRY_TOOLS_FIGURES_H_
#define FERRY_TOOLS_FIGURES_H_

#include <stdbool.h>
#include <stddef.h>

#include <ferry/status.h>

#include "tools/cli/json_tree.h"
#include "tools/cli/tables.h"

typedef struct figure {
    const char *path;        /* "variants/copies/ns_per_iter" */
    double value, low, high; /* NaN without an interval */
    bool has_clock;          /* false: a loss, a count */
    bool is_model;           /* by the model clock */
} figure_t;

typedef struct document {
    const char *path; /* of its file, for failures */
    char *text;       /* from malloc */
    json_tree_t tree;
    text_index_t index; /* places in `figures`, by path */
    figure_t *figures;
    size_t count;
} document_t;

/* Reads `text`, which the document frees, and lists its figures. key NULL: its times, and all that
 * has an interval; else numbers of that name, or in lists of that name. Elements of a list are
 * named by their texts and by the sizes that they are about, so the order does not matter.
 * document_close is needed also if it fails. Fails: CORRUPT_DATA. */
fy_status_t document_parse(document_t *document, char *text, const char *key);
void document_close(document_t *document);
/* NULL: there is none. */
const figure_t *document_find(document_t *document, const char *path);
/* By one clock, or without one. */
static inline bool figures_agree(const figure_t *a, const figure_t *b)
{
    return a->has_clock == b->has_clock && (!a->has_clock || a->is_model == b->is_model);
}
/* "model", "wall"; NULL: it has no clock. */
static inline const char *figure_clock(const figure_t *figure)
{
    return !figure->has_clock ? NULL : figure->is_model ? "model" : "wall";
}
/* "experiment roundtrip": what the document is of; NULL: it does not tell. */
const char *document_kind(const document_t *document, char *text, size_t room);

#endif
