/* The shares that a store's runs used: artifacts that only a share has are fetched from there when
 * a reader needs them after the run. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "run/run_elsewhere.h"
#include "sys/file.h"

enum { SHARES_BYTES = 1 << 20 };

static char *path_of_list(const stk_store *store)
{
    char *path = NULL;
    return asprintf(&path, "%s/shares", stk_store_path(store)) < 0 ? NULL : path;
}

/* The file has one URL a line, the latest first. */
int stk_run_share_keep(const stk_store *store, const char *url, stk_err *err)
{
    STK_TEXT_AUTO path = path_of_list(store);
    STK_TEXT_AUTO before = NULL;
    STK_BUF_AUTO text = STK_BUF_INIT(2 * SHARES_BYTES);
    size_t len = 0, n = strlen(url);
    if (path != NULL) {
        (void)stk_file_read(path, SHARES_BYTES, &before, &len, NULL);
    }
    if (before != NULL && strncmp(before, url, n) == 0 && before[n] == '\n') {
        return 0;
    }
    stk_buf_printf(&text, "%s\n", url);
    for (const char *at = before; at != NULL && *at != '\0';) {
        size_t line = strcspn(at, "\n");
        if (line != n || strncmp(at, url, n) != 0) {
            stk_buf_printf(&text, "%.*s\n", (int)line, at);
        }
        at += line + (at[line] == '\n');
    }
    STK_TRY(stk_err_if_null(path, err));
    STK_TRY(stk_buf_check(&text, err));
    return stk_file_write_atomic(path, text.data, text.len, 0644, err);
}

static int pull_from(stk_store *store, const char *digest, const char *url, stk_err *err)
{
    STK_SHARE_AUTO share = NULL;
    STK_TRY(stk_share_open(url, &share, err));
    return stk_share_pull(share, store, digest, err);
}

int stk_run_share_fetch(const char *store_path, const char *digest, stk_err *err)
{
    STK_STORE_AUTO store = NULL;
    STK_TRY(stk_store_open(store_path, 0, &store, err));
    STK_TEXT_AUTO path = path_of_list(store);
    STK_TEXT_AUTO urls = NULL;
    size_t len = 0;
    int rc = STK_E_NOT_FOUND;
    if (path != NULL) {
        (void)stk_file_read(path, SHARES_BYTES, &urls, &len, NULL);
    }
    stk_err first = {0};
    for (char *at = urls; at != NULL && *at != '\0' && rc < 0;) {
        stk_err why = {0};
        size_t line = strcspn(at, "\n");
        char *next = at + line + (at[line] == '\n');
        at[line] = '\0';
        rc = pull_from(store, digest, at, &why);
        if (rc < 0 && rc != STK_E_NOT_FOUND && first.code == 0) {
            first = why; /* an unreachable share explains more than a missing artifact */
        }
        at = next;
    }
    if (rc < 0 && first.code != 0) {
        *err = first;
    }
    return rc;
}

int stk_run_share_artifact(stk_store *store, const char *digest, stk_arena *arena,
                           const char **ret_path, int64_t *ret_size, stk_err *err)
{
    stk_err why = {0};
    int rc = stk_store_artifact(store, digest, arena, ret_path, ret_size, err);
    if (rc != STK_E_NOT_FOUND) {
        return rc;
    }
    if (stk_run_share_fetch(stk_store_path(store), digest, &why) == 0) {
        return stk_store_artifact(store, digest, arena, ret_path, ret_size, err);
    }
    if (why.code != 0) {
        *err = why;
    }
    return err->code;
}
