/* A rank's environment (torchrun's variables) and its CPUs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "host/accel/accel_sysfs.h"
#include "host/launch/launch_gang.h"
#include "host/launch/launch_nodes.h"
#include "host/launch/launch_private.h"
#include "host/launch/launch_ranks.h"
#include "host/launch/launch_told.h"
#include "sys/proc.h"

/* --- environment --- */

/* We set RANK and similar variables; these others must not leak from an outer launcher. */
static const char *const cleared[] = {"TORCHELASTIC_USE_AGENT_STORE",
                                      "TORCHELASTIC_ERROR_FILE",
                                      "STOKER_RANK_DIR",
                                      "STOKER_RANK_LINE",
                                      "STOKER_GANG_NODE",
                                      "STOKER_GANG_RDZV",
                                      "STOKER_GANG_JOIN",
                                      "STOKER_GANG_KEY",
                                      "STOKER_GANG_LEASH"};
static const char *const threads[] = {
#define X(name) name,
#include "tbl/threads.def"
#undef X
};
#define CUDA_MASK "CUDA_VISIBLE_DEVICES"
enum { N_THREADS = sizeof threads / sizeof *threads, MAX_OURS = 48 };

static void put_variable(stk_gang *g, launch_env *e, const char *name, const char *value)
{
    e->ours[e->n_ours++] = stk_arena_printf(g->arena, "%s=%s", name, value);
}

static void put_number_variable(stk_gang *g, launch_env *e, const char *name, int64_t value)
{
    e->ours[e->n_ours++] = stk_arena_printf(g->arena, "%s=%lld", name, (long long)value);
}

/* At least 1. Reads the control groups, which can only lower the number, only if that can matter:
 * the ranks wait for it. */
static uint32_t cpus_per_rank(uint32_t n_ranks)
{
    cpu_set_t ours;
    if (sched_getaffinity(0, sizeof ours, &ours) == 0 && (uint32_t)CPU_COUNT(&ours) < 2 * n_ranks) {
        return 1;
    }
    return MAX(stk_proc_n_cpus() / n_ranks, 1);
}

/* Splits a thread count that was meant for the whole step; a count that the user set stays. */
static void put_threads(stk_gang *g, launch_env *e)
{
    uint32_t per_rank = 0;
    for (uint32_t i = 0; i < g->n && g->cpus != NULL; i++) {
        uint32_t own = (uint32_t)CPU_COUNT(&g->cpus[i]);
        if (i == 0 || own < per_rank) {
            per_rank = own;
        }
    }
    for (int i = 0; i < N_THREADS; i++) {
        const char *set = getenv(threads[i]);
        bool whole = set != NULL && g->config->split > 0 &&
                     strtoul(set, NULL, 10) == (unsigned long)g->config->split;
        if (g->n > 1 && (whole || (i == 0 && set == NULL))) {
            if (per_rank == 0) {
                per_rank = cpus_per_rank(g->n);
            }
            put_number_variable(g, e, threads[i], per_rank);
        }
    }
}

static bool is_in_environment(const launch_env *e, const char *entry)
{
    size_t n = strcspn(entry, "=") + 1;
    for (uint32_t i = 0; i < e->n_ours; i++) {
        if (strncmp(e->ours[i], entry, n) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof cleared / sizeof *cleared; i++) {
        if (strncmp(cleared[i], entry, n - 1) == 0 && cleared[i][n - 1] == '\0') {
            return true;
        }
    }
    return false;
}

static void put_fixed(stk_gang *g, launch_env *e)
{
    put_number_variable(g, e, "WORLD_SIZE", g->world);
    put_number_variable(g, e, "LOCAL_WORLD_SIZE", g->n);
    put_number_variable(g, e, "NODE_RANK", stk_launch_nodes_place(g));
    put_number_variable(g, e, "GROUP_RANK", stk_launch_nodes_place(g));
    put_number_variable(g, e, "GROUP_WORLD_SIZE", stk_launch_nodes_count(g));
    put_number_variable(g, e, "ROLE_WORLD_SIZE", g->world);
    put_variable(g, e, "ROLE_NAME", stk_text_or(g->config->role, "default"));
    put_variable(g, e, "MASTER_ADDR", stk_launch_nodes_address(g));
    put_number_variable(g, e, "MASTER_PORT", g->port.number);
    put_number_variable(g, e, "TORCHELASTIC_RESTART_COUNT", g->restart - g->n_changes);
    put_number_variable(g, e, "TORCHELASTIC_MAX_RESTARTS", g->config->max_restarts);
    put_variable(g, e, "TORCHELASTIC_RUN_ID", g->config->run_id);
    put_variable(g, e, "TORCHELASTIC_SIGNALS_TO_HANDLE",
                 stk_text_or(g->config->signal_names, "SIGTERM,SIGINT,SIGHUP,SIGQUIT"));
    /* As torchrun does (it passes -u). PYTHONFAULTHANDLER shows where a crash or a hang happened.
     * The user's settings win. */
    static const char *const ones[] = {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "PYTHONUNBUFFERED",
                                       "PYTHONFAULTHANDLER"};
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) {
        if (getenv(ones[i]) == NULL) {
            put_variable(g, e, ones[i], "1");
        }
    }
    /* By default Gloo uses the address of the host's name. On Debian that is 127.0.1.1, which other
     * nodes can't reach.
     */
    if (g->nodes != NULL && g->nodes->interface[0] != '\0' &&
        getenv("GLOO_SOCKET_IFNAME") == NULL) {
        put_variable(g, e, "GLOO_SOCKET_IFNAME", g->nodes->interface);
    }
    if (g->line.from >= 0) {
        e->ours[e->n_ours++] =
            stk_arena_printf(g->arena, "STOKER_RANK_LINE=%d,%d,%d,%d", g->line.fds[0],
                             g->line.fds[1], g->line.fds[2], g->line.fds[3]);
    }
    put_threads(g, e);
    const char *masks[8][2];
    uint32_t n = stk_launch_devices_masks(g, masks, 8);
    for (uint32_t i = 0; i < n; i++) {
        if (!g->config->virtual_rank || strcmp(masks[i][0], CUDA_MASK) != 0) {
            put_variable(g, e, masks[i][0], masks[i][1]);
        }
    }
}

