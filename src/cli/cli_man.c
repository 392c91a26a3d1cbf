#include "cli/cli_man.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Escapes what troff would interpret: backslashes, hyphens, dots and quotes that begin a line. */
static void put_troff(const char *text)
{
    bool at_start = true;
    for (; *text != '\0'; text++) {
        if (at_start && (*text == '.' || *text == '\'')) {
            fputs("\\&", stdout);
        }
        at_start = *text == '\n';
        if (*text == '\\') {
            fputs("\\e", stdout);
        } else if (*text == '-') {
            fputs("\\-", stdout);
        } else {
            putchar(*text);
        }
    }
}

/* A blank line begins a paragraph; an indented line is kept as it is. */
static void put_paragraphs(const char *text)
{
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");
        char line[1024];
        (void)snprintf(line, sizeof line, "%.*s", (int)n, text);
        if (n == 0) {
            puts(".PP");
        } else if (line[0] == ' ') {
            puts(".br");
            put_troff(line);
            puts("");
        } else {
            for (char *rest = line, *cut; rest != NULL; rest = cut) {
                /* Ends long lines after sentences, to keep the troff source readable. */
                cut = strstr(rest, ". ");
                if (cut != NULL) {
                    cut[1] = '\0';
                    cut += 2;
                }
                put_troff(rest);
                putchar('\n');
            }
        }
        text += n + (text[n] == '\n');
    }
}

static void put_heading(const char *name, const char *summary)
{
    fputs(".TH ", stdout);
    for (const char *s = name; *s != '\0'; s++) {
        putchar(toupper((unsigned char)*s));
    }
    printf(" 1 \"\" \"Stoker " STK_VERSION "\" \"Stoker\"\n.SH NAME\n");
    put_troff(name);
    fputs(" \\- ", stdout);
    put_troff(summary);
    puts("\n.SH SYNOPSIS");
}

static void put_option(const char *name, char letter, const char *arg, const char *help)
{
    puts(".TP");
    if (letter != 0) {
        printf("\\fB\\-%c\\fR, ", letter);
    }
    fputs("\\fB\\-\\-", stdout);
    put_troff(name);
    fputs("\\fR", stdout);
    if (arg != NULL) {
        fputs(" \\fI", stdout);
        put_troff(arg);
        fputs("\\fR", stdout);
    }
    putchar('\n');
    put_troff(help);
    putchar('\n');
}

static void put_exits(void)
{
    puts(".SH EXIT STATUS\n0: done. 1: the run failed. 2: wrong usage or a wrong document. 3: "
         "something of the environment is missing or broken, or a document is of a newer Stoker. "
         "130: cancelled.");
}

static void put_command(const stk_command *command)
{
    char name[64];
    (void)snprintf(name, sizeof name, "stoker-%s", command->name);
    put_heading(name, command->summary);
    printf(".B stoker %s\n", command->name);
    put_troff(command->usage);
    puts("\n.SH DESCRIPTION");
    put_paragraphs(stk_text_or(command->text, command->summary));
    puts(".SH OPTIONS");
    for (const stk_option *o = command->options; o != NULL && o->name != NULL; o++) {
        if (!o->hidden) {
            put_option(o->name, o->letter, o->arg, o->help);
        }
    }
    put_option("json", 0, NULL, "answer (and errors) as JSON");
    put_option("help", 'h', NULL, "a short help");
    put_exits();
    puts(".SH SEE ALSO\n.BR stoker (1)");
}

static void put_program(void)
{
    put_heading("stoker", "runs machine-learning pipelines on accelerators");
    puts(".B stoker\n\\fICOMMAND\\fR [options] ...\n.SH DESCRIPTION\nStoker runs pipelines of "
         "steps: Python functions, or commands in any language, described by a Python\nfile or a "
         "YAML document. Each step is its own process; its outputs are kept by content, so that "
         "what has\nnot changed is not run again. A run may be killed at any instant: \\fBstoker "
         "resume\\fR goes on with it.\n.SH COMMANDS");
    for (size_t i = 0; stk_commands[i] != NULL; i++) {
        if (!stk_commands[i]->hidden) {
            printf(".TP\n.BR stoker\\-%s (1)\n", stk_commands[i]->name);
            put_troff(stk_commands[i]->summary);
            putchar('\n');
        }
    }
    puts(".SH ENVIRONMENT\n.TP\n.B STOKER_STORE\nthe store to use; else the nearest "
         "\\fI.stoker\\fR above the working directory\n.TP\n.B NO_COLOR, CLICOLOR_FORCE\nno "
         "colours; colours even where there is no terminal\n.TP\n.B "
         "STOKER_SECRET_\\fINAME\\fR\nvalue of a secret that a pipeline names\n.SH FILES\n.TP\n.I "
         ".stoker/\nthe store: \\fIstore.db\\fR (history), \\fIartifacts/\\fR, "
         "\\fIruns/RUN/STEP/TASK/ATTEMPT/\\fR (logs and results)");
    put_exits();
    puts(".SH EXAMPLES\n.EX\nstoker run pipeline.yaml\nstoker show latest\nstoker why "
         "latest/train\n.EE");
}

void stk_cli_print_man(const stk_command *command)
{
    if (command != NULL) {
        put_command(command);
    } else {
        put_program();
    }
}
