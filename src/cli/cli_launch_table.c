/* `stoker launch`: the table of its options, and those that set nothing here. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli_launch.h"

const stk_option stk_cli_launch_table[] = {
    {"ranks", 'n', "N",
     "number of processes (1); MIN:MAX: as -n MAX --min-ranks MIN; gpus: one for each usable "
     "device; cpu: one for each CPU; auto: gpus if there are any, else cpu",
     false, "nproc-per-node"},
    {"min-ranks", 0, "N", "a restart may leave out failed ranks, down to N ranks"},
    {"restarts", 0, "N", "restart all ranks after a failure, at most N times (0)", false,
     "max-restarts"},
    {"port", 0, "PORT", "where ranks meet (MASTER_PORT; default: a free one)", false,
     "master-port main-process-port"},
    {"grace", 0, "TIME", "time between SIGTERM and SIGKILL when ranks are ended (5s)", false,
     "shutdown-timeout"},
    {"hang", 0, "TIME", "end all ranks if none makes progress for TIME, and say where each stood"},
    {"log-dir", 0, "DIR", "write rank-K/stdout.log, rank-K/stderr.log and gang.json there"},
    {"redirects", 'r', "WHAT",
     "write to logs only: 1 stdout, 2 stderr, 3 both, or RANK:WHAT,… by local rank"},
    {"tee", 't', "WHAT", "write to logs and print, as above"},
    {"local-ranks-filter", 0, "K,…", "print only these local ranks' output"},
    {"duplicate-stdout-filters", 0, "TEXT,…",
     "copy printed lines with one of these to filtered_stdout.log"},
    {"duplicate-stderr-filters", 0, "TEXT,…", "the same for stderr: filtered_stderr.log"},
    {"no-prefix", 0, NULL, "print the ranks' lines without \"[K] \" before them"},
    {"no-bind", 0, NULL, "let each rank use every CPU (else they are split)"},
    {"virtual-local-rank", 0, NULL,
     "each rank sees only its own device, and LOCAL_RANK is 0 everywhere"},
    {"role", 0, "NAME", "ROLE_NAME of the ranks (default)"},
    {"signals-to-handle", 0, "NAME,…",
     "signals that end the ranks (SIGTERM,SIGINT,SIGHUP,SIGQUIT)"},
    {"standalone", 0, NULL, "on this node alone (the default)"},
    {"module", 'm', NULL, "PROGRAM is a Python module (python -m)"},
    {"no-python", 0, NULL, "execute PROGRAM itself, even if it is a file.py"},
    {"run-path", 0, NULL, "run the file PROGRAM by Python's runpy.run_path"},
    {"nnodes", 0, "N", "run on N nodes (see above); MIN:MAX: nodes may join and leave", false,
     "num-machines"},
    {"node-rank", 0, "K", "which of them this is, from 0; node 0 leads and has rank 0", false,
     "machine-rank"},
    {"rdzv", 0, "HOST:PORT", "node 0 as the others reach it (port 29400)", false,
     "rdzv-endpoint master-addr main-process-ip"},
    {"rdzv-id", 0, "ID", "the gang's name; nodes of another gang are refused"},
    {"rdzv-conf", 0, "KEY=VALUE,…", "join_timeout (as --join), is_host"},
    {"local-addr", 0, "ADDRESS", "this node's address: connect from it; node 0's MASTER_ADDR"},
    {"join", 0, "TIME", "how long nodes wait for each other (10m)"},
    {"gang", 0, "TASK.JSON", "the gang of a step (for the engine)"},
    {"hold", 0, "N", "lease N devices and become PROGRAM (for nodes that a gang's leader starts)"},
    {"forkserver-fd", 0, "FD", "start ranks with a fork server (for Python steps)"},
    {"num-processes", 0, "N", "accelerate launch's number of ranks, on all nodes together", false,
     NULL, true},
    {"cpu", 0, NULL, "accelerate's ranks compute on CPUs", false, NULL, true},
    {"multi-gpu", 0, NULL, "accelerate's ranks have a device each", false, NULL, true},
    {"config-file", 0, "FILE", "accelerate's settings in a file", false, NULL, true},
    {"gpu-ids", 0, "K,…", "devices that accelerate's ranks see, or all", false, NULL, true},
#define X(group, name, arg, variable, form, standard, values)                                      \
    {name, 0, arg, "accelerate launch: sets " variable, false, NULL, true},
#include "tbl/launch_accelerate.def"
#undef X
#define X(name, letter, arg, how, values, words) {name, letter, arg, words, false, NULL, true},
#include "tbl/launch_options.def"
#undef X
    {NULL}};

typedef enum { NOTHING, REFUSED } effect;

static const struct {
    const char *name, *values, *words;
    effect how;
} foreign[] = {
#define X(name, letter, arg, how, values, words) {name, values, words, how},
#include "tbl/launch_options.def"
#undef X
};

bool stk_cli_launch_is_foreign(const char *name)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        if (strcmp(foreign[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_among(const char *value, const char *values)
{
    for (size_t n; *values != '\0'; values += n + (values[n] == '|')) {
        n = strcspn(values, "|");
        if (strlen(value) == n && strncmp(value, values, n) == 0) {
            return true;
        }
    }
    return false;
}

int stk_cli_launch_check_value(const char *name, const char *value, const char *values,
                               const char *words, stk_err *err)
{
    if (strcmp(values, "#") == 0) {
        char *end;
        double number = strtod(value, &end);
        if (end == value || *end != '\0' || !(number >= 0)) {
            return stk_err_set(err, STK_E_USAGE, "--%s: '%s' is not a number of seconds", name,
                               value);
        }
        return 0;
    }
    if (*values == '\0' || is_among(value, values)) {
        return 0;
    }
    if (words != NULL) {
        return stk_err_set(err, STK_E_USAGE, "--%s %s has no meaning here: %s", name, value, words);
    }
    return stk_err_set(err, STK_E_USAGE, "--%s: '%s' is none of %s", name, value, values);
}

int stk_cli_launch_foreign(const stk_cli *cli, stk_err *err)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        const char *value = stk_cli_value(cli, foreign[i].name);
        if (value == NULL) {
            continue;
        }
        if (foreign[i].how == REFUSED) {
            return stk_err_set(err, STK_E_USAGE, "--%s has no meaning here: %s", foreign[i].name,
                               foreign[i].words);
        }
        STK_TRY(stk_cli_launch_check_value(foreign[i].name, value, foreign[i].values,
                                           foreign[i].words, err));
    }
    return 0;
}
