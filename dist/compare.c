/* fy_group_compare: do all ranks have one text? A hash first; the texts themselves only if they
 * differ, to name the first line that does. Next: collective.c. */
#include <string.h>

#include "dist/group.h"

#include <ferry/device.h>
#include <ferry/scope.h>

/* FNV-1a (Fowler, Noll, Vo), 64 bits. */
static uint64_t hash(const char *text)
{
    uint64_t value = UINT64_C(0xcbf29ce484222325);
    for (; *text; text++) value = (value ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return value;
}

/* Gathers `n` elements of every rank; *out is those of rank 0, 1, ... */
static fy_status_t gather(fy_group_t *group, fy_dtype_t dtype, int64_t n, const void *own,
                          size_t own_nbytes, void **out)
{
    fy_tensor_t *src, *dst;
    void *data;
    FY_TRY(fy_tensor_create(fy_device_host(), dtype, FY_DIMS(n), &src));
    FY_TRY(fy_tensor_map(src, FY_ACCESS_WRITE, &data));
    memset(data, 0, (size_t)n * fy_dtype_size(dtype));
    memcpy(data, own, own_nbytes);
    FY_TRY(fy_tensor_create(fy_device_host(), dtype, FY_DIMS(n * group->transport.size), &dst));
    FY_TRY(fy_group_all_gather(group, dst, src));
    return fy_tensor_map(dst, FY_ACCESS_READ, out);
}

static fy_status_t fail_differs(int rank, const char *first, const char *other)
{
    const char *a = first, *b = other;
    for (const char *p = first, *q = other; *p && *p == *q; p++, q++)
        if (*p == '\n') a = p + 1, b = q + 1;
    return FYD_FAIL(INVALID_ARGUMENT, "the ranks differ\n  rank 0: %.*s\n  rank %d: %.*s",
                    (int)(strcspn(a, "\n") < 160 ? strcspn(a, "\n") : 160), a, rank,
                    (int)(strcspn(b, "\n") < 160 ? strcspn(b, "\n") : 160), b);
}

static fy_status_t compare(fy_group_t *group, const char *text)
{
    const int64_t own[2] = { (int64_t)hash(text), (int64_t)strlen(text) + 1 };
    const int size = group->transport.size;
    int64_t most = 0;
    int other = 0;
    void *data;
    FY_TRY(gather(group, FY_DTYPE_I64, 2, own, sizeof own, &data));
    const int64_t *all = data;
    for (int r = size - 1; r > 0; r--)
        if (memcmp(all + 2 * r, all, sizeof own) != 0) other = r;
    for (int r = 0; r < size; r++) most = all[2 * r + 1] > most ? all[2 * r + 1] : most;
    if (!other) return FY_STATUS_OK;
    FY_TRY(gather(group, FY_DTYPE_U8, most, text, (size_t)own[1], &data));
    return fail_differs(other, data, (const char *)data + most * other);
}

fy_status_t fy_group_compare(fy_group_t *group, const char *text)
{
    if (!group || !text)
        return FYD_FAIL(INVALID_ARGUMENT, "group_compare: %s is NULL", group ? "text" : "group");
    fy_scope_t scope = fy_scope_begin("compare");
    const fy_status_t status = compare(group, text);
    fy_scope_end(scope, 0, NULL);
    return status;
}
