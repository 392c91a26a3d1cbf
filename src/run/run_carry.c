/* Makes a copy of this program that runs in images with any C library: /stoker/bin has the loader
 * and the libraries, too. Two paths in the copy's ELF headers lead there: its loader, and its RPATH
 * (meson.build: -rpath). Environment variables would do the same, but child processes inherit
 * those. */
#include "run/run_carry.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/text.h"
#include "run/run_python.h"
#include "sys/dir.h"
#include "sys/file.h"
#include "sys/tar.h"

#define LOADER "/stoker/bin/ld.so"
#define NAMES ".names" /* of a copy in a share: how many it has */

enum { PROGRAM_BYTES = 256 << 20 };

typedef struct carry {
    const char *folder;
    stk_arena *arena;
    stk_err *err;
    int rc;
} carry;

/* Overwrites the path of the loader in the ELF file; ours is shorter, so it fits. */
static int patch(char *data, size_t len, const char *path, stk_err *err)
{
    Elf64_Ehdr head;
    if (len >= sizeof head) {
        memcpy(&head, data, sizeof head);
        for (size_t i = 0; memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && i < head.e_phnum; i++) {
            Elf64_Phdr part;
            size_t at = head.e_phoff + i * sizeof part;
            if (at > len || len - at < sizeof part) {
                break;
            }
            memcpy(&part, data + at, sizeof part);
            if (part.p_type == PT_INTERP && part.p_filesz >= sizeof LOADER && part.p_offset < len &&
                len - part.p_offset >= part.p_filesz) {
                memset(data + part.p_offset, 0, part.p_filesz);
                memcpy(data + part.p_offset, LOADER, sizeof LOADER);
                return 0;
            }
        }
    }
    return stk_err_set(err, STK_E_ENV, "%s is not a program that can run in a container", path);
}

/* Copies to `to` below the folder. Sets a program's loader to the copied one. */
static int copy_binary(const carry *c, const char *from, const char *to, bool is_program)
{
    STK_TEXT_AUTO data = NULL;
    size_t len = 0;
    const char *path = stk_arena_printf(c->arena, "%s/%s", c->folder, to);
    STK_TRY(stk_err_if_null(path, c->err));
    STK_TRY(stk_file_read(from, PROGRAM_BYTES, &data, &len, c->err));
    if (is_program) {
        STK_TRY(patch(data, len, from, c->err));
    }
    return stk_file_write(path, data, len, 0755, c->err);
}

/* dl_iterate_phdr calls it for the program (empty name), the kernel's page and each library. */
static int copy_library(struct dl_phdr_info *info, size_t size, void *arg)
{
    carry *c = arg;
    const char *slash = strrchr(info->dlpi_name, '/');
    (void)size;
    if (slash == NULL || c->rc < 0) {
        return 0;
    }
    if (strncmp(slash, "/ld-", 4) == 0) {
        c->rc = copy_binary(c, info->dlpi_name, "ld.so", false);
        return 0;
    }
    const char *to = stk_arena_printf(c->arena, "lib/%s", slash + 1);
    c->rc = to == NULL ? stk_err_nomem(c->err) : copy_binary(c, info->dlpi_name, to, false);
    return 0;
}

/* Copies the program, its loader and its libraries to `folder`. */
static int make_bin(const char *folder, stk_arena *arena, stk_err *err)
{
    carry c = {.folder = folder, .arena = arena, .err = err};
    const char *lib = stk_arena_printf(arena, "%s/lib", folder);
    STK_TRY(stk_err_if_null(lib, err));
    STK_TRY(stk_file_mkdirs(lib, 0755, err));
    STK_TRY(copy_binary(&c, "/proc/self/exe", "stoker", true));
    (void)dl_iterate_phdr(copy_library, &c);
    return c.rc;
}

/* The store keeps one copy for each build of the program, named by the build's inode, size and
 * time. The copy is made under another name and renamed, because runs may start at the same time.
 */
