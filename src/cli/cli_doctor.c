/* doctor: what this machine offers to runs, and what stands in their way. A row a topic; the level
 * says whether to act: ok, note (good to know), warning (some runs will suffer), problem. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/cli_image.h"
#include "cli/cli_run.h"
#include "host/accel/accel.h"
#include "host/preflight/preflight.h"
#include "image/image.h"
#include "run/run_python.h"
#include "sys/cgroup.h"
#include "sys/file.h"
#include "sys/spawn.h"

typedef struct doctor {
    stk_arena *arena;
    stk_findings findings;
    stk_accel *accel;   /* NULL: devices could not be looked for */
    const char *python; /* --python, or NULL */
} doctor;

#define add(d, ...) (void)stk_preflight_add(&(d)->findings, __VA_ARGS__)

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
        char memory[32];
        if (device->n_slices > 0) {
            add(d, STK_CHECK_OK, "devices", device->uuid, NULL,
                "%s %d: %s, %s, split into %d slices", device->noun, device->index,
                device->model != NULL ? device->model : "?", device->uuid, device->n_slices);
        } else if (device->usable) {
            add(d, STK_CHECK_OK, "devices", device->uuid, NULL, "%s%s %d: %s%s%s, %s, %s, %s%s",
                device->noun, device->parent >= 0 ? " of GPU" : "", device->index,
                device->model != NULL ? device->model : "?", device->profile != NULL ? " " : "",
                device->profile != NULL ? device->profile : "",
                device->memory_bytes < 0
                    ? "memory unknown"
                    : stk_units_format_memory(device->memory_bytes, memory, sizeof memory),
                device->uuid, holder ? "leased by " : "free", holder ? holder : "");
        }
    }
    (void)stk_preflight_devices(d->accel, NULL, &d->findings, NULL);
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
    bool none = stk_cgroups_kind(groups) == STK_CGROUP_NONE;
    add(d, none ? STK_CHECK_NOTE : STK_CHECK_OK, "limits", NULL,
        none ? "for limits by the kernel: a systemd user session, or a delegated cgroup" : NULL,
        "%s", stk_cgroups_describe(groups));
    stk_cgroups_close(groups);
}

/* The store, and the host whose disk it is on. */
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
        add(d, STK_CHECK_NOTE, "store", NULL, NULL,
            "no store here yet: the first run makes .stoker in this folder");
    } else if (rc < 0) {
        add(d, STK_CHECK_ERROR, "store", path, err.hint[0] ? err.hint : NULL, "%s", err.text);
    } else {
        add(d, STK_CHECK_OK, "store", path, NULL, "%s", stk_store_describe(store, d->arena));
    }
    stk_store_close(store);
    (void)stk_preflight_host(rc == 0 ? path : ".", &d->findings, NULL);
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
    const char *folder =
        known ? stk_preflight_package(environment.sys_path, "stoker", d->arena) : NULL;
    version = folder == NULL ? NULL : stk_preflight_version(folder, d->arena);
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
        (void)stk_preflight_frameworks(d->accel, NULL, found, n, NULL, 0, &d->findings, NULL);
    }
}

static int print_json(const doctor *d, stk_check_level worst)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < d->findings.n; i++) {
        const stk_finding *f = &d->findings.items[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s?, s:s, s:s?}", "level",
                                        stk_check_word(f->level), "topic", f->check, "subject",
                                        f->subject, "text", f->text, "remedy", f->remedy));
    }
    json_t *body = json_pack("{s:s, s:s, s:o}", "version", STK_VERSION, "worst",
                             stk_check_word(worst), "findings", list);
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
    static const char *const colours[STK_CHECK_N] = {"\033[32m", "\033[36m", "\033[33m",
                                                     "\033[31m"};
    for (uint32_t i = 0; i < d->findings.n; i++) {
        const stk_finding *f = &d->findings.items[i];
        printf("%s%-8s%s %-10s %s\n", colour ? colours[f->level] : "", stk_check_word(f->level),
               colour ? "\033[0m" : "", f->check, f->text);
        if (f->remedy != NULL) {
            printf("%20s→ %s\n", "", f->remedy);
        }
    }
}

/* What is here as data, for a look into an image from outside. */
static int print_facts(const stk_cli *cli, stk_arena *arena)
{
    STK_BUF_AUTO out = STK_BUF_INIT(1 << 20);
    stk_err err = {0};
    if (stk_image_facts_here(arena, &out, &err) < 0) {
        return stk_cli_fail(cli, &err);
    }
    fputs(out.data, stdout);
    return 0;
}

