/* stoker share: inspects and changes a store that machines share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "away/share/share.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/cli_read.h"
#include "sys/file.h"

enum { ASKED_MAX = 1 << 30, LINK_S = 3600, LINK_MAX_S = 7 * 86400, NEW_MAX = 64 << 20 };

typedef struct job {
    const stk_cli *cli;
    stk_share *share;
    stk_buf *out;
} job;

static int run_check(job *j, const char *const *words, stk_err *err)
{
    (void)words;
    STK_TRY(stk_share_check(j->share, err));
    if (stk_cli_json(j->cli)) {
        stk_json_open(j->out, NULL, '{');
        stk_json_put_text(j->out, "store", stk_share_url(j->share));
        stk_json_put_bool(j->out, "ok", true);
        stk_json_close(j->out, '}');
    } else {
        stk_buf_printf(j->out, "store '%s' can be written, listed, read and cleared\n",
                       stk_share_url(j->share));
    }
    return 0;
}

static int note_one(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    const job *j = arg;
    char text[32];
    if (stk_cli_json(j->cli)) {
        stk_json_open(j->out, NULL, '{');
        stk_json_put_text(j->out, "key", key);
        stk_json_put_int(j->out, "size", size);
        stk_json_put_int(j->out, "mtime_ms", mtime_ms);
        stk_json_close(j->out, '}');
    } else {
        stk_buf_printf(j->out, "%10s  %s\n", stk_units_format_memory(size, text, sizeof text), key);
    }
    return j->out->failed;
}

static int run_ls(job *j, const char *const *words, stk_err *err)
{
    bool json = stk_cli_json(j->cli);
    stk_buf_text(j->out, stk_text_when(json, "["));
    int rc = stk_share_list(j->share, words[0], NULL, note_one, j, err);
    stk_buf_text(j->out, stk_text_when(json, "]"));
    if (rc > 0) {
        return stk_err_set(err, STK_E_LIMIT, "too many objects; name a prefix");
    }
    return rc;
}

static int run_get(job *j, const char *const *words, stk_err *err)
{
    return stk_share_get_file(j->share, words[0], words[1], err);
}

static int run_put(job *j, const char *const *words, stk_err *err)
{
    STK_TEXT_AUTO data = NULL;
    size_t n = 0;
    if (!stk_cli_flag(j->cli, "new")) {
        return stk_share_put_file(j->share, words[0], words[1], err);
    }
    STK_TRY(stk_file_read(words[1], NEW_MAX, &data, &n, err));
    return stk_share_put(j->share, words[0], data, n, true, err);
}

static int run_rm(job *j, const char *const *words, stk_err *err)
{
    size_t n = strlen(words[0]);
    if (n < 2 || words[0][n - 1] != '/') {
        return stk_share_delete(j->share, words[0], err);
    }
    STK_TEXT_AUTO below = strndup(words[0], n - 1);
    STK_TRY(stk_err_if_null(below, err));
    return stk_share_delete_all(j->share, below, err);
}

static int run_link(job *j, const char *const *words, stk_err *err)
{
    int64_t seconds = LINK_S;
    STK_TRY(stk_cli_number(j->cli, "seconds", 1, LINK_MAX_S, &seconds, err));
    return stk_share_link(j->share, words[0], seconds, j->out, err);
}

static int run_push(job *j, const char *const *words, stk_err *err)
{
    STK_STORE_AUTO store = NULL;
    STK_TRY(stk_cli_store(0, &store, err));
    return stk_share_push(j->share, store, words[0], err);
}

static int run_pull(job *j, const char *const *words, stk_err *err)
{
    STK_STORE_AUTO store = NULL;
    STK_TRY(stk_cli_store(STK_STORE_CREATE, &store, err));
    STK_TRY(stk_share_pull(j->share, store, words[0], err));
    return stk_store_sync(store, err);
}

/* For the Python front: requests on stdin, answers on stdout. */
static int run_answer(stk_buf *out, stk_err *err)
{
    STK_TEXT_AUTO text = NULL;
    size_t n = 0;
    STK_TRY(stk_file_read_fd(STDIN_FILENO, "standard input", ASKED_MAX, &text, &n, err));
    return stk_share_answer(text, n, out, err);
}

