/* corpus PROGRAM VARIANT PLANT FILE [PLANT]: runs a program of the corpus, with one or two kinds of
 * waste or "clean", and records it. `corpus --list` prints the plants.
 * $FERRY_CORPUS_DEVICE: another device than sim:0. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/advisor/corpus.h"

static fy_status_t run(const char *name, int variant, waste_kind_t kind, waste_kind_t also)
{
    corpus_t corpus = { .variant = variant };
    fy_status_t status = FY_STATUS_INVALID_ARGUMENT;
    const char *spec = getenv("FERRY_CORPUS_DEVICE");
    FY_TRY(fy_device_open(spec ? spec : "sim:0?numerics=off", &corpus.device));
    fy_scope_t scope = fy_scope_begin(name);
    FY_TRY(waste_create(&corpus.waste, corpus.device, kind));
    FY_TRY(waste_create(&corpus.also, corpus.device, also));
    if (strcmp(name, "train") == 0) status = corpus_train(&corpus);
    if (strcmp(name, "stream") == 0) status = corpus_stream(&corpus);
    if (strcmp(name, "infer") == 0) status = corpus_infer(&corpus);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(corpus.device);
    return status;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
#define X(kind, text, what) printf("%-14s %s\n", text, what);
        WASTE_LIST(X)
#undef X
        return 0;
    }
    const waste_kind_t also = waste_named(argc == 6 ? argv[5] : "clean");
    if (argc < 5 || argc > 6 || waste_named(argv[3]) == WASTE_COUNT || also == WASTE_COUNT) {
        fprintf(stderr, "usage: corpus train|stream|infer VARIANT PLANT FILE [PLANT]\n");
        return 2;
    }
    fy_status_t status = fy_ledger_record(argv[4]);
    if (status == FY_STATUS_OK) status = run(argv[1], atoi(argv[2]), waste_named(argv[3]), also);
    if (status == FY_STATUS_OK) status = fy_ledger_record(NULL);
    if (status != FY_STATUS_OK)
        fprintf(stderr, "corpus: %s: %s\n", fy_status_name(status), fy_error_get()->text);
    return status != FY_STATUS_OK;
}
