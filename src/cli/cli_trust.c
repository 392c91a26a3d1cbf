/* `stoker trust`: other users' folders whose stores and code this user trusts. */
#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/cli_read.h"
#include "sys/file.h"
#include "sys/trust.h"

static int list_folders(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    stk_trusted *list = NULL;
    size_t n = 0;
    bool json = stk_cli_json(cli);
    STK_TRY(stk_trust_list(&list, &n, err));
    stk_buf_text(out, stk_text_when(json, "["));
    for (size_t i = 0; i < n; i++) {
        if (json) {
            stk_json_open(out, NULL, '{');
            stk_json_put_text(out, "folder", list[i].path);
            stk_json_put_whole(out, "owner", list[i].owner);
            stk_json_put_bool(out, "is_current", list[i].is_current);
            stk_json_close(out, '}');
            continue;
        }
        stk_text_safe(out, list[i].path, "");
        stk_buf_text(out, list[i].is_current
                              ? "\n"
                              : "  (gone, or another folder by now: trust it again)\n");
    }
    stk_buf_text(out, stk_text_when(json, "]"));
    stk_trust_free(list, n);
    return 0;
}

static void put_trusted(const stk_cli *cli, stk_buf *out, const char *path, bool is_trusted)
{
    if (stk_cli_json(cli)) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "folder", path);
        stk_json_put_bool(out, "trusted", is_trusted);
        stk_json_close(out, '}');
        return;
    }
    stk_text_safe(out, path, "");
    stk_buf_text(out, is_trusted ? " is trusted: Stoker uses stores, stoker.yaml and code in it, "
                                   "whoever with write access put them there"
                                 : " is not trusted");
}

static int run_trust(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_TEXT_AUTO path = NULL;
    const char *folder = stk_cli_arg(cli, 0);
    bool lists = stk_cli_flag(cli, "list"), removes = stk_cli_flag(cli, "remove");
    bool checks = stk_cli_flag(cli, "check"), was = false;
    if (lists + removes + checks > 1 || (lists && folder != NULL)) {
        return stk_cli_usage(cli, err,
                             "give one of --list, --check and --remove; --list takes no folder");
    }
    if (lists) {
        return list_folders(cli, out, err);
    }
    if (folder == NULL) {
        return stk_cli_usage(cli, err,
                             "a folder is missing; 'stoker trust --list' shows the trusted ones");
    }
    if (checks) {
        STK_TRY(stk_trust_path(folder, err));
        path = stk_file_absolute(folder);
        STK_TRY(stk_err_if_null(path, err));
        stk_text_safe(out, path, "");
        return stk_buf_text(out, " is yours, or trusted");
    }
    if (!removes) {
        STK_TRY(stk_trust_add(folder, &path, err));
    } else {
        STK_TRY(stk_trust_remove(folder, &path, &was, err));
        if (!was) {
            stk_err_set(err, STK_E_NOT_FOUND, "'%s' is not in the list of trusted folders", path);
            stk_err_hint(err, "'stoker trust --list' shows them");
            return STK_E_NOT_FOUND;
        }
    }
    put_trusted(cli, out, path, !removes);
    return 0;
}

static const stk_option options[] = {
    {"list", 0, NULL, "the folders that are trusted"},
    {"remove", 0, NULL, "stop trusting the folder"},
    {"check", 0, NULL, "say whether this folder or file is used; exit status 3: it isn't"},
    {NULL}};

const stk_command stk_cmd_trust = {
    .name = "trust",
    .summary = "use stores and code in a folder of others",
    .usage = "[--remove | --check] FOLDER | --list",
    .text =
        "A store, a stoker.yaml, a pipeline document or a Python file says what runs as you. "
        "Stoker uses one only if it is yours: its owner is you, root, or for root the user that "
        "sudo serves; not everybody may write it, nor its group where that isn't your own; and no "
        "folder above it is one where everybody may put another in its place.\n\n"
        "Stoker also uses what is in a folder that you trust, except files that everybody may "
        "write. Trust a folder only if you trust all who may write there: they can run commands as "
        "you. Stoker identifies the folder by its path, owner and inode: another one at that path "
        "is not trusted.\n\n"
        "The list is $XDG_CONFIG_HOME/stoker/trusted (~/.config/stoker/trusted).",
    .options = options,
    .max_args = 1,
    .run = run_trust};
