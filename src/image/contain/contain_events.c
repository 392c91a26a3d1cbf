/* The engine's events and measurements of a container. We ask only for what we can't see: who ended
 * it from outside, and its usage if its processes aren't visible (we run in a container ourselves,
 * with the engine's socket). */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "image/contain/contain_private.h"
#include "sys/clock.h"

enum {
    WAIT_MS = 2000,
    AGAIN_MS = 50,
    IDLE_MS = 4000 /* so that a hung engine doesn't hold us up */
};

typedef struct listener {
    const stk_engine *engine;
    contain_ending *ending;
    bool is_over;
} listener;

static void add_way(contain_ending *ending, const char *way)
{
    size_t at = strlen(ending->how);
    (void)snprintf(ending->how + at, sizeof ending->how - at, "%s%s",
                   stk_text_when(at > 0, ", then "), way);
}

/* Docker reports signals ("kill") and, after the end, "stop"; Podman reports "kill", or "stop"
 * without a "kill". */
static bool on_engine_event(void *arg, const char *json, size_t n)
{
    listener *l = arg;
    char signal[48];
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json root = {0};
    if (arena == NULL ||
        stk_json_parse(json, n, "an event", &stk_engine_limits, arena, &root, NULL) < 0) {
        return true;
    }
    const stk_json *action = stk_json_get(&root, "Action");
    const stk_json *more = stk_json_get(stk_json_get(&root, "Actor"), "Attributes");
    const char *number = stk_json_get_text(more, "signal");
    if (stk_json_is(action, "kill") && number != NULL) {
        (void)snprintf(signal, sizeof signal, "signal %.16s", number);
        add_way(l->ending, signal);
    } else if (stk_json_is(action, "kill") ||
               (l->engine->is_podman && stk_json_is(action, "stop"))) {
        add_way(l->ending, stk_json_text(action));
    }
    l->ending->oom |= stk_json_is(action, "oom");
    /* Podman may write "stop" after "die", but never after "remove". */
    l->is_over |= stk_json_is(action, l->engine->is_podman ? "remove" : "die");
    return !l->is_over;
}

bool stk_contain_ending(const stk_engine *engine, const char *id, int64_t since_ms,
                        contain_ending *ret)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    int64_t end_ms = stk_clock_mono_ms(&stk_clock_real) + WAIT_MS;
    int64_t until_ms =
        stk_clock_wall_ms(&stk_clock_real) + WAIT_MS; /* in wall-clock time, for the engine */
    const char *const ids[] = {id, NULL};
    const char *query = stk_engine_filter("container", ids, arena);
    stk_engine impatient = *engine;
    listener l = {.engine = engine, .ending = ret};
    bool heard = query != NULL;
    impatient.idle_ms = IDLE_MS;
    /* Docker's stream lasts until that time; Podman's ends with the events so far. */
    while (heard && !l.is_over && stk_clock_mono_ms(&stk_clock_real) < end_ms) {
        const char *path = stk_arena_printf(
            arena, "/events?stream=false&since=%lld&until=%lld&filters=%s",
            (long long)(since_ms / 1000 - 1), (long long)(until_ms / 1000 + 1), query);
        *ret = (contain_ending){0};
        if (path == NULL) {
            return false;
        }
        int rc = stk_engine_stream(&impatient, "GET", path, NULL, -1, on_engine_event, &l, NULL);
        heard = rc == 0 || rc == STK_E_CANCELLED; /* we cancelled it: we know enough */
        if (heard && !l.is_over) {
            (void)poll(NULL, 0, AGAIN_MS);
        }
    }
    return heard && l.is_over;
}

void stk_contain_stats(const stk_engine *engine, const char *id, stk_arena *arena,
                       contain_stats *ret)
{
    char path[256];
    stk_json root = {0};
    stk_engine impatient = *engine;
    int64_t n = 0;
    impatient.idle_ms = IDLE_MS;
    *ret = (contain_stats){-1, -1};
    (void)snprintf(path, sizeof path, "/containers/%s/stats?stream=false&one-shot=true", id);
    if (stk_engine_get(&impatient, path, arena, &root, NULL) < 0) {
        return;
    }
    const stk_json *cpu = stk_json_get(stk_json_get(&root, "cpu_stats"), "cpu_usage");
    const stk_json *memory = stk_json_get(&root, "memory_stats");
    if (stk_json_int(stk_json_get(cpu, "total_usage"), &n) && n > 0) {
        ret->cpu_us = n / 1000;
    }
    if (stk_json_int(stk_json_get(memory, "max_usage"), &n) && n > 0) {
        ret->peak_bytes = n;
    }
}
