/* What this machine offers to runs. A finding a topic. */
#include "run/run_doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "base/units.h"
#include "run/run_python.h"
#include "store/store.h"
#include "sys/cgroup.h"
#include "sys/file.h"
#include "sys/spawn.h"

typedef struct doctor {
    stk_arena *arena;
    stk_findings *findings;
    stk_accel *accel;   /* NULL: devices could not be looked for */
    const char *python; /* --python, or NULL */
} doctor;

#define add(d, ...) (void)stk_preflight_add((d)->findings, __VA_ARGS__)

static void look_at_devices(doctor *d)
{
    stk_err err = {0};
    if (d->accel == NULL && stk_accel_open(NULL, &d->accel, &err) < 0) {
        add(d, STK_CHECK_ERROR, "devices", NULL, "correct or unset STOKER_ACCEL and STOKER_NVML",
            "%s", err.text);
        return;
    }
    add(d, STK_CHECK_OK, "devices", NULL, NULL, "%s", stk_accel_describe(d->accel, d->arena));
    for (uint32_t i = 0; i < stk_accel_n_devices(d->accel); i++) {
        const stk_device *device = stk_accel_device(d->accel, i);
        const char *holder = stk_lease_holder(d->accel, i, d->arena);
        if (device->n_slices > 0) {
            add(d, STK_CHECK_OK, "devices", device->uuid, NULL,
                "%s %d: %s, %s, split into %d slices", device->noun, device->index,
                stk_text_or(device->model, "?"), device->uuid, device->n_slices);
        } else if (device->usable) {
            char memory[32] = "memory unknown";
            if (device->memory_bytes >= 0) {
                (void)stk_units_format_memory(device->memory_bytes, memory, sizeof memory);
            }
            add(d, STK_CHECK_OK, "devices", device->uuid, NULL, "%s%s %d: %s%s%s, %s, %s, %s%s",
                device->noun, device->parent >= 0 ? " of GPU" : "", device->index,
                stk_text_or(device->model, "?"), device->profile != NULL ? " " : "",
                stk_text_or(device->profile, ""), memory, device->uuid,
                holder != NULL ? "leased by " : "free", stk_text_or(holder, ""));
        }
    }
    (void)stk_preflight_devices(d->accel, NULL, d->findings, NULL);
}

static void look_at_leases(doctor *d)
{
    bool is_private = false;
    const char *dir = stk_lease_dir(&is_private);
    bool devices = d->accel != NULL && stk_accel_n_devices(d->accel) > 0;
    if (access(dir, W_OK | X_OK) != 0) {
        add(d, STK_CHECK_ERROR, "leases", dir,
            "make it (as root: mkdir -m 1777 -p DIR), or name another in STOKER_LEASE_DIR",
            "device leases live in %s, which can't be written to: %s", dir, strerror(errno));
    } else if (is_private) {
        add(d, devices ? STK_CHECK_WARNING : STK_CHECK_NOTE, "leases", dir,
            "name a folder that all of them share in STOKER_LEASE_DIR (in a container: mount the "
            "host's /run/lock/stoker)",
            "device leases live in %s, which other users or containers of this host don't see: "
            "they may be given the same GPU",
            dir);
    } else {
        add(d, STK_CHECK_OK, "leases", dir, NULL, "device leases live in %s", dir);
    }
}

static void look_at_limits(doctor *d)
{
    char name[32];
    (void)snprintf(name, sizeof name, "doctor-%d", (int)getpid());
    stk_cgroups *groups = stk_cgroups_open(name);
    if (groups == NULL) {
        add(d, STK_CHECK_ERROR, "limits", NULL, NULL, "no memory to look at control groups");
        return;
    }
    if (stk_cgroups_kind(groups) == STK_CGROUP_NONE) {
        add(d, STK_CHECK_NOTE, "limits", NULL,
            "for limits by the kernel: a systemd user session, or a delegated cgroup", "%s",
            stk_cgroups_describe(groups));
    } else {
        add(d, STK_CHECK_OK, "limits", NULL, NULL, "%s", stk_cgroups_describe(groups));
    }
    stk_cgroups_close(groups);
}

/* The store, and the host whose disk it is on. */
static void look_at_store(doctor *d)
{
    stk_err err = {0};
    STK_TEXT_AUTO path = NULL;
    STK_STORE_AUTO store = NULL;
    int rc = stk_store_find(".", STK_STORE_READONLY, &path, &err);
    if (rc == 0 && !stk_file_exists(path)) {
        rc = STK_E_NOT_FOUND;
    }
    if (rc == 0) {
        rc = stk_store_open(path, STK_STORE_READONLY, &store, &err);
    }
    if (rc == STK_E_NOT_FOUND) {
        add(d, STK_CHECK_NOTE, "store", NULL, NULL,
            "no store here yet: the first run makes .stoker in this folder");
    } else if (rc < 0) {
        add(d, STK_CHECK_ERROR, "store", path, err.hint[0] ? err.hint : NULL, "%s", err.text);
    } else {
        add(d, STK_CHECK_OK, "store", path, NULL, "%s", stk_store_describe(store, d->arena));
    }
    (void)stk_preflight_host(rc == 0 ? path : ".", d->findings, NULL);
}

