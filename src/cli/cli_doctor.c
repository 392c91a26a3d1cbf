/* doctor: what this machine offers to runs, and what stands in their way. A row a topic; the level
 * says whether to act: ok, note (good to know), warning (some runs will suffer), problem. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accel/accel.h"
#include "base/arena.h"
#include "base/units.h"
#include "cli/cli.h"
#include "sys/cgroup.h"
#include "sys/file.h"
#include "sys/proc.h"
#include "sys/spawn.h"

typedef enum { LEVEL_OK, LEVEL_NOTE, LEVEL_WARNING, LEVEL_PROBLEM, LEVEL_N } level;
static const char *const level_words[LEVEL_N] = {"ok", "note", "warning", "problem"};

enum { FINDINGS_MAX = 128 };

typedef struct finding {
    level how;
    const char *topic;
    const char *text;
    const char *remedy; /* or NULL */
} finding;

typedef struct doctor {
    stk_arena *arena;
    finding findings[FINDINGS_MAX];
    uint32_t n;
} doctor;

__attribute__((format(printf, 5, 6))) static void add(doctor *d, level how, const char *topic,
                                                      const char *remedy, const char *fmt, ...)
{
    char text[1200];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *copy = stk_arena_dup(d->arena, text);
    if (d->n < FINDINGS_MAX && copy != NULL) {
        d->findings[d->n++] = (finding){how, topic, copy, remedy};
    }
}

static const char *amount(doctor *d, int64_t bytes)
{
    char buf[32];
    const char *text =
        stk_arena_dup(d->arena, bytes < 0 ? "?" : stk_units_format_memory(bytes, buf, sizeof buf));
    return text != NULL ? text : "?";
}

/* Returns how many devices there are. */
static uint32_t look_at_devices(doctor *d)
{
    stk_accel *accel = NULL;
    stk_err err = {0};
    if (stk_accel_open(NULL, &accel, &err) < 0) {
        add(d, LEVEL_PROBLEM, "devices", "correct or unset STOKER_ACCEL and STOKER_NVML", "%s",
            err.text);
        return 0;
    }
    uint32_t n = stk_accel_n_devices(accel);
    add(d, LEVEL_OK, "devices", NULL, "%s", stk_accel_describe(accel, d->arena));
    for (uint32_t i = 0; i < n; i++) {
        const stk_device *device = stk_accel_device(accel, i);
        const char *holder = stk_lease_holder(accel, i, d->arena);
        if (!device->usable) {
            add(d, LEVEL_PROBLEM, "devices", NULL, "GPU %d (%s) is unusable: %s", device->index,
                device->model, device->trouble ? device->trouble : "unknown trouble");
        } else {
            add(d, LEVEL_OK, "devices", NULL, "GPU %d: %s, %s, %s, %s%s", device->index,
                device->model, amount(d, device->memory_bytes), device->uuid,
                holder ? "leased by " : "free", holder ? holder : "");
        }
    }
    stk_accel_close(accel);
    return n;
}

static void look_at_leases(doctor *d, uint32_t n_devices)
{
    bool is_private = false;
    const char *dir = stk_lease_dir(&is_private);
    if (access(dir, W_OK | X_OK) != 0) {
        add(d, LEVEL_PROBLEM, "leases",
            "make it (as root: mkdir -m 1777 -p DIR), or name another in STOKER_LEASE_DIR",
            "device leases live in %s, which can't be written to: %s", dir, strerror(errno));
    } else if (is_private) {
        add(d, n_devices > 0 ? LEVEL_WARNING : LEVEL_NOTE, "leases",
            "name a folder that all of them share in STOKER_LEASE_DIR (in a container: mount the "
            "host's /run/lock/stoker)",
            "device leases live in %s, which other users or containers of this host don't see: "
            "they may be given the same GPU",
            dir);
    } else {
        add(d, LEVEL_OK, "leases", NULL, "device leases live in %s", dir);
    }
}

