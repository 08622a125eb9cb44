/* Finds the folder of a library, and loads a plugin from a list of folders. */
#include "runtime/base/load.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/c_locale.h"
#include "runtime/base/environment.h"

/* The file that has `inside`, as the kernel names it: a library or a program that was started by a
 * relative name has no other absolute one. */
static void find_mapped(const void *inside, char *path, size_t size)
{
    char line[FY__FOLDERS_SIZE + 128];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && !*path && fgets(line, sizeof line, maps)) {
        uintptr_t low, high;
        const char *name = strchr(line, '/');
        if (name && sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &low, &high) == 2 &&
            (uintptr_t)inside >= low && (uintptr_t)inside < high)
            snprintf(path, size, "%.*s", (int)strcspn(name, "\n"), name);
    }
    if (maps) fclose(maps);
}

const char *fy__load_folders(const void *inside, char folders[FY__FOLDERS_SIZE])
{
    Dl_info info;
    const char *asked = fy__env_file("FERRY_PLUGIN_PATH");
    folders[0] = 0;
    if (asked) {
        snprintf(folders, FY__FOLDERS_SIZE, "%s", asked);
        return asked;
    }
    if (dladdr(inside, &info) && info.dli_fname && info.dli_fname[0] == '/')
        snprintf(folders, FY__FOLDERS_SIZE, "%s", info.dli_fname);
    else
        find_mapped(inside, folders, FY__FOLDERS_SIZE);
    char *slash = strrchr(folders, '/');
    if (slash) snprintf(slash, (size_t)(folders + FY__FOLDERS_SIZE - slash), "/ferry");
    return NULL;
}

static bool load_file(const fy__load_t *load, const char *path, char *reason, size_t size)
{
    struct stat found;
    if (stat(path, &found) || !S_ISREG(found.st_mode)) { /* dlopen would wait for a pipe's writer */
        snprintf(reason, size, "%.200s is no regular file", path);
        return false;
    }
    void *object = dlopen(path, RTLD_NOW | load->flags);
    if (!object) {
        snprintf(reason, size, "%.200s", fy__dlerror());
        return false;
    }
    void *symbol = dlsym(object, load->symbol);
    if (!symbol) {
        snprintf(reason, size, "%.180s is no plugin of this version: it has no symbol %s", path,
                 load->symbol);
        dlclose(object);
        return false;
    }
    if (!load->accept(load->user, symbol, path, reason, size)) return false;
    snprintf(reason, size, "%s", path);
    return true;
}

bool fy__load_plugin(const fy__load_t *load, char *reason, size_t size)
{
    char folders[FY__FOLDERS_SIZE], path[FY__FOLDERS_SIZE + 256], *rest = folders;
    const char *asked = fy__load_folders(load->inside, folders);
    bool has_absolute = false;
    snprintf(reason, size, "no %s in %.200s", load->file, *folders ? folders : "(no folder)");
    for (char *folder; (folder = strsep(&rest, ":"));) {
        if (folder[0] != '/') continue; /* relative would mean the current folder */
        has_absolute = true;
        snprintf(path, sizeof path, "%s/%s", folder, load->file);
        if (access(path, R_OK) == 0 && load_file(load, path, reason, size)) return true;
    }
    if (asked && !has_absolute)
        snprintf(reason, size, "FERRY_PLUGIN_PATH=%.120s was skipped: no folder in it is absolute",
                 asked);
    return false;
}