int stk_run_carry(const stk_store *store, stk_arena *arena, const char **ret, stk_err *err)
{
    struct stat st;
    if (stat("/proc/self/exe", &st) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "/proc/self/exe");
    }
    const char *folder =
        stk_arena_printf(arena, "%s/package/bin-%llx-%llx-%llx", stk_store_path(store),
                         (unsigned long long)st.st_ino, (unsigned long long)st.st_size,
                         (unsigned long long)st.st_mtim.tv_sec);
    const char *made = stk_arena_printf(arena, "%s.new.%d", folder, (int)getpid());
    if (folder == NULL || made == NULL) {
        return stk_err_nomem(err);
    }
    *ret = folder;
    if (stk_file_exists(folder)) {
        return 0;
    }
    int rc = make_bin(made, arena, err);
    if (rc == 0 && rename(made, folder) < 0 && errno != EEXIST && errno != ENOTEMPTY) {
        rc = stk_err_sys(err, STK_E_SYS, errno, "making %s", folder);
    }
    (void)stk_file_remove_tree(made, NULL);
    return rc;
}

/* --- for other machines, with more files --- */

/* The program loads libcurl when it first needs it; only then is it among the libraries. */
bool stk_run_carry_curl(void)
{
    return dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL) != NULL;
}

const char *const stk_run_carry_roots[] = {"/etc/ssl/certs/ca-certificates.crt",
                                           "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem",
                                           NULL};

static int copy_roots(const char *folder, stk_arena *arena, stk_err *err)
{
    const char *to = stk_arena_printf(arena, "%s/ca.pem", folder);
    for (size_t i = 0; to != NULL && stk_run_carry_roots[i] != NULL; i++) {
        STK_TEXT_AUTO real = realpath(stk_run_carry_roots[i], NULL);
        if (real != NULL) {
            return stk_file_copy_tree(real, to, err);
        }
    }
    return stk_err_if_null(to, err);
}

/* The parts of a copy. */
static const char *const parts[] = {"bin", "python", "ca.pem"};
enum { N_PARTS = sizeof parts / sizeof *parts };

/* Copies a copy as it lies; its program isn't at the path from which it was loaded. */
static int copy_copy(const char *top, const char *folder, stk_arena *arena, stk_err *err)
{
    STK_TRY(stk_file_mkdirs(folder, 0755, err));
    for (size_t i = 0; i < N_PARTS; i++) {
        const char *from = stk_arena_printf(arena, "%s/%s", top, parts[i]);
        const char *to = stk_arena_printf(arena, "%s/%s", folder, parts[i]);
        if (from == NULL || to == NULL) {
            return stk_err_nomem(err);
        }
        if (stk_file_exists(from)) {
            STK_TRY(stk_file_copy_tree(from, to, err));
        }
    }
    return 0;
}

/* The folder of the copy that this program belongs to; NULL: it is no copy. */
static const char *find_copy(stk_arena *arena)
{
    static const char end[] = "/bin/stoker";
    STK_TEXT_AUTO self = realpath("/proc/self/exe", NULL);
    size_t n = self == NULL ? 0 : strlen(self);
    if (n < sizeof end || strcmp(self + n - (sizeof end - 1), end) != 0) {
        return NULL;
    }
    self[n - (sizeof end - 1)] = '\0';
    const char *loader = stk_arena_printf(arena, "%s/bin/ld.so", self);
    if (loader == NULL || !stk_file_exists(loader)) {
        return NULL;
    }
    return stk_arena_dup(arena, self);
}

/* Removes the parts of an earlier copy, because an init container may start again, and nothing
 * else. */
static int clear_old(const char *folder, stk_arena *arena, stk_err *err)
{
    const char *program = stk_arena_printf(arena, "%s/bin/stoker", folder);
    STK_TRY(stk_err_if_null(program, err));
    bool is_ours = stk_file_exists(program);
    for (size_t i = 0; i < N_PARTS; i++) {
        const char *path = stk_arena_printf(arena, "%s/%s", folder, parts[i]);
        STK_TRY(stk_err_if_null(path, err));
        if (is_ours) {
            STK_TRY(stk_file_remove_tree(path, err));
        } else if (stk_file_exists(path)) {
            return stk_err_set(err, STK_E_USAGE, "'%s' exists already; name a new folder", path);
        }
    }
    return 0;
}

int stk_run_carry_all(const char *program, const char *folder, stk_arena *arena, stk_err *err)
{
    const char *bin = stk_arena_printf(arena, "%s/bin", folder);
    const char *python = stk_arena_printf(arena, "%s/python", folder);
    const char *to = stk_arena_printf(arena, "%s/python/stoker", folder);
    const char *front = stk_run_front(program, arena);
    if (bin == NULL || python == NULL || to == NULL) {
        return stk_err_nomem(err);
    }
    const char *copy = find_copy(arena);
    STK_TRY(clear_old(folder, arena, err));
    if (copy != NULL) {
        return copy_copy(copy, folder, arena, err);
    }
    STK_TRY(make_bin(bin, arena, err));
    if (front != NULL) {
        STK_TRY(stk_file_mkdirs(python, 0755, err));
        STK_TRY(stk_file_copy_tree(front, to, err));
    }
    return copy_roots(folder, arena, err);
}

