/* contain: runs a program in a container of this host's engine (Docker, Podman) as if it were our
 * own process. `stoker contain` uses it, and so does all code that asks the engine to find,
 * inspect, build or pull an image.
 *
 * The task's process is `stoker contain` (contain_task.c). It asks the engine to create and to
 * start the container. PID 1 inside is stk-runner (stk_runner.c), a static program that this binary
 * carries. The container mounts it read-only together with its socket, from a folder that only the
 * user can enter, and runs it in place of the image's entrypoint. The socket passes the program's
 * environment and, as descriptors, the logs, the attempt's lock and the leases. These therefore
 * last exactly as long as the container. The runner passes signals on, reaps, and reports the end.
 * Each side ends the container when the other one dies, and the engine removes it (AutoRemove).
 *
 * We ask for the engine's events and statistics only if we can't see the facts ourselves: who ended
 * the container, and its memory and CPU time if its processes aren't visible on this host. Nothing
 * here knows steps or runs. Reasons: docs/decisions/0007-containers.md. */
#ifndef STK_CONTAIN_H
#define STK_CONTAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

/* --- the engine (contain_engine.c) --- */

typedef struct stk_engine {
    const char *socket; /* path */
    const char *source; /* "DOCKER_HOST", "context 'x'", "the default socket": for messages */
    const char *name;   /* "Docker 26.1.5", "Podman 4.3.1" */
    const char *api;    /* "1.41": the version that we request */
    bool is_podman;
    bool is_rootless;
    bool limits_memory; /* can limit memory */
    bool has_cdi;       /* accepts CDI names, through either API */
    bool has_nvidia;    /* Docker with NVIDIA's runtime or hook: device requests work */
    const char *root;   /* folder of its images, or NULL */
    const char *arch;   /* "amd64" */
    int64_t idle_ms;    /* calls end after this much silence; 0: see below */
    int cancel_fd;      /* calls end when it is readable (STK_E_CANCELLED); 0: none */
} stk_engine;

/* Every call is bounded. After 30 s of silence we ping the engine. If it answers within 10 s, the
 * call goes on: for 30 minutes, or without a limit if it is a stream. */

/* Finds the engine as its own clients do: `socket` (a path or unix://…; NULL: none named),
 * DOCKER_HOST, CONTAINER_HOST, the current docker context,
 * $XDG_RUNTIME_DIR/{docker,podman/podman}.sock, /var/run/docker.sock, /run/podman/podman.sock. Then
 * asks for its features. STK_E_NOT_FOUND: no engine answers; the error lists the sockets tried and
 * a remedy. Texts live in `arena`. */
int stk_engine_find(const char *socket, stk_arena *arena, stk_engine *ret, stk_err *err);

static inline const char *stk_engine_program(const stk_engine *engine)
{
    return engine->is_podman ? "podman" : "docker";
}
/* Makes one call with JSON in and out; `path` begins with "/containers/…". `ret_body` gets the
 * whole answer. A status of 400 and above is an error with the engine's own words: 404
 * STK_E_NOT_FOUND, 409 STK_E_BUSY. */
int stk_engine_call(const stk_engine *engine, const char *method, const char *path,
                    const char *json, int *ret_status, stk_buf *ret_body, stk_err *err);
/* Lists the containers that have all these labels ("stoker.run" or "stoker.run=…",
 * NULL-terminated), running or not. Asks again if Podman fails because a container goes away
 * meanwhile. */
int stk_engine_containers(const stk_engine *engine, const char *const *labels, stk_arena *arena,
                          stk_json *ret_list, stk_err *err);
/* Splits a container's log: frames of 8 bytes (stream, then length, big-endian) and their text. A
 * terminal's log has no frames. `log` gets stderr; NULL: leaves it out. */
void stk_engine_split_log(const stk_buf *body, stk_buf *out, stk_buf *log);
/* Like stk_engine_call, but sends a body from a descriptor (a tar) and the caller's headers, and
 * reads a stream of JSON objects: `on_json` gets the text of each (build, pull, push). */
int stk_engine_stream(const stk_engine *engine, const char *method, const char *path,
                      const char *const *headers, int body_fd,
                      bool (*on_json)(void *arg, const char *json, size_t n), void *arg,
                      stk_err *err);

/* --- devices (contain_devices.c) --- */

/* Whether this engine can give a container the GPU of this uuid, or the device of this CDI name.
 * STK_E_RESOURCES with a remedy: it has no way. */
int stk_contain_check_gpu(const stk_engine *engine, const char *uuid, stk_err *err);
int stk_contain_check_cdi(const stk_engine *engine, const char *name, stk_err *err);

/* --- a task's container (contain_task.c and others) --- */

typedef struct stk_contain_end {
    int exit_status; /* of the program; -1: a signal ended it */
    int signal;
    bool oom;
    int64_t peak_bytes;                /* -1 unknown */
    int64_t shm_bytes, shm_free_bytes; /* of the container's own /dev/shm at the end; -1: unknown */
    int64_t cpu_us;                    /* the engine's, if we can't measure it; -1: unknown */
    char text[1024]; /* why it never ran, or that the whole container was ended; "": neither */
    char by[320];    /* who asked the engine to end it; "": unknown */
} stk_contain_end;

/* Runs the `container` of this task.json to its end, and passes SIGTERM on. */
int stk_contain_run(const char *task_json, stk_contain_end *ret_end, stk_err *err);
/* Removes every container with these labels ("stoker.run=…", NULL-terminated), running or not;
 * *ret_n: how many. */
int stk_contain_remove(const stk_engine *engine, const char *const *labels, uint32_t *ret_n,
                       stk_err *err);

#endif
