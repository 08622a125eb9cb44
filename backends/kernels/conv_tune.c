/* The table of timed convolutions: which way is timed next, which one is kept. A way's first run
 * makes a primitive, and other programs disturb runs, so each way is sampled three times and the
 * shortest time counts. A way replaces the fixed rule's only if it takes less than MARGIN of its
 * time. The table lives as long as the process.
 * Not here: running a way (conv.c). See conv_tune.h. */
#include "backends/kernels/conv_tune.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/posix.h"

enum { SAMPLES = 3 };
static const double MARGIN = 0.9;

typedef struct entry {
    fy__conv_shape_t shape;
    int threads, way; /* the way counts when it is settled */
    uint64_t used;    /* tick of the last use; 0: the place is empty */
    uint32_t ways;    /* that are left: those that failed are gone */
    int settled;
    int nsamples[FY__TUNE_WAYS];
    uint64_t shortest_ns[FY__TUNE_WAYS];
} entry_t;

/* guards all that follows */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static entry_t *table; /* [FY__TUNE_CAPACITY]; NULL: nothing was ever tuned, or no host memory */
static uint64_t tick, timed;
static int measures;

static _Thread_local int entered;
void fy__conv_tune_enter(int enters) { entered = enters; }
int fy__conv_tune_is_entered(void) { return entered; }

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }
void fy__conv_tune_fork_lock(void) { lock(); }
void fy__conv_tune_fork_unlock(void) { unlock(); }

static void begin_use(void)
{
    lock();
    if (!table) table = calloc(FY__TUNE_CAPACITY, sizeof *table);
}

static int count_threads(void)
{
    const fy__threads_facts_t facts = fy__threads_facts();
    return facts.forced ? facts.forced : facts.most;
}

/* ---- the lock is held ---- */

static entry_t *find(const fy__conv_shape_t *shape, int threads)
{
    for (int i = 0; table && i < FY__TUNE_CAPACITY && table[i].used; i++) /* no gaps: add */
        if (table[i].threads == threads && memcmp(&table[i].shape, shape, sizeof *shape) == 0)
            return &table[i];
    return NULL;
}

/* In the first empty place, or in place of the least recently used. */
static entry_t *add(const fy__conv_shape_t *shape, int threads)
{
    entry_t *entry = table;
    for (int i = 1; entry && i < FY__TUNE_CAPACITY; i++)
        if (table[i].used < entry->used) entry = &table[i];
    if (entry) *entry = (entry_t){ .shape = *shape, .threads = threads, .used = ++tick };
    return entry;
}

static int next_of(const entry_t *entry)
{
    for (int sample = 0; sample < SAMPLES; sample++)
        for (int way = 0; way < FY__TUNE_WAYS; way++)
            if ((entry->ways >> way & 1) && entry->nsamples[way] == sample) return way;
    return -1;
}

/* The shortest; the fixed rule's is the first, and the others must be shorter by the margin. */
static int best_of(const entry_t *entry)
{
    int best = FY__TUNE_FIXED;
    double least = entry->nsamples[best] ? MARGIN * (double)entry->shortest_ns[best] : 0;
    for (int way = 1; way < FY__TUNE_WAYS && entry->nsamples[FY__TUNE_FIXED]; way++)
        if ((entry->ways >> way & 1) && entry->nsamples[way] &&
            (double)entry->shortest_ns[way] < least) {
            best = way;
            least = (double)entry->shortest_ns[way];
        }
    return best;
}

/* `choice` is no part of the problem. */
static fy__conv_shape_t key_of(const fy__conv_shape_t *shape)
{
    fy__conv_shape_t key = *shape;
    key.choice = 0;
    return key;
}

/* ---- use ---- */

fy__tune_ticket_t fy__conv_tune_begin(const fy__conv_shape_t *shape, uint32_t ways)
{
    fy__tune_ticket_t ticket = { .shape = key_of(shape), .threads = count_threads() };
    begin_use();
    entry_t *entry = find(&ticket.shape, ticket.threads);
    if (!entry && measures && (entry = add(&ticket.shape, ticket.threads))) entry->ways = ways;
    if (entry) entry->used = ++tick;
    if (entry && entry->settled) {
        ticket.way = entry->way;
    } else if (entry && measures) {
        ticket.way = next_of(entry);
        ticket.measured = 1;
        timed++;
    }
    unlock();
    if (ticket.measured) ticket.begin_ns = fy__now_ns();
    return ticket;
}

void fy__conv_tune_end(const fy__tune_ticket_t *ticket, int ok)
{
    if (ok && !ticket->measured) return;
    const uint64_t ns = fy__now_ns() - ticket->begin_ns;
    begin_use();
    entry_t *entry =
        find(&ticket->shape, ticket->threads); /* it may have been evicted or cleared */
    if (entry && !ok && ticket->way != FY__TUNE_FIXED) {
        entry->ways &= ~(1u << ticket->way);
        if (entry->settled) entry->way = FY__TUNE_FIXED;
    }
    if (entry && ok && !entry->settled) {
        if (!entry->nsamples[ticket->way] || ns < entry->shortest_ns[ticket->way])
            entry->shortest_ns[ticket->way] = ns;
        entry->nsamples[ticket->way]++;
    }
    if (entry && !entry->settled && ticket->measured && next_of(entry) < 0) {
        entry->settled = 1;
        entry->way = best_of(entry);
    }
    unlock();
}

int fy__conv_tune_way(const fy__conv_shape_t *shape)
{
    const fy__conv_shape_t key = key_of(shape);
    begin_use();
    const entry_t *entry = find(&key, count_threads());
    const int way = entry && entry->settled ? entry->way : measures ? -1 : FY__TUNE_FIXED;
    unlock();
    return way;
}

/* ---- settings ---- */

void fy__conv_tune_measure(int now_measures)
{
    begin_use();
    measures = now_measures;
    unlock();
}

void fy__conv_tune_clear(void)
{
    begin_use();
    if (table) memset(table, 0, FY__TUNE_CAPACITY * sizeof *table);
    measures = 0;
    unlock();
}

fy__tune_facts_t fy__conv_tune_facts(void)
{
    lock();
    fy__tune_facts_t facts = { .measures = measures, .timed = timed };
    for (int i = 0; table && i < FY__TUNE_CAPACITY; i++) facts.shapes += (uint64_t)table[i].settled;
    unlock();
    return facts;
}
