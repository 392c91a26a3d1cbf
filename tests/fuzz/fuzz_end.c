/* Any bytes as an agent's end.json. */
#include <string.h>

#include "away/remote/remote_order.h"
#include "base/arena.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_remote_end end;
    stk_err err = {0};
    int rc = stk_remote_end_read((const char *)data, size, arena, &end, &err);
    if (rc < 0) {
        fuzz_require(rc == err.code && err.text[0] != '\0', "a refusal says why");
        return 0;
    }
    fuzz_require(end.outcome.n_devices <=
                     sizeof end.outcome.devices / sizeof end.outcome.devices[0],
                 "no more devices than fit");
    for (uint32_t i = 0; i < end.n_files; i++) {
        const stk_remote_file *f = &end.files[i];
        fuzz_require(f->data != NULL || f->key != NULL, "content, or where it is");
        fuzz_require(f->name[0] != '/' && f->name[0] != '\0', "below the attempt directory");
        for (const char *at = f->name; at != NULL; at = strchr(at, '/')) {
            at += *at == '/' ? 1 : 0;
            size_t n = strcspn(at, "/");
            fuzz_require(n > 0 && !(n == 1 && at[0] == '.') &&
                             !(n == 2 && memcmp(at, "..", 2) == 0),
                         "stays inside");
        }
    }
    return 0;
}
