/* kube_auth: the current credential. It comes from the kubeconfig, from a file that is read again
 * regularly (a pod's token lives for an hour), or from an exec plugin that runs again when its
 * credential expires. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
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

/* A running plugin. */
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

/* Uses only the first line of `credential`. */
static int set_header(stk_kube_auth *auth, const char *scheme, const char *credential, stk_err *err)
{
    char *header = NULL;
    int n = (int)strcspn(credential, "\r\n");
    if (asprintf(&header, "Authorization: %s %.*s", scheme, n, credential) < 0) {
        return stk_err_nomem(err);
    }
    free(auth->header);
    auth->header = header;
    return 0;
}

static int set_basic(const stk_kube_config *c, stk_kube_auth *auth, stk_err *err)
{
    STK_BUF_AUTO plain = STK_BUF_INIT(1 << 16);
    (void)stk_buf_printf(&plain, "%s:%s", c->user, stk_text_or(c->password, ""));
    STK_TRY(stk_buf_check(&plain, err));
    STK_TEXT_AUTO coded = malloc(4 * (plain.len / 3 + 1) + 1);
    STK_TRY(stk_err_if_null(coded, err));
    (void)EVP_EncodeBlock((unsigned char *)coded, (const unsigned char *)plain.data,
                          (int)plain.len);
    return set_header(auth, "Basic", coded, err);
}

static int read_token(const stk_kube_config *c, stk_kube_auth *auth, stk_err *err)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    int rc = stk_file_read(c->token_file, ANSWER_BYTES, &text, &len, err);
    if (rc < 0) {
        return stk_err_context(err, "%s", c->origin);
    }
    return set_header(auth, "Bearer", text, err);
}

/* --- plugins --- */

/* Our environment, overridden by the plugin's variables; malloc'd. */
static const char **whole_env(const stk_kube_config *c)
{
    size_t n = 0, n_more = 0, k = 0;
    while (environ[n] != NULL) {
        n++;
    }
    while (c->exec.env[n_more] != NULL) {
        n_more++;
    }
    const char **env = calloc(n + n_more + 2, sizeof *env);
    for (size_t i = 0; env != NULL && i < n; i++) {
        bool is_over = false;
        for (size_t j = 0; j < n_more && !is_over; j++) {
            size_t name = strcspn(c->exec.env[j], "=") + 1;
            is_over = strncmp(environ[i], c->exec.env[j], name) == 0;
        }
        if (!is_over) {
            env[k++] = environ[i];
        }
    }
    if (env != NULL) {
        memcpy(env + k, c->exec.env, n_more * sizeof *env);
        env[k + n_more] = c->exec.info;
    }
    return env;
}

/* Reads all available output. Returns false at its end, on an error or if it is too long. */
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

/* Reads the plugin's output until it exits. Kills the plugin and its children if it runs too long,
 * or keeps running after it has closed its output; in the latter case the output still counts.
 * Returns false if there is no complete output. */
static bool wait_for(pid_t pid, int fd, stk_buf *said, const _Atomic bool *stops, int *ret_status)
{
    int64_t until = stk_kube_now() + PLUGIN_MS;
    bool is_open = true, has_ended = false;
    while (!has_ended && !*stops && stk_kube_now() < until) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        (void)poll(&p, is_open, TICK_MS);
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

static int begin_process(const stk_kube_config *c, int out, pid_t *ret_pid, stk_err *err)
{
    const char **env = whole_env(c);
    stk_spawn spawn = {.argv = c->exec.argv,
                       .env = env,
                       .stdin_fd = -1,
                       .stdout_fd = out,
                       .stderr_fd = STDERR_FILENO,
                       .die_with_parent = true,
                       .new_session = true};
    STK_TRY(stk_err_if_null(env, err));
    int rc = stk_sys_spawn(&spawn, ret_pid, NULL, err);
    free(env);
    if (rc < 0) {
        (void)stk_err_context(err, "%s", c->origin);
        if (c->exec.hint != NULL) {
            stk_err_hint(err, "%.200s", c->exec.hint);
        } else {
            stk_err_hint(err, "install its exec plugin '%s'", c->exec.argv[0]);
        }
    }
    return rc;
}

static int run_plugin(const stk_kube_config *c, stk_buf *said, const _Atomic bool *stops,
                      stk_err *err)
{
    int fds[2], status = 0;
    pid_t pid = -1;
    if (pipe2(fds, O_CLOEXEC) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "a pipe to %s", c->exec.argv[0]);
    }
    int rc = begin_process(c, fds[1], &pid, err);
    close(fds[1]);
    if (rc == 0) {
        (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
        bool heard = wait_for(pid, fds[0], said, stops, &status);
        if (!heard) {
            rc = stk_err_set(err, STK_E_ENV,
                             "%s: its plugin '%s' didn't answer within %d s; run it by hand to see "
                             "whether it waits for a login",
                             c->origin, c->exec.argv[0], PLUGIN_MS / 1000);
        } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            rc = stk_err_set(
                err, STK_E_ENV,
                "%s: its plugin '%s' failed with status %d (see its output above); log in again",
                c->origin, c->exec.argv[0], WEXITSTATUS(status));
        }
    }
    close(fds[0]);
    return rc;
}

/* When to run the plugin again (monotonic). A credential that seems expired on arrival means that
 * the plugin's clock differs from ours: we use it until the server rejects it. */
static int64_t good_until(const char *text)
{
    struct tm tm = {0};
    int64_t now = stk_kube_now();
    if (text == NULL || strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) == NULL) {
        return INT64_MAX;
    }
    int64_t left = (int64_t)timegm(&tm) * 1000 - stk_clock_wall_ms(&stk_clock_real);
    if (left <= EARLY_MS) {
        return now + BORN_OLD_MS;
    }
    return now + left - EARLY_MS;
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
    STK_TRY(stk_err_if_null(p, err));
    p->config = c;
    p->said = STK_BUF_INIT(ANSWER_BYTES);
    sigset_t all, before;
    (void)sigfillset(&all); /* the engine's main thread handles signals */
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

/* Replaces *at by a copy of `text`, or by NULL. */
static int keep(const char *text, char **at, stk_err *err)
{
    free(*at);
    *at = NULL;
    if (text == NULL) {
        return 0;
    }
    *at = strdup(text);
    return stk_err_if_null(*at, err);
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
    STK_TRY(keep(cert, &auth->cert, err));
    STK_TRY(keep(key, &auth->key, err));
    auth->until_ms = good_until(stk_json_get_text(status, "expirationTimestamp"));
    if (token == NULL) {
        return 0;
    }
    return set_header(auth, "Bearer", token, err);
}

/* While the plugin runs, the previous credential stays in use, unless the server has refused it. */
static int ask_plugin(const stk_kube_config *c, stk_kube_auth *auth, stk_err *err)
{
    plugin *p = auth->plugin;
    bool is_good = (auth->header != NULL || auth->cert != NULL) && !auth->refused;
    if (p == NULL) {
        STK_TRY(begin_plugin(c, auth, err));
    }
    if (p == NULL || !p->is_over) {
        return is_good ? 0 : STK_E_BUSY;
    }
    auth->plugin = NULL;
    auth->refused = false;
    auth->until_ms = INT64_MAX;
    int rc = p->rc;
    if (rc == 0) {
        rc = take_answer(c, auth, &p->said, err);
    } else if (err != NULL) {
        *err = p->err;
    }
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
        rc = set_header(auth, "Bearer", config->token, err);
    } else if (config->user != NULL) {
        rc = set_basic(config, auth, err);
    }
    if (rc < 0) {
        auth->until_ms = 0;
    }
    return rc;
}
