/* Ferry's public API, without the training library (ferry/train/).
 *
 * A device is a remote service: data stays there, ops are light requests, uploads and downloads are
 * heavy requests. Heavy requests are always explicit and always counted. Start with the four rules
 * at the head of status.h, then examples/01_linear.c. */
#ifndef FERRY_FERRY_H_
#define FERRY_FERRY_H_

#include <ferry/autocast.h>
#include <ferry/communicator.h>
#include <ferry/device.h>
#include <ferry/dlpack.h>
#include <ferry/external.h>
#include <ferry/graph.h>
#include <ferry/ledger.h>
#include <ferry/memory.h>
#include <ferry/native.h>
#include <ferry/op.h>
#include <ferry/ops.h>
#include <ferry/plan.h>
#include <ferry/prefetch.h>
#include <ferry/scope.h>
#include <ferry/status.h>
#include <ferry/stream.h>
#include <ferry/tape.h>
#include <ferry/tensor.h>
#include <ferry/transfer.h>
#include <ferry/types.h>
#include <ferry/version.h>

#endif
