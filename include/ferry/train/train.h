/* The training library's whole public surface: libferry_train, which stands on ferry/ferry.h alone.
 * This release holds numeric tables; layers, losses and optimizers come later. */
#ifndef FERRY_TRAIN_TRAIN_H_
#define FERRY_TRAIN_TRAIN_H_

#include <ferry/train/table.h>

#endif
