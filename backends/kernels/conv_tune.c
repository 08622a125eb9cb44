/* The table of timed convolutions: which way is timed next, which one is kept, the file. A way's
 * first run makes a primitive, and other programs disturb runs, so each way is sampled three times
 * and the shortest time counts. A way replaces the fixed rule's only if it takes less than MARGIN
 * of its time.
 * Not here: the text of the file (conv_tune_file.c), running a way (conv.c). See conv_tune.h. */
#include "backends/kernels/conv_tune.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/input.h"
#include "runtime/base/replace.h"

enum { SAMPLES = 3, MOST_NBYTES = FY__TUNE_CAPACITY * FY__TUNE_LINE };
static const double MARGIN = 0.9;

typedef struct entry {
    fy__tune_choice_t choice; /* its way and ns count when it is settled */
    uint64_t used;            /* tick of the last use; 0: the place is empty */
    uint32_t ways;            /* that are left: those that failed are gone */
    int settled;
    int nsamples[FY__TUNE_WAYS];
    uint64_t shortest_ns[FY__TUNE_WAYS];
} entry_t;

/* guards all that follows, and the file against another thread of the process */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static entry_t *table; /* [FY__TUNE_CAPACITY]; NULL: nothing was ever tuned, or no host memory */
static uint64_t tick, timed;
static int measures;
static char *file; /* malloc'ed; NULL: none */

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

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int count_threads(void)
{
    const fy__threads_facts_t facts = fy__threads_facts();
    return facts.forced ? facts.forced : facts.most;
}

/* ---- the lock is held ---- */

static int is_same(const fy__tune_choice_t *a, const fy__tune_choice_t *b)
{
    return a->threads == b->threads && memcmp(&a->shape, &b->shape, sizeof a->shape) == 0 &&
           strcmp(a->machine, b->machine) == 0;
}

static entry_t *find(const fy__tune_choice_t *key)
{
    for (int i = 0; table && i < FY__TUNE_CAPACITY && table[i].used; i++) /* no gaps: add */
        if (is_same(&table[i].choice, key)) return &table[i];
    return NULL;
}

