/* What a node runs, the same on each of a gang's: our program is started from a folder of the job's
 * own, on the node's own system or in the step's image, and gets the signal that the shell gets. */
#include <string.h>

#include "away/slurm/slurm_private.h"
#include "base/text.h"

static const char begin[] = "at=$(mktemp -d \"${TMPDIR:-/tmp}/stoker-XXXXXX\") || exit 74\n"
                            "agent= told=\n"
                            "trap 'told=1; test -z \"$agent\" || kill -TERM $agent' TERM INT\n"
                            "unpack() { mkdir \"$at/stoker\" && %s; }\n";

/* The share has our program laid out beside its archive, and most nodes can start it from there.
 * Unpacking costs more than everything else that a short job does. */
static const char lay[] =
    "lay() {\n"
    "    laid=${STOKER_CARRY%.tar}\n"
    "    if \"$laid/bin/ld.so\" --verify \"$laid/bin/stoker\" 2>/dev/null; then\n"
    "        ln -s \"$laid\" \"$at/stoker\"\n"
    "    else\n"
    "        unpack\n"
    "    fi\n"
    "}\n";

/* The agent makes the view itself (agent_nest.c). */
static const char on_system[] =
    "export STOKER_NEST_AT=\"$at\"\n"
    "set -- \"$at/stoker/bin/ld.so\" --library-path \"$at/stoker/bin/lib\" "
    "\"$at/stoker/bin/stoker\"\n";

/* Where the step's own folders are, and what the image gets of the node: those, ours, the share,
 * what is kept, and the leases, which all jobs of a node share. Paths have no space and no comma
 * (stk_slurm_check_paths). */
static const char lay_folders[] =
    "n=0; for dir in $(printf %s \"$STOKER_NEST_EMPTY\" | tr : \" \"); do "
    "mkdir -p \"$at/$n\"; n=$((n + 1)); done; "
    "mkdir -m 1777 -p \"${STOKER_LEASE_DIR:-/run/lock/stoker}\" 2>/dev/null";
static const char list_mounts[] =
    "mounts=\"$at/stoker:/stoker $STOKER_STORE:$STOKER_STORE\" n=0\n"
    "for dir in $(printf %s \"$STOKER_NEST_EMPTY\" | tr : \" \"); do\n"
    "    mounts=\"$mounts $at/$n:$dir\" n=$((n + 1))\n"
    "done\n"
    "for dir in $(printf %s \"$STOKER_NEST_KEEP\" | tr : \" \"); do mounts=\"$mounts $dir:$dir\"; "
    "done\n"
    "lease=${STOKER_LEASE_DIR:-/run/lock/stoker}\n"
    "test ! -d \"$lease\" || mounts=\"$mounts $lease:$lease\"\n"
    "export TMPDIR=/tmp\n"; /* the image's */

/* Of an export, the folder that the jobs' store has is on no node before: the last of its jobs on a
 * node removes it, because a mount on it ends with it. Without flock(1) it stays, empty. */
static const char hold[] =
    "own=${STOKER_NEST_EMPTY##*:}\n"
    "hold() {\n"
    "    while mkdir -p \"$own\" && command exec 9<\"$own\" && flock -s 9; do\n"
    "        test ! \"$own\" -ef /proc/self/fd/9 || return 0\n"
    "    done\n"
    "}\n"
    "case $own in /tmp/stoker-export-*) hold 2>/dev/null ;; *) own= ;; esac\n";
static const char let_go[] =
    "test -z \"$own\" || { flock -w 1 9 && rmdir \"$own\"; } 2>/dev/null\n";

static const char has[] = "has() { command -v \"$1\" >/dev/null 2>&1; }\n"
                          "how=$STOKER_CONTAINER\n";

/* The first container program that the node has, unless one is named; pyxis is looked for before
 * (stk_slurm_put_pyxis). */
static const char choose[] =
    "refuse() { echo \"stoker: $1\" >&2; rm -rf \"$at\"; exit 1; }\n"
    "if test -n \"$how\"; then :\n"
    "elif has apptainer; then how=apptainer\n"
    "elif has singularity; then how=singularity\n"
    "elif has enroot; then how=enroot\n"
    "else refuse \"node $SLURMD_NODENAME has no apptainer, singularity, enroot or pyxis to run the "
    "step in image $STOKER_IMAGE; install one, or remove the image from the step\"\n"
    "fi\n";

static const char in_image[] =
    "case $how in\n"
    "enroot)\n"
    "    box=stoker-$SLURM_JOB_ID-${at##*-}\n"
    "    enroot import -o \"$at/image.sqsh\" \"docker://$STOKER_ENROOT_IMAGE\" >&2 &&\n"
    "        enroot create -n \"$box\" \"$at/image.sqsh\" >&2 ||\n"
    "        refuse \"enroot on node $SLURMD_NODENAME can't get image $STOKER_IMAGE\"\n"
    "    set -- enroot start --rw\n"
    "    for m in $mounts; do set -- \"$@\" --mount \"$m\"; done\n"
    "    set -- \"$@\" \"$box\" ;;\n"
    "*)\n"
    "    set -- $how exec --pwd / $STOKER_GPU_FLAG\n"
    "    for m in $mounts; do set -- \"$@\" --bind \"$m\"; done\n"
    "    set -- \"$@\" \"docker://$STOKER_IMAGE\" ;;\n"
    "esac\n"
    "set -- \"$@\" /stoker/bin/stoker\n";

