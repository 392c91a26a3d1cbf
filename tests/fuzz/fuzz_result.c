/* Any bytes as a task's result.json. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "fuzz.h"
#include "model/spec/spec_result.h"

static void check_path(const char *path)
{
    fuzz_require(path[0] != '/' && path[0] != '\0' && strstr(path, "//") == NULL,
                 "a relative path");
    for (const char *at = path; at != NULL; at = strchr(at, '/')) {
        at += *at == '/' ? 1 : 0;
        size_t n = strcspn(at, "/");
        fuzz_require(n > 0 && !(n == 1 && at[0] == '.') && !(n == 2 && memcmp(at, "..", 2) == 0),
                     "stays inside");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_result result;
    stk_err err = {0};
    int rc = stk_result_parse((const char *)data, size, "result.json", arena, &result, &err);
    if (rc < 0) {
        fuzz_require(rc == err.code && err.text[0] != '\0', "a refusal says why");
        return 0;
    }
    for (uint32_t i = 0; i < result.n_outputs; i++) {
        const stk_result_output *output = &result.outputs[i];
        fuzz_require(
            (output->path != NULL) + (output->value != NULL) + (output->artifact != NULL) == 1,
            "path, value or artifact");
        fuzz_require(output->artifact == NULL || strlen(output->artifact) == 64, "whole digests");
        fuzz_require(output->digest == NULL || strlen(output->digest) == 64, "whole digests");
        fuzz_require(strpbrk(output->name, "/ ") == NULL && output->name[0] != '.', "plain names");
        if (output->path != NULL) {
            check_path(output->path);
        }
    }
    fuzz_require(result.next_n >= -1 && result.next_n <= INT32_MAX, "a number or none");
    if (result.next_items != NULL && result.next_items->path != NULL) {
        check_path(result.next_items->path);
    }
    for (uint32_t i = 0; i < result.n_dropped; i++) {
        fuzz_require(strpbrk(result.dropped[i], "/ ") == NULL, "plain names");
    }
    fuzz_require(result.ok || (result.has_error && result.error.message != NULL),
                 "a failure has a message");
    return 0;
}