static void look_at_limits(doctor *d)
{
    char name[32];
    (void)snprintf(name, sizeof name, "doctor-%d", (int)getpid());
    stk_cgroups *groups = stk_cgroups_open(name);
    if (groups == NULL) {
        add(d, LEVEL_PROBLEM, "limits", NULL, "no memory to look at control groups");
        return;
    }
    bool none = stk_cgroups_kind(groups) == STK_CGROUP_NONE;
    add(d, none ? LEVEL_NOTE : LEVEL_OK, "limits",
        none ? "for limits by the kernel: a systemd user session, or a delegated cgroup" : NULL,
        "%s", stk_cgroups_describe(groups));
    stk_cgroups_close(groups);

    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        bool low = files.rlim_max != RLIM_INFINITY && files.rlim_max < 4096;
        add(d, low ? LEVEL_WARNING : LEVEL_OK, "limits",
            low ? "raise the hard limit of open files (ulimit -Hn, limits.conf) to 4096 or more"
                : NULL,
            "a process may open %lld files (it may ask for %lld)", (long long)files.rlim_cur,
            files.rlim_max == RLIM_INFINITY ? -1ll : (long long)files.rlim_max);
    }
    struct rlimit processes;
    if (getrlimit(RLIMIT_NPROC, &processes) == 0 && processes.rlim_cur != RLIM_INFINITY &&
        processes.rlim_cur < 512) {
        add(d, LEVEL_WARNING, "limits", "raise the limit of processes (ulimit -u)",
            "a user may run only %lld processes", (long long)processes.rlim_cur);
    }
}

static void look_at_host(doctor *d)
{
    uint32_t n = stk_proc_n_cpus();
    add(d, LEVEL_OK, "cpus", NULL, "%u CPU%s may be used", n, n == 1 ? "" : "s");
    int64_t total = stk_proc_memory_bytes(), available = stk_proc_available_bytes();
    bool low = available >= 0 && available < 1000000000;
    add(d, low ? LEVEL_WARNING : LEVEL_OK, "memory",
        low ? "end what uses it, or run fewer steps at once (--max-workers)" : NULL,
        "%s of memory, %s available now", amount(d, total), amount(d, available));
    struct statvfs shm;
    if (statvfs("/dev/shm", &shm) == 0) {
        int64_t bytes = (int64_t)(shm.f_blocks * shm.f_frsize);
        bool small = bytes <= 64 << 20;
        add(d, small ? LEVEL_WARNING : LEVEL_OK, "shm",
            small ? "give the container more: docker run --shm-size=1g" : NULL, "/dev/shm has %s%s",
            amount(d, bytes), small ? ", too little for PyTorch's data loader workers" : "");
    } else {
        add(d, LEVEL_WARNING, "shm", "mount a tmpfs on /dev/shm",
            "there is no /dev/shm: PyTorch's data loader workers need it");
    }
}

static void look_at_disk(doctor *d, const char *where)
{
    struct statvfs fs;
    STK_TEXT_AUTO absolute = stk_file_absolute(where);
    const char *path = absolute != NULL ? absolute : where;
    if (statvfs(path, &fs) != 0) {
        add(d, LEVEL_PROBLEM, "disk", NULL, "%s: %s", path, strerror(errno));
        return;
    }
    int64_t left = (int64_t)(fs.f_bavail * fs.f_frsize);
    bool full = left < 100000000, low = left < 2000000000;
    add(d,
        full  ? LEVEL_PROBLEM
        : low ? LEVEL_WARNING
              : LEVEL_OK,
        "disk",
        low ? "free some ('stoker store gc' removes old runs), or name another store in "
              "STOKER_STORE"
            : NULL,
        "%s is free on the disk of %s", amount(d, left), path);
    if (fs.f_files > 0 && fs.f_favail < 1000) {
        add(d, LEVEL_PROBLEM, "disk", "remove files there", "%s has only %llu inodes left", path,
            (unsigned long long)fs.f_favail);
    }
}

