/* The implementation of the last convolution or product of this process: the fact "last_product" of
 * the host, which `ferry bench train --layers` reads. If several threads compute, it is that of any
 * of them. */
#ifndef FERRY_BACKENDS_KERNELS_LAST_PRODUCT_H_
#define FERRY_BACKENDS_KERNELS_LAST_PRODUCT_H_

extern const char *fy__product_last; /* static text; NULL: none yet. Atomic accesses only */

/* Sets the name, which is static. Cost: a load and a compare if it does not change. */
static inline void fy__product_by(const char *name)
{
    if (__atomic_load_n(&fy__product_last, __ATOMIC_RELAXED) != name)
        __atomic_store_n(&fy__product_last, name, __ATOMIC_RELEASE);
}

/* The same for a name that may be freed: copies it, once for each text. After 64 other texts the
 * name is "oneDNN". */
void fy__product_by_named(const char *name);

#endif