/* The devices that all ranks would see; NULL: all of this host. */
static const char *cuda_mask(stk_gang *g)
{
    const char *masks[8][2];
    uint32_t n = stk_launch_devices_masks(g, masks, 8);
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(masks[i][0], CUDA_MASK) == 0) {
            return masks[i][1];
        }
    }
    return getenv(CUDA_MASK);
}

/* --virtual-local-rank: the rank sees only its own device, which then is number 0. */
static int put_own_device(stk_gang *g, launch_env *e, uint32_t rank, stk_err *err)
{
    const char *list = cuda_mask(g);
    const char *at = list;
    put_number_variable(g, e, "LOCAL_RANK", 0);
    if (list == NULL) {
        put_number_variable(g, e, CUDA_MASK, rank);
        return 0;
    }
    for (uint32_t i = 0; i < rank && at != NULL; i++) {
        at = strchr(at, ',');
        at += at != NULL;
    }
    if (at == NULL) {
        return stk_err_set(
            err, STK_E_USAGE,
            "--virtual-local-rank: local rank %u has no device of its own in " CUDA_MASK
            "=%s; start fewer ranks",
            rank, list);
    }
    e->ours[e->n_ours++] = stk_arena_printf(g->arena, CUDA_MASK "=%.*s", (int)strcspn(at, ","), at);
    return 0;
}

int stk_launch_env_new(stk_gang *g, launch_env *ret_env, stk_err *err)
{
    extern char **environ;
    size_t n_have = 0;
    while (environ[n_have] != NULL) {
        n_have++;
    }
    launch_env e = {.all = stk_arena_array(g->arena, n_have + MAX_OURS + 1, sizeof *e.all)};
    e.ours = e.all;
    if (e.all == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "the ranks' environment");
    }
    put_fixed(g, &e);
    e.n_fixed = e.n_ours;
    /* To know the names of the variables; and the last rank may lack a device. */
    STK_TRY(stk_launch_env_rank(g, &e, g->n - 1, err));
    uint32_t n = e.n_ours;
    for (size_t i = 0; i < n_have; i++) {
        if (!is_in_environment(&e, environ[i])) {
            e.all[n++] = environ[i];
        }
    }
    e.all[n] = NULL;
    *ret_env = e;
    return 0;
}

int stk_launch_env_rank(stk_gang *g, launch_env *env, uint32_t rank, stk_err *err)
{
    uint32_t number = stk_launch_number(g, rank);
    char path[PATH_MAX];
    env->n_ours = env->n_fixed;
    put_number_variable(g, env, "RANK", number);
    if (g->config->virtual_rank) {
        STK_TRY(put_own_device(g, env, rank, err));
    } else {
        put_number_variable(g, env, "LOCAL_RANK", rank);
    }
    put_number_variable(g, env, "ROLE_RANK", number);
    put_variable(g, env, "TORCHELASTIC_ERROR_FILE", stk_launch_errors_path(g, rank, path));
    if (g->config->dir != NULL) {
        const char *dir = stk_arena_printf(g->arena, "%s/rank-%u", g->config->dir, number);
        put_variable(g, env, "STOKER_RANK_DIR", dir);
        /* PyTorch's flight recorder writes there when NCCL fails, or on request through the
         * pipe. */
        static const char *const flight[] = {"TORCH_FR_DUMP_TEMP_FILE",
                                             "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"};
        for (size_t i = 0; i < sizeof flight / sizeof *flight; i++) {
            if (getenv(flight[i]) == NULL && dir != NULL) {
                env->ours[env->n_ours++] =
                    stk_arena_printf(g->arena, "%s=%s/flight-", flight[i], dir);
            }
        }
    }
    for (uint32_t i = 0; i < env->n_ours; i++) {
        if (env->ours[i] == NULL) {
            return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "the ranks' environment");
        }
    }
    return 0;
}

