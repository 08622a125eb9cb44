/* Marks bytes of Ferry's pools as unused for AddressSanitizer. The calls are empty in builds
 * without it. FY__IS_CHECKED is 1 in builds that run the expensive checks. */
#ifndef FERRY_RUNTIME_BASE_ASAN_H_
#define FERRY_RUNTIME_BASE_ASAN_H_

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define FY__ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FY__ASAN 1
#elif __has_feature(thread_sanitizer)
#define FY__TSAN 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define FY__TSAN 1
#endif

/* With a sanitizer, whose first finding ends the program, and in builds without optimisation. */
#if defined(FY__ASAN) || defined(FY__TSAN) || !defined(__OPTIMIZE__)
enum { FY__IS_CHECKED = 1 };
#else
enum { FY__IS_CHECKED = 0 };
#endif

#ifdef FY__ASAN
#include <sanitizer/asan_interface.h>
enum { FY__HAS_ASAN = 1 };
static inline void fy__asan_forbid(const void *bytes, size_t nbytes)
{
    __asan_poison_memory_region(bytes, nbytes);
}
static inline void fy__asan_allow(const void *bytes, size_t nbytes)
{
    __asan_unpoison_memory_region(bytes, nbytes);
}
#else
enum { FY__HAS_ASAN = 0 };
static inline void fy__asan_forbid(const void *bytes, size_t nbytes)
{
    (void)bytes;
    (void)nbytes;
}
static inline void fy__asan_allow(const void *bytes, size_t nbytes)
{
    (void)bytes;
    (void)nbytes;
}
#endif

#endif
