/* stoker store: path, verify, gc, rm. */
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/cli_verify.h"
#include "run/run_containers.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { KEEP_RUNS = 10 };
#define KEEP_TEXT "30d"

static int put_path(const stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out)
{
    if (!stk_cli_json(cli)) {
        return stk_buf_text(out, stk_store_path(store));
    }
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "path", stk_store_path(store));
    stk_json_put_text(out, "about", stk_store_describe(store, arena));
    stk_json_close(out, '}');
    return 0;
}

static void put_removed(const stk_cli *cli, const stk_store *store, const stk_gc *gc,
                        uint32_t n_containers, stk_buf *out)
{
    char size[32];
    if (stk_cli_json(cli)) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "store", stk_store_path(store));
        stk_json_put_bool(out, "dry_run", gc->dry_run);
        stk_json_put_whole(out, "runs_removed", (int64_t)gc->runs_removed);
        stk_json_put_whole(out, "artifacts_removed", (int64_t)gc->artifacts_removed);
        stk_json_put_whole(out, "bytes_freed", (int64_t)gc->bytes_freed);
        stk_json_put_whole(out, "containers_removed", n_containers);
        stk_json_close(out, '}');
        return;
    }
    const char *removed = gc->dry_run ? "would remove" : "removed";
    if (n_containers > 0) {
        stk_buf_printf(out, "%s %u container%s of runs without an engine\n", removed, n_containers,
                       stk_text_plural(n_containers));
    }
    stk_buf_printf(out, "%s %llu run%s and %llu artifact%s, %s\n", removed,
                   (unsigned long long)gc->runs_removed, stk_text_plural(gc->runs_removed),
                   (unsigned long long)gc->artifacts_removed,
                   stk_text_plural(gc->artifacts_removed),
                   stk_units_format_memory((int64_t)gc->bytes_freed, size, sizeof size));
}

/* Removes the named runs; none if one of them doesn't exist. */
static int run_rm(const stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out,
                  stk_err *err)
{
    uint32_t n = (uint32_t)stk_cli_n_args(cli) - 1;
    const char **runs = stk_arena_array(arena, (size_t)n + 1, sizeof *runs);
    STK_TRY(stk_err_if_null(runs, err));
    if (n == 0) {
        return stk_err_set(err, STK_E_USAGE, "a run is missing: stoker store rm RUN…");
    }
    for (uint32_t i = 0; i < n; i++) {
        char id[40];
        STK_TRY(stk_store_resolve_run(store, stk_cli_arg(cli, (int)i + 1), id, err));
        runs[i] = stk_arena_dup(arena, id);
        STK_TRY(stk_err_if_null(runs[i], err));
    }
    stk_gc gc = {.dry_run = stk_cli_flag(cli, "dry-run"), .only = runs, .n_only = n};
    STK_TRY(stk_store_gc(store, &gc, stk_clock_wall_ms(&stk_clock_real), err));
    put_removed(cli, store, &gc, 0, out);
    return 0;
}

static int run_gc(const stk_cli *cli, stk_store *store, stk_buf *out, stk_err *err)
{
    int64_t keep_runs = KEEP_RUNS;
    const char *keep = stk_text_or(stk_cli_value(cli, "keep"), KEEP_TEXT);
    uint32_t n_containers = 0;
    stk_gc gc = {.dry_run = stk_cli_flag(cli, "dry-run")};
    STK_TRY(stk_cli_number(cli, "keep-runs", 0, UINT32_MAX, &keep_runs, err));
    STK_TRY(stk_units_parse_duration(keep, &gc.keep_ms, err));
    gc.keep_runs = (uint32_t)keep_runs;
    STK_TRY(stk_run_drop_containers(store, gc.dry_run, &n_containers, err));
    STK_TRY(stk_store_gc(store, &gc, stk_clock_wall_ms(&stk_clock_real), err));
    put_removed(cli, store, &gc, n_containers, out);
    return 0;
}

static int run_store(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    static const char *const words[] = {"path", "verify", "gc", "rm"};
    enum { PATH, VERIFY, GC, RM, N };
    const char *word = stk_cli_arg(cli, 0);
    STK_STORE_AUTO store = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    int i = 0;
    if (word == NULL) {
        return stk_cli_usage(cli, err, "an action is missing: path, verify, gc or rm");
    }
    while (i < N && strcmp(word, words[i]) != 0) {
        i++;
    }
    if (i == N) {
        return stk_cli_usage(cli, err, "unknown action '%s': it is path, verify, gc or rm", word);
    }
    if (i != RM) {
        STK_TRY(stk_cli_at_most(cli, 1, err));
    }
    bool writes = i == GC || i == RM || stk_cli_flag(cli, "repair");
    STK_TRY(stk_cli_store(writes ? 0 : STK_STORE_READONLY, &store, err));
    switch (i) {
    case GC:
        return run_gc(cli, store, out, err);
    case RM:
        return run_rm(cli, store, arena, out, err);
    case PATH:
        return put_path(cli, store, arena, out);
    default:
        return stk_cli_verify(cli, store, out, err);
    }
}

static const stk_option options[] = {
    {"repair", 0, NULL,
     "verify: set bad artifacts aside (quarantine/), so that their steps run again"},
    {"dry-run", 0, NULL, "gc, rm: only say what would be removed"},
    {"keep", 0, "TIME", "gc: keep runs that ended within this time (default " KEEP_TEXT ")"},
    {"keep-runs", 0, "N", "gc: and the newest N of every pipeline (default 10)"},
    {NULL}};

const stk_command stk_cmd_store = {
    .name = "store",
    .summary = "check the store, or free its space",
    .usage = "[options] path | verify | gc | rm RUN…",
    .text =
        "path prints the folder of the store (STOKER_STORE, or .stoker in the nearest folder from "
        "the current one up to the project's).\n\n"
        "verify reads every event of every run, and compares every artifact with its digest; exit "
        "status 3: one is bad.\n\ngc removes the runs that --keep and --keep-runs don't cover, "
        "then the artifacts that no kept run, cache entry or name refers to, and containers of "
        "this store's runs without an engine. It never touches a live run.\n\nrm removes the named "
        "runs, whatever their age, with what only they refer to: their steps run again when "
        "needed.",
    .options = options,
    .max_args = -1,
    .run = run_store};
