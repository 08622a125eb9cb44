/* The training library: layers and models, optimizers and schedules, data sets and loaders,
 * checkpoints, the loop. It uses only <ferry/ferry.h>. Start with docs/training.md and
 * examples/07_train.c. */
#ifndef FERRY_TRAIN_TRAIN_H_
#define FERRY_TRAIN_TRAIN_H_

#include <ferry/train/checkpoint.h>
#include <ferry/train/dataset.h>
#include <ferry/train/layer.h>
#include <ferry/train/loader.h>
#include <ferry/train/model.h>
#include <ferry/train/npy.h>
#include <ferry/train/npz.h>
#include <ferry/train/optimizer.h>
#include <ferry/train/parallel.h>
#include <ferry/train/safetensors.h>
#include <ferry/train/schedule.h>
#include <ferry/train/segments.h>
#include <ferry/train/table.h>
#include <ferry/train/trainer.h>

#endif
