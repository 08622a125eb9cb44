/* The header of .npy files: a Python dict of 'descr', 'fortran_order' and 'shape', in any order.
 * Not here: files and data (npy.c). Source of the format: npy.h; of the padding that is written:
 * numpy.lib.format, _write_array_header. */
#include "train/npy.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "train/fail.h"

/* bf16 has none. */
static const char *const types[FY_DTYPE_COUNT] = {
    [FY_DTYPE_F32] = "<f4", [FY_DTYPE_F64] = "<f8", [FY_DTYPE_F16] = "<f2",  [FY_DTYPE_I32] = "<i4",
    [FY_DTYPE_I64] = "<i8", [FY_DTYPE_U8] = "|u1",  [FY_DTYPE_BOOL] = "|b1",
};

/* ---- reading ---- */

typedef struct cursor {
    const char *path, *begin, *at, *end;
} cursor_t;

static fy_status_t fail_at(const cursor_t *cursor, const char *expected)
{
    return FYT_FAIL(CORRUPT_DATA, "%s: byte %zu of the header is not %s", cursor->path,
                    (size_t)(cursor->at - cursor->begin), expected);
}

static void skip_blanks(cursor_t *cursor)
{
    while (cursor->at < cursor->end && strchr(" \t\r\n", *cursor->at) && *cursor->at) cursor->at++;
}

static int take(cursor_t *cursor, char c)
{
    skip_blanks(cursor);
    if (cursor->at == cursor->end || *cursor->at != c) return 0;
    cursor->at++;
    return 1;
}

static int take_word(cursor_t *cursor, const char *word)
{
    const size_t n = strlen(word);
    skip_blanks(cursor);
    if ((size_t)(cursor->end - cursor->at) < n || memcmp(cursor->at, word, n) != 0) return 0;
    cursor->at += n;
    return 1;
}

/* A string in one pair of quotes, without escapes. */
static fy_status_t read_string(cursor_t *cursor, char *to, size_t room)
{
    const char quote = take(cursor, '\'') ? '\'' : take(cursor, '"') ? '"' : 0;
    if (!quote) return fail_at(cursor, "the begin of a string");
    size_t n = 0;
    for (; cursor->at < cursor->end && *cursor->at != quote; cursor->at++) {
        if (*cursor->at == '\\' || *cursor->at < ' ' || *cursor->at > '~' || n + 1 == room)
            return fail_at(cursor, "part of a key or type");
        to[n++] = *cursor->at;
    }
    if (cursor->at == cursor->end) return fail_at(cursor, "the quote that ends a string");
    cursor->at++;
    to[n] = 0;
    return FY_STATUS_OK;
}

static fy_status_t read_type(cursor_t *cursor, fyt_npy_t *npy)
{
    char type[16];
    skip_blanks(cursor);
    if (cursor->at < cursor->end && *cursor->at == '[')
        return FYT_FAIL(UNSUPPORTED, "%s: its elements are structures: save each field as an array",
                        cursor->path);
    FY_TRY(read_string(cursor, type, sizeof type));
    const int has_order = type[0] && strchr("<>=|", type[0]) != NULL;
    const char *const name = type + has_order;
    for (int i = 0; i < FY_DTYPE_COUNT; i++) {
        if (!types[i] || strcmp(types[i] + 1, name) != 0) continue;
        /* one byte has no order; '=' is this machine's, which is little-endian */
        if (type[0] == '>' && fy_dtype_size((fy_dtype_t)i) > 1)
            return FYT_FAIL(UNSUPPORTED,
                            "%s: its elements are big-endian ('%s'): save it with "
                            "array.astype('%s')",
                            cursor->path, type, types[i]);
        npy->dtype = (fy_dtype_t)i;
        return FY_STATUS_OK;
    }
    return FYT_FAIL(UNSUPPORTED,
                    "%s: no dtype of Ferry is NumPy's '%s': save it as <f4, <f8, <f2, <i4, <i8, "
                    "|u1 or |b1",
                    cursor->path, type);
}

static fy_status_t read_bool(cursor_t *cursor, int *out)
{
    if ((*out = take_word(cursor, "True")) || take_word(cursor, "False")) return FY_STATUS_OK;
    return fail_at(cursor, "True or False");
}

static fy_status_t read_dim(cursor_t *cursor, int64_t *out)
{
    skip_blanks(cursor);
    if (cursor->at == cursor->end || !isdigit((unsigned char)*cursor->at))
        return fail_at(cursor, "a dimension (a whole number, 0 or more)");
    const char *first = cursor->at;
    for (*out = 0; cursor->at < cursor->end && isdigit((unsigned char)*cursor->at); cursor->at++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, *cursor->at - '0', out))
            return fail_at(cursor, "part of a dimension below 2^63");
    if (*first == '0' && cursor->at - first > 1) return fail_at(cursor, "a number without zeros");
    (void)take(cursor, 'L'); /* of Python 2 */
    return FY_STATUS_OK;
}

