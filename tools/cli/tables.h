/* Hash tables from numbers of 64 bits, and pairs of numbers, to indices, and from texts to numbers.
 * Not here: the meaning of keys and numbers (program.c, event_totals.c). */
#ifndef FERRY_TOOLS_TABLES_H_
#define FERRY_TOOLS_TABLES_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NUMBER_TABLE_NONE UINT32_MAX

typedef struct number_table {
    struct number_entry *slots;
    size_t room, count; /* room: a power of two, or 0 */
} number_table_t;

/* The index of `key`, to be read or written until the next call; that of a new key is
 * NUMBER_TABLE_NONE. */
uint32_t *number_table_at(number_table_t *table, uint64_t key);
/* The same of a key that may not be there: no key is added. */
uint32_t number_table_find(const number_table_t *table, uint64_t key);
void number_table_free(number_table_t *table);

/* A table for each of a few small numbers. */
typedef struct pair_table {
    number_table_t *tables;
    size_t count;
} pair_table_t;

/* As number_table_at, with the key (first, second). */
uint32_t *pair_table_at(pair_table_t *table, uint32_t first, uint64_t second);
void pair_table_free(pair_table_t *table);

typedef struct text_index {
    struct text_entry *entries;
    size_t count;
    number_table_t hashes; /* to the first entry with that hash */
} text_index_t;

/* The number of `text`, to be read or written until the next call; a new text is copied and begins
 * with SIZE_MAX. */
size_t *text_index_at(text_index_t *index, const char *text, bool *out_is_new);
/* Numbers of a list: *out_number is that of `text`. True: it is new, and its number is `next`. */
bool text_index_number(text_index_t *index, const char *text, size_t next, size_t *out_number);
/* The index's own copy of `text`: the same pointer for equal texts, until the index is freed. */
const char *text_index_keep(text_index_t *index, const char *text);
void text_index_free(text_index_t *index);

#endif
