/* The names of the wait sites. */
#include "runtime/thread/wait_site.h"

#ifdef FERRY_WAIT_SITES
fy__wait_site_t fy__wait_dropped;
#endif

static const char *const names[] = { "NONE",
#define X(name, text) #name,
                                     FY__WAIT_SITE_LIST(X)
#undef X
};
static const char *const texts[] = { "",
#define X(name, text) text,
                                     FY__WAIT_SITE_LIST(X)
#undef X
};

const char *fy__wait_site_name(fy__wait_site_t site)
{
    return site < FY__WAIT_SITE_COUNT ? names[site] : "?";
}
const char *fy__wait_site_text(fy__wait_site_t site)
{
    return site < FY__WAIT_SITE_COUNT ? texts[site] : "";
}
