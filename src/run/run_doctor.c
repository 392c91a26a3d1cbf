/* Findings about what this machine offers to runs, one for each topic. */
#include "run/run_doctor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
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
    stk_accel *accel;   /* NULL: the search for devices failed */
    const char *python; /* --python, or NULL */
} doctor;

/* An interpreter and the Stoker that it imports, or NULL. */
typedef struct found_python {
    const char *version, *path, *stoker;
} found_python;

#define add(d, ...) (void)stk_preflight_add((d)->findings, __VA_ARGS__)

static void look_at_device(doctor *d, uint32_t i)
{
    const stk_device *device = stk_accel_device(d->accel, i);
    const char *model = stk_text_or(device->model, "?");
    char memory[32] = "memory unknown", profile[64] = "";
    if (device->n_slices > 0) {
        add(d, STK_CHECK_OK, "devices", device->uuid, NULL, "%s %d: %s, %s, split into %d slices",
            device->noun, device->index, model, device->uuid, device->n_slices);
        return;
    }
    if (!device->usable) {
        return;
    }
    const char *holder = stk_lease_holder(d->accel, i, d->arena), *lease = "free";
    if (device->memory_bytes >= 0) {
        (void)stk_units_format_memory(device->memory_bytes, memory, sizeof memory);
    }
    if (holder != NULL) {
        lease = stk_text_or(stk_arena_printf(d->arena, "leased by %s", holder), holder);
    }
    if (device->profile != NULL) {
        (void)snprintf(profile, sizeof profile, " %s", device->profile);
    }
    add(d, STK_CHECK_OK, "devices", device->uuid, NULL, "%s%s %d: %s%s, %s, %s, %s", device->noun,
        stk_text_when(device->parent >= 0, " of GPU"), device->index, model, profile, memory,
        device->uuid, lease);
}

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
        look_at_device(d, i);
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

/* Checks the store, and its disk. */
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

/* Returns the output of `python -c code`, or NULL with the failure in `err`. */
static const char *ask_python(doctor *d, const char *python, const char *code, stk_err *err)
{
    STK_FD_AUTO answer = memfd_create("answer", MFD_CLOEXEC);
    extern char **environ;
    const char *const argv[] = {python, "-c", code, NULL};
    const stk_spawn spawn = {.argv = argv,
                             .env = (const char *const *)environ,
                             .stdin_fd = -1,
                             .stdout_fd = answer,
                             .stderr_fd = -1,
                             .die_with_parent = true};
    char text[1024];
    pid_t pid = 0;
    int status = 0;
    if (answer < 0) {
        stk_err_sys(err, STK_E_SYS, errno, "asking %s", python);
        return NULL;
    }
    if (stk_sys_spawn(&spawn, &pid, NULL, err) < 0) {
        return NULL;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    ssize_t len = pread(answer, text, sizeof text - 1, 0);
    if (status != 0 || len < 0) {
        stk_err_set(err, STK_E_ENV, "%s ended with an error", python);
        return NULL;
    }
    text[len] = '\0';
    return stk_arena_dupn(d->arena, text, strcspn(text, "\n"));
}

/* Asks the interpreter itself, which is slow; for environments whose files don't show it. */
static bool ask_for_stoker(doctor *d, const char *python, found_python *ret, stk_err *err)
{
    static const char code[] = "import sys\ntry:\n    import stoker; v = "
                               "stoker.__version__\nexcept ImportError: v = '-'\nprint(v, "
                               "'%d.%d.%d' % sys.version_info[:3], sys.executable)";
    char version[64], number[32], where[512];
    const char *answer = ask_python(d, python, code, err);
    if (answer == NULL || sscanf(answer, "%63s %31s %511[^\n]", version, number, where) != 3) {
        return false;
    }
    ret->stoker = strcmp(version, "-") == 0 ? NULL : stk_arena_dup(d->arena, version);
    ret->version = stk_arena_dup(d->arena, number);
    ret->path = stk_arena_dup(d->arena, where);
    return true;
}

/* Checks that Python steps can start, and with which Stoker. Returns the environment's sys.path, or
 * NULL. */
static const char *const *look_at_python(doctor *d)
{
    stk_environment environment = {0};
    stk_err err = {0};
    const char *python = stk_run_python(d->python, d->arena);
    bool known = stk_preflight_environment(python, d->arena, &environment, &err) == 0;
    found_python p = {.version = environment.version, .path = environment.python};
    if (known) {
        const char *folder = stk_preflight_package(environment.sys_path, "stoker", d->arena);
        p.stoker = folder == NULL ? NULL : stk_preflight_version(folder, d->arena);
    }
    if ((p.stoker == NULL || p.version == NULL) && !ask_for_stoker(d, python, &p, &err)) {
        add(d, STK_CHECK_WARNING, "python", python,
            "install Python 3.9 or newer, or name one with --python; command steps run without",
            "no Python to run steps with: %s", err.text[0] ? err.text : "it gave no answer");
        return NULL;
    }
    if (!known && p.path != NULL) {
        known = stk_preflight_environment(p.path, d->arena, &environment, NULL) == 0;
    }
    if (p.stoker == NULL) {
        add(d, STK_CHECK_WARNING, "python", p.path,
            "activate the environment that has Stoker, or name its interpreter with --python",
            "Python %s (%s) can't import stoker: Python steps won't start there", p.version,
            p.path);
    } else if (strcmp(p.stoker, STK_VERSION) != 0) {
        add(d, STK_CHECK_ERROR, "python", p.path,
            "install both from one wheel; 'type -a stoker' shows which binary comes first",
            "this is stoker " STK_VERSION ", but Python %s (%s) imports stoker %s", p.version,
            p.path, p.stoker);
    } else {
        add(d, STK_CHECK_OK, "python", p.path, NULL, "Python %s (%s) imports stoker %s", p.version,
            p.path, p.stoker);
    }
    return known ? environment.sys_path : NULL;
}

/* Checks which of that Python's frameworks can use the devices. */
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
