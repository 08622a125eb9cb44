/* Text as in the C locale. A host program may call setlocale, as Qt and GTK do: then strtod and
 * printf use its decimal point, strerror and dlerror its language. Files, specs and texts of Ferry
 * are alike in every locale (tests/lint/rules/locale.sh). A function here changes the locale of its
 * thread, during one call. Inline, so plugins and programs may use them. */
#ifndef FERRY_RUNTIME_BASE_C_LOCALE_H_
#define FERRY_RUNTIME_BASE_C_LOCALE_H_

#include <dlfcn.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/status.h>

/* Never NULL: in glibc and musl this object is static. */
static inline locale_t fy__c_locale(void) { return newlocale(LC_ALL_MASK, "C", (locale_t)0); }

static inline double fy__strtod(const char *text, char **out_end)
{
    return strtod_l(text, out_end, fy__c_locale());
}

static inline const char *fy__strerror(int error) { return strerror_l(error, fy__c_locale()); }

static inline const char *fy__dlerror(void)
{
    const locale_t before = uselocale(fy__c_locale());
    const char *text = dlerror();
    uselocale(before);
    return text;
}

FY_PRINTF(3, 0)
static inline int fy__vsnprintf(char *text, size_t size, const char *format, va_list args)
{
    const locale_t before = uselocale(fy__c_locale());
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is in the caller */
    const int length = vsnprintf(text, size, format, args);
    uselocale(before);
    return length;
}

FY_PRINTF(3, 4)
static inline int fy__snprintf(char *text, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int length = fy__vsnprintf(text, size, format, args);
    va_end(args);
    return length;
}

FY_PRINTF(2, 3)
static inline int fy__fprintf(FILE *file, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const locale_t before = uselocale(fy__c_locale());
    const int length = vfprintf(file, format, args);
    uselocale(before);
    va_end(args);
    return length;
}

#endif
