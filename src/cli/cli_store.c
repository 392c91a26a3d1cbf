/* `stoker store`: path, verify, gc, rm. */
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/cli_rm.h"
#include "cli/cli_verify.h"
#include "run/run_containers.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { KEEP_RUNS = 10 };
#define KEEP_TEXT "30d"
#define KEEP_ENVIRONMENTS "90d"

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

static int run_gc(const stk_cli *cli, stk_store *store, stk_buf *out, stk_err *err)
{
    int64_t keep_runs = KEEP_RUNS;
    const char *keep = stk_text_or(stk_cli_value(cli, "keep"), KEEP_TEXT);
    const char *used = stk_text_or(stk_cli_value(cli, "keep-environments"), KEEP_ENVIRONMENTS);
    uint32_t n_containers = 0;
    stk_run_environments environments = {0};
    stk_gc gc = {.dry_run = stk_cli_flag(cli, "dry-run")};
    STK_TRY(stk_cli_number(cli, "keep-runs", 0, UINT32_MAX, &keep_runs, err));
    STK_TRY(stk_units_parse_duration(keep, &gc.keep_ms, err));
    STK_TRY(stk_units_parse_duration(used, &environments.keep_ms, err));
    gc.keep_runs = (uint32_t)keep_runs;
    STK_TRY(stk_run_drop_containers(store, gc.dry_run, &n_containers, err));
    STK_TRY(stk_store_gc(store, &gc, stk_clock_wall_ms(&stk_clock_real), err));
    int rc = stk_run_drop_environments(gc.dry_run, &environments, err);
    stk_cli_put_removed(cli, store, &gc, n_containers, &environments, out);
    return rc;
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
    int flags = stk_cli_flag(cli, "repair") ? 0 : STK_STORE_READONLY;
    if (i == GC || i == RM) {
        flags = STK_STORE_FREES;
    }
    STK_TRY(stk_cli_store(flags, &store, err));
    switch (i) {
    case GC:
        return run_gc(cli, store, out, err);
    case RM:
        return stk_cli_rm(cli, store, 1, arena, out, err);
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
    {"keep-environments", 0, "TIME",
     "gc: keep environments of @pypi and @conda used within this time (default " KEEP_ENVIRONMENTS
     ")"},
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
        "this store's runs without an engine. It never touches a live run. It also removes "
        "environments "
        "of @pypi and @conda (~/.cache/stoker/environments) that --keep-environments doesn't "
        "cover, never one in which a step runs.\n\nrm removes the named "
        "runs, whatever their age, with what only they refer to: their steps run again when "
        "needed.",
    .options = options,
    .max_args = -1,
    .run = run_store};
