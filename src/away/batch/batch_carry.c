/* Brings our program into any image: the container's command is a shell script that fetches a tar
 * with a tool of the image, checks it, and executes the agent. The script is in the job definition;
 * values of a job are in its environment, of which ECS accepts 8192 characters. */
#include <string.h>

#include "away/batch/batch_private.h"
#include "base/text.h"

enum { NOTHING_FETCHES = 78 }; /* sysexits' EX_CONFIG: the text below, stk_batch_detail_end */

/* POSIX sh. STOKER_CARRY: s3://… or a path. _LINK: the same without credentials, or empty. _SUM:
 * its SHA-256. _AT: where it is unpacked. STOKER_ARGV: the agent's words, quoted. STOKER_FOLDERS:
 * quoted as well. */
static const char script[] =
    "trap 'exit 75' TERM INT\n" /* the first process of a container gets only signals that it
                                   handles */
    "no() { echo \"stoker: $*\" >&2; exit 78; }\n"
    "has() { command -v \"$1\" >/dev/null 2>&1; }\n"
    "at=$STOKER_CARRY_AT; tar=$at/carried.tar; tried=\n"
    "sum() {\n"
    " if has sha256sum; then set -- $(sha256sum \"$1\"); echo \"$1\"\n"
    " elif has openssl; then set -- $(openssl dgst -sha256 -r \"$1\"); echo \"$1\"\n"
    " elif has shasum; then set -- $(shasum -a 256 \"$1\"); echo \"$1\"\n"
    " elif has python3; then python3 -c 'import sys,hashlib;"
    "print(hashlib.sha256(open(sys.argv[1],\"rb\").read()).hexdigest())' \"$1\"\n"
    " else no \"this image has none of sha256sum, openssl, shasum, python3 to check our program "
    "by; use carry: volume\"; fi\n"
    "}\n"
    "good() { [ -s \"$tar\" ] && [ \"$(sum \"$tar\")\" = \"$STOKER_CARRY_SUM\" ]; }\n"
    "try() { tried=\"$tried $1\"; shift; \"$@\" && good; }\n"
    "fetch() {\n"
    " case $STOKER_CARRY in /*) tar=$STOKER_CARRY; tried=$tar; good; return;; esac\n"
    " has aws && try aws aws s3 cp --only-show-errors \"$STOKER_CARRY\" \"$tar\" && return\n"
    " has python3 && python3 -c 'import boto3' 2>/dev/null && try boto3 python3 -c '"
    "import sys,os,boto3;b,k=sys.argv[1][5:].split(\"/\",1);"
    "boto3.client(\"s3\",endpoint_url=os.environ.get(\"AWS_ENDPOINT_URL_S3\") or "
    "os.environ.get(\"AWS_ENDPOINT_URL\"))"
    ".download_file(b,k,sys.argv[2])' \"$STOKER_CARRY\" \"$tar\" && return\n"
    " [ -n \"$STOKER_CARRY_LINK\" ] || return 1\n"
    " has curl && try curl curl -fsSL --retry 3 -o \"$tar\" \"$STOKER_CARRY_LINK\" && return\n"
    " has wget && try wget wget -q -O \"$tar\" \"$STOKER_CARRY_LINK\" && return\n"
    " has python3 && try python3 python3 -c 'import sys,urllib.request as r;"
    "r.urlretrieve(sys.argv[1],sys.argv[2])' \"$STOKER_CARRY_LINK\" \"$tar\" && return\n"
    " return 1\n"
    "}\n"
    "unpack() {\n"
    " if has tar; then tar -xf \"$tar\" -C \"$at\"\n"
    " elif has python3; then python3 -m tarfile -e \"$tar\" \"$at\"\n"
    " else no \"this image has neither tar nor python3 to unpack our program by; use carry: "
    "volume\"; fi\n"
    "}\n"
    "eval \"set -- $STOKER_FOLDERS\"\n"
    "for d in \"$at\" \"$@\"; do mkdir -p \"$d\" 2>/dev/null && [ -w \"$d\" ] ||"
    " no \"$(id -un 2>/dev/null || id -u) can't make or write $d in this image; set the option "
    "user: '0', or use an image whose user may\"; done\n"
    "eval \"set -- $STOKER_ARGV\"\n"
    "if [ \"$(cat \"$at/.carried\" 2>/dev/null)\" != \"$STOKER_CARRY_SUM\" ]; then\n"
    " fetch || { [ -n \"$tried\" ] && no \"our program ($STOKER_CARRY) couldn't be fetched "
    "by:$tried (what they say stands above);"
    " may the job's role (iam_role) read it, has the job's subnet a way to S3?\";"
    " no \"this image has none of aws, python3, curl, wget to fetch our program by; install one, "
    "or use carry: volume\"; }\n"
    " unpack || no \"our program couldn't be unpacked in $at\"\n"
    " case $tar in \"$at\"/*) rm -f \"$tar\";; esac\n"
    " echo \"$STOKER_CARRY_SUM\" >\"$at/.carried\"\n"
    "fi\n"
    "unset STOKER_CARRY STOKER_CARRY_LINK STOKER_CARRY_SUM STOKER_CARRY_AT STOKER_ARGV "
    "STOKER_FOLDERS\n"
    "[ -x \"$1\" ] || no \"$STOKER_CARRY holds no $1\"\n"
    "exec \"$@\"\n";

