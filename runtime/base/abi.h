/* Structs that cross the library's boundary with a struct_size: options that a caller hands over,
 * and facts that the library writes into a caller's struct. The caller and the library may have
 * been built with different versions of a header, so their sizes may differ: abi.c has the rules,
 * and this is the one place that reads or writes such a struct.
 * Needs nothing of Ferry but fy_error_set: it is compiled into libferry and libferry_train.
 * Not here: which structs there are (runtime/base/abi_structs.h, train/abi.h). */
#ifndef FERRY_RUNTIME_BASE_ABI_H_
#define FERRY_RUNTIME_BASE_ABI_H_

#include <stddef.h>
#include <string.h>

#include <ferry/status.h>

/* A struct_size above this is garbage: no struct has so many bytes. */
#define FY__ABI_MOST 65536u

/* One struct as this library knows it. */
typedef struct fy__abi {
    const char *name; /* "fy_stream_options_t" */
    const char *init; /* the macro to start from: "FY_STREAM_OPTIONS_INIT" */
    /* sizeof in the first version that was released, and in this one */
    size_t first, own;
    const void *defaults; /* what `init` gives */
} fy__abi_t;

/* sizeof a struct whose last field is `last`. */
#define FY__ABI_SIZE(type, last)                                                                \
    ((offsetof(type, last) + sizeof(((type *)0)->last) + _Alignof(type) - 1) / _Alignof(type) * \
     _Alignof(type))

/* For a list of structs X(name, NAME, last), as in abi_structs.h: the declaration of each row, its
 * definition, and the struct's fy_..._init function. FY__ABI_FOREIGN_ROW: for one file, if the
 * struct's row is in another library. */
#define FY__ABI_DECLARATION(name, NAME, last) extern const fy__abi_t fy__abi_##name;
#define FY__ABI_ROW_AS(linkage, name, NAME, last)                                     \
    static const fy_##name##_t name##_defaults = FY_##NAME##_INIT;                    \
    linkage const fy__abi_t fy__abi_##name = { "fy_" #name "_t", "FY_" #NAME "_INIT", \
                                               FY__ABI_SIZE(fy_##name##_t, last),     \
                                               sizeof(fy_##name##_t), &name##_defaults };
#define FY__ABI_ROW(name, NAME, last)         FY__ABI_ROW_AS(, name, NAME, last)
#define FY__ABI_FOREIGN_ROW(name, NAME, last) FY__ABI_ROW_AS(static, name, NAME, last)
#define FY__ABI_INIT_FUNCTION(name, NAME, last)                                  \
    void fy_##name##_init(fy_##name##_t *options, size_t nbytes)                 \
    {                                                                            \
        fy__abi_init(&name##_defaults, sizeof name##_defaults, options, nbytes); \
    }

/* The two with a caller's struct whose size is not `own`; they are not for the hot path. */
fy_status_t fy__abi_read_other(const fy__abi_t *abi, const char *call, const char *what,
                               const void *given, void *out);
fy_status_t fy__abi_check_other(const fy__abi_t *abi, const char *call, const char *what,
                                const void *given);

/* Copies the caller's options to *out, which is a struct of this library's size. Fails:
 * INVALID_ARGUMENT (NULL, or a struct_size that cannot be). `what` names the parameter. */
static inline fy_status_t fy__abi_read(const fy__abi_t *abi, const char *call, const char *what,
                                       const void *given, void *out, size_t own)
{
    if (!given || *(const size_t *)given != own)
        return fy__abi_read_other(abi, call, what, given, out);
    memcpy(out, given, own);
    return FY_STATUS_OK;
}

/* May the library write its facts into the caller's struct `out`? Fails as fy__abi_read. */
static inline fy_status_t fy__abi_check(const fy__abi_t *abi, const char *call, const char *what,
                                        const void *out, size_t own)
{
    return out && *(const size_t *)out == own ? FY_STATUS_OK
                                              : fy__abi_check_other(abi, call, what, out);
}

/* Writes `facts`, a struct of `own` bytes, into a caller's struct that fy__abi_check accepted. The
 * caller's struct_size stays; bytes behind `own` become 0. */
void fy__abi_write_other(void *out, const void *facts, size_t own);
static inline void fy__abi_write(void *out, const void *facts, size_t own)
{
    if (*(const size_t *)out == own)
        memcpy((char *)out + sizeof(size_t), (const char *)facts + sizeof(size_t),
               own - sizeof(size_t));
    else
        fy__abi_write_other(out, facts, own);
}

/* Writes `defaults`, a struct of `own` bytes, into a caller's struct of `nbytes` bytes, whatever is
 * there; sets its struct_size. Bytes behind `own` become 0. */
void fy__abi_init(const void *defaults, size_t own, void *out, size_t nbytes);

/* The same by the struct's name in the list, with types checked:
 *   FY_TRY(FY__READ(stream_options, "stream_create", options, &own));
 *   FY_TRY(FY__CHECK_OUT(graph_info, "graph_query", out_info)); ... FY__WRITE(out_info, &info);
 * FY__READ takes NULL for the defaults, FY__READ_GIVEN refuses it. */
#define FY__READ_GIVEN(struct_name, call, given, out)                                           \
    fy__abi_read(&fy__abi_##struct_name, call, #given, (const fy_##struct_name##_t *){ given }, \
                 (fy_##struct_name##_t *){ out }, sizeof(fy_##struct_name##_t))
#define FY__READ(struct_name, call, given, out)                                            \
    ((given) ? FY__READ_GIVEN(struct_name, call, given, out)                               \
             : (memcpy(out, fy__abi_##struct_name.defaults, sizeof(fy_##struct_name##_t)), \
                FY_STATUS_OK))
#define FY__CHECK_OUT(struct_name, call, out)                                                \
    fy__abi_check(&fy__abi_##struct_name, call, #out, (const fy_##struct_name##_t *){ out }, \
                  sizeof(fy_##struct_name##_t))
#define FY__WRITE(out, facts) \
    (0 ? (void)(*(out) = *(facts)) : (void)0, fy__abi_write(out, facts, sizeof *(facts)))

#endif
