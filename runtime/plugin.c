/* Plugins: backends in shared objects called libferry_NAME.so. Looked for in the folders of $FERRY_PLUGIN_PATH, else in the folder
 * `ferry` beside the library itself; never in the current folder. Loaded at most once; a failure is remembered with its reason. */
#include "runtime/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/fail.h"

static struct {
    const char *name;
    bool tried;
    const fy_backend_t *backend; /* NULL: not loaded */
    char reason[256];
} plugins[] = { { .name = "cuda" } };
enum { NPLUGINS = sizeof plugins / sizeof *plugins };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `plugins` */

/* Opens `path`; the reason says what happened either way. */
static const fy_backend_t *load(const char *path, char *reason, size_t size)
{
    const fy_backend_t *backend = NULL;
    fy__error_copy_t before;
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        snprintf(reason, size, "%.200s", dlerror());
        return NULL;
    }
    fy_backend_open_fn open = NULL;
    void *symbol = dlsym(object, FY_BACKEND_OPEN_SYMBOL);
    memcpy(&open, &symbol, sizeof open);
    if (!open) {
        snprintf(reason, size, "%.180s is no plugin: it has no symbol " FY_BACKEND_OPEN_SYMBOL, path);
        dlclose(object);
        return NULL;
    }
    fy__error_save(&before);
    const fy_status_t status = open(&fy__host_api, FY_BACKEND_ABI, &backend);
    if (status != FY_STATUS_OK) {
        snprintf(reason, size, "%.230s", fy_error_get()->text);
        fy__error_restore(&before);
        dlclose(object);
        return NULL;
    }
    if (backend->abi != FY_BACKEND_ABI || backend->struct_size < sizeof *backend) {
        snprintf(reason, size, "%.160s is for backend ABI %u, this library has %u: rebuild it", path, backend->abi, FY_BACKEND_ABI);
        return NULL; /* its code may be running already: it stays loaded */
    }
    snprintf(reason, size, "%.250s", path);
    return backend;
}

/* Where the library lies, with "/ferry" behind it. */
static void own_folder(char *folder, size_t size)
{
    Dl_info info;
    folder[0] = 0;
    if (!dladdr((const void *)&fy__host_api, &info) || !info.dli_fname) return;
    const char *slash = strrchr(info.dli_fname, '/');
    if (slash) snprintf(folder, size, "%.*s/ferry", (int)(slash - info.dli_fname), info.dli_fname);
}

static void look(int i)
{
    char folders[2048], path[2304];
    const char *asked = getenv("FERRY_PLUGIN_PATH");
    if (asked && *asked)
        snprintf(folders, sizeof folders, "%s", asked);
    else
        own_folder(folders, sizeof folders);
    plugins[i].tried = true;
    snprintf(plugins[i].reason, sizeof plugins[i].reason, "no libferry_%s.so in %.200s", plugins[i].name,
             *folders ? folders : "(no folder)");
    char *rest = folders;
    for (char *folder; (folder = strsep(&rest, ":")) && !plugins[i].backend;) {
        if (folder[0] != '/') continue; /* relative would mean the current folder */
        snprintf(path, sizeof path, "%s/libferry_%s.so", folder, plugins[i].name);
        if (access(path, R_OK) == 0) plugins[i].backend = load(path, plugins[i].reason, sizeof plugins[i].reason);
    }
    if (!plugins[i].backend) fy__log(FY_LOG_INFO, "plugin %s: %s", plugins[i].name, plugins[i].reason);
}

fy_status_t fy__plugin_find(const char *name, const fy_backend_t **out_backend)
{
    for (int i = 0; i < NPLUGINS; i++) {
        if (strcmp(plugins[i].name, name) != 0) continue;
        pthread_mutex_lock(&lock);
        if (!plugins[i].tried) look(i);
        *out_backend = plugins[i].backend;
        pthread_mutex_unlock(&lock);
        if (*out_backend) return FY_STATUS_OK;
        return FY_FAIL(UNAVAILABLE, "the backend '%s' is not there: %s", name, plugins[i].reason);
    }
    return FY_FAIL(INVALID_ARGUMENT, "there is no backend '%.32s'; known are host, sim, null and cuda", name);
}

int fy_plugin_query(int index, fy_plugin_info_t *out_info)
{
    fy_plugin_info_t info = FY_PLUGIN_INFO_INIT;
    if (index < 0 || index >= NPLUGINS || !out_info || out_info->struct_size < sizeof info) return 0;
    pthread_mutex_lock(&lock);
    if (!plugins[index].tried) look(index);
    snprintf(info.name, sizeof info.name, "%s", plugins[index].name);
    info.loaded = plugins[index].backend != NULL;
    snprintf(info.reason, sizeof info.reason, "%s", plugins[index].reason);
    pthread_mutex_unlock(&lock);
    *out_info = info;
    return 1;
}
