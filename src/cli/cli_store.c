/* stoker store: path, verify, gc, rm. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/units.h"
#include "cli/cli_read.h"
#include "run/run_containers.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { KEEP_RUNS = 10, OUTPUT_MAX = 1 << 28 };
#define KEEP_TEXT "30d"

static int run_path(stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out)
{
    if (stk_cli_json(cli)) {
        stk_buf_text(out, "{\"path\":");
        stk_buf_json(out, stk_store_path(store));
        stk_buf_text(out, ",\"about\":");
        stk_buf_json(out, stk_store_describe(store, arena));
        stk_buf_text(out, "}\n");
    } else {
        stk_buf_printf(out, "%s\n", stk_store_path(store));
    }
    return 0;
}

/* --- verify --- */

typedef struct bad_list {
    bool json;
    uint32_t n;
    stk_buf text;    /* lines, or members of a JSON list */
    stk_buf digests; /* one after the other, of artifacts */
} bad_list;

static void bad_done(bad_list *bad)
{
    stk_buf_done(&bad->text);
    stk_buf_done(&bad->digests);
}

static void note_bad(void *arg, const char *digest, const char *what)
{
    bad_list *bad = arg;
    bool is_artifact = strlen(digest) == STK_DIGEST_HEX;
    const char *kind = is_artifact ? "artifact" : "file";
    kind = strchr(digest, ' ') != NULL ? "record:" : kind; /* "run R, event N" */
    if (bad->json) {
        stk_buf_text(&bad->text, bad->n > 0 ? ",{\"digest\":" : "{\"digest\":");
        stk_buf_json(&bad->text, digest);
        stk_buf_text(&bad->text, ",\"what\":");
        stk_buf_json(&bad->text, what);
        stk_buf_char(&bad->text, '}');
    } else {
        stk_buf_printf(&bad->text, "%s %s: %s\n", kind, digest, what);
    }
    /* One that can't be read just now may be good: only what was read is known to be bad. */
    if (is_artifact && strncmp(what, "unreadable", 10) != 0) {
        stk_buf_add(&bad->digests, digest, STK_DIGEST_HEX);
    }
    bad->n++;
}

static int remove_bad(stk_store *store, const bad_list *bad, stk_err *err)
{
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < bad->digests.len; at += STK_DIGEST_HEX) {
        char digest[STK_DIGEST_HEX + 1] = "";
        memcpy(digest, bad->digests.data + at, STK_DIGEST_HEX);
        STK_TEXT_AUTO where = NULL;
        rc = stk_store_set_aside(store, digest, &where, err);
    }
    return rc;
}

static void say_verified(const stk_store *store, const bad_list *bad, uint64_t n, uint64_t bytes,
                         bool repair, stk_buf *out)
{
    char size[32];
    const char *list = bad->text.data != NULL ? bad->text.data : "";
    if (bad->json) {
        stk_buf_text(out, "{\"store\":");
        stk_buf_json(out, stk_store_path(store));
        stk_buf_printf(out, ",\"checked\":%llu,\"bytes\":%llu,\"repaired\":%s,\"bad\":[%s]}\n",
                       (unsigned long long)n, (unsigned long long)bytes, repair ? "true" : "false",
                       list);
        return;
    }
    stk_buf_printf(out, "%s%llu artifact%s checked, %s, %u bad\n", list, (unsigned long long)n,
                   n == 1 ? "" : "s", stk_units_format_memory((int64_t)bytes, size, sizeof size),
                   bad->n);
    if (bad->digests.len > 0) {
        stk_buf_text(
            out, repair ? "the bad ones are in its folder quarantine/: their steps run again when "
                          "needed\n"
                        : "`stoker store verify --repair` sets them aside, so that their "
                          "steps run again\n");
    }
}

/* Exit status 3 when something is bad, repaired or not. */
static int run_verify(stk_cli *cli, stk_store *store, stk_buf *out, stk_err *err, int *ret_status)
{
    bool repair = stk_cli_flag(cli, "repair");
    __attribute__((cleanup(bad_done))) bad_list bad = {.json = stk_cli_json(cli),
                                                       .text = STK_BUF_INIT(OUTPUT_MAX),
                                                       .digests = STK_BUF_INIT(OUTPUT_MAX)};
    uint64_t n = 0;
    uint64_t bytes = 0;
    int rc = stk_store_verify(store, note_bad, &bad, &n, &bytes, err);
    if (rc == 0 && repair) {
        rc = remove_bad(store, &bad, err);
    }
    if (rc == 0) {
        say_verified(store, &bad, n, bytes, repair, out);
        *ret_status = bad.n > 0 ? stk_err_exit_status(STK_E_STORE) : 0;
    }
    return rc;
}

/* --- gc --- */

static void say_removed(const stk_cli *cli, const stk_store *store, const stk_gc *gc,
                        uint32_t n_containers, stk_buf *out)
{
    char size[32];
    if (stk_cli_json(cli)) {
        stk_buf_text(out, "{\"store\":");
        stk_buf_json(out, stk_store_path(store));
        stk_buf_printf(out,
                       ",\"dry_run\":%s,\"runs_removed\":%llu,\"artifacts_removed\":%llu,"
                       "\"bytes_freed\":%llu,\"containers_removed\":%u}\n",
                       gc->dry_run ? "true" : "false", (unsigned long long)gc->runs_removed,
                       (unsigned long long)gc->artifacts_removed,
                       (unsigned long long)gc->bytes_freed, n_containers);
        return;
    }
    if (n_containers > 0) {
        stk_buf_printf(out, "%s %u container%s of runs that nobody runs any more\n",
                       gc->dry_run ? "would remove" : "removed", n_containers,
                       n_containers == 1 ? "" : "s");
    }
    stk_buf_printf(out, "%s %llu run%s and %llu artifact%s, %s\n",
                   gc->dry_run ? "would remove" : "removed", (unsigned long long)gc->runs_removed,
                   gc->runs_removed == 1 ? "" : "s", (unsigned long long)gc->artifacts_removed,
                   gc->artifacts_removed == 1 ? "" : "s",
                   stk_units_format_memory((int64_t)gc->bytes_freed, size, sizeof size));
}