static const char end[] =
    "\"$@\" agent \"$STOKER_STORE\" \"$STOKER_KEY\" &\n"
    "agent=$!\n"
    "test -z \"$told\" || kill -TERM $agent\n"
    "while wait $agent; s=$?; [ $s -gt 128 ] && kill -0 $agent 2>/dev/null; do :; done\n";

static const char clean[] =
    "rm -rf \"$at\" 2>/dev/null || { chmod -R u+w \"$at\"; rm -rf \"$at\"; }\n"
    "exit $s\n";

void stk_slurm_put_node(stk_buf *out, const char *unpack, bool has_image, bool is_export)
{
    bool holds = is_export && !has_image;
    stk_buf_printf(out, begin, unpack);
    stk_buf_text(out, stk_text_when(holds, hold));
    if (has_image) {
        stk_buf_text(out, "unpack");
    } else {
        stk_buf_printf(out, "%slay", lay);
    }
    stk_buf_text(out, " || { rm -rf \"$at\"; exit 74; }\n");
    if (has_image) {
        stk_buf_printf(out, "%s%s%s\n%s%s", has, choose, lay_folders, list_mounts, in_image);
    } else {
        stk_buf_text(out, on_system);
    }
    stk_buf_text(out, end);
    stk_buf_text(out, stk_text_when(has_image,
                                    "test \"$how\" != enroot || enroot remove -f \"$box\" >&2\n"));
    stk_buf_text(out, stk_text_when(holds, let_go));
    stk_buf_text(out, clean);
}

/* pyxis is a part of srun, and a step within a step isn't one that it can start: so the batch
 * script lays out our program on every node by a step of its own. The agents hear of signals as
 * tasks. */
void stk_slurm_put_pyxis(stk_buf *out, const char *unpack, const char *flags)
{
    stk_buf_printf(
        out,
        "%sif test -z \"$how\" && ! has apptainer && ! has singularity &&\n"
        "    srun --help 2>/dev/null | grep -q -e --container-image; then how=pyxis; fi\n"
        "if test \"$how\" = pyxis; then\n"
        "export at=$(mktemp -u \"${TMPDIR:-/tmp}/stoker-$SLURM_JOB_ID-XXXXXX\")\n"
        "told= s=75\n"
        "trap 'told=1; scancel --signal=TERM \"$SLURM_JOB_ID\"' TERM INT\n"
        "each() { srun --ntasks=\"$SLURM_JOB_NUM_NODES\" --ntasks-per-node=1 --export=ALL \"$@\"; "
        "}\n"
        "each sh -c 'umask 077; mkdir \"$at\" \"$at/stoker\" && %s && { %s; true; }' ||\n"
        "    { each sh -c 'rm -rf \"$at\"'; exit 74; }\n"
        "%sif test -z \"$told\"; then\n"
        "each --kill-on-bad-exit=0 %s --container-image=\"$STOKER_ENROOT_IMAGE\" "
        "--container-mounts=\"$(printf %%s \"$mounts\" | tr ' ' ,)\" --no-container-mount-home "
        "--container-workdir=/ /stoker/bin/stoker agent \"$STOKER_STORE\" \"$STOKER_KEY\" &\n"
        "agent=$!\n"
        "while wait $agent; s=$?; [ $s -gt 128 ] && kill -0 $agent 2>/dev/null; do :; done\n"
        "fi\n"
        "each sh -c 'chmod -R u+w \"$at\"; rm -rf \"$at\"'\n"
        "exit $s\n"
        "fi\n",
        has, unpack, lay_folders, list_mounts, flags);
}

/* enroot's words: a registry ends with '#'. */
const char *stk_slurm_enroot_image(const char *image, stk_arena *arena)
{
    size_t n = strcspn(image, "/");
    char *copy = stk_arena_dup(arena, image);
    bool has_registry =
        image[n] == '/' && (memchr(image, '.', n) != NULL || memchr(image, ':', n) != NULL ||
                            strncmp(image, "localhost/", 10) == 0);
    if (copy != NULL && has_registry) {
        copy[n] = '#';
    }
    return copy;
}

int stk_slurm_check_paths(const char *const *paths, stk_err *err)
{
    for (; *paths != NULL; paths++) {
        if (strpbrk(*paths, " ,\t") != NULL) {
            return stk_err_set(
                err, STK_E_SPEC,
                "'%s' can't be a folder of a step in an image on Slurm: the path has "
                "a space or a comma",
                *paths);
        }
    }
    return 0;
}
