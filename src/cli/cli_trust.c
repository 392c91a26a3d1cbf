/* `stoker trust`: folders of others whose stores and code this user uses. */
#include <stdlib.h>

#include "base/buf.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/cli_read.h"
#include "sys/file.h"
#include "sys/trust.h"

enum { OUTPUT_MAX = 4 << 20 };

static int list_folders(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    stk_trusted *list = NULL;
    size_t n = 0;
    int rc = stk_trust_list(&list, &n, err);
    if (rc < 0) {
        return rc;
    }
    if (stk_cli_json(cli)) {
        stk_json_open(out, NULL, '[');
        for (size_t i = 0; i < n; i++) {
            stk_json_open(out, NULL, '{');
            stk_json_put_text(out, "folder", list[i].path);
            stk_json_put_whole(out, "owner", list[i].owner);
            stk_json_put_bool(out, "is_current", list[i].is_current);
            stk_json_close(out, '}');
        }
        stk_buf_text(out, "]\n");
    }
    for (size_t i = 0; i < n && !stk_cli_json(cli); i++) {
        stk_text_safe(out, list[i].path, "");
        stk_buf_text(out, list[i].is_current ? "\n"
                                             : "  (another folder is there, or none: name it again)"
                                               "\n");
    }
    stk_trust_free(list, n);
    return 0;
}

static void say(const stk_cli *cli, stk_buf *out, const char *path, bool is_trusted)
{
    if (stk_cli_json(cli)) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "folder", path);
        stk_json_put_bool(out, "trusted", is_trusted);
        stk_json_close(out, '}');
        stk_buf_char(out, '\n');
        return;
    }
    stk_text_safe(out, path, "");
    stk_buf_text(out, is_trusted ? " is trusted: stores, stoker.yaml and code in it are used, "
                                   "whoever of those who may write there put them\n"
                                 : " is not trusted\n");
}

static int run_trust(stk_cli *cli)
{
    stk_err err = {0};
    STK_BUF_AUTO out = STK_BUF_INIT(OUTPUT_MAX);
    STK_TEXT_AUTO path = NULL;
    const char *folder = stk_cli_arg(cli, 0);
    bool lists = stk_cli_flag(cli, "list");
    bool removes = stk_cli_flag(cli, "remove");
    bool checks = stk_cli_flag(cli, "check");
    bool was = false;
    int status = stk_cli_at_most(cli, 1);
    if (status != 0) {
        return status;
    }
    if (lists ? folder != NULL || removes || checks : folder == NULL || (removes && checks)) {
        return stk_cli_usage(cli, lists || folder != NULL
                                      ? "--list, --check and --remove are one at a time"
                                      : "which folder? 'stoker trust --list' shows those that "
                                        "are trusted");
    }
    int rc = 0;
    if (lists) {
        rc = list_folders(cli, &out, &err);
    } else if (checks) {
        rc = stk_trust_path(folder, &err);
        path = rc < 0 ? NULL : stk_file_absolute(folder);
        if (rc == 0 && path == NULL) {
            rc = stk_err_nomem(&err);
        }
    } else if (removes) {
        rc = stk_trust_remove(folder, &path, &was, &err);
        if (rc == 0 && !was) {
            rc = stk_err_set(&err, STK_E_NOT_FOUND, "'%s' was not trusted by itself", path);
            stk_err_hint(&err, "'stoker trust --list' shows the folders that are");
        }
    } else {
        rc = stk_trust_add(folder, &path, &err);
    }
    if (rc == 0 && checks) {
        stk_text_safe(&out, path, "");
        stk_buf_text(&out, " is yours, or trusted\n");
    } else if (rc == 0 && !lists) {
        say(cli, &out, path, !removes);
    }
    return stk_cli_answer(cli, rc, &out, &err);
}

static const stk_option options[] = {
    {"list", 0, NULL, "the folders that are trusted", false},
    {"remove", 0, NULL, "trust it no more", false},
    {"check", 0, NULL, "say whether this folder or file is used; exit status 3 where not", false},
    {NULL}};

const stk_command stk_cmd_trust = {
    .name = "trust",
    .summary = "use stores and code in a folder of others",
    .usage = "[--remove | --check] FOLDER | --list",
    .text =
        "A store, a stoker.yaml, a pipeline document or a Python file says what runs as you. "
        "Stoker "
        "uses one only if it is yours: its owner is you, root, or for root the user that sudo "
        "serves; not everybody may write it, nor its group where that isn't your own; and no "
        "folder above it is one where everybody may put another in its place.\n\n"
        "What lies in a folder that you trust is used as well, but what everybody may write. Trust "
        "a folder only if you trust all who may write there: they can run commands as you. The "
        "folder is known by its path, owner and inode: another one at that path is not trusted.\n\n"
        "The list is $XDG_CONFIG_HOME/stoker/trusted (~/.config/stoker/trusted).",
    .options = options,
    .run = run_trust};
