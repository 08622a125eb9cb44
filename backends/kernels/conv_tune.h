/* Timed choice among the ways to run a convolution of oneDNN's size (options autotune=on and
 * tune=FILE of the host). No additional call: the first calls of a shape, which have to run anyway,
 * take the ways in turn between two readings of the clock. When each way has its samples, the
 * shortest is kept for the shape and the number of threads.
 * The process has one table, as it has one host. Next: conv_tune.c; conv.c, which runs the ways. */
#ifndef FERRY_BACKENDS_KERNELS_CONV_TUNE_H_
#define FERRY_BACKENDS_KERNELS_CONV_TUNE_H_

#include "backends/kernels/conv.h"

enum {
    FY__TUNE_FIXED,   /* what runs without autotune=: a rule of the shape */
    FY__TUNE_PLAIN,   /* the plain loops */
    FY__TUNE_PRODUCT, /* a product of windows (conv_product.c) */
    FY__TUNE_DNNL,    /* the first implementation that oneDNN lists, then the next ones */
    FY__TUNE_WAYS = FY__TUNE_DNNL + 4,
    FY__TUNE_CAPACITY = 1024 /* shapes */
};

typedef struct fy__tune_ticket {
    fy__conv_shape_t shape;
    int threads, way, measured;
    uint64_t begin_ns;
} fy__tune_ticket_t;

/* ---- conv_tune.c ---- */

/* The calling thread's convolutions use the table between enter(1) and enter(0): the host's do, a
 * simulated device's do not. */
void fy__conv_tune_enter(int enters);
int fy__conv_tune_is_entered(void);

/* The way to run; `ways`: bits of those that exist. Never fails. */
fy__tune_ticket_t fy__conv_tune_begin(const fy__conv_shape_t *shape, uint32_t ways);
/* It has run (ok), or could not: then it is not tried again. May write the file of tune=. */
void fy__conv_tune_end(const fy_host_api_t *host, const fy__tune_ticket_t *ticket, int ok);
/* The way that is kept for the shape; -1: none yet. */
int fy__conv_tune_way(const fy__conv_shape_t *shape);

/* `measures`: autotune=on. Without it, and without a choice from a file, shapes are FIXED. */
void fy__conv_tune_measure(int measures);
/* Forgets all choices and the file's name (the file stays). */
void fy__conv_tune_clear(void);
/* Reads `path`, if it exists, and adds later choices to it while autotune=on.
 * Fails: IO, OUT_OF_MEMORY, CORRUPT_DATA (names the line); nothing has changed. */
fy_status_t fy__conv_tune_file(const fy_host_api_t *host, const char *path);

typedef struct fy__tune_facts {
    int is_used, measures;  /* a table is used; shapes without a choice are timed */
    uint64_t shapes, timed; /* with a choice; calls that were timed since the process began */
} fy__tune_facts_t;
fy__tune_facts_t fy__conv_tune_facts(void);

/* Over a fork, so that the child's table is consistent (runtime/wire.c). */
void fy__conv_tune_fork_lock(void);
void fy__conv_tune_fork_unlock(void);

/* ---- one choice, as a line of text (conv_tune_file.c) ---- */

enum { FY__TUNE_MACHINE = 48, FY__TUNE_LINE = 512 };
typedef struct fy__tune_choice {
    fy__conv_shape_t shape;
    int64_t threads;
    /* "onednn-3.6.2/isa-0x7": choices of others are kept, not used */
    char machine[FY__TUNE_MACHINE];
    int64_t way;
    uint64_t ns; /* of a call */
} fy__tune_choice_t;

/* This machine's text. */
void fy__tune_machine(char machine[FY__TUNE_MACHINE]);
/* A line with its end; returns its length. */
int fy__tune_line(const fy__tune_choice_t *choice, char text[FY__TUNE_LINE]);
/* Reads a whole text; calls `add` for each choice, in order. Returns 0, or the number of the first
 * line that is no line of fy__tune_line (the first line is the header), with *out_problem. */
int fy__tune_parse(const char *text, size_t nbytes,
                   void (*add)(void *user, const fy__tune_choice_t *choice), void *user,
                   const char **out_problem);
extern const char fy__tune_header[];

#endif
