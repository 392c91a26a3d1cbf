/* Any bytes as the list of a folder's files in a shared store, under the digest of these bytes. */
#include <string.h>

#include "away/share/share_private.h"
#include "base/buf.h"
#include "fuzz.h"
#include "store/store_digest.h"

static void check_path(const char *path)
{
    fuzz_require(path[0] != '/' && path[0] != '\0', "below the folder");
    for (const char *at = path; at != NULL; at = strchr(at, '/')) {
        at += *at == '/' ? 1 : 0;
        size_t n = strcspn(at, "/");
        fuzz_require(n > 0 && !(n <= 2 && strncmp(at, "..", n) == 0), "stays inside");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char hex[STK_DIGEST_HEX + 1];
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    stk_share_tree tree;
    stk_err err = {0};
    if (stk_buf_add(&text, data, size) < 0 || size == 0) {
        return 0;
    }
    const char *more = strstr(text.data, "\n+");
    size_t n = more == NULL ? text.len : (size_t)(more + 1 - text.data);
    stk_tree_digest_bytes(text.data, n, hex);
    if (stk_share_tree_read(text.data, text.len, hex, &tree, &err) < 0) {
        fuzz_require(err.text[0] != '\0', "a refusal says why");
        fuzz_require(tree.files == NULL && tree.rest == NULL, "and leaves nothing");
        return 0;
    }
    for (uint64_t i = 0; i < tree.n; i++) {
        fuzz_require(strlen(tree.files[i].digest) == STK_DIGEST_HEX, "a digest");
        fuzz_require(tree.files[i].size >= 0, "a size");
        check_path(tree.files[i].path);
    }
    for (uint64_t i = 0; i < tree.n_rest; i++) {
        check_path(tree.rest[i] + 3);
    }
    stk_share_tree_done(&tree);
    return 0;
}