/* The runs that are named, all or none. */
static int run_rm(stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out, stk_err *err)
{
    uint32_t n = (uint32_t)stk_cli_n_args(cli) - 1;
    const char **runs = stk_arena_array(arena, (size_t)n + 1, sizeof *runs);
    int rc = runs == NULL ? stk_err_nomem(err)
             : n == 0     ? stk_err_set(err, STK_E_USAGE, "which run? stoker store rm RUN…")
                          : 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        char id[40];
        rc = stk_store_resolve_run(store, stk_cli_arg(cli, (int)i + 1), id, err);
        if (rc == 0) {
            runs[i] = stk_arena_dup(arena, id);
        }
    }
    stk_gc gc = {.dry_run = stk_cli_flag(cli, "dry-run"), .only = runs, .n_only = n};
    rc = rc < 0 ? rc : stk_store_gc(store, &gc, stk_clock_wall_ms(&stk_clock_real), err);
    if (rc == 0) {
        say_removed(cli, store, &gc, 0, out);
    }
    return rc;
}

static int run_gc(stk_cli *cli, stk_store *store, stk_buf *out, stk_err *err)
{
    int64_t keep_runs = KEEP_RUNS;
    const char *keep = stk_cli_value(cli, "keep");
    stk_gc gc = {.dry_run = stk_cli_flag(cli, "dry-run")};
    int rc = stk_cli_number(cli, "keep-runs", 0, UINT32_MAX, &keep_runs, err);
    if (rc == 0) {
        rc = stk_units_parse_duration(keep != NULL ? keep : KEEP_TEXT, &gc.keep_ms, err);
    }
    gc.keep_runs = (uint32_t)keep_runs;
    uint32_t n_containers = 0;
    rc = rc < 0 ? rc : stk_run_drop_containers(store, gc.dry_run, &n_containers, err);
    if (rc == 0) {
        rc = stk_store_gc(store, &gc, stk_clock_wall_ms(&stk_clock_real), err);
    }
    if (rc == 0) {
        say_removed(cli, store, &gc, n_containers, out);
    }
    return rc;
}

static int run_store(stk_cli *cli)
{
    const char *what = stk_cli_arg(cli, 0);
    bool is_rm = what != NULL && strcmp(what, "rm") == 0;
    if (what == NULL || (strcmp(what, "path") != 0 && strcmp(what, "verify") != 0 &&
                         strcmp(what, "gc") != 0 && !is_rm)) {
        return stk_cli_usage(cli, "stoker store path, verify, gc or rm%s%s", what ? ", not " : "",
                             what ? what : "");
    }
    int wrong = is_rm ? 0 : stk_cli_at_most(cli, 1);
    if (wrong != 0) {
        return wrong;
    }
    bool is_gc = strcmp(what, "gc") == 0;
    bool writes = is_gc || is_rm || stk_cli_flag(cli, "repair");
    stk_err err = {0};
    stk_store *store = NULL;
    int status = stk_cli_store(cli, writes ? 0 : STK_STORE_READONLY, &store);
    if (status != 0) {
        return status;
    }
    STK_BUF_AUTO out = STK_BUF_INIT(OUTPUT_MAX);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    int rc = is_gc                       ? run_gc(cli, store, &out, &err)
             : is_rm                     ? run_rm(cli, store, arena, &out, &err)
             : strcmp(what, "path") == 0 ? run_path(cli, store, arena, &out)
                                         : run_verify(cli, store, &out, &err, &status);
    stk_store_close(store);
    int answered = stk_cli_answer(cli, rc, &out, &err);
    return answered != 0 ? answered : status;
}

static const stk_option options[] = {
    {"repair", 0, NULL,
     "verify: set bad artifacts aside (quarantine/), so that their steps run again", false},
    {"dry-run", 0, NULL, "gc, rm: only say what would go", false},
    {"keep", 0, "TIME", "gc: keep runs that ended within this time (default " KEEP_TEXT ")", false},
    {"keep-runs", 0, "N", "gc: and this many newest of every pipeline (default 10)", false},
    {NULL}};

const stk_command stk_cmd_store = {
    .name = "store",
    .summary = "check the store, or free its space",
    .usage = "[options] path | verify | gc | rm RUN…",
    .text =
        "path prints the folder of the store (STOKER_STORE, or .stoker in the nearest "
        "folder from the current one up to the project's).\n\n"
        "verify reads every event of every run, and every artifact again, which it compares with "
        "its "
        "digest; exit status 3 when one is bad.\n\n"
        "gc removes the runs outside what is kept, then the artifacts that no kept run, cache "
        "entry or name refers to; and containers of this store's runs that have no engine any "
        "more. "
        "A live run is never touched.\n\n"
        "rm removes the runs that it names, whatever their age, with what only they refer to: "
        "their "
        "steps run again when they are asked for.",
    .options = options,
    .run = run_store};
