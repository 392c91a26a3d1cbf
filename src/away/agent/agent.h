/* agent: the first process of a container that runs one attempt for an engine on another machine
 * (docs/decisions/0010-elsewhere.md). It fetches the attempt's inputs from the share, supervises
 * the attempt with the engine's own local backend (backend_local), and writes the outcome to the
 * share. */
#ifndef STK_AGENT_H
#define STK_AGENT_H

/* `key`: the attempt's, "runs/<run>/<step>/<task>/<attempt>"; or, for a child of an array, that of
 * the array's list, "runs/<run>/arrays/<name>.json". Messages go to standard error, the task's
 * output to standard output and error. Returns the container's exit status: the program's, 128 +
 * its signal, or one of STK_AGENT_…. */
int stk_agent_run(const char *url, const char *key);
/* Blocks SIGTERM and SIGINT until the agent reads them. Call it first: the kernel drops signals
 * without a handler for PID 1, so an earlier one would be lost and the step would run. */
void stk_agent_hold_signals(void);

#endif
