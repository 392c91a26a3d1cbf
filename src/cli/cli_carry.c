/* This program, to be run in images of whatever C library: a copy that brings its own loader and
 * libraries along, as /stoker/bin. What a program is loaded by stands in it as a path, and where it
 * looks for its libraries as another (meson.build: -rpath); nothing is said by the environment,
 * which its children would inherit. */
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli_containers.h"
#include "sys/file.h"

#define LOADER "/stoker/bin/ld.so"

enum { PROGRAM_BYTES = 256 << 20 };

typedef struct carry {
    const char *folder;
    stk_arena *arena;
    stk_err *err;
    int rc;
} carry;

static int copy(carry *c, const char *from, const char *to, mode_t mode)
{
    STK_TEXT_AUTO data = NULL;
    size_t len = 0;
    const char *path = stk_arena_printf(c->arena, "%s/%s", c->folder, to);
    int rc = path == NULL ? stk_err_set(c->err, STK_E_NOMEM, "out of memory")
                          : stk_file_read(from, PROGRAM_BYTES, &data, &len, c->err);
    return rc < 0 ? rc : stk_file_write(path, data, len, mode, c->err);
}

/* Called for the program itself (its name is empty), the kernel's page, and each library. */
static int copy_library(struct dl_phdr_info *info, size_t size, void *arg)
{
    carry *c = arg;
    const char *slash = strrchr(info->dlpi_name, '/');
    (void)size;
    if (slash == NULL || c->rc < 0) {
        return 0;
    }
    bool is_loader = strncmp(slash + 1, "ld-", 3) == 0;
    const char *to = is_loader ? "ld.so" : stk_arena_printf(c->arena, "lib/%s", slash + 1);
    c->rc = to == NULL ? stk_err_set(c->err, STK_E_NOMEM, "out of memory")
                       : copy(c, info->dlpi_name, to, 0755);
    return 0;
}

/* The name of its loader, in place: there is room for a shorter one. */
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
    return stk_err_set(err, STK_E_ENV, "%s is no program that can be taken into a container", path);
}

static int copy_program(carry *c, const char *from)
{
    STK_TEXT_AUTO data = NULL;
    size_t len = 0;
    const char *path = stk_arena_printf(c->arena, "%s/stoker", c->folder);
    int rc = path == NULL ? stk_err_set(c->err, STK_E_NOMEM, "out of memory")
                          : stk_file_read(from, PROGRAM_BYTES, &data, &len, c->err);
    rc = rc < 0 ? rc : patch(data, len, from, c->err);
    return rc < 0 ? rc : stk_file_write(path, data, len, 0755, c->err);
}

/* Kept per build of the program, which its inode and time tell; made aside and renamed, since runs
 * may come at once. */
int stk_cli_carry(const stk_store *store, stk_arena *arena, const char **ret, stk_err *err)
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
    const char *lib = made == NULL ? NULL : stk_arena_printf(arena, "%s/lib", made);
    if (folder == NULL || lib == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory");
    }
    *ret = folder;
    if (stk_file_exists(folder)) {
        return 0;
    }
    carry c = {.folder = made, .arena = arena, .err = err};
    int rc = stk_file_mkdirs(lib, 0755, err);
    rc = rc < 0 ? rc : copy_program(&c, "/proc/self/exe");
    if (rc == 0) {
        (void)dl_iterate_phdr(copy_library, &c);
        rc = c.rc;
    }
    if (rc == 0 && rename(made, folder) < 0 && errno != EEXIST && errno != ENOTEMPTY) {
        rc = stk_err_sys(err, STK_E_SYS, errno, "making %s", folder);
    }
    (void)stk_file_remove_tree(made, NULL);
    return rc;
}
