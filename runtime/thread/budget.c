/* Budgets: guards for the whole process, from a text. "upload=0,download=4KiB/step": items of
 * limit=amount, each for the process or for a scope's name. A budget is parsed once into items that
 * never change. Items without a scope name are the limits of the process's guard. The others become
 * a guard of each scope of that name when it begins. The process's guard keeps the budget, so one
 * pointer leads to both. Scopes that began under an old budget keep it until they end. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/environment.h"
#include "runtime/base/fail.h"
#include "runtime/base/spec.h"
#include "runtime/thread/guard.h"

enum { ITEMS = 32, REASON = 256 };

typedef struct item {
    fy__quota_t quota;
    uint64_t limit;
    const char *name; /* of the scopes that it limits; NULL: the process */
    const char *text; /* as written */
} item_t;

typedef struct budget {
    _Atomic uint32_t refs;
    uint32_t nitems;
    item_t item[ITEMS];
    char *parts; /* the text, split: names point into it */
    char *texts; /* the text, split at commas only */
} budget_t;

static const struct {
    const char *name;
    bool counts; /* a count, not bytes */
} limits[FY__QUOTAS] = { { "upload", false },     { "download", false }, { "peer", false },
                         { "collective", false }, { "sync", true },      { "alloc", true },
                         { "memory", false } };

static void release(void *user)
{
    budget_t *budget = user;
    if (atomic_fetch_sub_explicit(&budget->refs, 1, memory_order_acq_rel) != 1) return;
    free(budget->parts);
    free(budget->texts);
    free(budget);
}

/* ---- parsing ---- */

static bool read_count(const char *text, uint64_t *out_count)
{
    const size_t length = strspn(text, "0123456789");
    if (!length || text[length] || length > 18) return false;
    *out_count = strtoull(text, NULL, 10);
    return true;
}

/* `part`: the item, which is split in place; `text`: an unchanged copy. False: `reason` has the
 * error. */
static bool read_item(budget_t *budget, char *part, const char *text, char reason[REASON])
{
    item_t *item = &budget->item[budget->nitems];
    char *amount = strchr(part, '='), *name = NULL;
    if (!amount) {
        snprintf(reason, REASON,
                 "'%.64s' is no item; write LIMIT=AMOUNT or LIMIT=AMOUNT/SCOPE, such as upload=0 "
                 "or sync=1/step",
                 text);
        return false;
    }
    *amount++ = 0;
    if ((name = strchr(amount, '/'))) *name++ = 0;
    int quota = 0;
    while (quota < FY__QUOTAS && strcmp(part, limits[quota].name) != 0) quota++;
    if (quota == FY__QUOTAS)
        snprintf(
            reason, REASON,
            "'%.64s': '%.32s' is no limit; there are upload, download, peer, collective, sync, "
            "alloc and memory",
            text, part);
    else if (limits[quota].counts && !read_count(amount, &item->limit))
        snprintf(reason, REASON, "'%.64s': '%.32s' is no count, such as 0 or 12", text, amount);
    else if (!limits[quota].counts && !fy__bytes_parse(amount, &item->limit))
        snprintf(reason, REASON,
                 "'%.64s': '%.32s' is no size in bytes, such as 4096, 4KiB or 1.5GiB", text,
                 amount);
    else if (name && (!*name || strchr(name, '/')))
        snprintf(reason, REASON,
                 "'%.64s': the part after '/' is not one name of a scope, such as %s=%.32s/step",
                 text, part, amount);
    else if (quota == FY__QUOTA_MEMORY && !name)
        snprintf(reason, REASON,
                 "'%.64s': memory is counted for a scope: write %s=%.32s/NAME. For a whole device "
                 "there is limit=, in its spec",
                 text, part, amount);
    else {
        *item = (item_t){ (fy__quota_t)quota, item->limit, name, text };
        for (uint32_t i = 0; i < budget->nitems; i++) {
            const item_t *other = &budget->item[i];
            if (other->quota != item->quota || !other->name != !name ||
                (name && strcmp(other->name, name) != 0))
                continue;
            snprintf(reason, REASON, "'%.64s' and '%.64s' limit the same", other->text, text);
            return false;
        }
        budget->nitems++;
        return true;
    }
    return false;
}

/* Splits off the first item of *rest, without surrounding spaces; *rest is then the remainder, or
 * NULL at the end. */
static char *cut(char **rest)
{
    static const char spaces[] = " \t\n\v\f\r";
    char *item = *rest, *comma = strchr(item, ',');
    *rest = comma ? comma + 1 : NULL;
    if (comma) *comma = 0;
    item += strspn(item, spaces);
    for (char *end = item + strlen(item); end > item && strchr(spaces, end[-1]);) *--end = 0;
    return item;
}

/* OK with *out_budget NULL: the text has no items. */
static fy_status_t parse(const char *text, budget_t **out_budget, char reason[REASON])
{
    *out_budget = NULL;
    if (!text || !text[strspn(text, " \t\n")]) return FY_STATUS_OK;
    budget_t *budget = calloc(1, sizeof *budget);
    if (budget) {
        atomic_store(&budget->refs, 1);
        budget->parts = strdup(text);
        budget->texts = strdup(text);
    }
    if (!budget || !budget->parts || !budget->texts) {
        if (budget) release(budget);
        snprintf(reason, REASON, "no host memory for %zu bytes", sizeof *budget + 2 * strlen(text));
        return FY_STATUS_OUT_OF_MEMORY;
    }
    bool good = true;
    for (char *part = budget->parts, *whole = budget->texts; part && good;) {
        char *item = cut(&part);
        const char *same = cut(&whole);
        if (budget->nitems == ITEMS) {
            snprintf(reason, REASON, "there are more than %d items", ITEMS);
            good = false;
        } else
            good = read_item(budget, item, same, reason);
    }
    if (!good) {
        release(budget);
        return FY_STATUS_INVALID_ARGUMENT;
    }
    *out_budget = budget;
    return FY_STATUS_OK;
}