static int put_one(void *arg, const stk_dir_seen *e, stk_err *err)
{
    const stk_tar *tar = arg;
    STK_TEXT_AUTO data = NULL;
    size_t len = 0;
    /* containers have any user, whatever this one's umask */
    mode_t type = e->st->st_mode & S_IFMT;
    if (type == S_IFDIR) {
        return stk_tar_entry(tar, e->below, NULL, type | 0755, 0, err);
    }
    if (!S_ISREG(e->st->st_mode)) {
        return 0;
    }
    STK_TRY(stk_file_read(e->path, PROGRAM_BYTES, &data, &len, err));
    mode_t mode = type | stk_file_mode(e->st->st_mode, 0755);
    STK_TRY(stk_tar_entry(tar, e->below, NULL, mode, (int64_t)len, err));
    STK_TRY(stk_tar_data(tar, data, len, err));
    return stk_tar_pad(tar, (int64_t)len, err);
}

static int write_archive(const char *folder, const char *path, stk_sha256 *sha, stk_err *err)
{
    STK_FD_AUTO fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    stk_tar tar = {fd, path, sha};
    if (fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "writing %s", path);
    }
    STK_TRY(stk_dir_walk(folder, put_one, &tar, err));
    return stk_tar_end(&tar, err);
}

int stk_run_carry_write(const char *folder, const char *path, stk_err *err)
{
    return write_archive(folder, path, NULL, err);
}

/* Sends the file unless the share has it, which reading one byte shows. Most runs find it there. */
static int put_once(stk_share *share, const char *key, const char *path, stk_err *err)
{
    STK_BUF_AUTO byte = STK_BUF_INIT(1);
    stk_err why = {0};
    int rc = stk_share_get_range(share, key, 0, &byte, &why);
    if (rc != STK_E_NOT_FOUND) {
        *err = why;
        return rc;
    }
    return stk_share_put_file(share, key, path, err);
}

int stk_run_carry_sum(const char *folder, const char *path, char ret_hex[STK_DIGEST_HEX + 1],
                      stk_err *err)
{
    stk_sha256 sha;
    unsigned char digest[STK_DIGEST_BYTES];
    stk_sha256_init(&sha);
    STK_TRY(write_archive(folder, path, &sha, err));
    stk_sha256_done(&sha, digest);
    stk_digest_hex(digest, ret_hex);
    return 0;
}

static int send_archive(const char *program, stk_share *share, stk_arena *arena,
                        const char **ret_digest, stk_err *err)
{
    const char *tar = NULL;
    STK_TRY(stk_run_carry_archive(program, arena, &tar, ret_digest, err));
    const char *key = stk_arena_printf(arena, "carry/%s.tar", *ret_digest);
    STK_TRY(stk_err_if_null(key, err));
    return put_once(share, key, tar, err);
}

int stk_run_carry_tar(const char *program, stk_share *share, stk_arena *arena,
                      const char **ret_digest, stk_err *err)
{
    if (send_archive(program, share, arena, ret_digest, err) < 0) {
        return stk_err_context(err, "our program for the machines of the stack");
    }
    return 0;
}

/* How many names are below the folder, but for what Python puts there. */
static int count_names(const char *folder, stk_arena *arena, int64_t *count, stk_err *err)
{
    STK_DIR_AUTO dir = {0};
    STK_TRY(stk_dir_read(folder, &dir, err));
    for (uint32_t i = 0; i < dir.n; i++) {
        const char *name = dir.items[i].name;
        if (strcmp(name, "__pycache__") == 0 || strcmp(name, NAMES) == 0) {
            continue;
        }
        ++*count;
        if (stk_dir_is_folder(&dir, &dir.items[i])) {
            const char *below = stk_arena_printf(arena, "%s/%s", folder, name);
            STK_TRY(stk_err_if_null(below, err));
            STK_TRY(count_names(below, arena, count, err));
        }
    }
    return 0;
}