/* In the first empty place, or in place of the least recently used. */
static entry_t *add(const fy__tune_choice_t *key)
{
    entry_t *entry = table;
    for (int i = 1; entry && i < FY__TUNE_CAPACITY; i++)
        if (table[i].used < entry->used) entry = &table[i];
    if (entry) *entry = (entry_t){ .choice = *key, .used = ++tick };
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

static void settle(entry_t *entry)
{
    if (next_of(entry) >= 0) return;
    entry->settled = 1;
    entry->choice.way = best_of(entry);
    entry->choice.ns = entry->shortest_ns[entry->choice.way];
}

/* Choices of a file that the table lacks; those that it has stay. */
static void add_settled(void *user, const fy__tune_choice_t *choice)
{
    entry_t *entry = find(choice);
    (void)user;
    if (!entry) entry = add(choice);
    if (entry && !entry->settled) {
        entry->choice = *choice;
        entry->settled = 1;
    }
}

/* The same while there is an empty place: choices of this process are not evicted. */
static void add_where_empty(void *user, const fy__tune_choice_t *choice)
{
    if (find(choice) || (table && !table[FY__TUNE_CAPACITY - 1].used)) add_settled(user, choice);
}

static void ignore(void *user, const fy__tune_choice_t *choice)
{
    (void)user;
    (void)choice;
}

/* *out_text NULL: there is no file. Returns an errno, with `problem`. */
static int read_file(const char *path, char **out_text, size_t *out_nbytes, char problem[700])
{
    fy__input_t input;
    const char *wrong;
    *out_text = NULL;
    const int error = fy__input_text(&input, path, NULL, MOST_NBYTES, out_text, out_nbytes);
    if (error == ENOENT) return 0;
    if (error) {
        (void)snprintf(problem, 700, "%s", input.problem);
        return error;
    }
    const int line = fy__tune_parse(*out_text, *out_nbytes, ignore, NULL, &wrong);
    if (!line) return 0;
    (void)snprintf(problem, 700, "%.500s: line %d: %s", path, line, wrong);
    free(*out_text);
    *out_text = NULL;
    return EBADMSG;
}

/* Replaces the file by its choices and those of the table. Choices that another process wrote
 * meanwhile are read first; of two processes that replace it at the same time, one has its newest
 * choice measured again later. */
static int write_file(char problem[700])
{
    char *text, *old;
    size_t used = strlen(fy__tune_header), nbytes = 0;
    const char *wrong;
    fy__replace_t replace;
    const int error = read_file(file, &old, &nbytes, problem);
    if (error) return error;
    if (old) (void)fy__tune_parse(old, nbytes, add_where_empty, NULL, &wrong);
    free(old);
    text = malloc(MOST_NBYTES + used);
    if (!text) {
        (void)snprintf(problem, 700, "no host memory");
        return ENOMEM;
    }
    memcpy(text, fy__tune_header, used);
    for (int i = 0; i < FY__TUNE_CAPACITY; i++)
        if (table[i].settled) used += (size_t)fy__tune_line(&table[i].choice, text + used);
    int failed = fy__replace_begin(&replace, file);
    if (!failed && (failed = fy__replace_write(&replace, text, used)))
        fy__replace_abort(&replace);
    else if (!failed)
        failed = fy__replace_commit(&replace);
    if (failed) (void)snprintf(problem, 700, "%s", replace.problem);
    free(text);
    return failed;
}

static fy__tune_choice_t key_of(const fy__conv_shape_t *shape, int threads)
{
    fy__tune_choice_t key = { .shape = *shape, .threads = threads };
    key.shape.choice = 0;
    fy__tune_machine(key.machine);
    return key;
}

/* ---- use ---- */

fy__tune_ticket_t fy__conv_tune_begin(const fy__conv_shape_t *shape, uint32_t ways)
{
    fy__tune_ticket_t ticket = { .shape = *shape, .threads = count_threads() };
    const fy__tune_choice_t key = key_of(shape, ticket.threads);
    begin_use();
    entry_t *entry = find(&key);
    if (!entry && measures && (entry = add(&key))) entry->ways = ways;
    if (entry) entry->used = ++tick;
    if (entry && entry->settled) {
        ticket.way = (int)entry->choice.way;
    } else if (entry && measures) {
        ticket.way = next_of(entry);
        ticket.measured = 1;
        timed++;
    }
    unlock();
    if (ticket.measured) ticket.begin_ns = now_ns();
    return ticket;
}

void fy__conv_tune_end(const fy_host_api_t *host, const fy__tune_ticket_t *ticket, int ok)
{
    char problem[700] = "";
    if (ok && !ticket->measured) return;
    const uint64_t ns = now_ns() - ticket->begin_ns;
    const fy__tune_choice_t key = key_of(&ticket->shape, ticket->threads);
    begin_use();
    entry_t *entry = find(&key); /* it may have been evicted or cleared */
    if (entry && !ok && ticket->way != FY__TUNE_FIXED) {
        entry->ways &= ~(1u << ticket->way);
        if (entry->settled) entry->choice.way = FY__TUNE_FIXED;
    }
    if (entry && ok && !entry->settled) {
        if (!entry->nsamples[ticket->way] || ns < entry->shortest_ns[ticket->way])
            entry->shortest_ns[ticket->way] = ns;
        entry->nsamples[ticket->way]++;
    }
    if (entry && !entry->settled && ticket->measured) {
        settle(entry);
        if (entry->settled && file && write_file(problem)) {
            free(file); /* logged once */
            file = NULL;
        }
    }
    unlock();
    if (*problem)
        host->log(FY_LOG_ERROR, "host: tune=: %s; later choices are kept in memory only", problem);
}

int fy__conv_tune_way(const fy__conv_shape_t *shape)
{
    const fy__tune_choice_t key = key_of(shape, count_threads());
    begin_use();
    const entry_t *entry = find(&key);
    const int way = entry && entry->settled ? (int)entry->choice.way
                    : measures              ? -1
                                            : FY__TUNE_FIXED;
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
    free(file);
    file = NULL;
    measures = 0;
    unlock();
}

fy_status_t fy__conv_tune_file(const fy_host_api_t *host, const char *path)
{
    char problem[700] = "no host memory", *text = NULL;
    const char *wrong;
    size_t nbytes = 0;
    char *copy = strdup(path);
    int error = copy ? read_file(path, &text, &nbytes, problem) : ENOMEM;
    if (!error) {
        begin_use();
        if (!table) error = ENOMEM;
        if (!error && text) (void)fy__tune_parse(text, nbytes, add_settled, NULL, &wrong);
        if (!error) {
            free(file);
            file = copy;
            copy = NULL;
        }
        unlock();
    }
    free(copy);
    free(text);
    if (!error) return FY_STATUS_OK;
    return host->fail(error == ENOMEM                      ? FY_STATUS_OUT_OF_MEMORY
                      : error == EBADMSG || error == EFBIG ? FY_STATUS_CORRUPT_DATA
                                                           : FY_STATUS_IO,
                      __FILE__, __LINE__, "host: tune=: %s", problem);
}

fy__tune_facts_t fy__conv_tune_facts(void)
{
    fy__tune_facts_t facts = { 0 };
    lock();
    facts.is_used = measures || file;
    facts.measures = measures;
    facts.timed = timed;
    for (int i = 0; table && i < FY__TUNE_CAPACITY; i++) {
        facts.shapes += (uint64_t)table[i].settled;
        facts.is_used |= table[i].settled;
    }
    unlock();
    return facts;
}
