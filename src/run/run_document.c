/* Reads the document of a run from a file or from standard input. */
#include <string.h>

#include "base/limits.h"
#include "run/run.h"
#include "sys/file.h"
#include "sys/trust.h"

int stk_run_parse_document(const char *text, size_t len, const char *path, stk_spec **ret_spec,
                           stk_err *err)
{
    const char *slash = path == NULL ? NULL : strrchr(path, '/');
    STK_TEXT_AUTO above = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
    STK_TRY(stk_err_if_null(above, err));
    STK_TEXT_AUTO folder = stk_file_absolute(above);
    STK_TEXT_AUTO file = NULL;
    STK_TRY(stk_err_if_null(folder, err));
    if (path != NULL && stk_file_exists(path)) {
        file = stk_file_absolute(path);
        STK_TRY(stk_err_if_null(file, err));
    }
    const stk_spec_place place = {.path = path, .folder = folder, .file = file};
    return stk_spec_parse(text, len, &place, ret_spec, err);
}

int stk_run_load_document(const char *path, stk_spec **ret_spec, stk_err *err)
{
    STK_TEXT_AUTO text = NULL;
    size_t len;
    bool is_stream = strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0;
    int rc = is_stream ? stk_file_read(path, STK_LIMIT_SPEC_BYTES, &text, &len, err)
                       : stk_trust_read(path, STK_LIMIT_SPEC_BYTES, &text, &len, err);
    if (rc == STK_E_NOT_FOUND) {
        stk_err_hint(err, "name a pipeline document (.yaml or .json) or a Python file; a relative "
                          "path counts from the current folder");
    }
    STK_TRY(rc);
    return stk_run_parse_document(text, len, path, ret_spec, err);
}
