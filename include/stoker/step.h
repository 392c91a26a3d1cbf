/* A step in C: what it was given and what it leaves, by name.
 *
 *     #include <stoker/step.h>
 *
 *     int main(void)
 *     {
 *         double lr = stk_step_number("lr", 0.1);            parameter or literal input
 *         FILE *in = fopen(stk_step_input("data"), "r");     file input
 *         FILE *out = fopen(stk_step_output("model"), "w");  declared output
 *         …
 *         stk_step_log_number("rows", 1797);                 shown in the run's record
 *         return stk_step_done();
 *     }
 *
 * One header, C99, nothing to link; include it in one file of the program. Outside Stoker, inputs
 * are the files of that name in the working directory, outputs too, so that a step can be tried by
 * hand. The whole contract is files and environment (docs/formats/task-directory.md): this
 * header only saves typing. */
#ifndef STOKER_STEP_H
#define STOKER_STEP_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { STK_STEP_PATH = 4096, STK_STEP_META = 1 << 16, STK_STEP_AGAIN = 75 };

/* "key": value pairs so far, comma-separated; what doesn't fit is left out and said on stderr. */
static char stk_step_meta_[STK_STEP_META];

/* The environment variable PREFIX + name, or NULL. */
static inline const char *stk_step_env_(const char *prefix, const char *name)
{
    char key[256];
    int n = snprintf(key, sizeof key, "%s%s", prefix, name);
    return n > 0 && (size_t)n < sizeof key ? getenv(key) : NULL;
}

/* Path of a file input; `name` itself outside Stoker. Never NULL; valid until the program ends. */
static inline const char *stk_step_input(const char *name)
{
    const char *path = stk_step_env_("STOKER_INPUT_", name);
    return path != NULL ? path : name;
}

/* The folder that all attempts of this task share (made where it isn't there yet), or NULL outside
 * Stoker. Write a checkpoint under a name with a leading dot, then rename it: what has another name
 * is complete. Told to end (SIGTERM), save and exit with STK_STEP_AGAIN. */
static inline const char *stk_step_checkpoints(void)
{
    const char *folder = getenv("STOKER_CHECKPOINT_DIR");
    if (folder != NULL) {
        (void)mkdir(folder, 0755);
    }
    return folder;
}

/* Value of a parameter or literal input as text (strings bare, everything else JSON). */
static inline const char *stk_step_text(const char *name, const char *fallback)
{
    const char *text = stk_step_env_("STOKER_PARAM_", name);
    return text != NULL ? text : fallback;
}

/* The same as a number. What is no number ends the program with a sentence and status 2: a wrong
 * parameter must not become a silent 0. */
static inline double stk_step_number(const char *name, double fallback)
{
    const char *text = stk_step_env_("STOKER_PARAM_", name);
    if (text == NULL) {
        return fallback;
    }
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end != '\0') {
        fprintf(stderr, "parameter '%s' is '%s', which is no number\n", name, text);
        exit(2);
    }
    return number;
}

/* Where the output `name` must be written: STOKER_OUTPUT/name; `name` itself outside Stoker. The
 * text is good until the fourth call after this one. */
static inline const char *stk_step_output(const char *name)
{
    static char paths[4][STK_STEP_PATH];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    const char *folder = getenv("STOKER_OUTPUT");
    int n = folder != NULL ? snprintf(path, STK_STEP_PATH, "%s/%s", folder, name)
                           : snprintf(path, STK_STEP_PATH, "%s", name);
    if (n < 0 || n >= STK_STEP_PATH) {
        fprintf(stderr, "output '%s': its path is too long\n", name);
        exit(2);
    }
    return path;
}

