/* `stoker launch`: many processes of one program, on this host or several, as one. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/units.h"
#include "cli/cli.h"
#include "cli/cli_hold.h"
#include "host/accel/accel.h"
#include "host/launch/launch.h"
#include "run/run_python.h"
#include "sys/file.h"

static bool always(const char *word)
{
    (void)word;
    return true;
}

/* As many as there are devices that can be used and that a mask lets us see; at least one. */
static int count_devices(stk_arena *arena, stk_launch_config *c, int64_t *ret, stk_err *err)
{
    stk_accel *accel = NULL;
    stk_launch_device *devices = stk_arena_array(arena, STK_LAUNCH_MAX_DEVICES, sizeof *devices);
    int rc = stk_accel_open(NULL, &accel, err);
    int64_t n = 0;
    for (uint32_t i = 0; rc == 0 && i < stk_accel_n_devices(accel); i++) {
        const stk_device *d = stk_accel_device(accel, i);
        if (d->usable && devices != NULL && n < STK_LAUNCH_MAX_DEVICES) {
            bool nvidia = strcmp(d->vendor, "nvidia") == 0 && d->uuid != NULL;
            devices[n].cpus = d->cpus == NULL ? NULL : stk_arena_dup(arena, d->cpus);
            devices[n].mask = nvidia ? stk_arena_dup(arena, d->uuid) : NULL;
        }
        n += d->usable;
    }
    c->seen = devices;
    c->n_seen = devices == NULL || n > STK_LAUNCH_MAX_DEVICES ? 0 : (uint32_t)n;
    stk_accel_close(accel);
    if (rc == 0 && n == 0) {
        fprintf(stderr, "stoker launch: -n gpus: this host has no device that can be used; one "
                        "rank, on the CPU\n");
    }
    *ret = n > 0 ? n : 1;
    return rc;
}

static int duration(const stk_cli *cli, const char *name, int64_t *ret_ms, stk_err *err)
{
    const char *text = stk_cli_value(cli, name);
    stk_err why = {0};
    if (text == NULL) {
        return 0;
    }
    if (stk_units_parse_duration(text, ret_ms, &why) < 0) {
        return stk_err_set(err, STK_E_USAGE, "--%s '%s' is no time like 5, 90s or 10m", name, text);
    }
    return 0;
}

static int read_nodes(const stk_cli *cli, stk_launch_config *c, stk_err *err)
{
    int64_t nodes = 1;
    int64_t node = -1;
    int rc = stk_cli_number(cli, "nnodes", 1, 1024, &nodes, err);
    rc = rc < 0 ? rc : stk_cli_number(cli, "node-rank", 0, 1023, &node, err);
    rc = rc < 0 ? rc : duration(cli, "join", &c->join_ms, err);
    c->nodes = (uint32_t)nodes;
    const char *join = getenv("STOKER_GANG_JOIN");
    if (rc == 0 && join != NULL && stk_cli_value(cli, "join") == NULL) {
        rc = stk_units_parse_duration(join, &c->join_ms, err);
    }
    const char *here = getenv("STOKER_GANG_NODE"); /* whoever starts a gang's nodes says it so */
    if (rc == 0 && node < 0 && here != NULL) {
        node = strtol(here, NULL, 10);
    }
    c->node = node < 0 ? 0 : (uint32_t)node;
    c->rdzv = stk_cli_value(cli, "rdzv");
    if (c->rdzv == NULL) {
        c->rdzv = getenv("STOKER_GANG_RDZV");
    }
    c->leash = getenv("STOKER_GANG_LEASH") != NULL;
    if (rc == 0 && stk_cli_value(cli, "nnodes") == NULL && stk_cli_value(cli, "gang") == NULL &&
        (stk_cli_value(cli, "rdzv") != NULL || stk_cli_value(cli, "node-rank") != NULL)) {
        char word[128];
        const char *name = stk_cli_value(cli, "rdzv") != NULL ? "rdzv" : "node-rank";
        return stk_err_set(err, STK_E_USAGE, "%s is for several nodes: add --nnodes N",
                           stk_cli_spelling(cli, name, word, sizeof word));
    }
    if (rc == 0 && nodes > 1 && (node < 0) != (c->rdzv == NULL)) {
        return stk_err_set(
            err, STK_E_USAGE,
            "--nnodes %lld needs --node-rank (0 … %lld, another one on each node) and --rdzv "
            "HOST:PORT, the address of node 0 as the others reach it; or neither, then this is "
            "node 0 "
            "and starts the others itself",
            (long long)nodes, (long long)nodes - 1);
    }
    if (rc == 0 && stk_cli_value(cli, "gang") == NULL && c->node >= c->nodes) {
        return stk_err_set(err, STK_E_USAGE,
                           "--node-rank %u is not below --nnodes %u; nodes count from 0", c->node,
                           c->nodes);
    }
    if (rc == 0 && nodes > 1 && stk_cli_flag(cli, "standalone")) {
        return stk_err_set(err, STK_E_USAGE, "--standalone is one node, --nnodes %lld are several",
                           (long long)nodes);
    }
    const char *id = stk_cli_value(cli, "rdzv-id");
    c->run_id = id != NULL ? id : c->nodes > 1 ? "none" : c->run_id;
    return rc;
}

