/* The folders directly below a prefix, of any kind of store. */
#include <stdio.h>
#include <string.h>

#include "away/share/share_private.h"

/* A folder of a listing: the part behind the prefix of the first key that has one. */
typedef struct found_folder {
    size_t n_prefix;
    char key[STK_SHARE_KEY_MAX + 8];
    size_t n_name; /* 0: the key is an object directly below the prefix */
} found_folder;

static int take_first_key(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    found_folder *f = arg;
    (void)size;
    (void)mtime_ms;
    const char *name = key + f->n_prefix, *slash = strchr(name, '/');
    f->n_name = slash == NULL ? 0 : (size_t)(slash - name);
    (void)snprintf(f->key, sizeof f->key, "%s", key);
    return 1;
}

static int jump_over_folders(stk_share *share, const char *prefix, stk_share_each_folder *each,
                             void *arg, stk_err *err)
{
    char after[STK_SHARE_KEY_MAX + 8] = "";
    for (;;) {
        found_folder f = {.n_prefix = strlen(prefix)};
        int rc = stk_share_list(share, prefix, after, take_first_key, &f, err);
        if (rc <= 0) {
            return rc;
        }
        if (f.n_name > 0) {
            f.key[f.n_prefix + f.n_name] = '\0';
            rc = each(arg, f.key + f.n_prefix);
            if (rc != 0) {
                return rc;
            }
            f.key[f.n_prefix + f.n_name] = '0'; /* which follows '/' */
            f.key[f.n_prefix + f.n_name + 1] = '\0';
        }
        memcpy(after, f.key, sizeof after);
    }
}

int stk_share_list_folders(stk_share *share, const char *prefix, stk_share_each_folder *each,
                           void *arg, stk_err *err)
{
    if (stk_share_is_cancelled(share)) {
        return stk_share_cancelled(share, err);
    }
    if (share->ops->list_folders == NULL) {
        return jump_over_folders(share, prefix, each, arg, err);
    }
    return share->ops->list_folders(share, prefix, each, arg, err);
}