static int node_of(int cpu)
{
    for (int node = 0; node < 64; node++) { /* the folder cpuN has a link nodeK */
        if (stk_sysfs_exists("/sys/devices/system/cpu/cpu%d/node%d", cpu, node)) {
            return node;
        }
    }
    return 0;
}

static int compare_places(const void *a, const void *b)
{
    const cpu_place *x = a;
    const cpu_place *y = b;
    if (x->node != y->node) {
        return x->node - y->node;
    }
    return x->core != y->core ? x->core - y->core : x->cpu - y->cpu;
}

/* The CPUs near a rank's devices; `all` if those are unknown. */
static const cpu_set_t *near_rank(const cpu_set_t *near, uint32_t rank, const cpu_set_t *all)
{
    return near == NULL ? all : &near[rank];
}

bool stk_launch_split(const cpu_place *places, uint32_t n, const cpu_set_t *near, uint32_t n_ranks,
                      cpu_set_t *ret_sets)
{
    bool done[STK_LAUNCH_MAX_RANKS] = {false};
    cpu_set_t taken, all;
    CPU_ZERO(&taken);
    memset(&all, 0xff, sizeof all);
    for (;;) {
        /* Start with the ranks that have the fewest CPUs to choose from; treat ranks with the same
         * choice together. */
        const cpu_set_t *of = NULL;
        for (uint32_t i = 0; i < n_ranks; i++) {
            const cpu_set_t *own = near_rank(near, i, &all);
            if (!done[i] && (of == NULL || CPU_COUNT(own) < CPU_COUNT(of))) {
                of = own;
            }
        }
        if (of == NULL) {
            return true;
        }
        uint32_t n_alike = 0, n_free = 0;
        for (uint32_t i = 0; i < n_ranks; i++) {
            n_alike += !done[i] && CPU_EQUAL(near_rank(near, i, &all), of);
        }
        for (uint32_t k = 0; k < n; k++) {
            size_t cpu = (size_t)places[k].cpu;
            n_free += CPU_ISSET(cpu, of) && !CPU_ISSET(cpu, &taken);
        }
        if (n_free < n_alike) {
            return false;
        }
        uint32_t k = 0, at = 0; /* counts over the free CPUs */
        for (uint32_t i = 0, turn = 0; i < n_ranks; i++) {
            if (done[i] || !CPU_EQUAL(near_rank(near, i, &all), of)) {
                continue;
            }
            done[i] = true;
            CPU_ZERO(&ret_sets[i]);
            for (turn++; at < turn * n_free / n_alike; k++) {
                size_t cpu = (size_t)places[k].cpu;
                if (CPU_ISSET(cpu, of) && !CPU_ISSET(cpu, &taken)) {
                    CPU_SET(cpu, &ret_sets[i]);
                    CPU_SET(cpu, &taken);
                    at++;
                }
            }
        }
    }
}

/* Keeps neighbours together: a rank's CPUs are on one NUMA node if possible, and the threads of a
 * core stay together. If the CPUs near a rank's devices are known, the rank gets only those. */
bool stk_launch_cpus(const stk_gang *g, cpu_set_t *ret_sets)
{
    cpu_set_t ours;
    if (sched_getaffinity(0, sizeof ours, &ours) < 0) {
        return false;
    }
    uint32_t n = (uint32_t)CPU_COUNT(&ours);
    if (n < g->n || g->n < 2) {
        return false;
    }
    bool nodes = stk_sysfs_exists("/sys/devices/system/node/node1");
    bool threaded = stk_sysfs_number("/sys/devices/system/cpu/smt/active") == 1;
    cpu_place places[CPU_SETSIZE];
    uint32_t k = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &ours)) {
            cpu_place place = {.cpu = (int)cpu, .core = -1};
            if (nodes) {
                place.node = node_of((int)cpu);
            }
            if (threaded) {
                place.core = (int)stk_sysfs_number(
                    "/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list", cpu);
            }
            if (place.core < 0) {
                place.core = (int)cpu;
            }
            places[k++] = place;
        }
    }
    qsort(places, n, sizeof *places, compare_places);
    cpu_set_t *near = calloc(g->n, sizeof *near);
    bool split = near != NULL && stk_launch_devices_near(g, near) &&
                 stk_launch_split(places, n, near, g->n, ret_sets);
    free(near);
    return split || stk_launch_split(places, n, NULL, g->n, ret_sets);
}
