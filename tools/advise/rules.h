/* The rules of `ferry advise`, in the order in which they run: special ones come before general
 * ones. docs/advisor.md has an example of each.
 * Not here: grouping and savings (advice.h). Next: rules.c for the table, rules_reuse.c. */
#ifndef FERRY_TOOLS_ADVISE_RULES_H_
#define FERRY_TOOLS_ADVISE_RULES_H_

#include "tools/advise/advice.h"
#include "tools/program/change.h"

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
    change_kind_t change; /* how it is proved; NONE: the model clock does not show it */
    uint32_t steps;       /* of that change */
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
void rule_replay(advice_t *advice);
/* rules_rate.c */
void rule_slow_copy(advice_t *advice);
/* rules_idle.c */
void rule_host_work(advice_t *advice);
void rule_late_upload(advice_t *advice);
void rule_idle(advice_t *advice);

#endif
