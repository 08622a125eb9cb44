/* Facts for `ferry info` about the kernels: oneDNN's (onednn.h), then the code of the last product.
 */
#include "backends/kernels/last_product.h"
#include "backends/kernels/onednn.h"

void fy__kernels_describe(fy_fact_fn say, void *user)
{
    fy__onednn_describe(say, user);
    const char *last = __atomic_load_n(&fy__product_last, __ATOMIC_ACQUIRE);
    if (last) say(user, "last_product", last);
}
