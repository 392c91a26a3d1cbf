#include "cli/cli_verify.h"

#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "sys/file.h"

typedef struct bad_list {
    bool json;
    uint32_t n;
    stk_buf text;    /* lines, or members of a JSON list */
    stk_buf digests; /* digests of bad artifacts, without separators */
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
    if (strchr(digest, ' ') != NULL) { /* "run R, event N" */
        kind = "record:";
    }
    if (bad->json) {
        stk_json_open(&bad->text, NULL, '{');
        stk_json_put_text(&bad->text, "digest", digest);
        stk_json_put_text(&bad->text, "what", what);
        stk_json_close(&bad->text, '}');
    } else {
        stk_buf_printf(&bad->text, "%s %s: %s\n", kind, digest, what);
    }
    /* An unreadable file may be good: set aside only what was read and found bad. */
    if (is_artifact && strncmp(what, "unreadable", 10) != 0) {
        stk_buf_add(&bad->digests, digest, STK_DIGEST_HEX);
    }
    bad->n++;
}

static int remove_bad(stk_store *store, const bad_list *bad, stk_err *err)
{
    for (size_t at = 0; at < bad->digests.len; at += STK_DIGEST_HEX) {
        char digest[STK_DIGEST_HEX + 1] = "";
        memcpy(digest, bad->digests.data + at, STK_DIGEST_HEX);
        STK_TEXT_AUTO where = NULL;
        STK_TRY(stk_store_set_aside(store, digest, &where, err));
    }
    return 0;
}

static void put_verified(const stk_store *store, const bad_list *bad, uint64_t n, uint64_t bytes,
                         bool repair, stk_buf *out)
{
    char size[32];
    const char *list = stk_text_or(bad->text.data, "");
    if (bad->json) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "store", stk_store_path(store));
        stk_json_put_whole(out, "checked", (int64_t)n);
        stk_json_put_whole(out, "bytes", (int64_t)bytes);
        stk_json_put_bool(out, "repaired", repair);
        stk_json_open(out, "bad", '[');
        stk_buf_text(out, list);
        stk_json_close(out, ']');
        stk_json_close(out, '}');
        return;
    }
    stk_buf_printf(out, "%s%llu artifact%s checked, %s, %u bad\n", list, (unsigned long long)n,
                   stk_text_plural(n), stk_units_format_memory((int64_t)bytes, size, sizeof size),
                   bad->n);
    if (bad->digests.len > 0) {
        stk_buf_text(out, repair ? "the bad ones are in the store's folder quarantine/; their "
                                   "steps run again when needed\n"
                                 : "`stoker store verify --repair` sets them aside, so that their "
                                   "steps run again\n");
    }
}

int stk_cli_verify(const stk_cli *cli, stk_store *store, stk_buf *out, stk_err *err)
{
    bool repair = stk_cli_flag(cli, "repair");
    __attribute__((cleanup(bad_done))) bad_list bad = {.json = stk_cli_json(cli),
                                                       .text = STK_BUF_INIT(STK_CLI_VERIFY_MAX),
                                                       .digests = STK_BUF_INIT(STK_CLI_VERIFY_MAX)};
    uint64_t n = 0, bytes = 0;
    STK_TRY(stk_store_verify(store, note_bad, &bad, &n, &bytes, err));
    if (repair) {
        STK_TRY(remove_bad(store, &bad, err));
    }
    put_verified(store, &bad, n, bytes, repair, out);
    if (bad.n <= 0) {
        return 0;
    }
    return stk_err_exit_status(STK_E_STORE);
}
