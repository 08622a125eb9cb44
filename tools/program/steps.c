/* Which scope is the step of a program: the one that repeats (program_read says how it is chosen).
 */
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"
#include "tools/program/program.h"

typedef struct path_sum {
    const char *path;
    uint64_t runs, requests;
} path_sum_t;

/* Runs of each path, and the requests in them and below. */
static path_sum_t *sum_paths(const program_t *program, size_t *out_count)
{
    text_index_t index = { 0 };
    path_sum_t *sums = NULL;
    size_t count = 0;
    uint64_t *requests = tool_alloc((program->nscopes + 1) * sizeof *requests);
    for (size_t i = 0; i < program->nevents; i++) {
        const int kind = program->events[i].kind;
        if (kind == PROGRAM_OP || kind == PROGRAM_TRANSFER) requests[program->events[i].scope]++;
    }
    for (size_t i = program->nscopes; i-- > 1;) { /* inner scopes begin later */
        size_t at;
        if (text_index_number(&index, program->scopes[i].path, count, &at)) {
            sums = tool_grow(sums, count, sizeof *sums);
            sums[count++] = (path_sum_t){ program->scopes[i].path, 0, 0 };
        }
        if (!sums) break; /* cannot be: the first path is new */
        sums[at].runs++;
        sums[at].requests += requests[i];
        requests[program->scopes[i].parent] += requests[i];
    }
    free(requests);
    text_index_free(&index);
    *out_count = count;
    return sums;
}

static const char *find_step_path(const program_t *program, const char *none)
{
    const uint64_t named = 1ull << 32; /* more runs than there can be */
    size_t count;
    path_sum_t *sums = sum_paths(program, &count);
    const path_sum_t *best = NULL;
    uint64_t most = 0;
    for (size_t i = 0; i < count; i++)
        if (sums[i].runs > 1 && sums[i].requests > most) most = sums[i].requests;
    for (size_t i = 0; most && i < count; i++) {
        const char *slash = strrchr(sums[i].path, '/');
        const bool is_named = strcmp(slash ? slash + 1 : sums[i].path, "step") == 0;
        const uint64_t least = is_named ? 0 : most - most / 5;
        if (sums[i].runs < 2 || sums[i].requests < least) continue;
        sums[i].runs += is_named ? named : 0;
        if (!best || sums[i].runs > best->runs ||
            (sums[i].runs == best->runs && strlen(sums[i].path) < strlen(best->path)))
            best = &sums[i];
    }
    const char *path = best ? best->path : none;
    free(sums);
    return path;
}

void program_find_steps(program_t *program)
{
    program->step_path = find_step_path(program, text_index_keep(&program->texts, ""));
    for (uint32_t i = 1; i < program->nscopes; i++) {
        program_scope_t *scope = &program->scopes[i];
        scope->step = program->scopes[scope->parent].step;
        if (!*program->step_path || scope->path != program->step_path) continue;
        scope->step = (uint32_t)program->nsteps;
        program->steps = tool_grow(program->steps, program->nsteps, sizeof *program->steps);
        program->steps[program->nsteps++] = i;
    }
}
