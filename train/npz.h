/* Internals of .npz archives: numbers of the ZIP format, shared by npz.c and npz_write.c. Not
 * public. Source: PKWARE's APPNOTE 6.3. */
#ifndef FERRY_TRAIN_NPZ_INTERNAL_H_
#define FERRY_TRAIN_NPZ_INTERNAL_H_

#include <ferry/train/npz.h>

enum {
    FYT_ZIP_LOCAL = 30, /* bytes of the fixed parts */
    FYT_ZIP_CENTRAL = 46,
    FYT_ZIP_END = 22,
    FYT_ZIP_END64 = 56,
    FYT_ZIP_LOCATOR = 20,
    FYT_ZIP_UTF8 = 0x800, /* flag: the name is UTF-8 */
    FYT_ZIP64 = 1         /* kind of an extra field with 8-byte sizes */
};
#define FYT_ZIP_LOCAL_MAGIC   0x04034b50u
#define FYT_ZIP_CENTRAL_MAGIC 0x02014b50u
#define FYT_ZIP_END_MAGIC     0x06054b50u
#define FYT_ZIP_END64_MAGIC   0x06064b50u
#define FYT_ZIP_LOCATOR_MAGIC 0x07064b50u

/* Sorts `names`; returns one that occurs twice, or NULL. */
const char *fyt_npz_find_twice(const char **names, size_t count);

#endif
