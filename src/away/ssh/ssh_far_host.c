/* What this host has, and whether it can hold requests: asked by the near end before it chooses a
 * host. Devices are found once in this process's life; who holds them is asked anew. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "away/ssh/ssh_private.h"
#include "base/text.h"
#include "host/fit/fit.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/proc.h"

static struct {
    pthread_mutex_t lock;
    stk_accel *accel;
} devices = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The address at which ssh reached us: "client port server port". */
static void put_address(stk_buf *ret)
{
    const char *text = stk_text_or(getenv("SSH_CONNECTION"), "");
    char server[128] = "";
    if (sscanf(text, "%*s %*s %127s %*s", server) == 1) {
        stk_json_put_text(ret, "address", server);
    }
}

static void put_host_devices(stk_accel *accel, stk_arena *arena, stk_buf *ret)
{
    int64_t bytes[STK_LIMIT_DEVICES];
    const char *outside[STK_LIMIT_DEVICES] = {0};
    bool knows = stk_lease_free(accel, arena, bytes, outside, NULL) == 0;
    stk_json_open(ret, "devices", '[');
    for (uint32_t i = 0; i < stk_accel_n_devices(accel); i++) {
        const stk_device *d = stk_accel_device(accel, i);
        const char *who = outside[i];
        if (who == NULL) {
            who = stk_lease_who(accel, i, arena);
        }
        stk_json_open(ret, NULL, '{');
        stk_json_put_text(ret, "vendor", d->vendor);
        stk_json_put_text(ret, "noun", d->noun);
        stk_json_put_known_text(ret, "model", d->model);
        stk_json_put_int(ret, "index", d->index);
        stk_json_put_int(ret, "memory_bytes", d->memory_bytes);
        stk_json_put_bool(ret, "usable", d->usable);
        stk_json_put_known_text(ret, "trouble", d->trouble);
        stk_json_put_bool(ret, "free", knows && d->usable && bytes[i] == d->memory_bytes);
        stk_json_put_known_text(ret, "holder", who);
        stk_json_close(ret, '}');
    }
    stk_json_close(ret, ']');
}

/* Can users make the namespaces in which a job sees its own folders (agent_nest.c)? */
static bool gives_views(void)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(unshare(CLONE_NEWNS) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

static void put_room(const char *store, stk_buf *ret)
{
    struct statvfs fs;
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s", stk_text_or(store, "~/"));
    if (strncmp(path, "~/", 2) == 0) {
        (void)snprintf(path, sizeof path, "%s", stk_text_or(stk_ssh_home(), "/"));
    }
    if (path[0] == '/' && statvfs(path, &fs) == 0) {
        stk_json_put_whole(ret, "free_disk_bytes", (int64_t)fs.f_bavail * (int64_t)fs.f_frsize);
    }
}

/* The interpreter that steps get, and its version: "3.11.2 /usr/bin/python3". */
static void put_python(const char *python, stk_buf *ret)
{
    char command[PATH_MAX + 200], said[300] = "";
    if (python == NULL || strpbrk(python, "'\n") != NULL) {
        return;
    }
    (void)snprintf(command, sizeof command,
                   "'%s' -c 'import sys; print(\"%%d.%%d.%%d\" %% sys.version_info[:3], "
                   "sys.executable)' </dev/null 2>&1", /* ours is the connection */
                   python);
    FILE *out = popen(command, "re");
    if (out != NULL) {
        size_t n = fread(said, 1, sizeof said - 1, out);
        said[n] = '\0';
        said[strcspn(said, "\n")] = '\0';
        stk_json_put_bool(ret, "has_python", pclose(out) == 0);
        stk_json_put_text(ret, "python", said);
    }
}

static int put_answer_to(const stk_json *resources, const stk_capacity *capacity, stk_buf *ret,
                         stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_FIT_AUTO fit = {0};
    const char *text = stk_json_dump_in(resources, arena);
    stk_fit_now now = {0};
    stk_err why = {0};
    STK_TRY(stk_err_if_null(text, err));
    int rc = stk_fit_make(capacity, text, &fit, &why);
    stk_json_open(ret, NULL, '{');
    stk_json_put_bool(ret, "fits", rc == 0);
    if (rc < 0) {
        stk_json_put_text(ret, "why", why.text);
    } else {
        const char *who = NULL;
        rc = stk_fit_look(devices.accel, &fit, &now, err);
        if (rc == 0 && !now.is_free) {
            who = stk_fit_holders(devices.accel, &now.wanted, arena);
        }
        stk_json_put_bool(ret, "is_free", now.is_free);
        stk_json_put_whole(ret, "n_free", now.n_free);
        stk_json_put_known_text(ret, "why", who);
    }
    stk_json_close(ret, '}');
    if (fit.plan == NULL) {
        return 0;
    }
    return rc;
}

static int put_answers(const stk_json *ask, stk_buf *ret, stk_err *err)
{
    const stk_json *asks = stk_json_get(ask, "asks");
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_capacity capacity;
    uint32_t cpus[1024];
    if (devices.accel == NULL) {
        STK_TRY(stk_accel_open(NULL, &devices.accel, err));
    }
    const char *where = stk_text_or(stk_json_get_text(ask, "host"), "this host");
    STK_TRY(stk_fit_capacity(devices.accel, where, arena, &capacity, err));
    stk_json_put_whole(ret, "cpu_milli", capacity.cpu_milli);
    stk_json_put_whole(ret, "memory_bytes", capacity.memory_bytes);
    uint32_t n = stk_proc_cpus(cpus, 1024);
    stk_json_open(ret, "cpus", '[');
    for (uint32_t i = 0; i < n; i++) {
        stk_json_put_whole(ret, NULL, cpus[i]);
    }
    stk_json_close(ret, ']');
    if (stk_json_is_true(stk_json_get(ask, "all"))) {
        put_host_devices(devices.accel, arena, ret);
        stk_json_put_text(ret, "accel", stk_accel_describe(devices.accel, arena));
    }
    stk_json_open(ret, "asks", '[');
    for (uint32_t i = 0; i < stk_json_n_items(asks); i++) {
        STK_TRY(put_answer_to(stk_json_item(asks, i), &capacity, ret, err));
    }
    stk_json_close(ret, ']');
    return 0;
}

int stk_ssh_far_host(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                     stk_buf *ret_body, stk_err *err)
{
    struct utsname machine = {0};
    (void)body, (void)n, (void)ret_body;
    (void)uname(&machine);
    stk_json_put_text(ret, "node", machine.nodename);
    stk_json_put_text(ret, "machine", machine.machine);
    stk_json_put_text(ret, "kernel", machine.release);
    stk_json_put_text(ret, "boot", stk_clock_boot_id());
    put_address(ret);
    if (stk_json_is_true(stk_json_get(ask, "all"))) {
        stk_json_put_bool(ret, "views", gives_views());
        put_room(stk_json_get_text(ask, "store"), ret);
        put_python(stk_json_get_text(ask, "python"), ret);
    }
    pthread_mutex_lock(&devices.lock);
    int rc = put_answers(ask, ret, err);
    pthread_mutex_unlock(&devices.lock);
    return rc;
}
