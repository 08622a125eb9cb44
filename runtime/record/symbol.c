/* Reads symbol tables of ELF files (System V ABI, chapter 4). Files of other modules are input from
 * outside: every offset is checked against the file's size. */
#include "runtime/record/symbol.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

void fy__symbol_name(const void *address, char *out_name, size_t size)
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