/* ---- guards of a budget ---- */

/* A guard with the items for `name` (NULL: the process), inside `outer`; NULL if memory runs
 * out. */
static fy__guard_t *make_guard(budget_t *budget, const char *name, const fy__node_t *node,
                               fy__guard_t *outer)
{
    uint64_t limit[FY__QUOTAS];
    const char *items[FY__QUOTAS] = { NULL };
    for (int i = 0; i < FY__QUOTAS; i++) limit[i] = FY_UNLIMITED;
    for (uint32_t i = 0; i < budget->nitems; i++) {
        const item_t *item = &budget->item[i];
        if (!item->name != !name || (name && strcmp(item->name, name) != 0)) continue;
        limit[item->quota] = item->limit;
        items[item->quota] = item->text;
    }
    fy__guard_t *guard = fy__guard_create(FY_GUARD_REFUSE, limit, node, outer);
    if (!guard) return NULL;
    memcpy(guard->items, items, sizeof items);
    atomic_fetch_add_explicit(&budget->refs, 1, memory_order_relaxed);
    guard->keeper = budget;
    guard->keeper_release = release;
    return guard;
}

FY_COLD void fy__budget_scope(fy__thread_t *thread, const char *name)
{
    const fy__node_t *node = fy__thread_scope(thread)->node;
    /* '/' became '.'; surplus names share a node */
    if (strcmp(node->name, FY__NODE_OTHERS) != 0) name = node->name;
    fy__guard_t *process = fy__guard_process_retain();
    budget_t *budget = process ? process->keeper : NULL;
    bool named = false;
    for (uint32_t i = 0; budget && i < budget->nitems; i++)
        named |= budget->item[i].name && strcmp(budget->item[i].name, name) == 0;
    if (named) {
        fy__guard_t *guard = make_guard(budget, name, node, thread->guards);
        if (guard)
            thread->guards = guard;
        else
            fy_log_write(FY_LOG_ERROR,
                         "no host memory for the budget of a scope '%s': it is not limited", name);
    }
    fy__guard_release(process);
}

/* Takes over the budget's reference. */
static bool install(budget_t *budget)
{
    fy__guard_t *guard = budget ? make_guard(budget, NULL, NULL, NULL) : NULL;
    if (budget) release(budget);
    if (budget && !guard) return false;
    fy__guard_process_set(guard);
    return true;
}

/* ---- the environment ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char complaint[REASON];
static _Atomic bool has_complaint; /* not logged yet */
static _Atomic bool is_malformed;  /* and no other budget was set since */

fy_status_t fy_budget_set(const char *text)
{
    budget_t *budget;
    char reason[REASON];
    /* reads $FERRY_BUDGET now, so that it cannot replace this budget later */
    if (!fy__thread()) return FY_STATUS_OUT_OF_MEMORY;
    const fy_status_t status = parse(text, &budget, reason);
    if (status == FY_STATUS_OUT_OF_MEMORY) return FY_FAIL(OUT_OF_MEMORY, "budget_set: %s", reason);
    if (status != FY_STATUS_OK) return FY_FAIL(INVALID_ARGUMENT, "budget_set: %s", reason);
    if (!install(budget))
        return FY_FAIL(OUT_OF_MEMORY, "budget_set: no host memory for %zu bytes",
                       sizeof(fy__guard_t));
    atomic_store(&is_malformed, false);
    return FY_STATUS_OK;
}

static void read_environment(void)
{
    budget_t *budget;
    fy_status_t status = parse(fy__env_value("FERRY_BUDGET"), &budget, complaint);
    if (status == FY_STATUS_OK && !install(budget)) {
        status = FY_STATUS_OUT_OF_MEMORY;
        snprintf(complaint, sizeof complaint, "no host memory");
    }
    atomic_store(&is_malformed, status != FY_STATUS_OK);
    atomic_store(&has_complaint, status != FY_STATUS_OK);
}

fy_status_t fy__budget_check(void)
{
    if (FY_LIKELY(!atomic_load(&is_malformed))) return FY_STATUS_OK;
    if (fy__env_is_lenient()) return FY_STATUS_OK;
    return FY_FAIL(INVALID_ARGUMENT,
                   "FERRY_BUDGET is not in force: %s\n  Correct or unset it, or set FERRY_STRICT=0 "
                   "to run without limits",
                   complaint);
}

void fy__budget_environment(void)
{
    pthread_once(&once, read_environment);
    if (FY_LIKELY(!atomic_load_explicit(&has_complaint, memory_order_relaxed)) ||
        !atomic_exchange(&has_complaint, false))
        return;
    /* outside the once: the log function may call Ferry */
    fy_log_write(FY_LOG_ERROR, "FERRY_BUDGET is not in force: %s", complaint);
}
