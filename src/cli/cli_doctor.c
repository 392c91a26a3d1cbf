/* doctor: what this machine offers to runs, and what would stop or slow them. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli_read.h"
#include "cli/cli_run.h"
#include "image/image.h"
#include "run/run_doctor.h"
#include "show/findings.h"

/* Checks this machine, an image, or two stacks. */
static int check_target(const stk_cli *cli, stk_findings *findings, stk_err *err)
{
    STK_ACCEL_AUTO accel = NULL;
    const char *image = stk_cli_value(cli, "image"), *python = stk_cli_value(cli, "python");
    bool compares = stk_cli_flag(cli, "compare");
    if (image != NULL || compares || stk_cli_flag(cli, "simulate")) {
        STK_TRY(stk_accel_open(NULL, &accel, err));
    }
    if (image != NULL) {
        stk_run_doctor_image(image, stk_cli_flag(cli, "inside"), accel, findings);
    } else if (compares) {
        return stk_run_doctor_compare(stk_cli_arg(cli, 0), stk_cli_arg(cli, 1), python, accel,
                                      findings, err);
    } else {
        stk_run_doctor(python, accel, findings);
    }
    return 0;
}

static int check_words(const stk_cli *cli, stk_err *err)
{
    int n = stk_cli_n_args(cli);
    bool compares = stk_cli_flag(cli, "compare");
    const char *python = stk_cli_value(cli, "python");
    if (compares && n != 2) {
        return stk_cli_usage(cli, err, "--compare takes the names of two stacks");
    }
    if (n > 0 && !compares) {
        return stk_cli_usage(cli, err, "'%s' is one argument too many", stk_cli_arg(cli, 0));
    }
    if (stk_cli_flag(cli, "inside") && stk_cli_value(cli, "image") == NULL) {
        return stk_cli_usage(cli, err, "--inside looks into an image: name it with --image");
    }
    if (python != NULL && strchr(python, '/') != NULL && access(python, X_OK) < 0) {
        return stk_err_sys(err, STK_E_NOT_FOUND, errno, "--python '%s' can't be started", python);
    }
    return 0;
}

static int run_doctor(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(64u << 20);
    stk_findings findings = {.arena = arena};
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(check_words(cli, err));
    STK_TRY(stk_cli_simulate(cli, err));
    if (stk_cli_flag(cli, "facts")) { /* as JSON, for a look into an image */
        return stk_image_facts_here(arena, out, err);
    }
    STK_TRY(check_target(cli, &findings, err));
    if (stk_cli_json(cli)) {
        stk_findings_json(&findings, out);
    } else {
        stk_findings_text(&findings, stk_cli_colour(STDOUT_FILENO), out);
    }
    return stk_findings_worst(&findings) == STK_CHECK_ERROR ? 3 : 0;
}

static const stk_option options_of_doctor[] = {
    {"python", 0, "EXE", "check the environment of this interpreter"},
    {"simulate", 0, "SPEC", "devices of a machine that isn't here (see 'stoker gpus')"},
    {"image", 0, "REF", "check this image instead: is it available, does it fit this host?"},
    {"inside", 0, NULL, "with --image: also look inside it, in a container"},
    {"compare", 0, NULL, "compare CUDA, framework and Python of two stacks"},
    {"facts", 0, NULL, "only print the Python, frameworks and CUDA found here, as JSON"},
    {NULL}};

const stk_command stk_cmd_doctor = {
    .name = "doctor",
    .summary = "say what this machine offers to runs, and what stands in their way",
    .usage = "[options] [STACK_A STACK_B]",
    .text =
        "Checks the devices and their health (ECC, row remapping, retired pages, Xids of this "
        "boot, throttling,\nPCIe, processes without a lease, compute mode), the place of device "
        "leases, CPUs, memory, /dev/shm, limits,\nthe store, its disk, and the Python that steps "
        "would run in: does it import Stoker, and do its torch,\nTensorFlow, JAX and CuPy fit the "
        "driver and the devices? It reads files and asks the driver: it imports no\nframework and "
        "opens no device. A run whose steps get devices checks the same before its first task, and "
        "refuses\na framework that can't use them unless STOKER_ALLOW_CPU_BUILD=1 is set.\n\n"
        "--image pulls nothing: it asks the container engine, else the image's registry, with the "
        "credentials that Docker\nand Podman keep. It checks the image's architecture and Python, "
        "its CUDA_VERSION and NVIDIA_REQUIRE_CUDA against the\ndriver (minor-version and forward "
        "compatibility), and whether it is made for these devices at all; for a known family\nit "
        "names an image with the right CUDA. --inside runs a container of the image (and pulls it "
        "if needed) in which\nStoker's own program checks Python, the frameworks' builds, nvcc and "
        "the driver's library; no program of the image runs.\n\n"
        "Levels: ok, note (good to know), warning (some runs will suffer), problem.\n\n"
        "Exit status: 0, or 3 when a problem was found.",
    .options = options_of_doctor,
    .max_args = -1,
    .run = run_doctor,
};