/* This machine, an image, or two stacks. */
static int look(const stk_cli *cli, doctor *d, stk_err *err)
{
    const char *image = stk_cli_value(cli, "image");
    bool other = image != NULL || stk_cli_flag(cli, "compare");
    if ((other || stk_cli_flag(cli, "simulate")) && stk_accel_open(NULL, &d->accel, err) < 0) {
        return err->code;
    }
    if (other) {
        if (image == NULL) {
            return stk_cli_compare_stacks(stk_cli_arg(cli, 0), stk_cli_arg(cli, 1), d->python,
                                          d->accel, &d->findings, err);
        }
        stk_cli_look_at_image(image, stk_cli_flag(cli, "inside"), d->accel, &d->findings);
        return 0;
    }
    look_at_devices(d);
    look_at_leases(d);
    look_at_limits(d);
    look_at_store(d);
    look_at_frameworks(d, look_at_python(d));
    return 0;
}

static int run_doctor(stk_cli *cli)
{
    int n = stk_cli_n_args(cli);
    bool compares = stk_cli_flag(cli, "compare");
    if (compares && n != 2) {
        return stk_cli_usage(cli, "--compare takes the names of two stacks");
    }
    if (n > 0 && !compares) {
        return stk_cli_usage(cli, "'%s' is one word too many", stk_cli_arg(cli, 0));
    }
    if (stk_cli_flag(cli, "inside") && stk_cli_value(cli, "image") == NULL) {
        return stk_cli_usage(cli, "--inside looks into an image: name it with --image");
    }
    stk_err err = {0};
    STK_ARENA_AUTO arena = stk_arena_new(64u << 20);
    doctor *d = stk_arena_alloc(arena, sizeof *d);
    if (d == NULL ? stk_err_set(&err, STK_E_NOMEM, "no memory") : stk_cli_simulate(cli, &err)) {
        return stk_cli_fail(cli, &err);
    }
    if (stk_cli_flag(cli, "facts")) {
        return print_facts(cli, arena);
    }
    *d = (doctor){.arena = arena, .findings.arena = arena, .python = stk_cli_value(cli, "python")};
    if (d->python != NULL && strchr(d->python, '/') != NULL && access(d->python, X_OK) < 0) {
        stk_err_sys(&err, STK_E_NOT_FOUND, errno, "--python '%s' can't be started", d->python);
        return stk_cli_fail(cli, &err);
    }
    int rc = look(cli, d, &err);
    stk_accel_close(d->accel);
    if (rc < 0) {
        return stk_cli_fail(cli, &err);
    }
    stk_check_level worst = STK_CHECK_OK;
    for (uint32_t i = 0; i < d->findings.n; i++) {
        stk_check_level level = d->findings.items[i].level;
        worst = MAX(level, worst);
    }
    if (stk_cli_json(cli)) {
        (void)print_json(d, worst);
    } else {
        print_text(d, stk_cli_colour(cli, STDOUT_FILENO));
    }
    return worst == STK_CHECK_ERROR ? 3 : 0;
}

static const stk_option options_of_doctor[] = {
    {"python", 0, "EXE", "look at the environment of this interpreter", false},
    {"simulate", 0, "SPEC", "devices of a machine that isn't here (see 'stoker gpus')", false},
    {"image", 0, "REF", "look at this image instead: can it be had, does it fit this host?", false},
    {"inside", 0, NULL, "with --image: also what is in it, by a container of it", false},
    {"compare", 0, NULL, "compare CUDA, framework and Python of two stacks", false},
    {"facts", 0, NULL, "only Python, frameworks and CUDA of this place, as JSON", false},
    {NULL}};

const stk_command stk_cmd_doctor = {
    .name = "doctor",
    .summary = "say what this machine offers to runs, and what stands in their way",
    .usage = "[options] [STACK_A STACK_B]",
    .text =
        "Looks at the devices and their health (ECC, row remapping, retired pages, Xids of this "
        "boot, throttling,\nPCIe, processes without a lease, compute mode), where device leases "
        "live, CPUs, memory, /dev/shm, limits,\nthe store, its disk, and the Python that steps "
        "would run in: does it import Stoker, and do its torch,\nTensorFlow, JAX and CuPy fit the "
        "driver and the devices? Everything is read from files and from the driver:\nno framework "
        "is imported, no device is opened. A run looks at the same before its first task, where "
        "steps get\ndevices: a framework that can't use them is refused then, unless "
        "STOKER_ALLOW_CPU_BUILD=1 is set.\n\nWith --image nothing is pulled: the container engine "
        "is asked, else the image's registry, with the "
        "credentials that Docker\nand Podman keep. Checked are architecture, Python, CUDA_VERSION "
        "and "
        "NVIDIA_REQUIRE_CUDA against the driver\n(minor-version and forward compatibility), and "
        "whether it is made for these devices at all; a known family's image with\nthe right CUDA "
        "is "
        "named. --inside runs a container of it (pulling it where needed) in which Stoker's own "
        "program looks at\nPython, the frameworks' builds, nvcc and the driver's library; no "
        "program "
        "of the image runs.\n\nLevels: ok, note (good to know), warning (some runs "
        "will suffer), problem.\n\nExit status: 0, or 3 when a problem was found.",
    .options = options_of_doctor,
    .run = run_doctor,
};
