/* Measuring by the launches of the program. One pair of events a device, so one measurement at a
 * time; launches that meet a busy pair run the fastest kernel so far. A kernel's first run may load
 * code, so each is sampled twice and the shorter time counts. See tune.h. */
#include "backends/cuda/tune.h"

#include <pthread.h>
#include <stdlib.h>

#include "backends/cuda/plans.h"

enum { SAMPLES = 2 };
enum { IDLE, RUNNING, RECORDED }; /* the pair of events: free; between begin and end; to be asked */

typedef struct choice {
    fy__cuda_plan_t kept;
    fy__cuda_tune_key_t key;
    uint32_t ways; /* that are left: those that failed are gone */
    int settled;   /* nothing is measured any more */
    int nsamples[FY__CUDA_TUNE_WAYS];
    float shortest_ms[FY__CUDA_TUNE_WAYS];
} choice_t;

struct fy__cuda_tune {
    pthread_mutex_t lock; /* guards everything below */
    CUevent begin, end;   /* made at the first measurement */
    int state, way;       /* of the pair, and what it measures */
    fy__cuda_tune_key_t key;
    fy__cuda_plans_t table;
    choice_t choices[FY__CUDA_PLANS];
};

fy_status_t fy__cuda_tune_create(fy__cuda_device_t *dev, fy__cuda_tune_t **out_tune)
{
    fy__cuda_tune_t *tune = calloc(1, sizeof *tune);
    *out_tune = tune;
    if (tune == NULL)
        return FY__CUDA_FAIL(FY_STATUS_OUT_OF_MEMORY,
                             "no host memory for the timed choices of cuda:%d", dev->index);
    tune->table = (fy__cuda_plans_t){ (char *)tune->choices, sizeof *tune->choices,
                                      sizeof tune->choices->key };
    pthread_mutex_init(&tune->lock, NULL);
    return FY_STATUS_OK;
}

void fy__cuda_tune_destroy(fy__cuda_tune_t *tune)
{
    if (tune == NULL) return;
    if (tune->begin != NULL) fy__cuda.cuEventDestroy(tune->begin);
    if (tune->end != NULL) fy__cuda.cuEventDestroy(tune->end);
    pthread_mutex_destroy(&tune->lock);
    free(tune);
}

/* ---- the lock is held ---- */

static choice_t *find_or_add(fy__cuda_tune_t *tune, const fy__cuda_tune_key_t *key, uint32_t ways)
{
    choice_t *choice = fy__cuda_plans_find(&tune->table, key, 0, 0);
    const choice_t made = { .key = *key, .ways = ways };
    return choice != NULL ? choice : fy__cuda_plans_add(&tune->table, &made);
}

/* The shortest of the ways that have samples; `fallback` if none has. */
static int best_of(const choice_t *choice, int fallback)
{
    int best = -1;
    for (int way = 0; way < FY__CUDA_TUNE_WAYS; way++)
        if ((choice->ways >> way & 1) && choice->nsamples[way] > 0 &&
            (best < 0 || choice->shortest_ms[way] < choice->shortest_ms[best]))
            best = way;
    return best >= 0 ? best : fallback;
}

/* The next way that lacks a sample; -1: none does. */
static int next_of(const choice_t *choice)
{
    for (int sample = 0; sample < SAMPLES; sample++)
        for (int way = 0; way < FY__CUDA_TUNE_WAYS; way++)
            if ((choice->ways >> way & 1) && choice->nsamples[way] == sample) return way;
    return -1;
}

/* Has the last measurement's work been done? Then its time counts. The driver is asked, never
 * waited for. */
