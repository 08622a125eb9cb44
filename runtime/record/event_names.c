/* See event_names.h. Runs on the writer's thread only. */
#include "runtime/record/event_names.h"

#include <stdio.h>

#include "runtime/base/c_locale.h"
#include "runtime/record/event_text.h"
#include "runtime/record/symbol.h"
#include "runtime/record/text.h"

typedef fy__event_writer_t writer_t;

const fy__event_site_t *fy__event_site(writer_t *w, const fy__event_t *event)
{
    const void *address = event->caller;
    fy__event_names_t *names = &w->names;
    uint64_t at = (uintptr_t)address * UINT64_C(0x9E3779B97F4A7C15) >> 40;
    if (!address) return NULL;
    for (;; at++) {
        fy__event_site_t *site = &names->sites[at % FY__EVENT_SITES];
        if (site->address == address) return site;
        if (site->address) continue;
        if (names->nsites >= FY__EVENT_SITES / 2) return NULL;
        site->address = address;
        site->id = ++names->nsites;
        fy__symbol_name(address, site->name, sizeof site->name);
        put_raw(w, "{\"ev\":\"site\"", 12);
        put_context(w, event);
        NUMBER(w, "id", site->id);
        STRING(w, "site", site->name);
        put_raw(w, "}\n", 2);
        w->nevents++;
        return site;
    }
}

static void put_integers(writer_t *w, const int64_t *values, int count)
{
    put_raw(w, "[", 1);
    for (int i = 0; i < count; i++) {
        if (i) put_raw(w, ",", 1);
        if (values[i] < 0) put_raw(w, "-", 1);
        put_number(w, values[i] < 0 ? -(uint64_t)values[i] : (uint64_t)values[i]);
    }
    put_raw(w, "]", 1);
}

/* The dims of each operand, or the strides: [] of one without gaps. */
static void put_axes(writer_t *w, const fy__signature_t *signature, bool strides)
{
    const int64_t *words = signature->words;
    put_raw(w, "[", 1);
    for (int i = 0; i < signature->nsrc + signature->ndst; i++) {
        fy__signature_operand_t operand;
        words = fy__signature_next(words, &operand);
        if (i) put_raw(w, ",", 1);
        put_integers(w, strides ? operand.strides : operand.dims,
                     strides && !operand.strides ? 0 : operand.rank);
    }
    put_raw(w, "]", 1);
}

void fy__event_put_signature(writer_t *w, const fy__event_t *event)
{
    const fy__signature_t *signature = event->u.op.signature;
    char dtypes[16 * FY__SIGNATURE_OPERANDS] = "";
    const int64_t *words;
    size_t used = 0;
    bool strided = false;
    if (!signature || w->names.signatures[signature->id / 64] >> signature->id % 64 & 1) return;
    w->names.signatures[signature->id / 64] |= UINT64_C(1) << signature->id % 64;
    words = signature->words;
    for (int i = 0; i < signature->nsrc + signature->ndst; i++) {
        fy__signature_operand_t operand;
        words = fy__signature_next(words, &operand);
        strided |= operand.strides != NULL;
        used += (size_t)snprintf(dtypes + used, sizeof dtypes - used, "%s%s", i ? " " : "",
                                 fy_dtype_name(operand.dtype));
    }
    put_raw(w, "{\"ev\":\"signature\"", 17);
    put_context(w, event);
    NUMBER(w, "id", signature->id);
    STRING(w, "name", signature->info->name);
    NUMBER(w, "sources", signature->nsrc);
    STRING(w, "dtypes", dtypes);
    KEY(w, "shapes");
    put_axes(w, signature, false);
    if (strided) {
        KEY(w, "strides");
        put_axes(w, signature, true);
    }
    put_raw(w, "}\n", 2);
    w->nevents++;
}

void fy__event_put_name(writer_t *w, const fy__event_t *event, uint16_t number)
{
    if (!number || w->names.texts[number / 64] >> number % 64 & 1) return;
    w->names.texts[number / 64] |= UINT64_C(1) << number % 64;
    put_raw(w, "{\"ev\":\"name\"", 12);
    put_context(w, event);
    NUMBER(w, "id", number);
    STRING(w, "name", fy__text_at(number));
    put_raw(w, "}\n", 2);
    w->nevents++;
}

static double value_of(const fy_attr_field_t *field, const unsigned char *attrs)
{
    int32_t small;
    int64_t large;
    double real;
    switch (field->type) {
    case FY_ATTR_F64: memcpy(&real, attrs + field->offset, sizeof real); return real;
    case FY_ATTR_I64: memcpy(&large, attrs + field->offset, sizeof large); return (double)large;
    default: memcpy(&small, attrs + field->offset, sizeof small); return small;
    }
}

void fy__event_put_attrs(writer_t *w, const fy_op_info_t *info, const unsigned char *attrs)
{
    char text[1024] = "";
    size_t used = 0;
    for (unsigned i = 0; i < info->nfields && used + 96 < sizeof text; i++) {
        const fy_attr_field_t *field = &info->fields[i];
        const double value = value_of(field, attrs);
        int64_t whole;
        if (value == field->fallback) continue;
        used += (size_t)snprintf(text + used, 96, "%s%s=", used ? " " : "", field->name);
        if (field->type == FY_ATTR_I64) {
            memcpy(&whole, attrs + field->offset, sizeof whole);
            used += (size_t)snprintf(text + used, 24, "%lld", (long long)whole);
        } else
            used += (size_t)fy__snprintf(text + used, 32, "%.17g", value);
    }
    if (used) STRING(w, "attrs", text);
}
