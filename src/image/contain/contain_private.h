/* Private to contain: what its files share. */
#ifndef STK_CONTAIN_PRIVATE_H
#define STK_CONTAIN_PRIVATE_H

#include <sys/types.h>

#include "base/json.h"
#include "image/contain/contain.h"
#include "net/http.h"

/* Inside the container. */
#define CONTAIN_RUNNER "/stoker/stk-runner"
#define CONTAIN_SOCKET "/stoker/contain.sock"
#define CONTAIN_BACK "--give-back"

enum { CONTAIN_NEVER_RAN = 125, CONTAIN_CANT_RUN = 126, CONTAIN_NO_PROGRAM = 127 };
enum { CONTAIN_MAX_FDS = 250 }; /* the kernel passes 253 at once */

/* --- contain_engine.c, contain_search.c --- */

extern const stk_json_limits stk_engine_limits;
int stk_engine_ping(const char *socket, int cancel_fd, stk_http_response *ret, stk_err *err);
/* Finds it without asking what it can: one short call instead of two, of which one is slow. */
int stk_engine_open(const char *socket, int cancel_fd, stk_arena *arena, stk_engine *ret,
                    stk_err *err);
int stk_engine_ask(stk_engine *engine, stk_arena *arena, stk_err *err);
/* The answer's JSON, in `arena`. */
int stk_engine_get(const stk_engine *engine, const char *path, stk_arena *arena, stk_json *ret,
                   stk_err *err);
int stk_engine_parse(const stk_engine *engine, const char *path, const stk_buf *body,
                     stk_arena *arena, stk_json *ret, stk_err *err);
/* Text for a path or a query: what isn't plain is %XX. NULL when out of memory. */
const char *stk_engine_escape(const char *text, stk_arena *arena);
/* {key: texts} as such a text: what a list is to be filtered by. */
const char *stk_engine_filter(const char *key, const char *const *texts, stk_arena *arena);

/* --- contain_spec.c: the `container` of a task.json --- */

typedef struct contain_mount {
    const char *from, *to;
    bool write;
} contain_mount;

typedef struct contain_spec {
    const char *dir;        /* of the attempt, absolute */
    const char *name;       /* of the container */
    const char *image;      /* what is run */
    const char *shown;      /* what the user wrote, for messages */
    const char *socket;     /* NULL: to be found */
    const char *cwd;        /* NULL: the image's */
    const char *user;       /* NULL: who owns the files outside */
    const char *owner;      /* "uid:gid": who gets what `user` wrote; NULL: nobody */
    const char *network;    /* host, bridge, none */
    const char *cpus;       /* "0,1", or NULL */
    const char **argv;      /* NULL-terminated */
    const char *const *own; /* arguments of the runner itself in the place of its socket, or NULL */
    const char **env;       /* "K=V", NULL-terminated: for the message only */
    const char **expand;    /* names of it that are made of the image's, NULL-terminated */
    const char **devices;   /* paths and CDI names, NULL-terminated */
    const char **gpus;      /* uuids, NULL-terminated */
    const stk_json *labels; /* a map, or NULL */
    const stk_json *ulimits;
    contain_mount *mounts;
    uint32_t n_argv, n_env, n_mounts, n_devices, n_gpus;
    int64_t memory_bytes, cpu_milli, shm_bytes, pids; /* -1: not limited */
    bool keep_entrypoint;
    bool read_only;
} contain_spec;

/* The program is another user than who owns the files: the runner begins as root, hands the task's
 * folders over and takes them back at the end. */
bool stk_contain_switches(const contain_spec *spec);
int stk_contain_read(const char *task_json, stk_arena *arena, contain_spec *ret, stk_err *err);

/* --- contain_devices.c --- */

typedef struct contain_devices {
    const char **nodes; /* "/dev/…" */
    const char **cdi;   /* "nvidia.com/gpu=…" */
    const char **uuids; /* by a device request to NVIDIA's runtime */
    uint32_t n_nodes, n_cdi, n_uuids;
    gid_t groups[8]; /* who may open the nodes */
    uint32_t n_groups;
} contain_devices;

/* How this engine is told of the task's devices; asks it what it can if need be. STK_E_RESOURCES:
 * no way, with the sentence. */
int stk_contain_devices(const contain_spec *spec, stk_engine *engine, stk_arena *arena,
                        contain_devices *ret, stk_err *err);

/* --- contain_create.c --- */

typedef struct contain_files {
    char folder[4096]; /* only we can enter it */
    char socket[4160];
    char runner[4160];
    int listen_fd;
} contain_files;

/* The container of this spec, not started. *ret_id in `arena`. */
int stk_contain_create(const contain_spec *spec, stk_engine *engine, const contain_files *files,
                       stk_arena *arena, const char **ret_id, stk_err *err);
int stk_contain_delete(const stk_engine *engine, const char *id, stk_err *err);

/* --- contain_monitor.c --- */

/* A descriptor that is readable once the engine's process beside the container is gone, its number
 * and name; -1: it can't be seen from here. */
int stk_contain_monitor(pid_t runner, pid_t *ret_pid, char *comm, size_t size);

/* --- contain_back.c --- */

/* The task's files belong to their owner again, where its runner couldn't see to that any more: by
 * another container of the image. */
int stk_contain_take_back(const contain_spec *spec, const stk_engine *engine, stk_arena *arena,
                          stk_err *err);

/* --- contain_wire.c: our side of the runner --- */

/* A folder of ours with the socket (listening) and the runner's program. */
int stk_contain_files_make(const char *dir, contain_files *ret, stk_err *err);
void stk_contain_files_remove(contain_files *files);
/* The message, with our own streams and what was handed to us (`fds`). */
int stk_contain_send(int conn, const contain_spec *spec, const char *const *entrypoint,
                     const int *fds, uint32_t n_fds, stk_err *err);

/* --- contain_events.c --- */

typedef struct contain_ending {
    char
        how[160]; /* other clients asked for its end: "signal 15, then signal 9", "stop"; "" none */
    bool oom;     /* Docker only: Podman has no such event */
} contain_ending;

/* What the engine's events say of its end; waits for that for two seconds at most. False: the
 * engine doesn't answer, or keeps no events. */
bool stk_contain_ending(const stk_engine *engine, const char *id, int64_t since_ms,
                        contain_ending *ret);

typedef struct contain_stats {
    int64_t cpu_us, peak_bytes; /* -1 unknown */
} contain_stats;

/* What the engine has measured of a container that still runs. */
void stk_contain_stats(const stk_engine *engine, const char *id, stk_arena *arena,
                       contain_stats *ret);

/* --- contain_cgroup.c --- */

/* The folder of a container's memory group on this host, by its runner; false: it can't be seen, or
 * the container has none of its own (rootless engines where groups aren't delegated). */
bool stk_contain_cgroup(pid_t pid, const char *id, char *ret_dir, size_t size);
/* Was a process of that group killed for memory, and how much did it use at most (-1 unknown)? */
bool stk_contain_oom(const char *dir, bool *ret_known);
int64_t stk_contain_peak(const char *dir);

#endif
