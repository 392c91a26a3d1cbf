/* stoker record: named JSON objects that a dialect keeps beside its runs, such as models. */
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "cli/cli_read.h"
#include "store/store.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/seal.h"

static void show_record(stk_buf *out, const stk_record *record)
{
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "name", record->name);
    stk_json_put_whole(out, "revision", record->revision);
    stk_json_put_whole(out, "created_ms", record->created_ms);
    stk_json_put_whole(out, "updated_ms", record->updated_ms);
    stk_json_put_raw(out, "body", record->body);
    stk_json_close(out, '}');
}

static int list_records(const stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out,
                        stk_err *err)
{
    stk_record *found = NULL;
    uint32_t n = 0;
    STK_TRY(stk_store_list_records(store, stk_cli_arg(cli, 1), stk_cli_arg(cli, 2), arena, &found,
                                   &n, err));
    if (!stk_cli_json(cli)) {
        for (uint32_t i = 0; i < n; i++) {
            stk_text_safe(out, found[i].name, "");
            stk_buf_char(out, '\n');
        }
        return 0;
    }
    stk_json_open(out, NULL, '[');
    for (uint32_t i = 0; i < n; i++) {
        show_record(out, &found[i]);
    }
    stk_json_close(out, ']');
    return 0;
}

static int put_record(const stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out,
                      stk_err *err)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    int64_t expected = STK_RECORD_ANY, revision = 0;
    stk_json body;
    STK_TRY(stk_cli_number(cli, "revision", 0, INT64_MAX, &expected, err));
    STK_TRY(
        stk_file_read_fd(STDIN_FILENO, "standard input", STK_LIMIT_RESULT_BYTES, &text, &len, err));
    STK_TRY(stk_cli_object(text, "standard input", arena, &body, err));
    stk_record record = {.kind = stk_cli_arg(cli, 1),
                         .name = stk_cli_arg(cli, 2),
                         .body = stk_json_dump_in(&body, arena),
                         .updated_ms = stk_clock_wall_ms(&stk_clock_real)};
    STK_TRY(stk_err_if_null(record.body, err));
    STK_TRY(stk_store_put_record(store, &record, expected, &revision, err));
    stk_json_open(out, NULL, '{');
    stk_json_put_whole(out, "revision", revision);
    stk_json_close(out, '}');
    return 0;
}

static int remove_record(const stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out,
                         stk_err *err)
{
    (void)arena;
    (void)out;
    return stk_store_remove_record(store, stk_cli_arg(cli, 1), stk_cli_arg(cli, 2), err);
}

/* Standard input sealed for a record, or opened again. */
static int seal_text(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_TEXT_AUTO text = NULL;
    STK_TEXT_AUTO about = stk_file_join_any(stk_cli_arg(cli, 1), stk_cli_arg(cli, 2));
    size_t len = 0;
    STK_TRY(stk_err_if_null(about, err));
    STK_TRY(
        stk_file_read_fd(STDIN_FILENO, "standard input", STK_LIMIT_RESULT_BYTES, &text, &len, err));
    if (strcmp(stk_cli_arg(cli, 0), "seal") == 0) {
        return stk_seal(about, text, len, out, err);
    }
    return stk_seal_open(about, text, out, err);
}

static const stk_option options[] = {
    {"revision", 0, "N", "put: only if the record has this revision (0: only if there is none)"},
    {NULL}};

static int run_record(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    static const struct {
        const char *word;
        int least, flags;
        int (*run)(const stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out,
                   stk_err *err);
    } words[] = {{"list", 2, STK_STORE_READONLY, list_records},
                 {"put", 3, STK_STORE_CREATE, put_record},
                 {"rm", 3, STK_STORE_FREES, remove_record},
                 {"seal", 3, 0, NULL},
                 {"open", 3, 0, NULL}};
    const char *word = stk_text_or(stk_cli_arg(cli, 0), "");
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_STORE_AUTO store = NULL;
    STK_TRY(stk_err_if_null(arena, err));
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(word, words[i].word) != 0) {
            continue;
        }
        if (stk_cli_n_args(cli) < words[i].least || stk_cli_n_args(cli) > 3) {
            return stk_cli_usage(cli, err, "'record %s' takes a kind and a name", word);
        }
        if (stk_cli_value(cli, "revision") != NULL && words[i].run != put_record) {
            return stk_cli_usage(cli, err, "--revision is for 'record put', not for '%s'", word);
        }
        if (words[i].run == NULL) {
            return seal_text(cli, out, err);
        }
        STK_TRY(stk_cli_store(words[i].flags, &store, err));
        return words[i].run(cli, store, arena, out, err);
    }
    return stk_cli_usage(cli, err, "the action is list, put, rm, seal or open, not '%s'", word);
}

const stk_command stk_cmd_record = {
    .name = "record",
    .summary = "keep named JSON objects beside the runs",
    .usage = "list KIND [NAME] | put KIND NAME | rm KIND NAME | seal KIND NAME | open KIND NAME",
    .text = "A record is a JSON object with a kind and a name. Dialects keep in records what isn't "
            "a run or an artifact: `stoker compat` keeps ZenML's models, tags and secrets there. "
            "'put' reads the object from standard input. A process that changes a record names the "
            "revision that it has read, so that no change of another one gets lost.\n"
            "'seal' encrypts standard input (AES-256-GCM) for a record, and 'open' reads it again: "
            "only with the same key, kind and name. The key is "
            "$XDG_CONFIG_HOME/stoker/secrets.key (~/.config/stoker/secrets.key).",
    .options = options,
    .max_args = -1,
    .run = run_record};
