/* What a step says of places where it doesn't run. */
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/limits.h"
#include "base/text.h"
#include "base/units.h"
#include "image/stack/stack_private.h"

/* Options that count wherever the step runs: its image, requests for devices. */
static const char *const anywhere[] = {
    "image",      "gpu",         "gpu_vendor", "gpu_type",     "trainium",
    "inferentia", "neuroncores", "tpu",        "tpu_topology", "tpu_accelerator"};

static bool counts_anywhere(const char *name)
{
    for (size_t i = 0; i < sizeof anywhere / sizeof *anywhere; i++) {
        if (strcmp(anywhere[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* CPUs or MB that the step's `resources` ask for as well, as those of a flow do. */
static bool is_asked_anywhere(const char *name, const stk_json *value, const stk_resources *res)
{
    const char *text = stk_json_is_number(value) ? value->text : stk_json_text(value);
    text = stk_text_or(text, "");
    char *end = NULL;
    double number = strtod(text, &end);
    int64_t bytes = (int64_t)(MIN(MAX(number, 0), 1e9) * 1e6);
    if (end == text || (*end != '\0' && stk_units_parse_memory(text, &bytes, NULL) != 0)) {
        return false;
    }
    if (strcmp(name, "cpu") == 0) {
        return (double)res->cpu_milli >= number * 1000;
    }
    return strcmp(name, "memory") == 0 && res->memory_bytes >= bytes;
}

static void name_options(const char *backend, const stk_json *options, const stk_resources *res,
                         stk_buf *names)
{
    bool any = false;
    for (uint32_t i = 0; i < stk_json_n_members(options); i++) {
        const char *name = stk_json_key(options, i)->text;
        const stk_json *value = stk_json_value(options, i);
        if (value->kind != STK_JSON_NULL && !counts_anywhere(name) &&
            !is_asked_anywhere(name, value, res)) {
            stk_buf_separate(names, ", ");
            stk_buf_printf(names, "'%s'", name);
            any = true;
        }
    }
    if (any) {
        stk_buf_printf(names, " of %s", backend);
    }
}

static const char *where(stk_place_kind kind)
{
    static const char *const words[STK_PLACE_N] = {
        [STK_PLACE_LOCAL] = "on this machine",    [STK_PLACE_DOCKER] = "in a container",
        [STK_PLACE_KUBERNETES] = "on kubernetes", [STK_PLACE_BATCH] = "on batch",
        [STK_PLACE_SLURM] = "on slurm",           [STK_PLACE_SSH] = "on ssh"};
    return words[kind];
}

int stk_stack_note_unused(const stk_json *backend, const char *step, const stk_resources *res,
                          stk_arena *arena, stk_place *place, stk_err *err)
{
    const char *here = stk_place_word(place->kind);
    STK_BUF_AUTO names = STK_BUF_INIT(STK_LIMIT_SPEC_BYTES);
    for (uint32_t i = 0; i < stk_json_n_members(backend); i++) {
        const char *word = stk_json_key(backend, i)->text;
        if (strcmp(word, "stack") != 0 &&
            (strcmp(word, here) != 0 || place->kind == STK_PLACE_LOCAL)) {
            name_options(word, stk_json_value(backend, i), res, &names);
        }
    }
    STK_TRY(stk_buf_check(&names, err));
    if (names.len == 0) {
        return 0;
    }
    const char *one = NULL, *many = NULL;
    if (place->note == NULL) {
        many = stk_arena_printf(arena, "run %s, so these options have no effect: %s",
                                where(place->kind), names.data);
        one = stk_arena_printf(arena, "step '%s' runs %s, so these options have no effect: %s",
                               step, where(place->kind), names.data);
    } else {
        one = stk_arena_printf(arena, "%s; these options have no effect there: %s", place->note,
                               names.data);
    }
    if (place->note_many != NULL) {
        many = stk_arena_printf(arena, "%s; these options have no effect there: %s",
                                place->note_many, names.data);
    }
    place->note = one;
    place->note_many = many;
    return stk_err_if_null(one, err);
}
