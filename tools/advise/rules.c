/* The table of rules. An id is for ever; a rule that goes takes its id along. */
#include "tools/advise/rules.h"

#include <string.h>

const rule_t rules[] = {
    { "FA01", "the same bytes are uploaded in each step",
      "The source has not changed since the last upload, and the bytes were on the device already.",
      "Upload once, before the loop, and keep the tensor on the device.",
      "fy_tensor_upload(w, device, NULL, &w_device);   /* before the loop */", 2, false,
      rule_reload, CHANGE_DROP },
    { "FA02", "bytes are uploaded again",
      "The source has not changed since an earlier upload to this device.",
      "Upload once and keep the tensor on the device; fy_copy makes a second one there.",
      "fy_tensor_upload(x, device, NULL, &x_device);   /* once, before the loop */", 1, false,
      rule_again, CHANGE_DROP },
    { "FA03", "bytes make a round trip over the host",
      "Downloaded bytes are uploaded again, unchanged.",
      "Use the device tensor itself; it still has these bytes.",
      "fy_matmul(h, w, &y);                            /* h, not a copy from the host */", 2, false,
      rule_round_trip, CHANGE_DROP },
    { "FA04", "an op runs on the host between ops on the device",
      "Its source is downloaded, the host waits, and its result is uploaded.",
      "Call the op with the device tensor: it runs on the device.",
      "fy_relu(h, &h);                                 /* h is on the device */", 2, false,
      rule_host_op, CHANGE_DROP },
    { "FA05", "a download is never read", "No call has waited for it, or tried it.",
      "Leave the download out.", "/* no fy_tensor_download */", 2, false, rule_never_read,
      CHANGE_DROP },
    { "FA06", "an upload is never used",
      "No request read the bytes before they were overwritten, or the run ended.",
      "Leave the upload out.", "/* no fy_tensor_upload */", 3, false, rule_never_used,
      CHANGE_DROP },
    { "FA07", "many small tensors are copied one by one",
      "Each copy costs a submission and a set-up, whatever its size.",
      "Pass them in one call, which packs them.",
      "fy_tensor_upload_many_into(count, on_device, on_host, NULL, &ticket);", 8, false,
      rule_small_copies, CHANGE_PACK },
    { "FA08", "the host waits for a scalar in a loop",
      "The device is idle from its last request until the host submits the next one.",
      "Read it some steps later: fy_download_try_f64 neither waits nor blocks.",
      "if (i >= 8) fy_download_try_f64(reply[i % 8], &done, &value);\n"
      "fy_tensor_download(loss, NULL, &reply[i % 8]);",
      3, true, rule_scalar_read, CHANGE_LATER, 8 },
    { "FA09", "a copy blocks the host",
      "The host waits for the copy, then the device waits for the host's next submission.",
      "Wait for it some steps later; until then submit other work.",
      "if (i >= 4) fy_download_wait(reply[i % 4], FY_FOREVER, &host);\n"
      "fy_tensor_download(y, NULL, &reply[i % 4]);",
      3, true, rule_blocking_copy, CHANGE_LATER, 4 },
    { "FA10", "the host waits for the device and reads nothing",
      "Ferry orders requests by the tensors that they use; the wait only empties the queue.",
      "Remove the wait.", "/* no fy_device_wait */", 3, true, rule_sync, CHANGE_DROP },
    { "FA11", "a large source is copied through the staging ring",
      "Its memory is pageable, or the contract is FY_HOST_COPY: the host copies the bytes first.",
      "Make the source once by fy_tensor_create_pinned, and lend it.",
      "options.contract = FY_HOST_BORROW;              /* the source is yours again at the ticket "
      "*/",
      3, false, rule_staged, CHANGE_PIN },
    { "FA12", "an upload waits for the buffer that it fills",
      "The device still computes on the buffer, so copy and compute take turns.",
      "Rotate two buffers, or let fy_prefetch_create do it.",
      "fy_tensor_upload_into(batch[i % 2], source[i % 2], &borrow, &sent[i % 2]);", 3, true,
      rule_one_buffer, CHANGE_SECOND_BUFFER },
    { "FA13", "memory is page-locked in each step", "Page-locking takes about 0.1 s a GiB.",
      "Page-lock the buffer once, before the loop.",
      "fy_tensor_pin(buffer, device);                  /* before the loop */", 3, false, rule_pin },
    { "FA14", "a steady step allocates from the driver",
      "No cached block was large enough, so the device's allocator was called.",
      "Make the tensor once and pass it, or reserve the memory before the loop.",
      "fy_memory_reserve(device, nbytes);              /* before the loop */", 3, false,
      rule_alloc },
    { "FA15", "page-locked memory is never used by a transfer",
      "Page-locked memory cannot be swapped out, so less is left for everything else.",
      "Make the tensor by fy_tensor_create on the host.",
      "fy_tensor_create(fy_device_host(), dtype, rank, dims, &x);", 1, false, rule_pinned_idle },
    { "FA16", "elementwise ops on a large tensor run one by one",
      "Each op reads and writes the whole tensor in device memory.",
      "Record the step as a graph: fy_graph_end makes one launch of the chain.",
      "fy_graph_begin(device); ... fy_graph_end(&graph); fy_graph_replay(graph, NULL);", 3, false,
      rule_chain, CHANGE_FUSE },
};
const size_t rules_count = sizeof rules / sizeof *rules;

const rule_t *rule_named(const char *id)
{
    for (size_t i = 0; i < rules_count; i++)
        if (strcmp(rules[i].id, id) == 0) return &rules[i];
    return NULL;
}
