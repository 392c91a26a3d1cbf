/* kube_auth: the credential of now. A token of the kubeconfig, of a file that is read again (tokens
 * of pods live for an hour), or of a plugin that is asked again when its answer has expired. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "away/kubernetes/kube.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/spawn.h"

enum { ANSWER_BYTES = 1 << 20, PLUGIN_MS = 60000, FILE_MS = 60000, EARLY_MS = 10000 };
enum { BORN_OLD_MS = 60000, TICK_MS = 20, CLOSED_MS = 5000 };

extern char **environ;

/* A plugin that runs. */
typedef struct stk_kube_plugin {
    const stk_kube_config *config;
    pthread_t thread;
    _Atomic bool is_over, stops;
    stk_buf said;
    int rc;
    stk_err err;
} plugin;

static void plugin_free(plugin *p)
{
    if (p != NULL) {
        p->stops = true;
        (void)pthread_join(p->thread, NULL);
        stk_buf_done(&p->said);
        free(p);
    }
}

void stk_kube_auth_done(stk_kube_auth *auth)
{
    plugin_free(auth->plugin);
    free(auth->header);
    free(auth->cert);
    free(auth->key);
    *auth = (stk_kube_auth){0};
}

static int set_bearer(stk_kube_auth *auth, const char *token, stk_err *err)
{
    size_t n = strcspn(token, "\r\n");
    char *header = NULL;
    if (asprintf(&header, "Authorization: Bearer %.*s", (int)n, token) < 0) {
        return stk_err_nomem(err);
    }
    free(auth->header);
    auth->header = header;
    return 0;
}

static int set_basic(const stk_kube_config *c, stk_kube_auth *auth, stk_err *err)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    STK_BUF_AUTO plain = STK_BUF_INIT(1 << 16);
    STK_BUF_AUTO out = STK_BUF_INIT(1 << 17);
    (void)stk_buf_printf(&plain, "%s:%s", c->user, stk_text_or(c->password, ""));
    (void)stk_buf_text(&out, "Authorization: Basic ");
    for (size_t i = 0; i < plain.len; i += 3) {
        uint32_t bits = 0;
        size_t n = MIN(plain.len - i, 3);
        for (size_t j = 0; j < 3; j++) {
            bits = bits << 8 | (j < n ? (unsigned char)plain.data[i + j] : 0u);
        }
        for (size_t j = 0; j < 4; j++) {
            (void)stk_buf_char(&out, j <= n ? digits[bits >> (18 - 6 * j) & 63] : '=');
        }
    }
    char *header = plain.failed || out.failed ? NULL : strdup(out.data);
    free(auth->header);
    auth->header = header;
    return stk_err_if_null(header, err);
}

static int read_token(const stk_kube_config *c, stk_kube_auth *auth, stk_err *err)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    int rc = stk_file_read(c->token_file, ANSWER_BYTES, &text, &len, err);
    if (rc < 0) {
        return stk_err_context(err, "%s", c->origin);
    }
    return set_bearer(auth, text, err);
}

/* --- plugins --- */

static const char *const *whole_env(const stk_kube_config *c, const char ***ret_block)
{
    size_t n = 0, n_more = 0, k = 0;
    while (environ[n] != NULL) {
        n++;
    }
    while (c->exec.env[n_more] != NULL) {
        n_more++;
    }
    const char **env = calloc(n + n_more + 2, sizeof *env);
    if (env != NULL) {
        for (size_t i = 0; i < n; i++) {
            bool is_over = false;
            for (size_t j = 0; j < n_more && !is_over; j++) {
                size_t name = strcspn(c->exec.env[j], "=") + 1;
                is_over = strncmp(environ[i], c->exec.env[j], name) == 0;
            }
            if (!is_over) {
                env[k++] = environ[i];
            }
        }
        for (size_t j = 0; j < n_more; j++) {
            env[k++] = c->exec.env[j];
        }
        env[k++] = c->exec.info;
    }
    *ret_block = env;
    return env;
}