static const struct {
    const char *word;
    const char *more; /* its arguments after the URL */
    int min, max;     /* how many of them */
    int (*run)(job *j, const char *const *words, stk_err *err);
} verbs[] = {{"check", "", 0, 0, run_check},      {"ls", " [PREFIX]", 0, 1, run_ls},
             {"get", " KEY FILE", 2, 2, run_get}, {"put", " KEY FILE", 2, 2, run_put},
             {"rm", " KEY", 1, 1, run_rm},        {"link", " KEY", 1, 1, run_link},
             {"push", " DIGEST", 1, 1, run_push}, {"pull", " DIGEST", 1, 1, run_pull}};

static int run_share(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    const char *word = stk_cli_arg(cli, 0);
    size_t i = 0;
    size_t n = sizeof verbs / sizeof *verbs;
    if (word != NULL && strcmp(word, "answer") == 0 && stk_cli_n_args(cli) == 1) {
        return run_answer(out, err);
    }
    while (i < n && (word == NULL || strcmp(verbs[i].word, word) != 0)) {
        i++;
    }
    if (i == n) {
        return stk_cli_usage(cli, err,
                             "stoker share check, ls, get, put, rm, link, push or pull%s%s",
                             stk_text_when(word, ", not "), stk_text_or(word, ""));
    }
    int n_more = stk_cli_n_args(cli) - 2;
    if (n_more < verbs[i].min || n_more > verbs[i].max) {
        return stk_cli_usage(cli, err, "stoker share %s URL%s", word, verbs[i].more);
    }
    STK_SHARE_AUTO share = NULL;
    STK_TRY(stk_share_open(stk_cli_arg(cli, 1), &share, err));
    job j = {.cli = cli, .share = share, .out = out};
    const char *words[] = {stk_cli_arg(cli, 2), stk_cli_arg(cli, 3)};
    return verbs[i].run(&j, words, err);
}

static const stk_option options[] = {
    {"new", 0, NULL, "put: only if the key doesn't exist yet (else exit status 3)"},
    {"seconds", 0, "N", "link: for how long (default 3600, at most a week)"},
    {NULL}};

const stk_command stk_cmd_share = {
    .name = "share",
    .summary = "look at a store that machines share: a folder, S3, a folder on a host of ssh",
    .usage = "[options] check | ls | get | put | rm | link | push | pull URL …",
    .text =
        "URL is s3://bucket/prefix, a folder's whole path, or ssh://host/folder "
        "(ssh://host/~/folder "
        "below the home there). For S3 the variables and files of "
        "AWS's own tools count (AWS_PROFILE, AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, AWS_CA_BUNDLE "
        "…). For a host your ssh, its keys and ~/.ssh/config count; it must let you in without a "
        "password, and its key must be known. Nothing needs to be installed there: Stoker brings "
        "itself.\n\n"
        "check writes, lists, reads and removes a small object, and says in one sentence what "
        "fails.\n\nls URL [PREFIX] lists objects. get URL KEY FILE, put URL KEY FILE and rm URL "
        "KEY are for one object. rm URL KEY/ removes all below it: runs/RUN/ is the record of a "
        "run, which must have ended (its artifacts stay, because other runs may use them). link "
        "URL KEY prints a URL with which anybody can get the object for a while (S3 only).\n\npush "
        "URL DIGEST copies an artifact from the local store (STOKER_STORE, or .stoker found by "
        "walking up) to the share; pull URL DIGEST copies one from it. An artifact that is already "
        "there isn't copied, and an interrupted copy continues where it stopped.",
    .options = options,
    .max_args = -1,
    .run = run_share};
