/* cli_image: what commands say about images: `stoker doctor --image`, `--compare`, `stoker plan
 * --dockerfile`. */
#ifndef STK_CLI_IMAGE_H
#define STK_CLI_IMAGE_H

#include "cli/cli.h"
#include "host/preflight/preflight.h"
#include "model/spec/spec.h"

/* Can this image be had, and does it fit this host? With `inside` also what is in it, by a
 * container of it. What can't be found out is a finding as well. `accel` may be NULL. */
void stk_cli_look_at_image(const char *name, bool inside, stk_accel *accel, stk_findings *findings);
/* CUDA, framework and Python of two stacks: the images they run steps in, or this host. 0, or the
 * error of a stack that isn't there. */
int stk_cli_compare_stacks(const char *a, const char *b, const char *python, stk_accel *accel,
                           stk_findings *findings, stk_err *err);
/* The Dockerfiles of the steps (`step`: of this one) that need an image built, to stdout. */
int stk_cli_print_dockerfiles(const stk_cli *cli, const stk_spec *spec, const char *step,
                              stk_err *err);

#endif