/* What has come; false: it was the last, or too much. */
static bool hear(int fd, stk_buf *said)
{
    char data[4096];
    for (;;) {
        ssize_t n = read(fd, data, sizeof data);
        if (n > 0 && stk_buf_add(said, data, (size_t)n) < 0) {
            return false;
        }
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return n < 0 && errno == EAGAIN;
        }
    }
}

/* Until it has ended. One that lives on though it has closed its output, or whose time is up, is
 * ended with all that it has started; its words count where it had closed its output. */
static bool wait_for(pid_t pid, int fd, stk_buf *said, const _Atomic bool *stops, int *ret_status)
{
    int64_t until = stk_kube_now() + PLUGIN_MS;
    bool is_open = true, has_ended = false;
    while (!has_ended && !*stops && stk_kube_now() < until) {
        struct pollfd p = {.fd = is_open ? fd : -1, .events = POLLIN};
        (void)poll(&p, 1, TICK_MS);
        if (is_open && !hear(fd, said)) {
            is_open = false;
            until = stk_kube_now() + CLOSED_MS;
        }
        has_ended = waitpid(pid, ret_status, WNOHANG) == pid;
    }
    if (has_ended) {
        (void)(is_open && hear(fd, said));
        return true;
    }
    (void)kill(-pid, SIGKILL);
    while (waitpid(pid, ret_status, 0) < 0 && errno == EINTR) {
    }
    if (!is_open) {
        *ret_status = 0;
    }
    return !is_open && !*stops;
}

static int run_plugin(const stk_kube_config *c, stk_buf *said, const _Atomic bool *stops,
                      stk_err *err)
{
    int fds[2];
    const char **env = NULL;
    if (pipe2(fds, O_CLOEXEC) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "a pipe to %s", c->exec.argv[0]);
    }
    stk_spawn spawn = {.argv = c->exec.argv,
                       .env = whole_env(c, &env),
                       .stdin_fd = -1,
                       .stdout_fd = fds[1],
                       .stderr_fd = STDERR_FILENO,
                       .die_with_parent = true,
                       .new_session = true};
    pid_t pid = -1;
    int rc = env == NULL ? stk_err_nomem(err) : stk_sys_spawn(&spawn, &pid, NULL, err);
    close(fds[1]);
    if (rc < 0) {
        (void)stk_err_context(err, "%s", c->origin);
        if (c->exec.hint != NULL) {
            stk_err_hint(err, "%.200s", c->exec.hint);
        } else {
            stk_err_hint(err, "its exec plugin '%s' must be installed", c->exec.argv[0]);
        }
    } else {
        int status = 0;
        (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
        bool heard = wait_for(pid, fds[0], said, stops, &status);
        if (!heard) {
            rc = stk_err_set(err, STK_E_ENV,
                             "%s: its plugin '%s' didn't answer within %d s; run it "
                             "by hand: it may wait for a login",
                             c->origin, c->exec.argv[0], PLUGIN_MS / 1000);
        } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            rc = stk_err_set(err, STK_E_ENV,
                             "%s: its plugin '%s' failed with status %d; its words "
                             "are above: log in again",
                             c->origin, c->exec.argv[0], WEXITSTATUS(status));
        }
    }
    close(fds[0]);
    free(env);
    return rc;
}

/* When it is to be asked again, on our own clock. What has expired as it comes was made by another
 * clock than ours: it is used, the server says when it isn't good any more. */
static int64_t good_until(const char *text)
{
    struct tm tm = {0};
    int64_t now = stk_kube_now();
    if (text == NULL || strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) == NULL) {
        return INT64_MAX;
    }
    int64_t left = (int64_t)timegm(&tm) * 1000 - stk_clock_wall_ms(&stk_clock_real);
    return left > EARLY_MS ? now + left - EARLY_MS : now + BORN_OLD_MS;
}

