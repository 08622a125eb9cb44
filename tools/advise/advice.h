/* Findings: transfers, waits and allocations that a recorded program does not need, what their
 * removal saves, and how.
 * Each rule looks at the events that no rule before it has explained, so an event is in one finding
 * at most. Each saving assumes that only its finding is fixed.
 * Not here: the rules (rules.h), printing (advise.h). Next: advice.c. */
#ifndef FERRY_TOOLS_ADVISE_ADVICE_H_
#define FERRY_TOOLS_ADVISE_ADVICE_H_

#include "tools/program/facts.h"
#include "tools/program/figures.h"

struct rule;

typedef enum confidence { CONFIDENCE_LOW, CONFIDENCE_MEDIUM, CONFIDENCE_HIGH } confidence_t;

typedef struct finding {
    const struct rule *rule;
    const char *site; /* "" if unknown */
    char scope[200];  /* all events are in it, or in scopes inside it */
    uint32_t *events; /* that the fix removes or changes */
    size_t nevents;
    uint32_t *costs; /* those, and others that are there only because of them, such as waits */
    size_t ncosts;
    uint64_t nbytes; /* of the events */
    bool begins_next;
    bool *begins;     /* by event: it begins a series that becomes one request */
    uint64_t kept;    /* series; 0: all events go, or change */
    uint64_t rest_ns; /* time of requests that the fix leaves, or makes */
    uint64_t idle_ns; /* the device stood idle because of the costs */
    uint64_t saving_ns;
    bool has_measured; /* prove.c: the saving that an execution without the waste shows */
    int64_t measured_ns;
    bool has_limit; /* the saving is less than idle_ns, because of `limit` */
    facts_engine_t limit;
    confidence_t confidence;
    const char *formula; /* of a saving that is not idle_ns; NULL: it is */
    char detail[200];    /* what a reader needs besides, or "" */
} finding_t;

typedef struct advice {
    const facts_t *facts;
    figures_t *machines; /* by device: as recorded; NULL: unknown */
    bool *claimed;       /* by event */
    finding_t *findings;
    size_t nfindings, first; /* first: of the rule that runs */
    number_table_t places;   /* findings of that rule, by the texts that advice_at looks for */
    uint32_t last_copy;      /* the copy behind all ops with which the run ends, or PROGRAM_NONE */
    uint64_t last_op_ns;     /* the end of the op before it */
    uint64_t *held_ns[2];    /* FACTS_UPLOAD + k: idle because of its event i and those behind it */
    const struct rule *rule;
    bool has_together; /* prove.c: what an execution without the waste of all findings saves */
    int64_t together_ns;
} advice_t;

/* A transfer that could take `most_ns` less, and how much of that shortens the run. */
typedef struct advice_save {
    uint32_t event;
    uint64_t most_ns, ns;
} advice_save_t;

/* Runs all rules, or the one with that id; sorts findings by their savings. */
void advice_create(const facts_t *facts, const char *only, advice_t *out_advice);
void advice_free(advice_t *advice);

/* ---- for rules ---- */

/* The finding of the current rule at this event's site, or in its scope if the site is unknown; a
 * new one if there is none. */
finding_t *advice_at(advice_t *advice, uint32_t event);
/* The event is one that the fix removes or changes. */
void advice_add(advice_t *advice, finding_t *finding, uint32_t event);
/* The next event added begins a series, of which one request remains. */
void advice_begin_series(finding_t *finding);
/* How long a copy of this event's bytes takes at the rate of the device's profile; 0: unknown. */
uint64_t advice_calibrated_ns(const advice_t *advice, uint32_t event, uint64_t nbytes);
/* Of the time for which the device waited while requests were behind others in an engine's queue:
 * the part saved if these transfers, sorted by their events, take less. Sets `ns` where it is 0. */
void advice_save_queue(const advice_t *advice, advice_save_t *saves, size_t count);
/* The event costs time only because of events of the finding. */
void advice_charge(advice_t *advice, finding_t *finding, uint32_t event);
/* Has no rule explained it? */
static inline bool advice_is_free(const advice_t *advice, uint32_t event)
{
    return !advice->claimed[event];
}
/* The wait of the host for this request, if it followed before the host submitted anything else;
 * PROGRAM_NONE: the host went on. */
uint32_t advice_prompt_wait(const facts_t *facts, uint32_t request);
/* The `sync` of that wait and its `arrived` are costs of the finding. */
void advice_charge_wait(advice_t *advice, finding_t *finding, uint32_t wait);

/* ---- prove.c: savings, measured by an execution on the simulator's clock without the waste of a
 * finding ---- */

/* Sets has_measured and measured_ns of each finding whose rule has a change, and together_ns: what
 * all changes save at once, so savings that overlap are counted once. Fails:
 * INVALID_ARGUMENT (the run has no model clock). */
fy_status_t prove(advice_t *advice);

#endif
