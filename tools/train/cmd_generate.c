/* `ferry generate MODEL`: continues a text with a trained language model of bytes.
 * A byte takes one upload (the last bytes, as tokens), one forward pass over the whole context and
 * one download (the scores of the next byte). Nothing is cached between bytes.
 * Not here: training it (cmd_train.c). */
#include "runtime/base/json.h"
#include "tools/cli/tool.h"
#include "tools/train/train_recipes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 256 };

typedef struct request {
    const char *spec, *weights, *prompt;
    int64_t nbytes, seed, top;
    double temperature;
} request_t;

typedef struct run {
    session_t session;
    request_t request;
    fy_model_t *model;
    int64_t context;
    unsigned char *text; /* the prompt, then what was generated */
    int64_t length;
    uint64_t state; /* of the draws */
} run_t;

/* ---- one byte ---- */

/* The last bytes as tokens [1, context]; the positions after them are 0, and a causal model does
 * not read them. *out_last: the position of the last byte. */
static fy_status_t upload_text(const run_t *run, fy_tensor_t **out_x, int64_t *out_last)
{
    const int64_t count = run->length < run->context ? run->length : run->context;
    fy_tensor_t *host;
    void *data;
    FY_TRY(fy_tensor_create(fy_device_host(), FY_DTYPE_I32, FY_DIMS(1, run->context), &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_WRITE, &data));
    memset(data, 0, (size_t)run->context * sizeof(int32_t));
    for (int64_t i = 0; i < count; i++) ((int32_t *)data)[i] = run->text[run->length - count + i];
    FY_TRY(fy_tensor_upload(host, run->session.device, NULL, out_x));
    *out_last = count - 1;
    return FY_STATUS_OK;
}

/* The scores of the byte after the text. */
static fy_status_t compute_scores(const run_t *run, float scores[BYTES])
{
    fy_tensor_t *x, *logits, *row, *flat, *host;
    fy_download_t *reply;
    void *data;
    int64_t last;
    FY_TRY(upload_text(run, &x, &last));
    FY_TRY(fy_model_forward(run->model, x, &logits));
    FY_TRY(fy_slice(logits, 1, last, last + 1, &row));
    FY_TRY(fy_reshape(row, FY_DIMS(BYTES), &flat));
    FY_TRY(fy_tensor_download(flat, NULL, &reply));
    FY_TRY(fy_download_wait(reply, FY_FOREVER, &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_READ, &data));
    memcpy(scores, data, BYTES * sizeof *scores);
    return FY_STATUS_OK;
}

/* The score that only `top` - 1 others exceed; top 0: the lowest one. */
static float lowest_allowed(const float scores[BYTES], int64_t top)
{
    float sorted[BYTES];
    if (top <= 0 || top >= BYTES) return -INFINITY;
    memcpy(sorted, scores, sizeof sorted);
    for (int i = 0; i < top; i++) /* the first `top` of a selection sort */
        for (int j = i + 1; j < BYTES; j++)
            if (sorted[j] > sorted[i]) {
                const float swapped = sorted[i];
                sorted[i] = sorted[j];
                sorted[j] = swapped;
            }
    return sorted[top - 1];
}

/* A byte with probability proportional to exp(score / temperature); temperature 0: the best one,
 * the first of several. */
static int choose(const run_t *run, const float scores[BYTES], uint64_t *state)
{
    const double temperature = run->request.temperature;
    const float lowest = lowest_allowed(scores, run->request.top);
    double weights[BYTES], sum = 0;
    int best = 0;
    for (int i = 1; i < BYTES; i++)
        if (scores[i] > scores[best]) best = i;
    if (temperature == 0) return best;
    for (int i = 0; i < BYTES; i++) {
        weights[i] = scores[i] < lowest ? 0 : exp((scores[i] - scores[best]) / temperature);
        sum += weights[i];
    }
    double left = (double)(random_bits(state) >> 11) * 0x1p-53 * sum; /* of [0, sum) */
    for (int i = 0; i < BYTES; i++) {
        left -= weights[i];
        if (left < 0 && weights[i] > 0) return i;
    }
    return best;
}

static fy_status_t add_byte(run_t *run)
{
    float scores[BYTES];
    fy_scope_t scope = fy_scope_begin("byte");
    const fy_status_t status = compute_scores(run, scores);
    fy_scope_end(scope, 0, NULL);
    FY_TRY(status);
    run->text[run->length++] = (unsigned char)choose(run, scores, &run->state);
    return FY_STATUS_OK;
}

/* ---- all of it ---- */

