/* A hash table from texts to numbers. Not here: the meaning of the numbers (event_totals.c). */
#ifndef FERRY_TOOLS_TEXT_INDEX_H_
#define FERRY_TOOLS_TEXT_INDEX_H_

#include <stdbool.h>
#include <stddef.h>

#include "tools/cli/number_table.h"

typedef struct text_index {
    struct text_entry *entries;
    size_t count;
    number_table_t hashes; /* to the first entry with that hash */
} text_index_t;

/* The number of `text`, to be read or written until the next call; a new text is copied and begins
 * with SIZE_MAX. */
size_t *text_index_at(text_index_t *index, const char *text, bool *out_is_new);
/* The index's own copy of `text`: the same pointer for equal texts, until the index is freed. */
const char *text_index_keep(text_index_t *index, const char *text);
void text_index_free(text_index_t *index);

#endif
