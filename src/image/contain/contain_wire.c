/* Our side of the runner: its program, the socket, the message (format: stk_runner.c). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.h"
#include "image/contain/contain_private.h"
#include "image/contain/runner_bytes.h"
#include "sys/file.h"

enum { MESSAGE_MAX = 64 << 20 };

/* --- the folder --- */

/* Creates a folder that only we can enter: another user in it could take the socket's place and
 * receive the program's secrets. */
static int make_own_folder(const char *dir, contain_files *f, stk_err *err)
{
    struct statvfs fs;
    const char *prefix = "";
    if (statvfs(dir, &fs) == 0 && (fs.f_flag & ST_NOEXEC) != 0) {
        dir = getenv("XDG_RUNTIME_DIR");
        if (dir == NULL || dir[0] != '/') {
            dir = "/tmp";
        }
        prefix = "stoker-";
    }
    (void)snprintf(f->folder, sizeof f->folder, "%s/%scontain.XXXXXX", dir, prefix);
    if (mkdtemp(f->folder) == NULL) {
        int sys = errno;
        f->folder[0] = '\0';
        return stk_err_sys(err, STK_E_SYS, sys, "a folder in %s", dir);
    }
    (void)snprintf(f->socket, sizeof f->socket, "%s/contain.sock", f->folder);
    (void)snprintf(f->runner, sizeof f->runner, "%s/stk-runner", f->folder);
    return 0;
}

/* Listens through the folder's descriptor: a socket's path may have only 107 bytes. */
static int listen_in(contain_files *f, stk_err *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    STK_FD_AUTO folder = open(f->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d/contain.sock", folder);
    if (folder < 0 || fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        chmod(f->socket, 0666) != 0 || listen(fd, 1) != 0) {
        int sys = errno;
        stk_file_close(&fd);
        return stk_err_sys(err, STK_E_SYS, sys, "%s", f->socket);
    }
    f->listen_fd = fd;
    return 0;
}

static int fill_folder(const char *dir, contain_files *ret, stk_err *err)
{
    STK_TRY(make_own_folder(dir, ret, err));
    STK_TRY(stk_file_write(ret->runner, runner_bytes, sizeof runner_bytes, 0755, err));
    if (chmod(ret->runner, 0755) != 0) { /* independent of our umask */
        return stk_err_sys(err, STK_E_SYS, errno, "%s", ret->runner);
    }
    return listen_in(ret, err);
}

int stk_contain_files_make(const char *dir, contain_files *ret, stk_err *err)
{
    ret->listen_fd = -1;
    int rc = fill_folder(dir, ret, err);
    if (rc < 0) {
        stk_contain_files_remove(ret);
    }
    return rc;
}

void stk_contain_files_remove(contain_files *files)
{
    stk_file_close(&files->listen_fd);
    if (files->folder[0] != '\0') {
        (void)unlink(files->socket);
        (void)unlink(files->runner);
        (void)rmdir(files->folder);
        files->folder[0] = '\0';
    }
}

/* --- the message --- */

static void put_word(stk_buf *out, const char *word)
{
    stk_buf_add(out, word, strlen(word) + 1);
}

static void put_words(stk_buf *out, const char *const *first, const char *const *second)
{
    const char *const *lists[] = {first, second};
    char number[16];
    unsigned n = 0;
    for (int l = 0; l < 2; l++) {
        for (const char *const *w = lists[l]; w != NULL && *w != NULL; w++) {
            n++;
        }
    }
    (void)snprintf(number, sizeof number, "%u", n);
    put_word(out, number);
    for (int l = 0; l < 2; l++) {
        for (const char *const *w = lists[l]; w != NULL && *w != NULL; w++) {
            put_word(out, *w);
        }
    }
}

/* "w/path" for writable mounts, "r/path" for the others. */
static void put_mounts(stk_buf *out, const contain_spec *spec)
{
    char number[16];
    (void)snprintf(number, sizeof number, "%u", spec->n_mounts);
    put_word(out, number);
    for (uint32_t i = 0; i < spec->n_mounts; i++) {
        stk_buf_char(out, "rw"[spec->mounts[i].write]);
        put_word(out, spec->mounts[i].to);
    }
}

static int send_with(int conn, const stk_buf *m, const int *fds, uint32_t n_fds)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * (CONTAIN_MAX_FDS + 2))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {.iov_base = m->data, .iov_len = m->len};
    struct msghdr head = {.msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = control.bytes,
                          .msg_controllen = CMSG_SPACE(sizeof(int) * n_fds)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&head);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
    memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
    ssize_t n;
    do {
        n = sendmsg(conn, &head, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    for (size_t sent = (size_t)MAX(n, 0); n >= 0 && sent < m->len; sent += (size_t)n) {
        n = send(conn, m->data + sent, m->len - sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            n = 0;
        }
    }
    return (int)MIN(n, 0);
}

int stk_contain_send(int conn, const contain_spec *spec, const char *const *entrypoint,
                     const int *fds, uint32_t n_fds, stk_err *err)
{
    STK_BUF_AUTO m = STK_BUF_INIT(MESSAGE_MAX);
    int all[CONTAIN_MAX_FDS + 2] = {STDOUT_FILENO, STDERR_FILENO};
    uint32_t length = 0;
    n_fds = MIN(n_fds, CONTAIN_MAX_FDS);
    memcpy(all + 2, fds, sizeof(int) * n_fds);
    stk_buf_add(&m, &length, sizeof length);
    put_word(&m, "2");
    put_words(&m, entrypoint, (const char *const *)spec->argv);
    put_words(&m, (const char *const *)spec->env, NULL);
    put_words(&m, (const char *const *)spec->expand, NULL);
    put_word(&m, stk_text_or(spec->cwd, ""));
    static const char *const as_it_is[] = {"", ""};
    const char *const users[] = {spec->user, spec->owner};
    const char *const *switched = stk_contain_switches(spec) ? users : as_it_is;
    put_word(&m, switched[0]);
    put_word(&m, switched[1]);
    put_mounts(&m, spec);
    if (m.failed) {
        return stk_err_set(err, STK_E_LIMIT, "arguments and environment of more than %d bytes",
                           MESSAGE_MAX);
    }
    length = (uint32_t)(m.len - sizeof length);
    memcpy(m.data, &length, sizeof length);
    if (send_with(conn, &m, all, n_fds + 2) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "telling the container what to run");
    }
    return 0;
}