/* -n MIN:MAX */
static int read_range(const stk_cli *cli, const char *text, int64_t *ret_min, int64_t *ret_max,
                      stk_err *err)
{
    char word[128];
    if (!stk_units_parse_range(text, ret_min, ret_max) || *ret_max > STK_LAUNCH_MAX_RANKS) {
        return stk_err_set(err, STK_E_USAGE,
                           "%s: '%s' is no MIN:MAX of whole numbers from 1 to %d, the "
                           "smaller one first; -n 2:4 starts 4 ranks",
                           stk_cli_spelling(cli, "ranks", word, sizeof word), text,
                           STK_LAUNCH_MAX_RANKS);
    }
    if (stk_cli_value(cli, "min-ranks") != NULL) {
        return stk_err_set(err, STK_E_USAGE, "-n %s and --min-ranks both say the fewest ranks",
                           text);
    }
    return 0;
}

static int read_options(stk_cli *cli, stk_arena *arena, stk_launch_config *c, stk_err *err)
{
    int64_t ranks = 1;
    int64_t min = -1;
    int64_t restarts = 0;
    int64_t port = 0;
    int64_t server = -1;
    const char *n = stk_cli_value(cli, "ranks");
    char word[128];
    int rc = 0;
    if (n != NULL && strchr(n, ':') != NULL) {
        rc = read_range(cli, n, &min, &ranks, err);
    } else if (n != NULL && (strcmp(n, "gpus") == 0 || strcmp(n, "gpu") == 0)) {
        rc = count_devices(arena, c, &ranks, err);
    } else if (n != NULL && (*n == '\0' || strspn(n, "0123456789") != strlen(n))) {
        return stk_err_set(err, STK_E_USAGE,
                           "%s: '%s' is neither a number of ranks (4), nor MIN:MAX (2:4), "
                           "nor gpus (one on each device)",
                           stk_cli_spelling(cli, "ranks", word, sizeof word), n);
    } else {
        rc = stk_cli_number(cli, "ranks", 1, STK_LAUNCH_MAX_RANKS, &ranks, err);
    }
    rc = rc < 0 ? rc : stk_cli_number(cli, "min-ranks", 1, ranks, &min, err);
    rc = rc < 0 ? rc : stk_cli_number(cli, "restarts", 0, 1000, &restarts, err);
    rc = rc < 0 ? rc : stk_cli_number(cli, "port", 1, 65535, &port, err);
    rc = rc < 0 ? rc : stk_cli_number(cli, "forkserver-fd", 0, 1 << 20, &server, err);
    rc = rc < 0 ? rc : duration(cli, "grace", &c->grace_ms, err);
    rc = rc < 0 ? rc : duration(cli, "hang", &c->hang_ms, err);
    rc = rc < 0 ? rc : read_nodes(cli, c, err);
    c->ranks = (uint32_t)ranks;
    c->min_ranks = (uint32_t)(min < 0 ? ranks : min);
    c->max_restarts = (uint32_t)restarts;
    c->port = (int32_t)port;
    c->server_fd = (int)server;
    c->no_prefix = stk_cli_flag(cli, "no-prefix");
    c->no_bind = stk_cli_flag(cli, "no-bind");
    if (rc == 0 && n == NULL && stk_cli_value(cli, "gang") == NULL) {
        rc = stk_err_set(err, STK_E_USAGE,
                         "how many ranks? -n 4, or -n gpus for one on each device");
    }
    return rc;
}

/* Whoever waits for us in the foreground must not leave ranks behind by dying. One that put us into
 * the background (nohup, &) means us to live on. */
