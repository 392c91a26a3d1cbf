/* Devices from a JSON file, for tests and for trying things on a laptop:
 *
 *     [{"uuid": "GPU-fake-0", "model": "Fake", "memory_bytes": 85899345920, "usable": false,
 *       "trouble": "it is on fire", "busy_percent": 40, "memory_used": 1000, "power_mw": 70000,
 *       "processes": {"123": 500}}]
 *
 * Every key may be left out. The file is read again for each sample, so a test can change it. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "accel/accel_priv.h"

static json_t *load(const char *path, stk_err *err)
{
    json_error_t why;
    json_t *list = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (list == NULL) {
        stk_err_set(err, STK_E_ENV, "fake devices: '%s' can't be read: %s", path, why.text);
        stk_err_at(err, path, why.line > 0 ? why.line : 0);
    } else if (!json_is_array(list)) {
        json_decref(list);
        list = NULL;
        stk_err_set(err, STK_E_ENV, "fake devices: '%s' must hold a list of devices", path);
    }
    return list;
}

static int64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static int fake_sample(void *self, uint32_t slot, const pid_t *pids, uint32_t n_pids,
                       stk_device_sample *ret)
{
    json_t *list = load(self, NULL);
    const json_t *device = json_array_get(list, slot);
    ret->busy_percent = (int32_t)number(device, "busy_percent");
    ret->memory_used = number(device, "memory_used");
    ret->power_mw = (int32_t)number(device, "power_mw");
    const json_t *processes = json_object_get(device, "processes");
    for (uint32_t i = 0; i < n_pids && processes != NULL; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "%d", (int)pids[i]);
        int64_t bytes = number(processes, key);
        if (bytes >= 0) {
            ret->process_memory = (ret->process_memory < 0 ? 0 : ret->process_memory) + bytes;
        }
    }
    json_decref(list);
    return 0;
}

static int fake_open(stk_accel *accel, const char *path, void **ret_self, stk_err *err)
{
    json_t *list = load(path, err);
    if (list == NULL) {
        return STK_E_ENV;
    }
    int rc = 0;
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one)
    {
        const char *uuid = json_string_value(json_object_get(one, "uuid"));
        const char *model = json_string_value(json_object_get(one, "model"));
        const char *vendor = json_string_value(json_object_get(one, "vendor"));
        const char *trouble = json_string_value(json_object_get(one, "trouble"));
        stk_device device = {
            .noun = "GPU",
            .parent = -1,
            .n_cores = -1,
            .numa = -1,
            .cc_major = -1,
            .cc_minor = -1,
            .vendor = stk_arena_dup(accel->arena, vendor ? vendor : "nvidia"),
            .uuid = uuid ? stk_arena_dup(accel->arena, uuid)
                         : stk_arena_printf(accel->arena, "GPU-fake-%zu", i),
            .model = stk_arena_dup(accel->arena, model ? model : "Fake GPU"),
            .pci = stk_arena_dup(accel->arena, json_string_value(json_object_get(one, "pci"))),
            .index = (int32_t)i,
            .memory_bytes = number(one, "memory_bytes"),
            .usable = !json_is_false(json_object_get(one, "usable")),
            .trouble = stk_arena_dup(accel->arena, trouble),
        };
        rc = stk_accel_add(accel, &device, (uint32_t)i, err);
        if (rc < 0) {
            break;
        }
    }
    json_decref(list);
    *ret_self = stk_arena_dup(accel->arena, path);
    return rc;
}

const stk_provider stk_provider_fake = {
    .name = "fake",
    .adjective = "fake",
    .takes_spec = true,
    .open = fake_open,
    .ops = {.sample = fake_sample},
};