/* What `python -c code` prints, or NULL with its failure in `err`. */
static const char *ask_python(doctor *d, const char *python, const char *code, stk_err *err)
{
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) < 0) {
        stk_err_sys(err, STK_E_SYS, errno, "asking %s", python);
        return NULL;
    }
    extern char **environ;
    const char *const argv[] = {python, "-c", code, NULL};
    const stk_spawn spawn = {.argv = argv,
                             .env = (const char *const *)environ,
                             .stdin_fd = -1,
                             .stdout_fd = pipes[1],
                             .stderr_fd = -1,
                             .die_with_parent = true};
    pid_t pid = 0;
    int rc = stk_sys_spawn(&spawn, &pid, NULL, err);
    stk_file_close(&pipes[1]);
    char text[1024];
    size_t len = 0;
    ssize_t n = 0;
    while (rc == 0 && len < sizeof text - 1 &&
           ((n = read(pipes[0], text + len, sizeof text - 1 - len)) > 0 ||
            (n < 0 && errno == EINTR))) {
        len += n > 0 ? (size_t)n : 0;
    }
    stk_file_close(&pipes[0]);
    text[len] = '\0';
    text[strcspn(text, "\n")] = '\0';
    int status = 0;
    while (rc == 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (rc == 0 && status != 0) {
        rc = stk_err_set(err, STK_E_ENV, "%s ended with an error", python);
    }
    return rc == 0 ? stk_arena_dup(d->arena, text) : NULL;
}

/* What the interpreter itself says: slow, for those whose files don't tell. */
static bool ask_for_stoker(doctor *d, const char *python, const char **ret_version,
                           const char **ret_number, const char **ret_where, stk_err *err)
{
    static const char code[] = "import sys\n"
                               "try:\n"
                               "    import stoker; v = stoker.__version__\n"
                               "except ImportError: v = '-'\n"
                               "print(v, '%d.%d.%d' % sys.version_info[:3], sys.executable)";
    char version[64], number[32], where[512];
    const char *answer = ask_python(d, python, code, err);
    if (answer == NULL || sscanf(answer, "%63s %31s %511[^\n]", version, number, where) != 3) {
        return false;
    }
    *ret_version = strcmp(version, "-") == 0 ? NULL : stk_arena_dup(d->arena, version);
    *ret_number = stk_arena_dup(d->arena, number);
    *ret_where = stk_arena_dup(d->arena, where);
    return true;
}

/* Can Python steps start, and with which Stoker? Returns the environment's sys.path, or NULL. */
static const char *const *look_at_python(doctor *d)
{
    char venv[4096];
    stk_environment environment = {0};
    stk_err err = {0};
    const char *python = stk_run_python(d->python, venv, sizeof venv);
    const char *version = NULL, *number = NULL, *where = NULL;
    bool known = stk_preflight_environment(python, d->arena, &environment, &err) == 0;
    const char *folder = NULL;
    if (known) {
        folder = stk_preflight_package(environment.sys_path, "stoker", d->arena);
    }
    if (folder != NULL) {
        version = stk_preflight_version(folder, d->arena);
    }
    number = environment.version;
    where = environment.python;
    if ((version == NULL || number == NULL) &&
        !ask_for_stoker(d, python, &version, &number, &where, &err)) {
        add(d, STK_CHECK_WARNING, "python", python,
            "install Python 3.9 or newer, or name one with --python; command steps run without",
            "no Python to run steps with: %s", err.text[0] ? err.text : "it gave no answer");
        return NULL;
    }
    if (!known && where != NULL) {
        known = stk_preflight_environment(where, d->arena, &environment, NULL) == 0;
    }
    if (version == NULL) {
        add(d, STK_CHECK_WARNING, "python", where,
            "activate the environment that has Stoker, or name its interpreter with --python",
            "Python %s (%s) can't import stoker: Python steps won't start there", number, where);
    } else if (strcmp(version, STK_VERSION) != 0) {
        add(d, STK_CHECK_ERROR, "python", where,
            "install both from one wheel; 'type -a stoker' shows which binary comes first",
            "this is stoker " STK_VERSION ", but Python %s (%s) imports stoker %s", number, where,
            version);
    } else {
        add(d, STK_CHECK_OK, "python", where, NULL, "Python %s (%s) imports stoker %s", number,
            where, version);
    }
    return known ? environment.sys_path : NULL;
}

/* What of that Python can use the devices. */
static void look_at_frameworks(doctor *d, const char *const *sys_path)
{
    stk_framework found[STK_PREFLIGHT_FRAMEWORKS];
    uint32_t n = 0;
    if (d->accel != NULL && sys_path != NULL &&
        stk_preflight_find(NULL, sys_path, d->arena, found, STK_PREFLIGHT_FRAMEWORKS, &n, NULL) ==
            0) {
        (void)stk_preflight_frameworks(d->accel, NULL, found, n, NULL, 0, d->findings, NULL);
    }
}

void stk_run_doctor(const char *python, stk_accel *accel, stk_findings *findings)
{
    doctor d = {.arena = findings->arena, .findings = findings, .accel = accel, .python = python};
    look_at_devices(&d);
    look_at_leases(&d);
    look_at_limits(&d);
    look_at_store(&d);
    look_at_frameworks(&d, look_at_python(&d));
    if (accel == NULL) {
        stk_accel_close(d.accel);
    }
}