static void look_at_store(doctor *d)
{
    stk_err err = {0};
    STK_TEXT_AUTO path = NULL;
    stk_store *store = NULL;
    int rc = stk_store_find(".", STK_STORE_READONLY, &path, &err);
    if (rc == 0 && !stk_file_exists(path)) {
        rc = STK_E_NOT_FOUND;
    }
    if (rc == 0) {
        rc = stk_store_open(path, STK_STORE_READONLY, &store, &err);
    }
    if (rc == STK_E_NOT_FOUND) {
        add(d, LEVEL_NOTE, "store", NULL,
            "no store here yet: the first run makes .stoker in this folder");
    } else if (rc < 0) {
        add(d, LEVEL_PROBLEM, "store", stk_arena_dup(d->arena, err.hint[0] ? err.hint : NULL), "%s",
            err.text);
    } else {
        add(d, LEVEL_OK, "store", NULL, "%s", stk_store_describe(store, d->arena));
    }
    stk_store_close(store);
    look_at_disk(d, rc == 0 ? path : ".");
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

static void look_at_python(doctor *d)
{
    static const char code[] = "import sys\n"
                               "try:\n"
                               "    import stoker; v = stoker.__version__\n"
                               "except ImportError: v = '-'\n"
                               "print(v, '%d.%d.%d' % sys.version_info[:3], sys.executable)";
    char venv[4096];
    const char *python = stk_cli_python(NULL, venv, sizeof venv);
    stk_err err = {0};
    const char *answer = ask_python(d, python, code, &err);
    char version[64], number[32], where[512];
    if (answer == NULL || sscanf(answer, "%63s %31s %511[^\n]", version, number, where) != 3) {
        add(d, LEVEL_WARNING, "python",
            "install Python 3.9 or newer, or name one with --python; command steps run without",
            "no Python to run steps with: %s", err.text[0] ? err.text : "it gave no answer");
    } else if (strcmp(version, "-") == 0) {
        add(d, LEVEL_WARNING, "python",
            "activate the environment that has Stoker, or name its interpreter with --python",
            "Python %s (%s) can't import stoker: Python steps won't start there", number, where);
    } else if (strcmp(version, STK_VERSION) != 0) {
        add(d, LEVEL_PROBLEM, "python",
            "install both from one wheel; 'type -a stoker' shows which binary comes first",
            "this is stoker " STK_VERSION ", but Python %s (%s) imports stoker %s", number, where,
            version);
    } else {
        add(d, LEVEL_OK, "python", NULL, "Python %s (%s) imports stoker %s", number, where,
            version);
    }
}

static int print_json(const doctor *d, level worst)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < d->n; i++) {
        const finding *f = &d->findings[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:s?}", "level", level_words[f->how],
                                        "topic", f->topic, "text", f->text, "remedy", f->remedy));
    }
    json_t *body = json_pack("{s:s, s:s, s:o}", "version", STK_VERSION, "worst", level_words[worst],
                             "findings", list);
    if (body == NULL) {
        return 3;
    }
    json_dumpf(body, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(body);
    return 0;
}

static void print_text(const doctor *d, bool colour)
{
    static const char *const colours[LEVEL_N] = {"\033[32m", "\033[36m", "\033[33m", "\033[31m"};
    for (uint32_t i = 0; i < d->n; i++) {
        const finding *f = &d->findings[i];
        printf("%s%-8s%s %-8s %s\n", colour ? colours[f->how] : "", level_words[f->how],
               colour ? "\033[0m" : "", f->topic, f->text);
        if (f->remedy != NULL) {
            printf("%18s→ %s\n", "", f->remedy);
        }
    }
}

static int run_doctor(stk_cli *cli)
{
    if (stk_cli_n_args(cli) > 0) {
        return stk_cli_usage(cli, "'%s' is one word too many", stk_cli_arg(cli, 0));
    }
    STK_ARENA_AUTO arena = stk_arena_new(16u << 20);
    doctor *d = stk_arena_alloc(arena, sizeof *d);
    if (d == NULL) {
        stk_err err = {0};
        stk_err_set(&err, STK_E_NOMEM, "no memory");
        return stk_cli_fail(cli, &err);
    }
    d->arena = arena;
    look_at_leases(d, look_at_devices(d));
    look_at_host(d);
    look_at_limits(d);
    look_at_store(d);
    look_at_python(d);
    level worst = LEVEL_OK;
    for (uint32_t i = 0; i < d->n; i++) {
        worst = d->findings[i].how > worst ? d->findings[i].how : worst;
    }
    if (stk_cli_json(cli)) {
        (void)print_json(d, worst);
    } else {
        print_text(d, stk_cli_colour(cli, STDOUT_FILENO));
    }
    return worst == LEVEL_PROBLEM ? 3 : 0;
}

const stk_command stk_cmd_doctor = {
    .name = "doctor",
    .summary = "say what this machine offers to runs, and what stands in their way",
    .usage = "[options]",
    .text = "Looks at devices and their driver, where device leases live, CPUs, memory, /dev/shm, "
            "how limits are\nenforced, the store, its disk, and the Python that steps would run "
            "in.\n\nExit status: 0, or 3 when a problem was found.",
    .run = run_doctor,
};
