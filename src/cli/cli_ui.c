/* stoker ui: pages of runs, devices and artifacts for a browser. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_open.h"
#include "cli/cli_stores.h"
#include "sys/file.h"
#include "ui/ui.h"

/* The values of an option that may be given several times, NULL-terminated. */
static int read_values(const stk_cli *cli, const char *name, stk_arena *arena, const char ***ret,
                       uint32_t *ret_n, stk_err *err)
{
    int n = 0;
    while (stk_cli_value_at(cli, name, n) != NULL) {
        n++;
    }
    *ret = stk_arena_array(arena, (size_t)n + 2, sizeof **ret);
    STK_TRY(stk_err_if_null(*ret, err));
    for (int i = 0; i < n; i++) {
        (*ret)[i] = stk_cli_value_at(cli, name, i);
    }
    *ret_n = (uint32_t)n;
    return 0;
}

static uint32_t find_others(stk_arena *arena, const char ***paths, uint32_t n, bool *ret_any)
{
    stk_cli_stores stores = {.arena = arena};
    if (stk_file_exists((*paths)[0])) {
        return n;
    }
    stk_cli_stores_add_all(&stores);
    const char **found = stk_arena_array(arena, (size_t)stores.n + 1, sizeof *found);
    uint32_t n_found = 0;
    for (uint32_t i = 0; found != NULL && i < stores.n; i++) {
        STK_STORE_AUTO store = NULL;
        if (stk_store_open(stores.paths[i], STK_STORE_READONLY, &store, NULL) == 0) {
            found[n_found++] = stores.paths[i];
        }
    }
    if (n_found == 0) {
        return n; /* its absence is told */
    }
    *paths = found;
    *ret_any = true;
    return n_found;
}

/* The stores that --store names, else the one that belongs to this folder; if there is none yet,
 * all of this host that can be opened. */
static int find_stores(const stk_cli *cli, stk_arena *arena, stk_ui_options *options, stk_err *err)
{
    const char **paths = NULL;
    uint32_t n = 0;
    STK_TRY(read_values(cli, "store", arena, &paths, &n, err));
    if (n == 0) {
        STK_TEXT_AUTO path = NULL;
        STK_TRY(stk_store_find(".", 0, &path, err));
        paths[n++] = stk_arena_dup(arena, path);
        n = find_others(arena, &paths, n, &options->skips_stores);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (strstr(paths[i], "://") != NULL) {
            continue;
        }
        const char *named = stk_cli_stores_path(arena, paths[i]);
        STK_TEXT_AUTO path = named == NULL ? NULL : stk_file_absolute(named);
        STK_TRY(stk_err_if_null(path, err));
        paths[i] = stk_arena_dup(arena, path);
        STK_TRY(stk_err_if_null(paths[i], err));
    }
    options->stores = paths;
    options->n_stores = n;
    return 0;
}

static void print_url(const stk_cli *cli, const stk_ui *ui, stk_buf *out)
{
    if (stk_cli_json(cli)) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "url", stk_ui_url(ui));
        stk_json_put_whole(out, "pid", getpid());
        stk_json_close(out, '}');
    } else {
        stk_buf_text(out, stk_ui_url(ui));
    }
    (void)printf("%s\n", stk_text_or(out->data, ""));
    (void)fflush(stdout);
    stk_buf_clear(out);
    if (isatty(STDERR_FILENO)) {
        (void)fputs(
            "stoker: open this address in a browser; whoever has it sees these runs. Ctrl-C "
            "ends it.\n",
            stderr);
    }
}

/* Opens the address by a file that only we can read: others see the words of our processes. Returns
 * its path, which lives as long as the server, or NULL. */
static char *open_browser(const stk_ui *ui)
{
    stk_err err = {0};
    pid_t pid = 0;
    STK_BUF_AUTO page = STK_BUF_INIT(4096);
    char *path = stk_cli_temporary_page(&err);
    stk_buf_printf(&page, "<!DOCTYPE html><meta http-equiv=\"refresh\" content=\"0;url=%s\"/>\n",
                   stk_ui_url(ui));
    int rc = path == NULL ? err.code : stk_file_write_atomic(path, page.data, page.len, 0600, &err);
    if (rc == 0) {
        rc = stk_cli_begin_browser(path, &pid, &err);
    }
    if (rc < 0) {
        (void)fprintf(stderr, "stoker: %s: open the address yourself\n", err.text);
    }
    return path;
}

static int run_ui(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    int64_t port = 0;
    const char **hosts = NULL;
    uint32_t n = 0;
    stk_ui *ui = NULL;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_cli_number(cli, "port", 1, 65535, &port, err));
    STK_TRY(read_values(cli, "host", arena, &hosts, &n, err));
    stk_ui_options options = {.program = stk_cli_program(cli),
                              .port = (int)port,
                              .prefix = stk_cli_value(cli, "prefix"),
                              .hosts = hosts,
                              .token = stk_text_if_any(getenv("STOKER_UI_TOKEN")),
                              .read_only = stk_cli_flag(cli, "read-only")};
    STK_TRY(find_stores(cli, arena, &options, err));
    int rc = stk_ui_open(&options, &ui, err);
    if (rc == 0) {
        print_url(cli, ui, out);
        STK_TEXT_AUTO page = stk_cli_flag(cli, "open") ? open_browser(ui) : NULL;
        rc = stk_ui_serve(ui, err);
        if (page != NULL) {
            (void)unlink(page);
        }
    }
    stk_ui_close(ui);
    return rc;
}

static const stk_option options[] = {
    {"port", 'p', "N", "the port (default 8467, or any that is free)"},
    {"open", 0, NULL, "show it in the browser ($BROWSER, else xdg-open)"},
    {"store", 0, "STORE",
     "a store to show: a folder, or one that machines share, also s3://bucket/prefix and "
     "ssh://host/folder (may be given several times; default: this folder's, or, where it has "
     "none, "
     "all of yours on this host)",
     true},
    {"prefix", 0, "PATH", "all paths begin with it, as behind a proxy: /user/me/proxy"},
    {"host", 0, "NAME",
     "answer to this name, too, as a proxy asks by it (may be given several times)", true},
    {"read-only", 0, NULL, "without buttons that change runs"},
    {NULL}};

const stk_command stk_cmd_ui = {
    .name = "ui",
    .summary = "pages of runs, logs, devices and artifacts for a browser",
    .usage = "[options]",
    .text =
        "Prints an address of this machine and answers there until Ctrl-C. The address has a "
        "random "
        "token: who doesn't know it sees nothing. Pages need no JavaScript, no account and no "
        "network; with JavaScript they are live. From another machine: ssh -L 8467:localhost:8467 "
        "HOST, then the same address.\n\n"
        "A store that machines share (s3://…, ssh://…, a shared folder) is shown by a copy in "
        "~/.cache/stoker/shared that follows it within seconds while somebody looks, and is never "
        "changed by these pages; credentials are found as by 'stoker share'.\n\n"
        "Runs are filtered and sorted as by 'stoker runs'. Buttons cancel, resume, tag and delete "
        "runs of stores that are yours. /metrics has the devices for Prometheus; its token is "
        "STOKER_UI_TOKEN, or the one of the address.",
    .options = options,
    .run = run_ui};
