/* Private to contain: what its files share. */
#ifndef STK_CONTAIN_PRIVATE_H
#define STK_CONTAIN_PRIVATE_H

#include <sys/types.h>

#include "base/json.h"
#include "image/contain/contain.h"
#include "model/spec/spec.h"
#include "net/http.h"

/* Inside the container. */
#define CONTAIN_RUNNER "/stoker/stk-runner"
#define CONTAIN_SOCKET "/stoker/contain.sock"
#define CONTAIN_BACK "--give-back"

enum { CONTAIN_NEVER_RAN = 125, CONTAIN_CANT_RUN = 126, CONTAIN_NO_PROGRAM = 127 };
enum { CONTAIN_MAX_FDS = 250 }; /* the kernel passes up to 253 at once */

/* --- contain_engine.c, contain_search.c --- */

extern const stk_json_limits stk_engine_limits;
int stk_engine_ping(const char *socket, int cancel_fd, stk_http_response *ret, stk_err *err);
/* Finds the engine without its features: this saves the slower one of two calls. */
int stk_engine_open(const char *socket, int cancel_fd, stk_arena *arena, stk_engine *ret,
                    stk_err *err);
int stk_engine_ask(stk_engine *engine, stk_arena *arena, stk_err *err);
/* Calls the engine and parses the JSON of its answer into `arena`. */
int stk_engine_get(const stk_engine *engine, const char *path, stk_arena *arena, stk_json *ret,
                   stk_err *err);
int stk_engine_parse(const stk_engine *engine, const char *path, const stk_buf *body,
                     stk_arena *arena, stk_json *ret, stk_err *err);
/* Percent-encodes text for a path or a query. NULL: out of memory. */
const char *stk_engine_escape(const char *text, stk_arena *arena);
/* {key: texts}, percent-encoded: the filter of a list. */
const char *stk_engine_filter(const char *key, const char *const *texts, stk_arena *arena);

/* --- contain_spec.c: the `container` of a task.json --- */

typedef struct contain_mount {
    const char *from, *to;
    bool write;
} contain_mount;

typedef struct contain_spec {
    const char *dir;        /* the attempt's folder, absolute */
    const char *name;       /* of the container */
    const char *image;      /* the reference to run */
    const char *shown;      /* the user's spelling, for messages */
    const char *socket;     /* NULL: searched for */
    const char *cwd;        /* NULL: the image's */
    const char *user;       /* NULL: the owner of the files outside */
    const char *owner;      /* "uid:gid" that gets the files `user` wrote; NULL: nobody */
    const char *network;    /* host, bridge, none */
    const char *cpus;       /* "0,1", or NULL */
    const char **argv;      /* NULL-terminated */
    const char *const *own; /* the runner's arguments in place of its socket, or NULL */
    const char **env;       /* "K=V", NULL-terminated; sent in the message only */
    const char **expand;    /* variables that refer to the image's, NULL-terminated */
    const char **devices;   /* paths and CDI names, NULL-terminated */
    const char **gpus;      /* uuids, NULL-terminated */
    const stk_json *labels; /* a map, or NULL */
    const stk_json *ulimits;
    contain_mount *mounts;
    stk_spec_volume *volumes; /* folders, volumes and devices that the user names; `user` keeps off
                                 them */
    uint32_t n_volumes;
    const stk_json *run_args; /* docker-py's, for the engine (contain_run_args.c); or NULL */
    uint32_t n_argv, n_env, n_mounts, n_devices, n_gpus;
    int64_t memory_bytes, cpu_milli, shm_bytes, pids; /* -1: not limited */
    bool keep_entrypoint;
    bool read_only;
} contain_spec;

/* True if the program's user doesn't own the files: the runner then starts as root, gives the
 * task's folders to that user and takes them back at the end. */
bool stk_contain_switches(const contain_spec *spec);
int stk_contain_read(const char *task_json, stk_arena *arena, contain_spec *ret, stk_err *err);

/* --- contain_devices.c --- */

