/* The interface between fuzz targets and drivers. The driver is libFuzzer (clang
 * -fsanitize=fuzzer), or replay.c, which needs nothing but a compiler. */
#ifndef STK_FUZZ_H
#define STK_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_require(bool holds, const char *what)
{
    if (!holds) {
        (void)fprintf(stderr, "does not hold: %s\n", what);
        abort();
    }
}

#endif