static fy_status_t read_shape(cursor_t *cursor, fyt_npy_t *npy)
{
    int closed, comma = 1;
    if (!take(cursor, '(')) return fail_at(cursor, "the '(' of a shape");
    for (npy->rank = 0; !(closed = take(cursor, ')')) && comma; npy->rank++) {
        if (npy->rank == FY_MAX_RANK)
            return FYT_FAIL(UNSUPPORTED, "%s: more than %d axes", cursor->path, FY_MAX_RANK);
        FY_TRY(read_dim(cursor, &npy->dims[npy->rank]));
        comma = take(cursor, ',');
    }
    if (!closed) return fail_at(cursor, "',' or ')'");
    /* in Python, (3) is a number and (3,) a shape */
    if (npy->rank == 1 && !comma) return fail_at(cursor, "behind the ',' of a shape with one axis");
    return FY_STATUS_OK;
}

static fy_status_t count_bytes(const char *path, fyt_npy_t *npy)
{
    int64_t nbytes = (int64_t)fy_dtype_size(npy->dtype);
    int is_empty = 0;
    for (int i = 0; i < npy->rank; i++) {
        is_empty |= npy->dims[i] == 0;
        if (__builtin_mul_overflow(nbytes, npy->dims[i] ? npy->dims[i] : 1, &nbytes))
            return FYT_FAIL(CORRUPT_DATA, "%s: a shape of 2^63 bytes or more", path);
    }
    npy->nbytes = is_empty ? 0 : (uint64_t)nbytes;
    return FY_STATUS_OK;
}

fy_status_t fyt_npy_read_header(const char *path, const char *text, size_t nbytes,
                                fyt_npy_t *out_npy)
{
    static const char *const keys[] = { "descr", "fortran_order", "shape" };
    cursor_t cursor = { path, text, text, text + nbytes };
    unsigned seen = 0;
    *out_npy = (fyt_npy_t){ 0 };
    if (!take(&cursor, '{')) return fail_at(&cursor, "the '{' of a dict");
    for (int comma = 1; !take(&cursor, '}');) {
        char key[16];
        if (!comma) return fail_at(&cursor, "',' or '}'");
        FY_TRY(read_string(&cursor, key, sizeof key));
        unsigned which = 0;
        while (which < 3 && strcmp(key, keys[which]) != 0) which++;
        if (which == 3 || seen >> which & 1)
            return FYT_FAIL(CORRUPT_DATA, "%s: its header has the key '%s'%s", path, key,
                            which == 3 ? ", which is not of the format" : " twice");
        seen |= 1u << which;
        if (!take(&cursor, ':')) return fail_at(&cursor, "':'");
        if (which == 0) FY_TRY(read_type(&cursor, out_npy));
        if (which == 1) FY_TRY(read_bool(&cursor, &out_npy->is_fortran));
        if (which == 2) FY_TRY(read_shape(&cursor, out_npy));
        comma = take(&cursor, ',');
    }
    skip_blanks(&cursor);
    if (cursor.at != cursor.end) return fail_at(&cursor, "a blank behind the dict");
    for (unsigned i = 0; i < 3; i++)
        if (!(seen >> i & 1))
            return FYT_FAIL(CORRUPT_DATA, "%s: its header has no key '%s'", path, keys[i]);
    return count_bytes(path, out_npy);
}

/* ---- writing ---- */

enum { ALIGNMENT = 64, PREFIX = 10, GROWTH_DIGITS = 21 };

fy_status_t fyt_npy_write_header(const fyt_npy_t *npy, char *text, size_t *out_nbytes)
{
    char shape[FY_MAX_RANK * 24] = "", growing[24];
    size_t n = 0;
    if (!types[npy->dtype])
        return FYT_FAIL(UNSUPPORTED,
                        "npy_write: NumPy has no %s: convert it with fy_cast to f32 first",
                        fy_dtype_name(npy->dtype));
    for (int i = 0; i < npy->rank; i++)
        n += (size_t)snprintf(shape + n, sizeof shape - n, i ? ", %lld" : "%lld",
                              (long long)npy->dims[i]);
    int length = snprintf(text + PREFIX, FYT_NPY_HEADER_ROOM - PREFIX,
                          "{'descr': '%s', 'fortran_order': %s, 'shape': (%s%s), }",
                          types[npy->dtype], npy->is_fortran ? "True" : "False", shape,
                          npy->rank == 1 ? "," : "");
    /* Room for a larger first axis (the last in Fortran order), then to a multiple of 64. */
    int spaces = 0;
    if (npy->rank)
        spaces = GROWTH_DIGITS -
                 snprintf(growing, sizeof growing, "%lld",
                          (long long)npy->dims[npy->is_fortran ? npy->rank - 1 : 0]);
    spaces += ALIGNMENT - (PREFIX + length + spaces + 1) % ALIGNMENT;
    memset(text + PREFIX + length, ' ', (size_t)spaces);
    length += spaces;
    text[PREFIX + length++] = '\n';
    const char prefix[PREFIX] = {
        '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, (char)(length & 0xff), (char)(length >> 8)
    };
    memcpy(text, prefix, PREFIX);
    *out_nbytes = PREFIX + (size_t)length;
    return FY_STATUS_OK;
}