static void *run_on_thread(void *arg)
{
    plugin *p = arg;
    p->rc = run_plugin(p->config, &p->said, &p->stops, &p->err);
    p->is_over = true;
    return NULL;
}

static int begin_plugin(const stk_kube_config *c, stk_kube_auth *auth, stk_err *err)
{
    plugin *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return stk_err_nomem(err);
    }
    p->config = c;
    p->said = STK_BUF_INIT(ANSWER_BYTES);
    sigset_t all, before;
    (void)sigfillset(&all); /* signals are for the engine's own thread */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int sys = pthread_create(&p->thread, NULL, run_on_thread, p);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (sys != 0) {
        free(p);
        return stk_err_sys(err, STK_E_SYS, sys, "starting a thread");
    }
    auth->plugin = p;
    return 0;
}

static int take_answer(const stk_kube_config *c, stk_kube_auth *auth, const stk_buf *said,
                       stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const stk_json *status = stk_json_get(stk_json_readn(arena, said->data, said->len), "status");
    const char *token = stk_json_get_text(status, "token");
    const char *cert = stk_json_get_text(status, "clientCertificateData");
    const char *key = stk_json_get_text(status, "clientKeyData");
    if (token == NULL && cert == NULL) {
        return stk_err_set(err, STK_E_ENV,
                           "%s: its plugin '%s' gave neither a token nor a certificate", c->origin,
                           c->exec.argv[0]);
    }
    free(auth->cert);
    free(auth->key);
    auth->cert = cert == NULL ? NULL : strdup(cert);
    auth->key = key == NULL ? NULL : strdup(key);
    auth->until_ms = good_until(stk_json_get_text(status, "expirationTimestamp"));
    return token == NULL ? 0 : set_bearer(auth, token, err);
}

/* While it runs, what there was before it is used, unless the server has refused that. */
static int ask_plugin(const stk_kube_config *c, stk_kube_auth *auth, stk_err *err)
{
    plugin *p = auth->plugin;
    bool is_good = (auth->header != NULL || auth->cert != NULL) && !auth->refused;
    if (p == NULL) {
        int rc = begin_plugin(c, auth, err);
        STK_TRY(rc);
        return is_good ? 0 : STK_E_BUSY;
    }
    if (!p->is_over) {
        return is_good ? 0 : STK_E_BUSY;
    }
    auth->plugin = NULL;
    auth->refused = false;
    auth->until_ms = INT64_MAX;
    int rc = p->rc;
    if (rc < 0 && err != NULL) {
        *err = p->err;
    }
    rc = rc < 0 ? rc : take_answer(c, auth, &p->said, err);
    plugin_free(p);
    return rc;
}

int stk_kube_auth_refresh(const stk_kube_config *config, stk_kube_auth *auth, stk_err *err)
{
    int64_t now = stk_kube_now();
    if (auth->until_ms > now && !auth->refused) {
        return 0;
    }
    int rc = 0;
    bool by_plugin =
        config->token_file == NULL && config->token == NULL && config->exec.argv != NULL;
    if (by_plugin) {
        rc = ask_plugin(config, auth, err);
        while (rc == STK_E_BUSY && auth->waits) {
            (void)poll(NULL, 0, TICK_MS);
            rc = ask_plugin(config, auth, err);
        }
        if (rc < 0 && rc != STK_E_BUSY) {
            auth->until_ms = 0;
        }
        return rc;
    }
    auth->refused = false;
    auth->until_ms = INT64_MAX;
    if (config->token_file != NULL) {
        rc = read_token(config, auth, err);
        auth->until_ms = now + FILE_MS;
    } else if (config->token != NULL) {
        rc = set_bearer(auth, config->token, err);
    } else if (config->user != NULL) {
        rc = set_basic(config, auth, err);
    }
    if (rc < 0) {
        auth->until_ms = 0;
    }
    return rc;
}
