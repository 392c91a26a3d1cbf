/* `stoker rm`, also `stoker store rm`: removes runs. */
#include "cli/cli_rm.h"

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "sys/clock.h"

void stk_cli_put_removed(const stk_cli *cli, const stk_store *store, const stk_gc *gc,
                         uint32_t n_containers, const stk_run_environments *environments,
                         stk_buf *out)
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
        stk_json_put_whole(out, "environments_removed", environments->n);
        stk_json_put_whole(out, "environment_bytes_freed", environments->bytes);
        stk_json_close(out, '}');
        return;
    }
    const char *removed = gc->dry_run ? "would remove" : "removed";
    if (n_containers > 0) {
        stk_buf_printf(out, "%s %u container%s of runs without an engine\n", removed, n_containers,
                       stk_text_plural(n_containers));
    }
    if (environments->n > 0) {
        stk_buf_printf(out, "%s %u environment%s of @pypi and @conda, %s\n", removed,
                       environments->n, stk_text_plural(environments->n),
                       stk_units_format_memory(environments->bytes, size, sizeof size));
    }
    stk_buf_printf(out, "%s %llu run%s and %llu artifact%s, %s\n", removed,
                   (unsigned long long)gc->runs_removed, stk_text_plural(gc->runs_removed),
                   (unsigned long long)gc->artifacts_removed,
                   stk_text_plural(gc->artifacts_removed),
                   stk_units_format_memory((int64_t)gc->bytes_freed, size, sizeof size));
}

int stk_cli_rm(const stk_cli *cli, stk_store *store, int first, stk_arena *arena, stk_buf *out,
               stk_err *err)
{
    uint32_t n = (uint32_t)(stk_cli_n_args(cli) - first);
    const char **runs = stk_arena_array(arena, (size_t)n + 1, sizeof *runs);
    STK_TRY(stk_err_if_null(runs, err));
    if (n == 0) {
        return stk_err_set(err, STK_E_USAGE, "a run is missing: stoker rm RUN…");
    }
    for (uint32_t i = 0; i < n; i++) {
        char id[40];
        STK_TRY(stk_store_resolve_run(store, stk_cli_arg(cli, (int)i + first), id, err));
        runs[i] = stk_arena_dup(arena, id);
        STK_TRY(stk_err_if_null(runs[i], err));
    }
    stk_gc gc = {.dry_run = stk_cli_flag(cli, "dry-run"), .only = runs, .n_only = n};
    STK_TRY(stk_store_gc(store, &gc, stk_clock_wall_ms(&stk_clock_real), err));
    stk_cli_put_removed(cli, store, &gc, 0, &(stk_run_environments){0}, out);
    return 0;
}

static int run_rm(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_STORE_AUTO store = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_cli_store(STK_STORE_FREES, &store, err));
    return stk_cli_rm(cli, store, 0, arena, out, err);
}

static const stk_option options[] = {{"dry-run", 0, NULL, "only say what would be removed"},
                                     {NULL}};

const stk_command stk_cmd_rm = {
    .name = "rm",
    .summary = "remove runs, with what only they refer to",
    .usage = "[options] RUN…",
    .text =
        "Removes the named runs, whatever their age, with the artifacts and cache entries that "
        "only they refer to: their steps run again when needed. All or none: if a name is wrong, "
        "or a run is live, nothing is removed. 'stoker store gc' removes what is old.",
    .options = options,
    .max_args = -1,
    .run = run_rm};
