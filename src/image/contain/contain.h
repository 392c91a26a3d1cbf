/* contain: a program in a container of this host's engine (Docker, Podman), as if it were our
 * process. `stoker contain` and whatever else asks that engine: is an image here, what does it
 * hold, build it, pull it.
 *
 * The task's process is `stoker contain` (contain_task.c). It asks the engine to create and to
 * start the container. PID 1 inside is stk-runner (stk_runner.c): a static program that this binary
 * carries. It is mounted read-only with its socket, in a folder that only the user can enter, and
 * is the entrypoint in place of the image's own. Over the socket it gets the program's environment
 * and, as descriptors, the logs, the attempt's lock and the leases, which so last exactly as long
 * as the container. It passes signals on, reaps, and reports the end. Each side ends the container
 * when the other one dies, and the engine removes it (AutoRemove).
 *
 * The engine's events and statistics are asked only for what can't be seen from here: who ended the
 * container, and its memory and CPU time where its processes have no number here. Nothing here
 * knows steps or runs. Why it is so: docs/decisions/0007-containers.md.
 */
#ifndef STK_CONTAIN_H
#define STK_CONTAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

/* --- the engine (contain_engine.c) --- */

typedef struct stk_engine {
    const char *socket; /* path */
    const char *source; /* "DOCKER_HOST", "context 'x'", "the default socket": for messages */
    const char *name;   /* "Docker 26.1.5", "Podman 4.3.1" */
    const char *api;    /* "1.41": what we ask with */
    bool is_podman;
    bool is_rootless;
    bool limits_memory; /* it can */
    bool has_cdi;       /* takes CDI names somehow */
    bool has_nvidia;    /* Docker with NVIDIA's runtime or hook: device requests work */
    const char *root;   /* where it keeps images, or NULL */
    const char *arch;   /* "amd64" */
    int64_t idle_ms;    /* calls end when it is silent for so long; 0: see below */
    int cancel_fd;      /* readable: calls end (STK_E_CANCELLED); 0: none */
} stk_engine;

/* No call waits for ever. An engine that is silent for 30 s is asked whether it lives; it has 10 s
 * to say so, and then the call goes on: for 30 minutes, a stream as long as it takes. */

/* Finds it as its own clients do: `socket` (a path or unix://…; NULL: none named), DOCKER_HOST,
 * CONTAINER_HOST, the current docker context, $XDG_RUNTIME_DIR/{docker,podman/podman}.sock,
 * /var/run/docker.sock, /run/podman/podman.sock; and asks what it can. STK_E_NOT_FOUND: none
 * answers; the sentence lists what was tried and the way out. Texts live in `arena`. */
int stk_engine_find(const char *socket, stk_arena *arena, stk_engine *ret, stk_err *err);

static inline const char *stk_engine_program(const stk_engine *engine)
{
    return engine->is_podman ? "podman" : "docker";
}
/* One call; `path` begins with "/containers/…"; JSON in and out. `ret_body` is whole. An answer of
 * 400 and above is an error with the engine's own words: 404 STK_E_NOT_FOUND, 409 STK_E_BUSY. */
int stk_engine_call(const stk_engine *engine, const char *method, const char *path,
                    const char *json, int *ret_status, stk_buf *ret_body, stk_err *err);
/* The log of a container in such an answer: frames of 8 bytes (which stream, then the length,
 * big-endian) and their text. A terminal's has none. `log` takes stderr; NULL: it is left out. */
void stk_engine_split_log(const stk_buf *body, stk_buf *out, stk_buf *log);
/* The same with a body from a descriptor (a tar), headers of the caller's, and the answer as a
 * stream of JSON objects, each given to `on_json` as text (build, pull, push). */
int stk_engine_stream(const stk_engine *engine, const char *method, const char *path,
                      const char *const *headers, int body_fd,
                      bool (*on_json)(void *arg, const char *json, size_t n), void *arg,
                      stk_err *err);

/* --- a task's container (contain_task.c and others) --- */

typedef struct stk_contain_end {
    int exit_status; /* of the program; -1: by a signal */
    int signal;
    bool oom;
    int64_t peak_bytes;                /* -1 unknown */
    int64_t shm_bytes, shm_free_bytes; /* of its own /dev/shm at its end, -1 unknown */
    int64_t cpu_us;                    /* as the engine says where we can't see; -1 unknown */
    char text[1024]; /* why it never ran, or that it was ended as a whole; "" neither */
    char by[320];    /* who asked the engine for its end, "" nobody or unknown */
} stk_contain_end;

/* Runs the `container` of this task.json to its end: SIGTERM is passed on. */
int stk_contain_run(const char *task_json, stk_contain_end *ret_end, stk_err *err);
/* Removes every container with these labels ("stoker.run=…", NULL-terminated), running or not;
 * *ret_n of them. */
int stk_contain_remove(const stk_engine *engine, const char *const *labels, uint32_t *ret_n,
                       stk_err *err);

#endif
