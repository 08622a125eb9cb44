/* Reads a JSON document (RFC 8259) into a tree. For input files: for any bytes it returns, and
 * reports the error and its position.
 * Not here: pieces of JSON (runtime/base/json.h), writing (json.h), event files, whose lines are
 * flat (event_file.h). See json_tree.c. */
#ifndef FERRY_TOOLS_JSON_TREE_H_
#define FERRY_TOOLS_JSON_TREE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum json_kind {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_LIST,
    JSON_OBJECT
} json_kind_t;

typedef struct json_value {
    json_kind_t kind;
    const char *key; /* of an object's member; else NULL */
    /* STRING: decoded, without zero bytes inside; NUMBER: its text in the file */
    const char *text;
    struct json_value *child; /* LIST, OBJECT: the first one */
    struct json_value *next;
} json_value_t;

typedef struct json_tree {
    json_value_t *root;
    void *chunks;
} json_tree_t;

/* `text` is zero-terminated, changed, and must live as long as the tree. Returns NULL on success,
 * else the error as a text, with *out_line (from 1).
 * The tree is freed in either case by json_tree_free. */
const char *json_tree_parse(char *text, json_tree_t *out_tree, size_t *out_line);
void json_tree_free(json_tree_t *tree);

/* The member of that name; NULL if `object` is none or NULL, or has no such member. */
const json_value_t *json_member(const json_value_t *object, const char *key);
/* The text of that member; NULL if it is no text. */
const char *json_member_text(const json_value_t *object, const char *key);
/* false: it is no whole number from 0 to 2^64 - 1. */
bool json_whole(const json_value_t *value, uint64_t *out_number);

#endif
