/* See event_write.h. Runs on the writer's thread only. */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/c_locale.h"
#include "runtime/record/event_text.h"
#include "runtime/record/text.h"

typedef fy__event_writer_t writer_t;

/* ---- names of code addresses, from symbol tables of ELF files (System V ABI, chapter 4). Files of
 * other modules are input from outside: every offset is checked against the file's size. ---- */

typedef struct image {
    const unsigned char *bytes;
    size_t nbytes;
} image_t;

/* `count` items of `size` at `offset`, if they are inside the file and aligned. */
static const void *part(const image_t *image, uint64_t offset, uint64_t count, size_t size)
{
    if (offset % 8 || offset > image->nbytes || count > (image->nbytes - offset) / size)
        return NULL;
    return image->bytes + offset;
}

static const ElfW(Sym) * find_symbol(const ElfW(Sym) * symbols, size_t count, uint64_t offset)
{
    for (size_t i = 0; i < count; i++)
        if ((symbols[i].st_info & 0xf) == STT_FUNC && offset >= symbols[i].st_value &&
            offset - symbols[i].st_value < symbols[i].st_size)
            return &symbols[i];
    return NULL;
}

/* The function at `offset` of the module; nothing if the file has no symbol table or no such
 * function. */
static void look_up(const image_t *image, uint64_t offset, char *out_name, size_t size,
                    uint64_t *out_begin)
{
    const ElfW(Ehdr) *head = part(image, 0, 1, sizeof *head);
    if (!head || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) ||
        head->e_shentsize != sizeof(ElfW(Shdr)))
        return;
    const ElfW(Shdr) *sections = part(image, head->e_shoff, head->e_shnum, sizeof *sections);
    for (size_t i = 0; sections && i < head->e_shnum; i++) {
        const ElfW(Shdr) *table = &sections[i];
        if (table->sh_type != SHT_SYMTAB || table->sh_link >= head->e_shnum) continue;
        const ElfW(Shdr) *texts = &sections[table->sh_link];
        const size_t count = table->sh_size / sizeof(ElfW(Sym));
        const ElfW(Sym) *symbols = part(image, table->sh_offset, count, sizeof *symbols),
                        *found = symbols ? find_symbol(symbols, count, offset) : NULL;
        if (!found || texts->sh_offset > image->nbytes ||
            texts->sh_size > image->nbytes - texts->sh_offset || found->st_name >= texts->sh_size)
            return;
        snprintf(out_name, size, "%.*s", (int)(texts->sh_size - found->st_name),
                 (const char *)image->bytes + texts->sh_offset + found->st_name);
        *out_begin = found->st_value;
        return;
    }
}

static void look_up_in_file(const char *path, uint64_t offset, char *out_name, size_t size,
                            uint64_t *out_begin)
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0) {
        image_t image = { NULL, (size_t)about.st_size };
        void *bytes = mmap(NULL, image.nbytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes != MAP_FAILED) {
            image.bytes = bytes;
            look_up(&image, offset, out_name, size, out_begin);
            munmap(bytes, image.nbytes);
        }
    }
    close(fd);
}

static const char *base_name(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "?";
}

/* Writes "train_step+0x1c" for the return address `address`, from the dynamic symbols of its
 * module, else from the symbol table of its file; without either "program+0x4a10", which addr2line
 * reads. Never a folder. Reads a file: not for hot paths. */
static void symbol_name(const void *address, char *out_name, size_t size)
{
    const char *inside = (const char *)address - 1; /* of the call itself */
    struct link_map *module = NULL;
    Dl_info info;
    char name[192] = "";
    if (!dladdr1(inside, &info, (void **)&module, RTLD_DL_LINKMAP)) {
        snprintf(out_name, size, "?");
        return;
    }
    uint64_t begin = 0;
    if (info.dli_sname) {
        begin = (uint64_t)((uintptr_t)info.dli_saddr - module->l_addr);
        snprintf(name, sizeof name, "%s", info.dli_sname);
    } else /* the program itself has no name in the list */
        look_up_in_file(*module->l_name ? module->l_name : "/proc/self/exe",
                        (uint64_t)((uintptr_t)inside - module->l_addr), name, sizeof name, &begin);
    const uint64_t offset = (uint64_t)((uintptr_t)address - module->l_addr);
    if (*name)
        snprintf(out_name, size, "%s+0x%llx", name, (unsigned long long)(offset - begin));
    else
        snprintf(out_name, size, "%s+0x%llx", base_name(info.dli_fname),
                 (unsigned long long)offset);
}

/* ---- lines ---- */

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
        symbol_name(address, site->name, sizeof site->name);
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
