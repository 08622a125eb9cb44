/* The text of a fault: kernel, place in PTX and source, block, thread, and what to do. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/fake_cuda/ptx/machine.h"

static const char *advice(ptx_fault_t fault)
{
    switch (fault) {
    case PTX_MISALIGNED:
        return "A card faults here: check the operand's alignment before accesses of this size.";
    case PTX_OUTSIDE: return "A card may fault here: check indices and bounds.";
    case PTX_SHARED_RACE: return "A barrier is missing between the two accesses.";
    case PTX_GLOBAL_RACE:
        return "Blocks run in any order: let each write separate bytes, or take two launches.";
    case PTX_UNWRITTEN: return "Write it before, or do not read it: a card has any bits there.";
    case PTX_ABSENT_LANES: return "All lanes of the warp must arrive: move it out of the branch.";
    case PTX_BARRIER: return "All threads of a block must arrive at the same barrier.";
    case PTX_ENDLESS: return "A card may hang here: check the conditions of loops.";
    case PTX_ARGUMENTS: return "Build the target ferry_ptx.";
    case PTX_UNKNOWN: return "Add it to tests/support/fake_cuda/ptx.";
    default: return "";
    }
}

/* The name that the module's text gives file `number`: .file 2 "name" */
static void find_file(const char *text, uint32_t number, char *name, size_t nbytes)
{
    char pattern[32];
    snprintf(pattern, sizeof pattern, "\n\t.file\t%u \"", number);
    const char *at = number == 0 ? NULL : strstr(text, pattern);
    if (at == NULL) return;
    at += strlen(pattern);
    const char *end = at + strcspn(at, "\"\n"), *begin = end;
    while (begin > at && begin[-1] != '/') begin--;
    snprintf(name, nbytes, "%.*s", (int)(end - begin), begin);
}

void ptx_fail(ptx_machine_t *m, ptx_fault_t fault, uint32_t thread, const char *format, ...)
{
    if (m->fault != PTX_OK) return;
    m->fault = fault;
    const char *text = m->kernel->text, *at = text + m->now->text;
    unsigned line = 1;
    for (const char *end = text; (end = memchr(end, '\n', (size_t)(at - end))) != NULL; end++)
        line++;
    char what[256], source[96] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    find_file(text, m->now->file, source, sizeof source);
    snprintf(m->report, PTX_REPORT_NBYTES, "%s, %s:%u (%s:%u), block %u, thread %u: %s. %s\n  %.*s",
             m->kernel->name, m->kernel->file, line, source[0] != '\0' ? source : "source unknown",
             m->now->line, m->block, thread, what, advice(fault), (int)strcspn(at, ";\n"), at);
}
