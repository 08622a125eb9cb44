/* Options of a subcommand as a table: from one table come parsing, checks, defaults, --help and
 * "did you mean".
 * Not here: what the options mean. Next: options.c, and any cmd_*.c for a table in use. */
#ifndef FERRY_TOOLS_OPTIONS_H_
#define FERRY_TOOLS_OPTIONS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum option_kind {
    OPTION_FLAG, /* value: bool *; takes no argument */
    OPTION_INT,  /* value: int64_t *; min .. max */
    OPTION_REAL, /* value: double *; min .. max; NaN: none was given */
    /* value: int64_t *; min .. max, with a unit or without: 4096, 64KiB, 1GiB, 2MB */
    OPTION_BYTES,
    OPTION_SHARE,  /* value: double *; a fraction, as 1%, or 0.01; min .. max; 0: none was given */
    OPTION_TEXT,   /* value: const char **; points into argv */
    OPTION_SVG,    /* as TEXT: the name of a file, ends in .svg */
    OPTION_CHOICE, /* value: int *; index into `choices`, which are separated by '|' */
    OPTION_HEADING /* no option: a line of --help */
} option_kind_t;

typedef struct option {
    const char *name; /* without the dashes */
    option_kind_t kind;
    const char *arg;  /* what --help calls the argument; CHOICE: the choices */
    void *value;      /* holds the default until an option is read */
    const char *help; /* one line, lower case, no full stop */
    int64_t min, max; /* of kinds with a number */
} option_t;

typedef struct usage {
    const char *command; /* "ferry info" */
    const char *summary; /* a sentence or two */
    const option_t *options;
    size_t count;
    /* command lines that work where the data sets are, or are made up, each ended by a newline;
     * NULL: none */
    const char *examples;
    /* what --help says between the options and the examples; NULL: nothing */
    void (*print_more)(void);
} usage_t;

typedef enum parse_result { PARSE_OK, PARSE_HELP, PARSE_BAD } parse_result_t;

/* Prints a reason as printf does, after "ferry: ", on standard error; the value is `result`. */
#define TOOL_REFUSE(result, ...) (fprintf(stderr, "ferry: " __VA_ARGS__), (result))

/* Reads argv[1..]; "--name value" and "--name=value" are the same. PARSE_HELP: the help was printed
 * to standard output;
 * PARSE_BAD: the reason was printed to standard error. Nothing but options is expected. */
parse_result_t options_parse(const usage_t *usage, int argc, char **argv);
/* The same for commands whose first argument may be a name or a file: *out_name, else NULL. */
parse_result_t options_parse_named(const usage_t *usage, int argc, char **argv,
                                   const char **out_name);
/* The same for commands that run another one: up to the first argument that is no option, or "--".
 * *out_count: where the other command begins in argv; argc if there is none. */
parse_result_t options_parse_front(const usage_t *usage, int argc, char **argv, int *out_count);

/* Reads a size of `length` characters as OPTION_BYTES does; false if it is none, or not from min to
 * max. */
bool parse_bytes(const char *text, size_t length, int64_t min, int64_t max, int64_t *out_nbytes);

/* Returns the nearest to `word` among `count` names (stepping `stride` bytes from one name's
 * pointer to the next), or NULL if none is near enough. */
const char *nearest_name(const char *word, const void *names, size_t stride, size_t count);

/* Options that every subcommand has. */
typedef struct common {
    bool json, traffic;
    const char *csv, *plot, *device, *budget, *record, *snapshot;
} common_t;

/* clang-format off */
#define COMMON_OPTIONS(c)                                                                                                        \
    { NULL, OPTION_HEADING, NULL, NULL, "options of every subcommand:" },                                                  \
    { "json", OPTION_FLAG, NULL, &(c)->json, "print one JSON document on standard output, and nothing else there" },       \
    { "csv", OPTION_TEXT, "FILE", &(c)->csv, "write the rows of the table to FILE" },                                      \
    { "plot", OPTION_SVG,  "FILE.svg", &(c)->plot, "draw a figure with gnuplot" },                                         \
    { "device", OPTION_TEXT, "SPEC", &(c)->device, "host, sim:0, sim:0?profile=h200, cuda:0; auto: first CUDA device, else host" }, \
    { "budget", OPTION_TEXT, "ITEMS", &(c)->budget, "limits of transfers and memory, such as upload=1MiB,download=4KiB/step,sync=0; more fails" }, \
    { "record", OPTION_TEXT, "FILE", &(c)->record, "write every event to FILE; ferry ledger FILE reads it" }, \
    { "snapshot", OPTION_TEXT, "FILE", &(c)->snapshot, "what lies where in the device's memory at the end, or when it ran out: FILE.svg a picture, else JSON for ferry memory" }
/* Experiments: their traffic is the same in every run, so a file of expected lines can be compared
 * with it. */
#define TRAFFIC_OPTION(c) { "traffic", OPTION_FLAG, NULL, &(c)->traffic, "end with one line of traffic figures that are the same in every run" }
/* clang-format on */

#endif