/* Clusters remove files that nobody used for long, one by one. */
static bool is_whole(const char *folder, stk_arena *arena)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    int64_t count = 0;
    const char *names = stk_arena_printf(arena, "%s/" NAMES, folder);
    return names != NULL && stk_file_read_untrusted(names, 32, &text, &len, NULL) == 0 &&
           count_names(folder, arena, &count, NULL) == 0 && strtoll(text, NULL, 10) == count;
}

static int lay_new(const char *program, const char *made, stk_arena *arena, stk_err *err)
{
    char text[32];
    int64_t count = 0;
    const char *names = stk_arena_printf(arena, "%s/" NAMES, made);
    STK_TRY(stk_err_if_null(names, err));
    STK_TRY(stk_run_carry_all(program, made, arena, err));
    STK_TRY(count_names(made, arena, &count, err));
    (void)snprintf(text, sizeof text, "%lld\n", (long long)count);
    STK_TRY(stk_file_write(names, text, strlen(text), 0644, err));
    return chmod(made, 0755) < 0 ? stk_err_sys(err, STK_E_SYS, errno, "writing %s", made) : 0;
}

/* Several may lay it out at the same time, and all lay out the same: the first one's stays. What
 * isn't whole makes room, but stays beside it: jobs may run from there. If it may not be moved,
 * jobs unpack. */
static int put_new(const char *made, const char *folder, const char *old, stk_arena *arena,
                   stk_err *err)
{
    if (rename(made, folder) == 0) {
        return 0;
    }
    if (!stk_file_exists(folder)) {
        return stk_err_sys(err, STK_E_SYS, errno, "writing %s", folder);
    }
    if (!is_whole(folder, arena) && rename(folder, old) == 0) {
        (void)rename(made, folder);
    }
    return 0;
}

int stk_run_carry_lay(const char *program, const char *share, const char *digest, stk_arena *arena,
                      stk_err *err)
{
    const char *folder = stk_arena_printf(arena, "%s/carry/%s", share, digest);
    const char *top = stk_arena_printf(arena, "%s/carry/.%s.XXXXXX", share, digest);
    if (folder == NULL || top == NULL) {
        return stk_err_nomem(err);
    }
    if (is_whole(folder, arena)) {
        return 0;
    }
    if (mkdtemp((char *)(uintptr_t)top) == NULL) {
        return stk_err_sys(err, STK_E_SYS, errno, "making %s", top);
    }
    const char *made = stk_arena_printf(arena, "%s/new", top);
    const char *old = stk_arena_printf(arena, "%s/old", top);
    int rc = made == NULL || old == NULL ? stk_err_nomem(err) : lay_new(program, made, arena, err);
    if (rc == 0) {
        rc = put_new(made, folder, old, arena, err);
    }
    (void)(made != NULL && stk_file_remove_tree(made, NULL));
    (void)rmdir(top);
    return rc;
}

/* --- as an image --- */

static int send_image(const char *program, const char *top, stk_image_send_how *how,
                      stk_arena *arena, stk_image_sent *ret, stk_err *err)
{
    const char *root = stk_arena_printf(arena, "%s/root", top);
    const char *folder = stk_arena_printf(arena, "%s/root/stoker", top);
    how->tar = stk_arena_printf(arena, "%s/layer.tar", top);
    if (root == NULL || folder == NULL || how->tar == NULL) {
        return stk_err_nomem(err);
    }
    STK_TRY(stk_run_carry_all(program, folder, arena, err));
    STK_TRY(write_archive(root, how->tar, NULL, err));
    return stk_image_send(how, arena, ret, err);
}

int stk_run_carry_image(const char *program, const stk_image_send_how *how, stk_arena *arena,
                        stk_image_sent *ret, stk_err *err)
{
    static const char *const entrypoint[] = {"/stoker/bin/stoker", NULL};
    char *top =
        stk_arena_printf(arena, "%s/stoker-carry-XXXXXX", stk_text_or(getenv("TMPDIR"), "/tmp"));
    stk_image_send_how full = *how;
    full.entrypoint = entrypoint;
    STK_TRY(stk_err_if_null(top, err));
    if (mkdtemp(top) == NULL) {
        return stk_err_sys(err, STK_E_SYS, errno, "making %s", top);
    }
    int rc = send_image(program, top, &full, arena, ret, err);
    (void)stk_file_remove_tree(top, NULL);
    return rc;
}
