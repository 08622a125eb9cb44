/* Plugins of both kinds: backends (device/plugin.c) and MPIs (dist/group.c). The folders of
 * $FERRY_PLUGIN_PATH are searched, else the folder `ferry` beside the library; never the current
 * folder. Needs nothing of Ferry. */
#ifndef FERRY_RUNTIME_BASE_LOAD_H_
#define FERRY_RUNTIME_BASE_LOAD_H_

#include <stdbool.h>
#include <stddef.h>

enum { FY__FOLDERS_SIZE = 2048 };

/* The folders to search, separated by ':'; skip those that are not absolute. `inside` is an address
 * in the library. Returns FERRY_PLUGIN_PATH if it names them, else NULL. */
const char *fy__load_folders(const void *inside, char folders[FY__FOLDERS_SIZE]);

typedef struct fy__load {
    const void *inside;
    const char *file, *symbol; /* "libferry_cuda.so", and what it exports */
    int flags;                 /* RTLD_LOCAL or RTLD_GLOBAL */
    /* Uses the symbol. false, with *reason: another folder is searched; the object stays loaded, as
     * its code may be running. */
    bool (*accept)(void *user, void *symbol, const char *path, char *reason, size_t size);
    void *user;
} fy__load_t;

/* The first file of the folders that is accepted. *reason is its path, or the error. */
bool fy__load_plugin(const fy__load_t *load, char *reason, size_t size);

#endif
