/* Any bytes as an engine's job.json, and as an array's list. */
#include <string.h>

#include "away/remote/remote_order.h"
#include "base/arena.h"
#include "base/json.h"
#include "base/limits.h"
#include "fuzz.h"

static void check_order(const stk_remote_order *o, stk_arena *arena)
{
    static const stk_json_limits limits = {STK_LIMIT_RESULT_BYTES, STK_LIMIT_RESULT_NODES,
                                           STK_LIMIT_DEPTH};
    stk_json task;
    fuzz_require(o->argv[0] != NULL && o->nodes > 0, "a program, on a node");
    fuzz_require(o->store[0] == '/' && strstr(o->dir, "/../") == NULL, "an attempt directory");
    fuzz_require(stk_remote_key(o->store, o->dir) != NULL, "below its store");
    fuzz_require(stk_json_parse(o->task_json, strlen(o->task_json), "task", &limits, arena, &task,
                                NULL) == 0 &&
                     task.kind == STK_JSON_MAP,
                 "a task.json");
    for (uint32_t i = 0; i < o->n_links; i++) {
        fuzz_require(strncmp(o->links[i].at, "in/", 3) == 0 && o->links[i].target != NULL &&
                         strstr(o->links[i].at, "/../") == NULL,
                     "links are inputs");
    }
    fuzz_require((o->code_digest == NULL) == (o->code_root == NULL), "code, and where");
    fuzz_require(o->n_devices > 0 || (o->device_vendor == NULL && o->device_classes == NULL),
                 "devices, and how many");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_remote_order order;
    const char **keys;
    uint32_t n = 0;
    stk_err err = {0};
    int rc = stk_remote_order_read((const char *)data, size, arena, &order, &err);
    if (rc == 0) {
        check_order(&order, arena);
    } else {
        fuzz_require(rc == err.code && err.text[0] != '\0', "a refusal says why");
    }
    err = (stk_err){0};
    rc = stk_remote_list_read((const char *)data, size, arena, &keys, &n, &err);
    fuzz_require(rc == 0 || (rc == err.code && err.text[0] != '\0'), "so does a list's");
    for (uint32_t i = 0; i < n; i++) {
        fuzz_require(keys[i] != NULL, "keys are there");
    }
    return 0;
}