void stk_batch_put_command(const stk_batch_ask *ask, stk_buf *out)
{
    const char *const version[] = {ask->job->argv[0], "--version", NULL}; /* each job has its own */
    static const char *const fetch[] = {"/bin/sh", "-c", script, NULL};
    bool is_there = strcmp(ask->config->carry, "volume") == 0;
    stk_json_put_texts(out, "command", is_there ? version : fetch);
}

/* Writes the words, each quoted for sh. */
static void put_quoted(stk_buf *out, const char *name, const char *const *words)
{
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    (void)stk_buf_text(&text, "");
    for (; words != NULL && *words != NULL; words++) {
        (void)stk_buf_separate(&text, " ");
        (void)stk_buf_char(&text, '\'');
        for (const char *c = *words; *c != 0; c++) {
            if (*c == '\'') {
                (void)stk_buf_text(&text, "'\\'");
            }
            (void)stk_buf_char(&text, *c);
        }
        (void)stk_buf_char(&text, '\'');
    }
    stk_batch_put_pair(out, "name", name, "value", text.data);
}

void stk_batch_put_carry_env(const stk_batch_ask *ask, stk_buf *out)
{
    const stk_driver_config *config = ask->config;
    const char *python = stk_batch_text(&ask->options, "executable");
    if (python != NULL) {
        stk_batch_put_pair(out, "name", "STOKER_PYTHON", "value", python);
    }
    if (strcmp(config->carry, "volume") == 0) {
        return;
    }
    STK_BUF_AUTO from = STK_BUF_INIT(4096);
    const char *share = stk_text_or(config->share_url, "(the stack's store)");
    size_t n = strlen(share);
    n -= n > 0 && share[n - 1] == '/';
    (void)stk_buf_printf(&from, "%.*s/carry/%s.tar", (int)n, share,
                         stk_text_or(config->carry_digest, "(digest of our program)"));
    size_t scheme = strncmp(from.data, "file://", 7) == 0 ? 7 : 0;
    stk_batch_put_pair(out, "name", "STOKER_CARRY", "value", from.data + scheme);
    stk_batch_put_pair(out, "name", "STOKER_CARRY_LINK", "value",
                       stk_text_or(ask->facts.carry_link, ""));
    stk_batch_put_pair(out, "name", "STOKER_CARRY_SUM", "value",
                       stk_text_or(config->carry_digest, ""));
    stk_batch_put_pair(out, "name", "STOKER_CARRY_AT", "value", ask->job->carry_at);
    put_quoted(out, "STOKER_ARGV", ask->job->argv);
    put_quoted(out, "STOKER_FOLDERS", ask->job->folders);
}
