/* See plans.h. Plans are in an array in the order of their making; buckets are lists by place. A
 * search for the least recently used plan reads all of them, but only when a new one is added. */
#include "backends/cuda/plans.h"

#include <string.h>

static fy__cuda_plan_t *at(const fy__cuda_plans_t *table, uint32_t place)
{
    return (fy__cuda_plan_t *)(void *)(table->plans + place * table->plan_nbytes);
}

static uint32_t hash_of(const fy__cuda_plans_t *table, const void *key)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < table->key_nbytes; i += sizeof(uint32_t)) {
        uint32_t word;
        memcpy(&word, (const char *)key + i, sizeof word);
        /* 2^64 / golden ratio: Knuth, multiplicative hashing */
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    return (uint32_t)hash;
}

void *fy__cuda_plans_find(fy__cuda_plans_t *table, const void *key, uint64_t limit,
                          uint64_t granted)
{
    const uint32_t hash = hash_of(table, key);
    fy__cuda_plan_t *plan, *found = NULL;
    for (uint32_t place = table->buckets[hash % FY__CUDA_PLAN_BUCKETS]; place != 0;
         place = plan->next) {
        plan = at(table, place - 1);
        if (plan->hash != hash || memcmp(plan + 1, key, table->key_nbytes) != 0) continue;
        const int fits = limit != UINT64_MAX ? plan->limit == limit || plan->limit == UINT64_MAX
                                             : plan->nbytes <= granted;
        if (fits && (found == NULL || plan->limit > found->limit)) found = plan;
    }
    if (found == NULL) return NULL;
    found->used = ++table->tick;
    table->hits++;
    return found;
}

/* Its key and its head stay. */
static void drop(fy__cuda_plans_t *table, fy__cuda_plan_t *plan)
{
    if (table->drop == NULL) return;
    const size_t kept = sizeof *plan + table->key_nbytes;
    table->drop(plan);
    memset((char *)plan + kept, 0, table->plan_nbytes - kept);
}

/* The place of the least recently used plan, which is dropped. */
static uint32_t evict(fy__cuda_plans_t *table)
{
    uint32_t place = 0;
    for (uint32_t i = 1; i < FY__CUDA_PLANS; i++)
        if (at(table, i)->used < at(table, place)->used) place = i;
    uint32_t *link = &table->buckets[at(table, place)->hash % FY__CUDA_PLAN_BUCKETS];
    while (*link != place + 1) link = &at(table, *link - 1)->next;
    *link = at(table, place)->next;
    drop(table, at(table, place));
    table->evictions++;
    return place;
}

void *fy__cuda_plans_add(fy__cuda_plans_t *table, const void *made)
{
    const uint32_t place = table->count < FY__CUDA_PLANS ? table->count++ : evict(table);
    fy__cuda_plan_t *plan = at(table, place);
    memcpy(plan, made, table->plan_nbytes);
    plan->hash = hash_of(table, plan + 1);
    uint32_t *bucket = &table->buckets[plan->hash % FY__CUDA_PLAN_BUCKETS];
    plan->next = *bucket;
    plan->used = ++table->tick;
    *bucket = place + 1;
    table->misses++;
    return plan;
}

void *fy__cuda_plans_get(fy__cuda_plans_t *table, fy__cuda_device_t *dev, const void *key,
                         uint64_t limit, uint64_t granted, fy_status_t *out_status)
{
    fy__cuda_plan_t *plan = fy__cuda_plans_find(table, key, limit, granted),
                    *made = at(table, FY__CUDA_PLANS);
    fy__cuda_frame_t frame;
    if (plan == NULL) {
        *out_status = fy__cuda_check_capture(table->text);
        if (*out_status == FY_STATUS_OK) *out_status = fy__cuda_enter(dev, &frame);
        if (*out_status != FY_STATUS_OK) return NULL;
        memset(made, 0, table->plan_nbytes);
        made->limit = limit != UINT64_MAX ? limit : granted;
        memcpy(made + 1, key, table->key_nbytes);
        *out_status = table->make(table->owner, made);
        if (*out_status != FY_STATUS_OK) drop(table, made);
        made->refused = *out_status == FY_STATUS_UNSUPPORTED;
        if (*out_status == FY_STATUS_OK || made->refused) plan = fy__cuda_plans_add(table, made);
        fy__cuda_leave(&frame);
    }
    if (plan != NULL) *out_status = plan->refused ? FY_STATUS_UNSUPPORTED : FY_STATUS_OK;
    return plan;
}

void fy__cuda_plans_refuse(fy__cuda_plans_t *table, fy__cuda_plan_t *plan)
{
    drop(table, plan);
    plan->limit = UINT64_MAX;
    plan->nbytes = 0;
    plan->refused = 1;
}

void fy__cuda_plans_clear(fy__cuda_plans_t *table)
{
    for (uint32_t i = 0; i < table->count; i++) drop(table, at(table, i));
}