typedef struct contain_devices {
    const stk_spec_volume **nodes; /* "/dev/…" */
    const char **cdi;              /* "nvidia.com/gpu=…" */
    const char **uuids;            /* for a device request to NVIDIA's runtime */
    uint32_t n_nodes, n_cdi, n_uuids;
    gid_t groups[8]; /* groups that may open the nodes */
    uint32_t n_groups;
} contain_devices;

/* Chooses how to pass the task's devices to this engine; asks for its features if needed.
 * STK_E_RESOURCES: the engine has no way. */
int stk_contain_devices(const contain_spec *spec, stk_engine *engine, stk_arena *arena,
                        contain_devices *ret, stk_err *err);

/* --- contain_create.c --- */

/* --- contain_run_args.c: what run_args and volumes ask of the engine --- */

/* The members of HostConfig, or of the request to Podman's own API. */
void stk_contain_put_run_args(const contain_spec *spec, bool podman, stk_buf *out);
/* Items of the list of mounts. */
void stk_contain_put_volumes(const contain_spec *spec, bool podman, stk_buf *out);
/* Whether /dev/shm is the machine's, so that the container has no size of its own for it. */
bool stk_contain_shares_memory(const contain_spec *spec);
/* Items of a list: those of `key`, a text or a list. */
void stk_contain_put_items(const contain_spec *spec, const char *key, stk_buf *out);

typedef struct contain_files {
    char folder[4096]; /* only we can enter */
    char socket[4160];
    char runner[4160];
    int listen_fd;
} contain_files;

/* Creates the container of this spec without starting it. *ret_id in `arena`. */
int stk_contain_create(const contain_spec *spec, stk_engine *engine, const contain_files *files,
                       stk_arena *arena, const char **ret_id, stk_err *err);
int stk_contain_delete(const stk_engine *engine, const char *id, stk_err *err);

/* --- contain_monitor.c --- */

/* The engine's process beside the container: its pid, its name, and a descriptor that becomes
 * readable when it ends; -1: it isn't visible from here. */
int stk_contain_monitor(pid_t runner, pid_t *ret_pid, char *comm, size_t size);

/* --- contain_back.c --- */

/* Gives the task's files back to their owner after the runner died before it could. Uses another
 * container of the image. */
int stk_contain_take_back(const contain_spec *spec, const stk_engine *engine, stk_arena *arena,
                          stk_err *err);

/* --- contain_wire.c: our side of the runner --- */

/* Makes a folder with the listening socket and the runner's program. */
int stk_contain_files_make(const char *dir, contain_files *ret, stk_err *err);
void stk_contain_files_remove(contain_files *files);
/* Sends the message with our own streams and the descriptors `fds`. */
int stk_contain_send(int conn, const contain_spec *spec, const char *const *entrypoint,
                     const int *fds, uint32_t n_fds, stk_err *err);

/* --- contain_events.c --- */

typedef struct contain_ending {
    char how[160]; /* by other clients: "signal 15, then signal 9", "stop"; "": none */
    bool oom;      /* Docker only: Podman has no such event */
} contain_ending;

/* Reads from the engine's events how the container ended; waits at most two seconds for the end.
 * Returns false if the engine doesn't answer or keeps no events. */
bool stk_contain_ending(const stk_engine *engine, const char *id, int64_t since_ms,
                        contain_ending *ret);

typedef struct contain_stats {
    int64_t cpu_us, peak_bytes; /* -1 unknown */
} contain_stats;

/* Reads the engine's measurements of a running container. */
void stk_contain_stats(const stk_engine *engine, const char *id, stk_arena *arena,
                       contain_stats *ret);

/* --- contain_cgroup.c --- */

/* Finds the container's memory group on this host by its runner. Returns false if it isn't visible,
 * or if the container has none of its own (rootless engines without delegated groups). */
bool stk_contain_cgroup(pid_t pid, const char *id, char *ret_dir, size_t size);
/* Did the kernel kill a process of that group for memory? And the group's peak use (-1:
 * unknown). */
bool stk_contain_oom(const char *dir, bool *ret_known);
int64_t stk_contain_peak(const char *dir);

#endif
