/* The entry of a program for libFuzzer. */
#ifndef FERRY_TESTS_FUZZ_FUZZ_H_
#define FERRY_TESTS_FUZZ_FUZZ_H_

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

#endif
