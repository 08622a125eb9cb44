/* A consumer that links libferry.so. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../scenario.h"

int main(void)
{
#ifdef WITH_JEMALLOC
    return run_scenario(RTLD_DEFAULT, "libjemalloc.so", "jemalloc") != 0;
#else
    return run_scenario(RTLD_DEFAULT, "libc.so", "mmap") != 0;
#endif
}
