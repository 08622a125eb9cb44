/* Plugins: backends in shared objects called libferry_NAME.so. The folders of $FERRY_PLUGIN_PATH
 * are searched, else the folder `ferry` beside the library itself; never the current folder. Each
 * plugin is loaded at most once; a failure is kept with its reason. */
#include "runtime/base/c_locale.h"
#include "runtime/device/plugin.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/abi_structs.h"
#include "runtime/base/environment.h"
#include "runtime/base/fail.h"

enum { MOST = 16, NAME_SIZE = 16, FOLDERS_SIZE = 2048 };
static struct {
    char name[NAME_SIZE];
    bool tried;
    const fy_backend_t *backend; /* NULL: not loaded, else `table` */
    fy_backend_t table;          /* the plugin's, with NULL for the slots that it does not have */
    char reason[256];
} plugins[MOST] = { { .name = "cuda" } }; /* Ferry's own plugin; a spec or a query adds others */
static int nplugins = 1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `plugins` */

/* Copies a plugin's table. A plugin that was built with an older header has fewer slots: those that
 * it lacks are optional, since `launch` is the last one that every backend has. A newer plugin's
 * slots that this library does not know are never called. */
static bool copy_table(const fy_backend_t *given, fy_backend_t *table)
{
    const size_t least = offsetof(fy_backend_t, launch) + sizeof given->launch;
    if (given->abi != FY_BACKEND_ABI || given->struct_size < least) return false;
    const size_t known = given->struct_size < sizeof *table ? given->struct_size : sizeof *table;
    memset(table, 0, sizeof *table);
    memcpy(table, given, known / sizeof(void *) * sizeof(void *)); /* whole slots */
    table->struct_size = sizeof *table;
    return true;
}

/* Opens `path`; true: *table is the plugin's. *reason is the path if it loaded, else the error. */
static bool load(const char *path, fy_backend_t *table, char *reason, size_t size)
{
    const fy_backend_t *backend = NULL;
    fy__error_copy_t before;
    struct stat found;
    if (stat(path, &found) || !S_ISREG(found.st_mode)) { /* dlopen would wait for a pipe's writer */
        snprintf(reason, size, "%.200s is no regular file", path);
        return false;
    }
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        snprintf(reason, size, "%.200s", fy__dlerror());
        return false;
    }
    fy_backend_open_fn open = NULL;
    void *symbol = dlsym(object, FY_BACKEND_OPEN_SYMBOL);
    memcpy(&open, &symbol, sizeof open);
    if (!open) {
        snprintf(reason, size, "%.180s is no plugin: it has no symbol " FY_BACKEND_OPEN_SYMBOL,
                 path);
        dlclose(object);
        return false;
    }
    fy__error_save(&before);
    const fy_status_t status = open(&fy__host_api, FY_BACKEND_ABI, &backend);
    if (status != FY_STATUS_OK) {
        snprintf(reason, size, "%.230s", fy_error_get()->text);
        fy__error_restore(&before);
        dlclose(object);
        return false;
    }
    if (!copy_table(backend, table)) {
        snprintf(reason, size,
                 "%.120s is for backend ABI %u with a table of %zu bytes, this library has %u "
                 "with %zu: rebuild it",
                 path, backend->abi, backend->struct_size, FY_BACKEND_ABI, sizeof *table);
        return false; /* its code may be running already: it stays loaded */
    }
    snprintf(reason, size, "%.250s", path);
    return true;
}

/* The folder of this library, with "/ferry" appended. */
static void own_folder(char *folder, size_t size)
{
    Dl_info info;
    folder[0] = 0;
    if (!dladdr((const void *)&fy__host_api, &info) || !info.dli_fname) return;
    const char *slash = strrchr(info.dli_fname, '/');
    if (slash) snprintf(folder, size, "%.*s/ferry", (int)(slash - info.dli_fname), info.dli_fname);
}

/* The folders to search, separated by ':'. Returns FERRY_PLUGIN_PATH if it names them, else
 * NULL. */
static const char *search_folders(char folders[FOLDERS_SIZE])
{
    const char *asked = fy__env_file("FERRY_PLUGIN_PATH");
    if (asked) {
        snprintf(folders, FOLDERS_SIZE, "%s", asked);
        return asked;
    }
    own_folder(folders, FOLDERS_SIZE);
    return NULL;
}

