/* Plugins: backends in shared objects called libferry_NAME.so, in the folders of base/load.h. Each
 * is loaded at most once; a failure is kept with its reason. */
#include "runtime/device/registry.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/abi_structs.h"
#include "runtime/base/fail.h"
#include "runtime/base/load.h"

enum { MOST = 16, NAME_SIZE = 16 };
typedef struct plugin {
    char name[NAME_SIZE];
    bool tried;
    const fy_backend_t *backend; /* NULL: not loaded, else `table` */
    fy_backend_t table;          /* the plugin's, with NULL for the slots that it does not have */
    char reason[256];
} plugin_t;
/* Ferry's own plugin; a spec or a query adds others. */
static plugin_t plugins[MOST] = { { .name = "cuda" } };
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

/* The plugin's table becomes that of `user`, a plugin. */
static bool accept(void *user, void *symbol, const char *path, char *reason, size_t size)
{
    plugin_t *plugin = user;
    const fy_backend_t *backend = NULL;
    fy_backend_open_fn open = NULL;
    fy__error_copy_t before;
    memcpy(&open, &symbol, sizeof open);
    fy__error_save(&before);
    const fy_status_t status = open(&fy__host_api, FY_BACKEND_ABI, &backend);
    if (status != FY_STATUS_OK) {
        snprintf(reason, size, "%.230s", fy_error_get()->text);
        fy__error_restore(&before);
        return false;
    }
    if (!copy_table(backend, &plugin->table)) {
        snprintf(reason, size,
                 "%.120s is for backend ABI %u with a table of %zu bytes, this library has %u "
                 "with %zu: rebuild it",
                 path, backend->abi, backend->struct_size, FY_BACKEND_ABI, sizeof plugin->table);
        return false;
    }
    plugin->backend = &plugin->table;
    return true;
}

static void look(plugin_t *plugin)
{
    char file[NAME_SIZE + 16];
    const fy__load_t load = { &fy__host_api, file,   FY_BACKEND_OPEN_SYMBOL,
                              RTLD_LOCAL,    accept, plugin };
    snprintf(file, sizeof file, "libferry_%s.so", plugin->name);
    plugin->tried = true;
    (void)fy__load_plugin(&load, plugin->reason, sizeof plugin->reason);
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
    char folders[FY__FOLDERS_SIZE], *rest = folders;
    (void)fy__load_folders(&fy__host_api, folders);
    for (char *folder; (folder = strsep(&rest, ":"));)
        if (folder[0] == '/') list_folder(folder);
}

fy_status_t fy__plugin_find(const char *name, const fy_backend_t **out_backend)
{
    char reason[256] = "";
    fy__lock(&lock);
    const int i = place_of(name);
    if (i >= 0) {
        if (!plugins[i].tried) look(&plugins[i]);
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
    if (!plugins[index].tried) look(&plugins[index]);
    snprintf(info.name, sizeof info.name, "%s", plugins[index].name);
    info.loaded = plugins[index].backend != NULL;
    snprintf(info.reason, sizeof info.reason, "%s", plugins[index].reason);
    fy__unlock(&lock);
    FY__WRITE(out_info, &info);
    return 1;
}