static void collect(fy__cuda_device_t *dev, fy__cuda_tune_t *tune)
{
    float ms;
    if (tune->state != RECORDED) return;
    CUresult code = fy__cuda_checked(dev, fy__cuda.cuEventQuery(tune->end));
    if (code == CUDA_ERROR_NOT_READY) return;
    if (code == CUDA_SUCCESS)
        code = fy__cuda_checked(dev, fy__cuda.cuEventElapsedTime(&ms, tune->begin, tune->end));
    tune->state = IDLE;
    /* NULL: other choices replaced it */
    choice_t *choice = fy__cuda_plans_find(&tune->table, &tune->key, 0, 0);
    if (choice == NULL) return;
    if (code != CUDA_SUCCESS) {
        choice->ways &= ~(1u << tune->way);
        return;
    }
    if (choice->nsamples[tune->way] == 0 || ms < choice->shortest_ms[tune->way])
        choice->shortest_ms[tune->way] = ms;
    choice->nsamples[tune->way]++;
}

static int start(fy__cuda_device_t *dev, fy__cuda_tune_t *tune, CUstream stream)
{
    CUevent *const events[] = { &tune->begin, &tune->end };
    for (int i = 0; i < 2; i++)
        if (*events[i] == NULL &&
            fy__cuda_checked(dev, fy__cuda.cuEventCreate(events[i], CU_EVENT_DEFAULT)) !=
                CUDA_SUCCESS) {
            *events[i] = NULL;
            return 0;
        }
    return fy__cuda_checked(dev, fy__cuda.cuEventRecord(tune->begin, stream)) == CUDA_SUCCESS;
}

/* Not under the lock: the log function may launch. */
static void tell(const fy__cuda_device_t *dev, const choice_t *choice, int way,
                 const char *const *names)
{
    fy__cuda.host->log(FY_LOG_INFO,
                       "cuda:%d: [%d x %d x %d x %d] with [%d x %d x %d]: '%s' is the shortest of "
                       "those timed, %.3f ms",
                       dev->index, choice->key.numbers[2], choice->key.numbers[3],
                       choice->key.numbers[4], choice->key.numbers[5], choice->key.numbers[8],
                       choice->key.numbers[9], choice->key.numbers[10], names[way],
                       (double)choice->shortest_ms[way]);
}

/* ---- use ---- */

fy__cuda_tune_ticket_t fy__cuda_tune_begin(fy__cuda_device_t *dev, CUstream stream,
                                           const fy__cuda_tune_key_t *key, const char *const *names,
                                           uint32_t ways, int fallback)
{
    fy__cuda_tune_t *tune = dev->tune;
    fy__cuda_tune_ticket_t ticket = { fallback, 0 };
    choice_t settled = { .settled = 0 };
    pthread_mutex_lock(&tune->lock);
    choice_t *choice = find_or_add(tune, key, ways);
    if (!choice->settled) {
        collect(dev, tune);
        const int next = next_of(choice);
        if (next < 0) {
            choice->settled = 1;
            settled = *choice;
        } else if (tune->state == IDLE && start(dev, tune, stream)) {
            ticket = (fy__cuda_tune_ticket_t){ next, 1 };
            tune->state = RUNNING;
            tune->way = next;
            tune->key = *key;
        }
    }
    if (!ticket.measured) ticket.way = best_of(choice, fallback);
    pthread_mutex_unlock(&tune->lock);
    if (settled.settled) tell(dev, &settled, ticket.way, names);
    return ticket;
}

void fy__cuda_tune_end(fy__cuda_device_t *dev, CUstream stream, const fy__cuda_tune_key_t *key,
                       const fy__cuda_tune_ticket_t *ticket, int ok)
{
    fy__cuda_tune_t *tune = dev->tune;
    if (ok && !ticket->measured) return;
    pthread_mutex_lock(&tune->lock);
    choice_t *choice = fy__cuda_plans_find(&tune->table, key, 0, 0);
    if (!ok && choice != NULL) choice->ways &= ~(1u << ticket->way);
    /* an event that cannot be recorded measures nothing; what was submitted runs all the same */
    if (ticket->measured)
        tune->state = ok && fy__cuda_checked(dev, fy__cuda.cuEventRecord(tune->end, stream)) ==
                                  CUDA_SUCCESS
                          ? RECORDED
                          : IDLE;
    pthread_mutex_unlock(&tune->lock);
}
