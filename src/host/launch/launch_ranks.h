/* Ranks: their environment, devices, port, start, line and output. */
#ifndef STK_LAUNCH_RANKS_H
#define STK_LAUNCH_RANKS_H

#include "host/launch/launch_private.h"
#include "sys/file.h"

int stk_launch_env_new(stk_gang *g, launch_env *ret_env, stk_err *err);
/* Sets the variables that differ between ranks; the strings live in the gang's arena. */
int stk_launch_env_rank(stk_gang *g, launch_env *env, uint32_t rank, stk_err *err);
/* The CPUs of each rank; false (no binding): fewer CPUs than ranks, or CPUs unknown. */
bool stk_launch_cpus(const stk_gang *g, cpu_set_t *ret_sets);

typedef struct cpu_place {
    int cpu, node, core;
} cpu_place;

/* Distributes `places` to ranks in order: each rank gets some of those near it, or of all (`near`
 * NULL). False: a rank would have none. */
bool stk_launch_split(const cpu_place *places, uint32_t n, const cpu_set_t *near, uint32_t n_ranks,
                      cpu_set_t *ret_sets);

void stk_launch_devices_begin(stk_gang *g);
/* Drops the devices of failed ranks, if the next attempt has only `n_ranks` ranks. */
void stk_launch_devices_leave_out(stk_gang *g, uint32_t n_ranks);
/* If devices were dropped, the variables that name the remaining ones. */
uint32_t stk_launch_devices_masks(stk_gang *g, const char *(*ret_pairs)[2], uint32_t n_max);
/* The CPUs near each rank's devices; false: unknown for some rank. */
bool stk_launch_devices_near(const stk_gang *g, cpu_set_t *ret_near);

/* Holds a port of this host for rank 0; `wanted` 0: a free one. STK_E_BUSY: the message names the
 * owner. */
int stk_launch_port(int32_t wanted, launch_port *ret_port, stk_err *err);
void stk_launch_port_close(launch_port *port);
int stk_launch_port_taken(int port, stk_err *err); /* STK_E_BUSY; names the owner */

int stk_launch_start(stk_gang *g, stk_err *err);
/* Checks the batch start: all ranks have executed their program, or one can't (error), or there is
 * no news yet. */
int stk_launch_start_finish(stk_gang *g, stk_err *err);
/* Starts one rank by exec. */
int stk_launch_start_rank(stk_gang *g, uint32_t rank, stk_err *err);
/* A rank runs; takes ownership of `pidfd`. */
int stk_launch_started(stk_gang *g, uint32_t rank, pid_t pid, int pidfd, stk_err *err);

/* Opens the line of this attempt; only a Python step's ranks have one. */
int stk_launch_line_open(stk_gang *g, stk_err *err);
void stk_launch_line_close(stk_gang *g);
void stk_launch_line_read(stk_gang *g);
/* A rank or a node has ended: may rank 0 leave? */
void stk_launch_line_ended(stk_gang *g);
/* A node reports that its ranks have reached a gate, or the leader that all ranks have. */
void stk_launch_line_node(stk_gang *g, uint32_t i_peer, const stk_json *m);
/* The rank that first reported that its function failed; -1: none. */
int32_t stk_launch_line_first(const stk_gang *g);
/* Call it before ending ranks because of another rank: writes `rank-K/ended`, so that they don't
 * take it for a preemption. */
void stk_launch_line_tell_why(stk_gang *g);
void stk_launch_line_forget_why(stk_gang *g, uint32_t rank);

int stk_launch_server_open(stk_gang *g, stk_err *err);
void stk_launch_server_close(stk_gang *g);
int stk_launch_server_start(stk_gang *g, launch_env *env, const cpu_set_t *cpus, uint32_t rank,
                            stk_err *err);
void stk_launch_server_read(stk_gang *g);
/* Fails the ranks that the server hasn't started: they will never run. */
void stk_launch_server_give_up(stk_gang *g);

int stk_launch_view_open(stk_gang *g, stk_err *err);
void stk_launch_view_close(stk_gang *g);
/* A rank's ends of its pipes. */
typedef struct launch_pair {
    int fds[2];
} launch_pair;
static inline void stk_launch_pair_close(launch_pair *pair)
{
    stk_file_close(&pair->fds[0]);
    stk_file_close(&pair->fds[1]);
}
#define LAUNCH_PAIR_AUTO __attribute__((cleanup(stk_launch_pair_close))) launch_pair
/* Opens a rank's pipes and logs; ret_theirs are the rank's ends. */
int stk_launch_streams_open(stk_gang *g, uint32_t rank, int ret_theirs[2], stk_err *err);
void stk_launch_stream_read(stk_gang *g, uint32_t i_stream);
void stk_launch_sink_write(stk_gang *g, uint32_t i_sink);
/* Writes a line of the launcher to the view of stderr. */
void stk_launch_view_line(stk_gang *g, const char *text, size_t n);
/* Reads the rest from the pipes of an ended rank, then closes them. */
void stk_launch_streams_drain(stk_gang *g, uint32_t rank);
/* Waits until the view is written, at most `timeout_ms` without progress. */
void stk_launch_view_flush(stk_gang *g, int timeout_ms);
/* Whether the view has this stream. */
bool stk_launch_is_shown(const stk_gang *g, uint32_t i_stream);

/* --- launch_live.c --- */

void stk_launch_live_open(stk_gang *g);
/* The sink on which the stream's lines appear. */
uint32_t stk_launch_live_sink(const stk_gang *g, uint32_t i_stream);
/* Call it before lines are added to stderr's sink. */
void stk_launch_live_erase(stk_gang *g);
/* An unfinished line has changed. */
void stk_launch_live_changed(stk_gang *g);
void stk_launch_live_draw(stk_gang *g);
void stk_launch_live_tick(stk_gang *g, int64_t now_ms);

#endif
