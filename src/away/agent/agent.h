/* agent: the first process of a container that runs one attempt for an engine elsewhere
 * (docs/decisions/0010-elsewhere.md). It brings what the attempt needs from the share, supervises
 * it as the engine does at home (backend_local), and leaves in the share how it ended.
 */
#ifndef STK_AGENT_H
#define STK_AGENT_H

/* `key`: of the attempt, "runs/<run>/<step>/<task>/<attempt>", or of the list of an array of which
 * this is a child, "runs/<run>/arrays/<name>.json". Sentences go to standard error, the
 * task's output to standard output and error. Returns the exit status for the container: the
 * program's, 128 + its signal, or one of STK_AGENT_…. */
int stk_agent_run(const char *url, const char *key);
/* SIGTERM and SIGINT wait until the agent asks for them: its first words. As PID 1 of a container
 * it would lose those that came earlier, and run a step that is to end. */
void stk_agent_hold_signals(void);

#endif
