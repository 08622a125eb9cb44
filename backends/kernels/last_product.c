/* Names of oneDNN's implementations are freed with their primitives, so each is copied once. One
 * processor has about a dozen. */
#include "backends/kernels/last_product.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 64, SIZE = 64 };

const char *fy__product_last;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards names and nnames */
static char names[MOST][SIZE];
static int nnames;

void fy__product_by_named(const char *name)
{
    const char *last = __atomic_load_n(&fy__product_last, __ATOMIC_ACQUIRE), *own = "oneDNN";
    if (last && strncmp(last, name, SIZE - 1) == 0) return;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < nnames && strncmp(names[i], name, SIZE - 1) != 0) i++;
    if (i == nnames && nnames < MOST) (void)snprintf(names[nnames++], SIZE, "%s", name);
    if (i < nnames) own = names[i];
    pthread_mutex_unlock(&lock);
    fy__product_by(own);
}
