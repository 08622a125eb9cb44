/* The rules of `ferry advise`, in the order in which they run: special ones come before general
 * ones. docs/advisor.md has an example of each.
 * Not here: grouping and savings (advice.h). Next: rules.c for the table, rules_reuse.c. */
#ifndef FERRY_TOOLS_ADVISE_RULES_H_
#define FERRY_TOOLS_ADVISE_RULES_H_

#include "tools/advise/advice.h"

/* How a program is changed to measure a saving (prove.c). */
typedef enum change {
    CHANGE_NONE,          /* the model clock does not show it */
    CHANGE_DROP,          /* the costs go */
    CHANGE_LATER,         /* the host waits for the request of `steps` events before */
    CHANGE_PACK,          /* a series of copies becomes one */
    CHANGE_PIN,           /* copies read page-locked memory, without staging */
    CHANGE_SECOND_BUFFER, /* an upload waits for what the one before it waited for */
    CHANGE_UNBLOCK,       /* copies to page-locked memory, waited for `steps` events later */
    CHANGE_FUSE           /* a series of ops becomes one */
} change_t;

typedef struct rule {
    const char *id;    /* stable */
    const char *title; /* what is wasteful */
    const char *why;   /* a sentence */
    const char *fix;   /* a sentence, and the code */
    const char *code;
    size_t least; /* events; a finding with fewer is dropped */
    /* a finding that saves less than a thousandth of the time is dropped; no harm without a cost */
    bool needs_saving;
    void (*find)(advice_t *advice);
    change_t change;
    size_t steps; /* LATER */
} rule_t;

extern const rule_t rules[];
extern const size_t rules_count;

/* NULL: there is none. */
const rule_t *rule_named(const char *id);

/* rules_reuse.c */
void rule_reload(advice_t *advice);
void rule_again(advice_t *advice);
void rule_round_trip(advice_t *advice);
void rule_host_op(advice_t *advice);
/* rules_unused.c */
void rule_never_read(advice_t *advice);
void rule_never_used(advice_t *advice);
void rule_pinned_idle(advice_t *advice);
/* rules_waits.c */
void rule_scalar_read(advice_t *advice);
void rule_blocking_copy(advice_t *advice);
void rule_sync(advice_t *advice);
void rule_early_write(advice_t *advice);
void rule_hidden_sync(advice_t *advice);
/* rules_copies.c */
void rule_small_copies(advice_t *advice);
void rule_staged(advice_t *advice);
void rule_one_buffer(advice_t *advice);
void rule_turns(advice_t *advice);
/* rules_memory.c */
void rule_pin(advice_t *advice);
void rule_alloc(advice_t *advice);
void rule_pinned_most(advice_t *advice);
/* rules_ops.c */
void rule_chain(advice_t *advice);
/* The bytes that a chain reads from outside, and those of its last result. out_all may be NULL: the
 * bytes of all operands of all its ops. */
uint64_t chain_outer_nbytes(const facts_t *facts, const uint32_t *ops, size_t count,
                            uint64_t *out_all);
/* rules_idle.c */
void rule_host_work(advice_t *advice);

#endif
