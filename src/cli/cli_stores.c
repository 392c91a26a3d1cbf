#include "cli/cli_stores.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/text.h"
#include "host/runner/runner_live.h"
#include "sys/dir.h"
#include "sys/file.h"
#include "sys/trust.h"

enum { NAME = 32 }; /* digits of the digest of a path, by which its link is named */

void stk_cli_stores_note(const char *path)
{
    char digest[STK_DIGEST_HEX + 1];
    STK_TEXT_AUTO folder = stk_file_state("stores");
    stk_digest_of(path, strlen(path), digest);
    digest[NAME] = '\0';
    STK_TEXT_AUTO link = folder == NULL ? NULL : stk_file_join(folder, digest);
    if (link != NULL && access(link, F_OK) < 0 && symlink(path, link) < 0 && errno == ENOENT &&
        stk_file_mkdirs(folder, 0700, NULL) == 0) {
        (void)!symlink(path, link);
    }
}

void stk_cli_stores_add(stk_cli_stores *stores, const char *path)
{
    STK_TEXT_AUTO absolute = stk_file_absolute(path);
    for (uint32_t i = 0; absolute != NULL && i < stores->n; i++) {
        if (strcmp(stores->paths[i], absolute) == 0) {
            return;
        }
    }
    if (absolute != NULL && stores->n < STK_CLI_STORES_MOST) {
        stores->paths[stores->n] = stk_arena_dup(stores->arena, absolute);
        stores->n += stores->paths[stores->n] != NULL;
    }
}

const char *stk_cli_stores_path(stk_arena *arena, const char *folder)
{
    const char *inside = stk_arena_printf(arena, "%s/.stoker", folder);
    return inside == NULL || access(inside, F_OK) == 0 ? inside : folder;
}

void stk_cli_stores_add_folder(stk_cli_stores *stores, const char *folder)
{
    const char *path = stk_cli_stores_path(stores->arena, folder);
    if (path != NULL) {
        stk_cli_stores_add(stores, path);
    }
}

static bool is_store(const char *folder)
{
    STK_TEXT_AUTO file = stk_file_join(folder, "store.db");
    return file != NULL && access(file, F_OK) == 0;
}

static void add_noted(stk_cli_stores *stores)
{
    char path[PATH_MAX];
    STK_DIR_AUTO links = {0};
    STK_TEXT_AUTO folder = stk_file_state("stores");
    if (folder == NULL || stk_dir_read_if(folder, &links, NULL) < 0) {
        return;
    }
    for (uint32_t i = 0; i < links.n; i++) {
        ssize_t n = readlinkat(links.fd, links.items[i].name, path, sizeof path - 1);
        path[n < 0 ? 0 : n] = '\0';
        if (*path == '/' && is_store(path)) {
            stk_cli_stores_add(stores, path);
        } else if (n > 0) {
            (void)unlinkat(links.fd, links.items[i].name, 0);
        }
    }
}

static void add_trusted(stk_cli_stores *stores)
{
    stk_trusted *list = NULL;
    size_t n = 0;
    if (stk_trust_list(&list, &n, NULL) < 0) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        STK_TEXT_AUTO inside = stk_file_join(list[i].path, ".stoker");
        if (list[i].is_current && is_store(list[i].path)) {
            stk_cli_stores_add(stores, list[i].path);
        } else if (list[i].is_current && inside != NULL && is_store(inside)) {
            stk_cli_stores_add(stores, inside);
        }
    }
    stk_trust_free(list, n);
}

static void add_live(stk_cli_stores *stores)
{
    stk_live_task *tasks = NULL;
    uint32_t n = 0;
    if (stk_live_tasks(stores->arena, &tasks, &n, NULL) < 0) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const char *end = strstr(tasks[i].dir, "/runs/");
        if (end != NULL) {
            int length = (int)(end - tasks[i].dir);
            stk_cli_stores_add(
                stores,
                stk_text_or(stk_arena_printf(stores->arena, "%.*s", length, tasks[i].dir), ""));
        }
    }
}

void stk_cli_stores_add_all(stk_cli_stores *stores)
{
    add_noted(stores);
    add_trusted(stores);
    add_live(stores);
}
