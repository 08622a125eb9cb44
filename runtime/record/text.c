/* A table of chains. A chain only grows, at its head, so readers take no lock. */
#include "runtime/record/text.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
    struct text *next;
    uint32_t hash;
    _Atomic uint16_t number; /* 0: it has none yet */
    char text[];
} text_t;

enum { BUCKETS = 1 << 10 };
static text_t *_Atomic buckets[BUCKETS];
static const text_t *_Atomic by_number[FY__TEXTS];
pthread_mutex_t fy__text_lock = PTHREAD_MUTEX_INITIALIZER; /* guards additions; a leaf lock */
static uint32_t last_number;

/* FNV-1a (Fowler, Noll, Vo). */
static uint32_t hash_of(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

static text_t *find(text_t *from, uint32_t hash, const char *text)
{
    while (from && (from->hash != hash || strcmp(from->text, text) != 0)) from = from->next;
    return from;
}

/* The lock is held. NULL: no memory. */
static text_t *add(const char *text, uint32_t hash)
{
    text_t *_Atomic *bucket = &buckets[hash % BUCKETS];
    text_t *first = atomic_load_explicit(bucket, memory_order_relaxed),
           *found = find(first, hash, text);
    const size_t size = strlen(text) + 1;
    if (found || !(found = malloc(sizeof *found + size))) return found;
    found->next = first;
    found->hash = hash;
    atomic_init(&found->number, 0);
    memcpy(found->text, text, size);
    atomic_store_explicit(bucket, found, memory_order_release);
    return found;
}

static text_t *look_up(const char *text, uint32_t hash)
{
    return find(atomic_load_explicit(&buckets[hash % BUCKETS], memory_order_acquire), hash, text);
}

const char *fy__text(const char *text)
{
    const uint32_t hash = hash_of(text);
    const text_t *found = look_up(text, hash);
    if (!found) {
        pthread_mutex_lock(&fy__text_lock);
        found = add(text, hash);
        pthread_mutex_unlock(&fy__text_lock);
    }
    return found ? found->text : "?";
}

uint16_t fy__text_number(const char *text)
{
    const uint32_t hash = hash_of(text);
    text_t *found = look_up(text, hash);
    uint16_t number = found ? atomic_load_explicit(&found->number, memory_order_acquire) : 0;
    if (number) return number;
    pthread_mutex_lock(&fy__text_lock);
    if (last_number < FY__TEXTS - 1 && (found = add(text, hash))) {
        number = atomic_load_explicit(&found->number, memory_order_relaxed);
        if (!number) {
            number = (uint16_t)++last_number;
            atomic_store_explicit(&by_number[number], found, memory_order_release);
            atomic_store_explicit(&found->number, number, memory_order_release);
        }
    }
    pthread_mutex_unlock(&fy__text_lock);
    return number;
}

const char *fy__text_at(uint16_t number)
{
    const text_t *text = atomic_load_explicit(&by_number[number], memory_order_acquire);
    return text ? text->text : "";
}
