/* Calls in which the host waits, and the device then waits for the host: FA08 to FA10;
 * and calls that had to wait, but did not: FA18;
 * and copies that wait inside their call: FA21. */
#include <string.h>

#include "tools/advise/rules.h"

enum { SCALAR_MOST_NBYTES = 64 };

/* Downloads that the host waits for at once; `scalar`: of so few bytes, or of more. */
static void find_prompt_reads(advice_t *advice, bool scalar)
{
    const facts_t *facts = advice->facts;
    for (uint32_t i = 0; i < facts->program->nevents; i++) {
        const program_event_t *e = facts_event(facts, i);
        if (e->kind != PROGRAM_TRANSFER || e->direction == PROGRAM_PEER ||
            facts_is_on_host(facts, i) || !advice_is_free(advice, i))
            continue;
        if ((e->nbytes <= SCALAR_MOST_NBYTES) != scalar) continue;
        if (scalar && e->direction != PROGRAM_DOWNLOAD) continue;
        const uint32_t wait = advice_prompt_wait(facts, i);
        if (wait == PROGRAM_NONE || !advice_is_free(advice, wait)) continue;
        finding_t *finding = advice_at(advice, i);
        advice_add(advice, finding, i);
        advice_charge_wait(advice, finding, wait);
    }
}

void rule_scalar_read(advice_t *advice) { find_prompt_reads(advice, true); }
void rule_blocking_copy(advice_t *advice) { find_prompt_reads(advice, false); }

/* Does the host use bytes behind a wait, before it submits a request? It reads downloaded bytes;
 * behind a wait for a ticket it also writes what an upload has read. */
static bool reads_after(const facts_t *facts, uint32_t wait)
{
    const program_t *p = facts->program;
    const bool is_ticket = strcmp(p->events[wait].name, "ticket_wait") == 0;
    for (uint32_t i = wait + 1; i < p->nevents; i++) {
        const program_event_t *e = &p->events[i];
        if (e->thread != p->events[wait].thread) continue;
        if (e->kind == PROGRAM_ARRIVED) return true;
        if (e->kind == PROGRAM_MAP && (is_ticket || strncmp(e->path, "read", 4) == 0)) return true;
        if (e->kind == PROGRAM_OP || e->kind == PROGRAM_TRANSFER) return false;
    }
    return true; /* the end of the run */
}

void rule_sync(advice_t *advice)
{
    const facts_t *facts = advice->facts;
    for (uint32_t i = 0; i < facts->program->nevents; i++) {
        const program_event_t *e = facts_event(facts, i);
        if (e->kind != PROGRAM_SYNC || !advice_is_free(advice, i)) continue;
        if (strcmp(e->name, "device_wait") != 0 && strcmp(e->name, "ticket_wait") != 0) continue;
        if (!reads_after(facts, i)) advice_add(advice, advice_at(advice, i), i);
    }
}

void rule_early_write(advice_t *advice)
{
    const facts_t *facts = advice->facts;
    for (uint32_t i = 0; i < facts->program->nevents; i++) {
        const program_event_t *e = facts_event(facts, i);
        if (e->kind == PROGRAM_REFUSAL && strcmp(e->detail, "BUSY") == 0)
            advice_add(advice, advice_at(advice, i), i);
    }
}

/* The line of the transfer follows that of its wait. */
void rule_hidden_sync(advice_t *advice)
{
    const facts_t *facts = advice->facts;
    const program_t *p = facts->program;
    for (uint32_t i = 0; i < p->nevents; i++) {
        uint32_t copy = i + 1;
        if (p->events[i].kind != PROGRAM_SYNC || !advice_is_free(advice, i) ||
            strcmp(p->events[i].name, "tensor_download_into") != 0)
            continue;
        while (copy < p->nevents &&
               (p->events[copy].thread != p->events[i].thread || !facts_takes_time(facts, copy)))
            copy++;
        if (copy == p->nevents || p->events[copy].kind != PROGRAM_TRANSFER ||
            !advice_is_free(advice, copy))
            continue;
        finding_t *finding = advice_at(advice, copy);
        advice_add(advice, finding, copy);
        advice_charge(advice, finding, i);
    }
}
