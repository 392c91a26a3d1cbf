/* `stoker doctor`: finds what a machine, an image or a stack offers to runs, and what stands in
 * their way. Levels of findings: ok, note (good to know), warning (some runs will suffer), problem.
 */
#ifndef STK_RUN_DOCTOR_H
#define STK_RUN_DOCTOR_H

#include "host/preflight/preflight.h"

/* Checks this machine. `accel` NULL: searches for its devices. `python`: the interpreter that the
 * user named, or NULL. */
void stk_run_doctor(const char *python, stk_accel *accel, stk_findings *findings);
/* Checks that the image is available and fits this host; with `inside` also its contents, by
 * running a container. What it can't find out is a finding, too. `accel` may be NULL. */
void stk_run_doctor_image(const char *name, bool inside, stk_accel *accel, stk_findings *findings);
/* Compares CUDA, framework and Python of two stacks, by their images, or by this host. Returns 0,
 * or the error of a stack that doesn't exist. */
int stk_run_doctor_compare(const char *a, const char *b, const char *python, stk_accel *accel,
                           stk_findings *findings, stk_err *err);

#endif