/* Appends `text` as a JSON string to `out` (size bytes, ends at *at). 0, or -1 when it is full. */
static inline int stk_step_quote_(char *out, size_t size, size_t *at, const char *text)
{
    size_t n = *at;
    if (n + 2 >= size) {
        return -1;
    }
    out[n++] = '"';
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (n + 8 >= size) {
            return -1;
        }
        if (*c == '"' || *c == '\\') {
            out[n++] = '\\';
            out[n++] = (char)*c;
        } else if (*c < 0x20) {
            n += (size_t)snprintf(out + n, size - n, "\\u%04x", *c);
        } else {
            out[n++] = (char)*c;
        }
    }
    out[n++] = '"';
    out[n] = '\0';
    *at = n;
    return 0;
}

static inline void stk_step_log_(const char *key, const char *text, double number)
{
    size_t at = strlen(stk_step_meta_), was = at;
    int full = at + 4 >= STK_STEP_META;
    if (!full && at > 0) {
        stk_step_meta_[at++] = ',';
    }
    full = full || stk_step_quote_(stk_step_meta_, STK_STEP_META, &at, key) < 0 ||
           at + 40 >= STK_STEP_META;
    if (!full) {
        stk_step_meta_[at++] = ':';
        if (text != NULL) {
            full = stk_step_quote_(stk_step_meta_, STK_STEP_META, &at, text) < 0;
        } else if (isfinite(number)) {
            snprintf(stk_step_meta_ + at, STK_STEP_META - at, "%.17g", number);
        } else { /* JSON knows no NaN and no infinity */
            snprintf(stk_step_meta_ + at, STK_STEP_META - at, "\"%f\"", number);
        }
    }
    if (full) {
        stk_step_meta_[was] = '\0';
        fprintf(stderr, "metadata '%s' is left out: a step's metadata may have %d bytes\n", key,
                (int)STK_STEP_META);
    }
}

/* Metadata of the step, shown with the run. */
static inline void stk_step_log_number(const char *key, double number)
{
    stk_step_log_(key, NULL, number);
}

static inline void stk_step_log_text(const char *key, const char *text)
{
    stk_step_log_(key, text, 0);
}

/* Writes result.json beside the task's folder of outputs, under another name first, so that it is
 * there whole or not at all. `error` NULL: the step succeeded. Returns what main should return. */
static inline int stk_step_finish_(const char *error)
{
    const char *folder = getenv("STOKER_TASK_DIR");
    char path[STK_STEP_PATH], temporary[STK_STEP_PATH], message[4096] = "\"\"";
    size_t at = 0;
    if (folder == NULL) { /* tried by hand */
        if (error != NULL) {
            fprintf(stderr, "%s\n", error);
        }
        return error != NULL;
    }
    int a = snprintf(path, sizeof path, "%s/result.json", folder);
    int b = snprintf(temporary, sizeof temporary, "%s/result.json.tmp", folder);
    FILE *file = a > 0 && b > 0 && (size_t)b < sizeof temporary ? fopen(temporary, "w") : NULL;
    int bad = file == NULL;
    if (!bad && error != NULL) {
        if (stk_step_quote_(message, sizeof message, &at, error) < 0) {
            strcpy(message, "\"a message too long to keep\"");
        }
        bad |= fprintf(file,
                       "{\"stoker\": 1, \"status\": \"failed\", \"metadata\": {%s}, \"error\": "
                       "{\"class\": \"exception\", \"message\": %s}}\n",
                       stk_step_meta_, message) < 0;
    } else if (!bad) {
        bad |= fprintf(file, "{\"stoker\": 1, \"status\": \"ok\", \"metadata\": {%s}}\n",
                       stk_step_meta_) < 0;
    }
    bad |= file != NULL && fclose(file) != 0;
    if (bad || rename(temporary, path) != 0) {
        perror("writing result.json");
        return 1;
    }
    return error != NULL;
}

static inline int stk_step_done(void)
{
    return stk_step_finish_(NULL);
}

/* The step has failed, and this sentence says why. */
static inline int stk_step_fail(const char *error)
{
    return stk_step_finish_(error);
}

#endif
