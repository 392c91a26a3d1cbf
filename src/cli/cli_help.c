#include <stdio.h>

#include "base/json.h"
#include "cli/cli_man.h"
#include "cli/cli_parse.h"
#include "cli/cli_read.h"

static void print_option(const char *name, char letter, const char *arg, const char *help)
{
    char left[64], value[32] = "";
    if (arg != NULL) {
        (void)snprintf(value, sizeof value, " %s", arg);
    }
    if (letter != 0) {
        (void)snprintf(left, sizeof left, "-%c, --%s%s", letter, name, value);
    } else {
        (void)snprintf(left, sizeof left, "    --%s%s", name, value);
    }
    printf("  %-28s %s\n", left, help);
}

void stk_cli_print_help(const stk_command *command)
{
    printf("usage: stoker %s %s\n\n%s\n", command->name, command->usage, command->summary);
    if (command->text != NULL) {
        printf("\n%s\n", command->text);
    }
    puts("\noptions:");
    for (const stk_option *o = command->options; o != NULL && o->name != NULL; o++) {
        print_option(o->name, o->letter, o->arg, o->help);
    }
    print_option("json", 0, NULL, "answer (and errors) as JSON");
    print_option("help", 'h', NULL, "this text");
}

static void put_command(const stk_command *command, bool whole, stk_buf *out)
{
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "command", command->name);
    stk_json_put_text(out, "summary", command->summary);
    if (whole) {
        stk_json_put_text(out, "usage", command->usage);
        stk_json_put_text(out, "text", command->text);
        stk_json_open(out, "options", '[');
        for (const stk_option *o = command->options; o != NULL && o->name != NULL; o++) {
            const char letter[2] = {o->letter, '\0'};
            char word[64];
            (void)snprintf(word, sizeof word, "--%s", o->name);
            stk_json_open(out, NULL, '{');
            stk_json_put_text(out, "option", word);
            stk_json_put_text(out, "letter", o->letter != '\0' ? letter : NULL);
            stk_json_put_text(out, "value", o->arg);
            stk_json_put_text(out, "help", o->help);
            stk_json_close(out, '}');
        }
        stk_json_close(out, ']');
    }
    stk_json_close(out, '}');
}

/* The same as data: one command, or all. */
static int answer_json(const stk_cli *cli, const stk_command *command)
{
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    stk_err err = {0};
    if (command != NULL) {
        put_command(command, true, &out);
    } else {
        stk_json_open(&out, NULL, '{');
        stk_json_put_text(&out, "version", STK_VERSION);
        stk_json_open(&out, "commands", '[');
        for (size_t i = 0; stk_commands[i] != NULL; i++) {
            if (!stk_commands[i]->hidden) {
                put_command(stk_commands[i], false, &out);
            }
        }
        stk_json_close(&out, ']');
        stk_json_close(&out, '}');
    }
    stk_buf_char(&out, '\n');
    return stk_cli_answer(cli, 0, &out, &err);
}

static int run_help(stk_cli *cli)
{
    const char *word = stk_cli_arg(cli, 0);
    const stk_command *command = word == NULL ? NULL : stk_cli_find(word);
    int status = stk_cli_at_most(cli, 1);
    if (status == 0 && word != NULL && command == NULL) {
        status = stk_cli_usage(cli, "unknown command '%s'", word);
    }
    if (status != 0) {
        return status;
    }
    if (stk_cli_json(cli)) {
        return answer_json(cli, command);
    }
    if (command != NULL) {
        if (stk_cli_flag(cli, "man")) {
            stk_cli_print_man(command);
        } else {
            stk_cli_print_help(command);
        }
        return 0;
    }
    if (stk_cli_flag(cli, "man")) {
        stk_cli_print_man(NULL);
        return 0;
    }
    puts(
        "stoker " STK_VERSION
        ": runs machine-learning pipelines on accelerators\n\nusage: stoker COMMAND [options] …\n");
    for (size_t i = 0; stk_commands[i] != NULL; i++) {
        if (!stk_commands[i]->hidden) {
            printf("  %-12s %s\n", stk_commands[i]->name, stk_commands[i]->summary);
        }
    }
    puts("\n'stoker COMMAND --help' says more. First steps: stoker doctor; stoker run "
         "pipeline.yaml; stoker show latest.");
    return 0;
}

static const stk_option options[] = {
    {"man", 0, NULL, "as a manual page (troff); without COMMAND: stoker(1)", false}, {NULL}};

const stk_command stk_cmd_help = {.name = "help",
                                  .summary = "list the commands, or explain one",
                                  .usage = "[--man] [COMMAND]",
                                  .options = options,
                                  .run = run_help};