static void look(int i)
{
    char folders[FOLDERS_SIZE], path[FOLDERS_SIZE + 256], name[NAME_SIZE];
    const char *asked = search_folders(folders);
    memcpy(name, plugins[i].name, sizeof name);
    plugins[i].tried = true;
    snprintf(plugins[i].reason, sizeof plugins[i].reason, "no libferry_%s.so in %.200s", name,
             *folders ? folders : "(no folder)");
    char *rest = folders;
    bool has_absolute = false;
    for (char *folder; (folder = strsep(&rest, ":")) && !plugins[i].backend;) {
        if (folder[0] != '/') continue; /* relative would mean the current folder */
        has_absolute = true;
        snprintf(path, sizeof path, "%s/libferry_%s.so", folder, name);
        if (access(path, R_OK) == 0 &&
            load(path, &plugins[i].table, plugins[i].reason, sizeof plugins[i].reason))
            plugins[i].backend = &plugins[i].table;
    }
    if (asked && !has_absolute)
        snprintf(plugins[i].reason, sizeof plugins[i].reason,
                 "FERRY_PLUGIN_PATH=%.120s was skipped: no folder in it is absolute", asked);
}

/* The index of `name` in `plugins`, added if it is new; -1 if the name is malformed or the table is
 * full. The lock is held. */
static int place_of(const char *name)
{
    for (int i = 0; i < nplugins; i++)
        if (strcmp(plugins[i].name, name) == 0) return i;
    if (nplugins == MOST || strlen(name) >= sizeof plugins[0].name ||
        name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")])
        return -1;
    strcpy(plugins[nplugins].name, name);
    return nplugins++;
}

/* "foo" of "libferry_foo.so". */
static bool is_plugin_file(const char *file, char name[NAME_SIZE])
{
    int end = 0;
    return sscanf(file, "libferry_%15[a-z0-9_].so%n", name, &end) == 1 && end > 0 && !file[end];
}

/* Adds every plugin of the folder to `plugins`, sorted by name, because readdir has no fixed order.
 * The lock is held. */
static void list_folder(const char *folder)
{
    DIR *files = opendir(folder);
    char name[NAME_SIZE], last[NAME_SIZE] = "", next[NAME_SIZE];
    while (files) {
        next[0] = 0;
        rewinddir(files);
        for (struct dirent *file; (file = readdir(files));)
            if (is_plugin_file(file->d_name, name) && strcmp(name, last) > 0 &&
                (!*next || strcmp(name, next) < 0))
                strcpy(next, name);
        if (!*next || place_of(next) < 0) break;
        strcpy(last, next);
    }
    if (files) closedir(files);
}

static void list_folders(void)
{
    char folders[FOLDERS_SIZE], *rest = folders;
    (void)search_folders(folders);
    for (char *folder; (folder = strsep(&rest, ":"));)
        if (folder[0] == '/') list_folder(folder);
}

fy_status_t fy__plugin_find(const char *name, const fy_backend_t **out_backend)
{
    char reason[256] = "";
    fy__lock(&lock);
    const int i = place_of(name);
    if (i >= 0) {
        if (!plugins[i].tried) look(i);
        *out_backend = plugins[i].backend;
        strcpy(reason, plugins[i].reason);
    }
    fy__unlock(&lock);
    if (i < 0)
        return FY_FAIL(
            INVALID_ARGUMENT,
            "'%.32s' is no backend's name; host, sim and null are built in, others are plugins",
            name);
    if (*out_backend) return FY_STATUS_OK;
    return FY_FAIL(UNAVAILABLE,
                   "the backend '%s' is not available: %s\n  Built in are host, sim and null", name,
                   reason);
}

int fy_plugin_query(int index, fy_plugin_info_t *out_info)
{
    fy_plugin_info_t info = FY_PLUGIN_INFO_INIT;
    if (index < 0 || FY__CHECK_OUT(plugin_info, "plugin_query", out_info) != FY_STATUS_OK) return 0;
    fy__lock(&lock);
    if (index == 0) list_folders();
    if (index >= nplugins) {
        fy__unlock(&lock);
        return 0;
    }
    if (!plugins[index].tried) look(index);
    snprintf(info.name, sizeof info.name, "%s", plugins[index].name);
    info.loaded = plugins[index].backend != NULL;
    snprintf(info.reason, sizeof info.reason, "%s", plugins[index].reason);
    fy__unlock(&lock);
    FY__WRITE(out_info, &info);
    return 1;
}