static fy_status_t open_model(run_t *run)
{
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    int64_t dims[FY_MAX_RANK];
    int rank;
    FY_TRY(fy_model_sample_shape(run->request.spec, &rank, dims));
    FY_TRY(fy_model_open(run->session.device, run->request.spec, NULL, &run->model));
    FY_TRY(fy_model_query(run->model, &info));
    if (rank != 1 || info.out_rank != 2 || info.out_dims[1] != BYTES)
        return TOOL_FAIL(
            INVALID_ARGUMENT,
            "%s is no model of bytes: it gives %lld scores a position, not %d; train one with "
            "vocab=256",
            run->request.spec, (long long)info.out_dims[info.out_rank - 1], BYTES);
    run->context = dims[0];
    fy_model_set_training(run->model, 0);
    return fy_model_load(run->model, run->request.weights);
}

/* Prompt and text in one encoding, from which a reader gets the bytes back. */
static void report_json(const run_t *run)
{
    json_t *json = (json_t *)&run->session.json;
    const size_t generated = (size_t)run->request.nbytes, prompt = (size_t)run->length - generated;
    const char *bytes = (const char *)run->text;
    const bool is_utf8 = fy__utf8_is_valid(bytes, prompt) &&
                         fy__utf8_is_valid(bytes + prompt, generated);
    json_uint(json, "prompt_bytes", prompt);
    json_uint(json, "generated_bytes", generated);
    json_bytes(json, "prompt", bytes, prompt, is_utf8);
    json_bytes(json, "text", bytes + prompt, generated, is_utf8);
    json_text(json, "encoding", is_utf8 ? "utf-8" : "latin-1");
}

static fy_status_t generate(run_t *run)
{
    const request_t *request = &run->request;
    const size_t prompt = strlen(request->prompt);
    FILE *out = run->session.out;
    FY_TRY(open_model(run));
    run->text = tool_alloc(prompt + (size_t)request->nbytes + 1);
    memcpy(run->text, request->prompt, prompt);
    run->length = (int64_t)prompt;
    run->state = (uint64_t)request->seed;
    if (out) fwrite(run->text, 1, prompt, out);
    for (int64_t i = 0; i < request->nbytes; i++) {
        FY_TRY(add_byte(run));
        if (!out) continue;
        fputc(run->text[run->length - 1], out);
        fflush(out);
    }
    if (out) fputc('\n', out);
    if (!out) report_json(run);
    return FY_STATUS_OK;
}

/* Checks what no option parser can; explains a refusal. */
static bool check(const request_t *request, const train_recipe_t *recipe)
{
    const char *problem = NULL;
    if (!recipe || strcmp(recipe->dataset, "text") != 0)
        problem = "MODEL is gpt, or gpt with the options that it was trained with";
    else if (!request->weights)
        problem = "--weights FILE is needed: what `ferry train gpt --save FILE` wrote";
    if (problem) fprintf(stderr, "ferry: generate: %s\n", problem);
    return !problem;
}

int cmd_generate(int argc, char **argv)
{
    common_t common = { .device = "auto" };
    request_t r = { .prompt = "\n", .nbytes = 200, .seed = 1, .temperature = 0.8 };
    const option_t options[] = {
        { "weights", OPTION_TEXT, "FILE", &r.weights, "of the model: safetensors" },
        { "prompt", OPTION_TEXT, "TEXT", &r.prompt,
          "the text that is continued; default: a new line" },
        { "bytes", OPTION_INT, "N", &r.nbytes, "generated bytes", 1, 1 << 24 },
        { "temperature", OPTION_REAL, "X", &r.temperature,
          "0: always the byte with the highest score; 1: by the model's probabilities", 0, 100 },
        { "top", OPTION_INT, "N", &r.top, "draw from the N bytes with the highest scores; 0: all",
          0, BYTES },
        { "seed", OPTION_INT, "N", &r.seed, "of the draws", 0, INT64_MAX },
        TRAFFIC_OPTION(&common),
        COMMON_OPTIONS(&common),
    };
    const usage_t usage = {
        "ferry generate MODEL",
        "Continues a text with a language model of bytes that `ferry train gpt` has trained. "
        "MODEL: "
        "gpt, with the options that it was trained with.",
        options,
        sizeof options / sizeof *options,
        "ferry train gpt --data book.txt --save gpt.safetensors\n"
        "ferry generate gpt --weights gpt.safetensors --prompt 'It was' --bytes 100\n",
        NULL
    };
    const char *name;
    OPTIONS_TRY(options_parse_named(&usage, argc, argv, &name));
    const train_recipe_t *recipe = train_recipe_find(name);
    if (!check(&r, recipe)) return STATUS_USAGE;
    r.spec = train_recipe_spec(recipe, name);
    run_t run = { .request = r };
    fy_status_t status =
        session_begin(&run.session, &common, "ferry generate", "model", recipe->model);
    if (status == FY_STATUS_OK) status = generate(&run);
    if (status == FY_STATUS_OK && run.session.out && common.traffic)
        ledger_print(run.session.out, true);
    fy_model_destroy(run.model);
    free(run.text);
    return session_end(&run.session, status);
}
