/* Which implementation computed the last convolution or product of this process: the fact "last_product" of the host, for who measures one kind of
 * work on one thread (`ferry bench train --layers`). With several threads at work it is that of any of them. */
#ifndef FERRY_BACKENDS_KERNELS_LAST_PRODUCT_H_
#define FERRY_BACKENDS_KERNELS_LAST_PRODUCT_H_

extern const char *fy__product_last; /* static text; NULL: none yet. Atomic accesses only */

/* `name` is static. A load and a compare where it is the last one's, too. */
static inline void fy__product_by(const char *name)
{
    if (__atomic_load_n(&fy__product_last, __ATOMIC_RELAXED) != name) __atomic_store_n(&fy__product_last, name, __ATOMIC_RELEASE);
}

/* The same for a name that may go: it is copied, once for each text. "oneDNN" if 64 other texts were copied before. */
void fy__product_by_named(const char *name);

#endif