static void die_with_parent(void)
{
    static const int numbers[] = {SIGINT, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction was;
        if (sigaction(numbers[i], NULL, &was) == 0 && was.sa_handler == SIG_IGN) {
            return;
        }
    }
    pid_t front = tcgetpgrp(STDIN_FILENO);
    if (front > 0 && front != getpgrp()) {
        return;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
}

static const char *const *words_of(stk_cli *cli, char *python, size_t size, stk_arena *arena)
{
    char **args = stk_cli_args(cli);
    int n = stk_cli_n_args(cli);
    size_t len = n > 0 ? strlen(args[0]) : 0;
    bool module = stk_cli_flag(cli, "module");
    bool is_file =
        !module && len > 3 && strcmp(args[0] + len - 3, ".py") == 0 && access(args[0], X_OK) != 0;
    const char **words = stk_arena_array(arena, (size_t)n + 3, sizeof *words);
    if (words == NULL) {
        return NULL;
    }
    if (is_file || module) {
        words[0] = stk_run_python(NULL, python, size);
        words[1] = "-m";
    }
    memcpy(words + is_file + 2 * module, args, (size_t)n * sizeof *words);
    return words;
}

/* What the other nodes execute, where this one starts them: a Python step's worker, or ourselves
 * with the same options. */
static const char *const *node_words(stk_cli *cli, const stk_launch_config *c, stk_arena *arena)
{
    static const char *const same[] = {"gang",  "nnodes", "ranks", "min-ranks", "restarts",
                                       "grace", "hang",   "join",  "log-dir",   "rdzv-id"};
    static const char *const flags[] = {"no-prefix", "no-bind"};
    enum { N_SAME = sizeof same / sizeof *same, N_FLAGS = sizeof flags / sizeof *flags };
    size_t n_words = 0;
    while (c->argv != NULL && c->argv[n_words] != NULL) {
        n_words++;
    }
    if (c->is_python) {
        return c->argv;
    }
    const char **argv = stk_arena_array(arena, n_words + 2 * N_SAME + N_FLAGS + 4, sizeof *argv);
    size_t n = 0;
    if (argv == NULL) {
        return NULL;
    }
    argv[n++] = ""; /* this program, wherever it is there */
    argv[n++] = "launch";
    for (int i = 0; i < N_SAME; i++) {
        if (stk_cli_value(cli, same[i]) != NULL) {
            argv[n++] = stk_arena_printf(arena, "--%s", same[i]);
            argv[n++] = stk_cli_value(cli, same[i]);
        }
    }
    for (int i = 0; i < N_FLAGS; i++) {
        if (stk_cli_flag(cli, flags[i])) {
            argv[n++] = stk_arena_printf(arena, "--%s", flags[i]);
        }
    }
    argv[n++] = "--";
    memcpy(argv + n, c->argv, n_words * sizeof *argv);
    return argv;
}

/* Leases devices and becomes the program: a node of a gang, before its launcher or worker; a step
 * that is spun. */
static int hold_and_become(stk_cli *cli)
{
    stk_err err = {0};
    int64_t n = 0;
    int rc = stk_cli_number(cli, "hold", 0, STK_LEASE_DEVICES, &n, &err);
    rc = rc < 0 ? rc : stk_cli_hold((uint32_t)n, &err);
    if (rc == 0 && stk_cli_n_args(cli) > 0) {
        (void)execvp(stk_cli_args(cli)[0], stk_cli_args(cli));
        (void)stk_err_sys(&err, STK_E_SYS, errno, "cannot start '%s'", stk_cli_args(cli)[0]);
    }
    return stk_cli_fail(cli, &err);
}

static int run_launch(stk_cli *cli)
{
    stk_err err = {0};
    if (stk_cli_value(cli, "hold") != NULL) {
        return hold_and_become(cli);
    }
    char python[PATH_MAX];
    char id[64];
    const char *task = stk_cli_value(cli, "gang");
    const char *key = getenv("STOKER_GANG_KEY");
    STK_ARENA_AUTO arena = stk_arena_new(0);
    (void)snprintf(id, sizeof id, "launch-%d", (int)getpid());
    stk_launch_config config = {.run_id = id,
                                .grace_ms = 5000,
                                .nodes = 1,
                                .key = key != NULL ? key : "",
                                .join_ms = 600000,
                                .out_fd = stk_cli_json(cli) ? STDERR_FILENO : STDOUT_FILENO,
                                .err_fd = STDERR_FILENO};
    if (stk_cli_n_args(cli) == 0 && stk_cli_value(cli, "forkserver-fd") == NULL) {
        return stk_cli_usage(cli,
                             "what shall the ranks run? stoker launch -n 4 -- python train.py");
    }
    int rc = read_options(cli, arena, &config, &err);
    const char *dir = stk_cli_value(cli, "log-dir");
    STK_TEXT_AUTO logs = dir == NULL ? NULL : stk_file_absolute(dir);
    config.dir = logs;
    rc = rc < 0 || task == NULL ? rc : stk_launch_read_task(task, arena, &config, &err);
    config.argv = rc < 0 ? NULL : words_of(cli, python, sizeof python, arena);
    if (task == NULL) {
        die_with_parent();
    }
    if (rc == 0 && config.nodes > 1 && config.rdzv == NULL) {
        config.node_argv = node_words(cli, &config, arena);
        if (config.node_argv == NULL || config.node_argv[0] == NULL) {
            rc = stk_err_set(&err, STK_E_USAGE,
                             "a step on several nodes must be one that a fresh interpreter can "
                             "import: a function of a file or a package, no closure");
        }
    }
    STK_BUF_AUTO summary = STK_BUF_INIT(64 << 20);
    stk_launch_end end;
    rc = rc < 0 ? rc : stk_launch_run(&config, &summary, &end, &err);
    if (rc < 0) {
        return stk_cli_fail(cli, &err);
    }
    if (end.failure != STK_FAIL_NONE && !config.leash) { /* else the leader says it */
        fprintf(stderr, "stoker launch: %s\n", end.text);
    }
    if (stk_cli_json(cli)) {
        fputs(summary.data != NULL ? summary.data : "{}\n", stdout);
    }
    return end.exit_status;
}

static const stk_option options_of_launch[] = {
    {"ranks", 'n', "N",
     "how many processes; MIN:MAX: as -n MAX --min-ranks MIN; gpus: one for each device that can "
     "be "
     "used",
     false, "nproc-per-node ?num-processes"},
    {"min-ranks", 0, "N", "a restart may leave out ranks that failed, down to so many", false},
    {"restarts", 0, "N", "start all again after a failure, so many times (0)", false,
     "max-restarts"},
    {"port", 0, "PORT", "where ranks meet (MASTER_PORT); without it a free one is found", false,
     "master-port ?main-process-port"},
    {"grace", 0, "TIME", "between SIGTERM and SIGKILL when ranks are ended (5s)", false},
    {"hang", 0, "TIME", "end all when nothing moves for so long, and say where each stood", false},
    {"log-dir", 0, "DIR", "write rank-K/stdout.log, rank-K/stderr.log and gang.json there", false},
    {"no-prefix", 0, NULL, "lines of ranks as they are, without \"[K] \"", false},
    {"no-bind", 0, NULL, "let each rank use every CPU (else they are split)", false},
    {"standalone", 0, NULL, "on this node alone, as it is without", false},
    {"module", 'm', NULL, "PROGRAM is a Python module (python -m)", false},
    {"nnodes", 0, "N", "run on so many nodes (see below)", false, "?num-machines"},
    {"node-rank", 0, "K", "which of them this is, from 0; node 0 leads and has rank 0", false,
     "?machine-rank"},
    {"rdzv", 0, "HOST:PORT", "node 0 as the others reach it (port 29400)", false,
     "rdzv-endpoint master-addr ?main-process-ip"},
    {"rdzv-id", 0, "ID", "the gang's name: nodes of another one are refused", false},
    {"join", 0, "TIME", "how long nodes wait for each other (10m)", false},
    {"gang", 0, "TASK.JSON", "the gang of a step (the engine's)", false},
    {"hold", 0, "N",
     "lease so many devices and become PROGRAM (a node that a gang's leader starts)", false},
    {"forkserver-fd", 0, "FD", "ranks by a fork server (a Python step's)", false},
    {NULL}};

const stk_command stk_cmd_launch = {
    .name = "launch",
    .summary = "run many processes of a program as one",
    .usage = "-n N [options] [--] PROGRAM [ARG…]",
    .text =
        "Ranks get the variables that torchrun sets (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, "
        "MASTER_PORT …), a share of the CPUs, and a port that nobody else can be given. A file.py "
        "is run by Python.\n\n"
        "The first rank that fails is named, with the end of its stderr; the others get SIGTERM "
        "and, after the grace time, SIGKILL. The exit status is that rank's, or 128 + the signal "
        "that killed it. SIGINT, SIGTERM and SIGHUP are passed on to the ranks; a second one ends "
        "them at once. Ranks never outlive the launcher, nor does it outlive who started it in the "
        "foreground.\n\n"
        "Several nodes: start it on each with the same words but another --node-rank; nothing runs "
        "before "
        "all are there and reach node 0's port, and all end together. The variable STOKER_GANG_KEY "
        "keeps "
        "strangers out: the same secret on each. Without --node-rank and --rdzv this is node 0 and "
        "starts the "
        "others by the words in ~/.config/stoker/nodes (or $STOKER_NODES): this machine's address "
        "on the first "
        "line, then a line for each other node, a name and what comes before a shell there (ws2 "
        "ssh ws2).\n\n"
        "torchrun's words are understood as well: --nproc_per_node, --nnodes, --node_rank, "
        "--master_addr, --master_port, --rdzv_endpoint, --max_restarts, --log_dir, --standalone, "
        "-m.\n\n"
        "With --json the answer (gang.json) is on stdout, and what ranks write is on stderr.",
    .options = options_of_launch,
    .stop_at = always,
    .run = run_launch};
