/* Permanent texts: one copy of each device spec, pool name and tensor name that an event has. Not
 * here: other lines that events refer to (event_names.c). */
#ifndef FERRY_RUNTIME_TEXT_H_
#define FERRY_RUNTIME_TEXT_H_

#include <pthread.h>
#include <stdint.h>

/* One more than the most texts with a number. */
enum { FY__TEXTS = 1 << 16 };

/* The copy of `text`: for few different texts. "?": no memory. Any thread, without a lock unless
 * the text is new. */
const char *fy__text(const char *text);
/* The number of a text that may be one of very many, from 1; 0: there are too many, or no
 * memory. */
uint16_t fy__text_number(const char *text);
/* The text of a number. */
const char *fy__text_at(uint16_t number);

/* Held over a fork. */
extern pthread_mutex_t fy__text_lock;

#endif
