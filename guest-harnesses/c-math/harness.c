// A harness in C, against the bindings that wit-bindgen makes of harness-sdk/wit: one model call,
// and the text between the last <answer> and </answer>. README.md beside it says how it is built.

#include <string.h>

#include "harness.h"

static const char OPEN[] = "<answer>";
static const char CLOSE[] = "</answer>";

// The last occurrence of `needle` in `text`, or NULL.
static const uint8_t *find_last(const harness_string_t *text, const char *needle) {
    size_t length = strlen(needle);
    for (size_t at = text->len; at >= length; at--) {
        const uint8_t *start = text->ptr + at - length;
        if (memcmp(start, needle, length) == 0) return start;
    }
    return NULL;
}

bool exports_harness_run(harness_task_t *task, harness_answer_t *ret, harness_string_t *err) {
    whale_harness_model_message_t message = {
        .role = WHALE_HARNESS_MODEL_ROLE_USER,
        .content = task->prompt,
    };
    whale_harness_model_request_t request = {
        .prompt = {
            .tag = WHALE_HARNESS_MODEL_PROMPT_CHAT,
            .val = {.chat = {.ptr = &message, .len = 1}},
        },
    };
    whale_harness_model_list_request_t requests = {.ptr = &request, .len = 1};
    whale_harness_model_list_result_completion_host_error_t results;
    whale_harness_model_complete(&requests, &results);

    if (results.len != 1 || results.ptr[0].is_err) {
        harness_string_dup(err, "the model gave no reply");
        return false;
    }
    const harness_string_t *text = &results.ptr[0].val.ok.text;
    const uint8_t *open = find_last(text, OPEN);
    const uint8_t *close = find_last(text, CLOSE);
    if (open == NULL || close == NULL || close < open) {
        harness_string_dup(err, "the reply has no answer");
        return false;
    }
    open += strlen(OPEN);
    harness_string_dup_n(&ret->text, (const char *)open, close - open);
    return true;
}
