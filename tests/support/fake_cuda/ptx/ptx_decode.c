/* Decodes a kernel: from the text of its module to instructions whose operands are numbers of rows.
 * The functions that it may call come before it, so that lanes in a function continue before lanes
 * that have left it, and meet them. Functions do not call functions: each has one return address a
 * lane and one place for its arguments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/fake_cuda/ptx/machine.h"
#include "tests/support/fake_cuda/ptx/text.h"
#include "tests/support/fake_cuda/ptx/words.h"

enum { MOST_SYMBOLS = 256, MOST_FUNCTIONS = 8, MOST_ARGUMENTS = 4, RECENT = 64 };

enum kind { REGISTER, PREDICATE, ADDRESS };
typedef struct symbol {
    ptx_span_t name; /* of `count` registers: without their number */
    enum kind kind;
    uint64_t first; /* row; or address, and its space */
    uint32_t count;
    uint8_t space;
} symbol_t;

typedef struct function {
    ptx_span_t name;
    uint32_t begin;
    int32_t return_row;
    uint64_t arguments[MOST_ARGUMENTS]; /* places in local memory; 0 has the result */
    uint32_t nbytes[MOST_ARGUMENTS], narguments;
} function_t;

typedef struct label {
    ptx_span_t name;
    uint32_t pc;
} label_t;

typedef struct decoder {
    ptx_kernel_t *kernel;
    symbol_t symbols[MOST_SYMBOLS];
    uint32_t nsymbols;
    function_t functions[MOST_FUNCTIONS];
    uint32_t nfunctions;
    label_t *labels;
    ptx_span_t *branches; /* by instruction: the label that it names */
    uint32_t nlabels, label_room, code_room, constant_room, list_room;
    uint64_t *values;   /* of the constants */
    int32_t return_row; /* of the function that is decoded; -1: the kernel */
    uint32_t file, line;
    ptx_span_t statement;
    const char *failure;
} decoder_t;

static int fail(decoder_t *d, const char *why)
{
    if (d->failure == NULL) d->failure = why;
    return 0;
}

/* Doubles the room of an array if it is full. */
static void *grow(void *array, uint32_t n, uint32_t *room, size_t nbytes)
{
    if (n < *room) return array;
    *room = *room == 0 ? 256 : *room * 2;
    return realloc(array, *room * nbytes);
}

static ptx_instruction_t *append(decoder_t *d, unsigned code)
{
    ptx_kernel_t *kernel = d->kernel;
    uint32_t room = d->code_room;
    kernel->code = grow(kernel->code, kernel->ncode, &room, sizeof *kernel->code);
    d->branches = grow(d->branches, kernel->ncode, &d->code_room, sizeof *d->branches);
    ptx_instruction_t *i = &kernel->code[kernel->ncode];
    d->branches[kernel->ncode++] = (ptx_span_t){ NULL, 0 };
    *i = (ptx_instruction_t){ .code = (uint8_t)code,
                              .predicate = -1,
                              .vector = 1,
                              .target = -1,
                              .text = (uint32_t)(d->statement.at - kernel->text),
                              .file = d->file,
                              .line = d->line };
    return i;
}

static int32_t constant(decoder_t *d, uint64_t value)
{
    ptx_kernel_t *kernel = d->kernel;
    const uint32_t n = kernel->nconstants;
    for (uint32_t k = n; k > 0 && n - k < RECENT; k--)
        if (d->values[k - 1] == value) return ~(int32_t)(k - 1);
    uint32_t room = d->constant_room;
    kernel->constants = grow(kernel->constants, n, &room, sizeof *kernel->constants);
    d->values = grow(d->values, n, &d->constant_room, sizeof *d->values);
    d->values[n] = value;
    for (int lane = 0; lane < PTX_LANES; lane++) kernel->constants[n][lane] = value;
    return ~(int32_t)kernel->nconstants++;
}

static void declare(decoder_t *d, ptx_span_t name, enum kind kind, uint64_t first, uint32_t count,
                    unsigned space)
{
    if (d->nsymbols == MOST_SYMBOLS) {
        fail(d, "too many names");
        return;
    }
    d->symbols[d->nsymbols++] = (symbol_t){ name, kind, first, count, (uint8_t)space };
}

/* The symbol of a name, and the number of its register. */
static const symbol_t *find(const decoder_t *d, ptx_span_t name, uint64_t *out_row)
{
    for (uint32_t k = d->nsymbols; k > 0; k--) {
        const symbol_t *symbol = &d->symbols[k - 1];
        uint64_t number = 0;
        if (symbol->count == 0 ? !ptx_span_equals(symbol->name, name)
                               : name.n <= symbol->name.n ||
                                     memcmp(symbol->name.at, name.at, symbol->name.n) != 0 ||
                                     !ptx_span_number((ptx_span_t){ name.at + symbol->name.n,
                                                                    name.n - symbol->name.n },
                                                      &number) ||
                                     number >= symbol->count)
            continue;
        *out_row = symbol->first + number;
        return symbol;
    }
    return NULL;
}

static int parse_operand(decoder_t *d, ptx_span_t text, ptx_operand_t *out)
{
    uint64_t value;
    if (text.n > 1 && text.at[0] == '{') {
        ptx_kernel_t *kernel = d->kernel;
        ptx_operand_t each, list = { .row = (int32_t)kernel->nlists };
        ptx_span_t rest = { text.at + 1, text.n - 2 };
        while (rest.n > 0) {
            if (!parse_operand(d, ptx_span_cut(rest, ",", &rest), &each)) return 0;
            kernel->lists =
                grow(kernel->lists, kernel->nlists, &d->list_room, sizeof *kernel->lists);
            kernel->lists[kernel->nlists++] = each.row;
            list.count++;
        }
        if (list.count > PTX_VECTOR) return fail(d, "too long a list");
        *out = list;
        return 1;
    }
    out->count = 0;
    if ((out->row = ptx_special_row(text)) >= 0) return 1;
    if (ptx_span_is(text, "_")) {
        out->row = (int32_t)d->kernel->nrows++;
        return 1;
    }
    if (ptx_span_number(text, &value)) {
        out->row = constant(d, value);
        return 1;
    }
    const symbol_t *symbol = find(d, text, &value);
    if (symbol == NULL) return fail(d, "unknown operand");
    out->row = symbol->kind == ADDRESS ? constant(d, value) : (int32_t)value;
    return 1;
}

/* [register+offset], [name+offset] */
static int parse_address(decoder_t *d, ptx_span_t text, ptx_instruction_t *i, ptx_operand_t *out)
{
    ptx_span_t rest, base;
    uint64_t offset = 0, row;
    if (text.n < 3 || text.at[0] != '[') return fail(d, "no address");
    base = ptx_span_cut((ptx_span_t){ text.at + 1, text.n - 2 }, "+", &rest);
    if (rest.n > 0 && !ptx_span_number(rest, &offset)) return fail(d, "no offset");
    i->offset = (int64_t)offset;
    const symbol_t *symbol = find(d, base, &row);
    /* an argument of a function, which has a place in local memory */
    if (symbol != NULL && symbol->kind == ADDRESS && i->space == PTX_PARAM)
        i->space = symbol->space;
    return parse_operand(d, base, out);
}

static void copy(decoder_t *d, uint64_t to, uint64_t from, uint32_t nbytes)
{
    ptx_instruction_t *i = append(d, PTX_COPY);
    i->operands[0].row = (int32_t)to;
    i->operands[1].row = (int32_t)from;
    i->target = (int32_t)nbytes;
}

/* call (result), function, (argument, ...): the arguments are copied, then the result. */
static int decode_call(decoder_t *d, ptx_span_t text)
{
    ptx_span_t rest, arguments, at[MOST_ARGUMENTS] = { { NULL, 0 } };
    const function_t *function = NULL;
    uint64_t place[MOST_ARGUMENTS] = { 0 };
    at[0] = ptx_span_cut(text, ",", &rest);
    const ptx_span_t name = ptx_span_cut(rest, ",", &arguments);
    for (uint32_t k = 0; k < d->nfunctions; k++)
        if (ptx_span_equals(d->functions[k].name, name)) function = &d->functions[k];
    if (function == NULL || arguments.n < 2 || at[0].n < 2) return fail(d, "unknown function");
    at[0] = ptx_span_trim((ptx_span_t){ at[0].at + 1, at[0].n - 2 });
    rest = ptx_span_trim((ptx_span_t){ arguments.at + 1, arguments.n - 2 });
    for (uint32_t k = 1; k < function->narguments; k++) at[k] = ptx_span_cut(rest, ",", &rest);
    for (uint32_t k = 0; k < function->narguments; k++)
        if (find(d, at[k], &place[k]) == NULL) return fail(d, "unknown argument");
    for (uint32_t k = 1; k < function->narguments; k++)
        copy(d, function->arguments[k], place[k], function->nbytes[k]);
    ptx_instruction_t *call = append(d, PTX_CALL);
    call->target = (int32_t)function->begin;
    call->operands[0].row = function->return_row;
    copy(d, place[0], function->arguments[0], function->nbytes[0]);
    return 1;
}

/* Whether the operands are lists of the lengths that the instruction needs; 0: no list. */
static int lists_fit(const ptx_instruction_t *i)
{
    static const uint32_t matrices[PTX_OPERANDS] = { 4, 4, 2, 4 };
    uint32_t want[PTX_OPERANDS] = { 0 };
    if (i->code == PTX_MOV) {
        const uint32_t to = i->operands[0].count, from = i->operands[1].count;
        return (to == 0 && from == 0) ||
               ((to == 0 || from == 0) && (to + from == 2 || to + from == 4) &&
                ptx_type_nbytes(i->type) >= 4);
    }
    if (i->code == PTX_MMA) memcpy(want, matrices, sizeof want);
    if (i->code == PTX_LDMATRIX) want[0] = 4;
    if (i->vector > 1) want[i->code == PTX_ST] = i->vector;
    for (uint32_t k = 0; k < PTX_OPERANDS; k++)
        if (i->operands[k].count != want[k]) return 0;
    return 1;
}

static int decode_instruction(decoder_t *d)
{
    ptx_span_t text = d->statement, rest, predicate = { NULL, 0 };
    if (text.at[0] == '@') predicate = ptx_span_cut(text, " \t", &text);
    const ptx_span_t words = ptx_span_cut(text, " \t\n", &rest);
    ptx_instruction_t i = *append(d, PTX_MOV);
    const uint32_t at = d->kernel->ncode - 1;
    unsigned noperands;
    const char *why = ptx_parse_words(words, &i, &noperands);
    if (why != NULL) return fail(d, why);
    if (i.code == PTX_CALL) {
        d->kernel->ncode--;
        return predicate.n == 0 && decode_call(d, rest);
    }
    if (predicate.n > 0) {
        const int negated = predicate.n > 1 && predicate.at[1] == '!';
        ptx_operand_t p;
        if (!parse_operand(
                d, (ptx_span_t){ predicate.at + 1 + negated, predicate.n - 1 - (size_t)negated },
                &p))
            return 0;
        i.predicate = p.row;
        if (negated) i.flags |= PTX_NEGATED;
        if (i.code == PTX_SHFL || i.code == PTX_LDMATRIX || i.code == PTX_MMA || i.code == PTX_BAR)
            return fail(d, "a predicate of an instruction of the whole warp");
    }
    for (uint32_t k = 0; k < noperands; k++) {
        ptx_span_t word = ptx_span_cut(rest, ",", &rest);
        const int is_address = ((i.code == PTX_LD || i.code == PTX_LDMATRIX) && k == 1) ||
                               (i.code == PTX_ST && k == 0) || (i.code == PTX_CP && k < 2);
        if (i.code == PTX_BRA) {
            d->branches[at] = word;
            continue;
        }
        if (i.code == PTX_SHFL && k == 0) { /* register|predicate */
            ptx_operand_t p;
            ptx_span_t second;
            word = ptx_span_cut(word, "|", &second);
            if (second.n > 0 && !parse_operand(d, second, &p)) return 0;
            if (second.n > 0) i.target = p.row;
        }
        if (word.n == 0) return fail(d, "too few operands");
        if (i.code == PTX_BAR && !ptx_span_is(word, "0")) return fail(d, "another barrier than 0");
        if (is_address ? !parse_address(d, word, &i, &i.operands[k])
                       : !parse_operand(d, word, &i.operands[k]))
            return 0;
    }
    if (rest.n > 0) return fail(d, "too many operands");
    if (!lists_fit(&i)) return fail(d, "a list of another length");
    if (i.code == PTX_RET) i.operands[0].row = d->return_row;
    d->kernel->code[at] = i;
    return 1;
}

/* .reg .b32 %r<7>, %temp; */
static void declare_registers(decoder_t *d, ptx_span_t text)
{
    ptx_span_t type;
    ptx_span_cut(text, " \t", &text);
    type = ptx_span_cut(text, " \t", &text);
    const enum kind kind = ptx_span_is(type, ".pred") ? PREDICATE : REGISTER;
    uint32_t *next = kind == PREDICATE ? &d->kernel->npredicates : &d->kernel->nrows;
    while (text.n > 0) {
        ptx_span_t count, name = ptx_span_cut(ptx_span_cut(text, ",", &text), "<", &count);
        const uint32_t n = count.n > 0 ? (uint32_t)strtoul(count.at, NULL, 10) : 0;
        declare(d, name, kind, *next, n, 0);
        *next += n > 0 ? n : 1;
    }
}

/* An array of shared or local memory, or an argument, which local memory has. */
static int declare_variable(decoder_t *d, ptx_span_t text, uint64_t *out_at, uint32_t *out_nbytes)
{
    ptx_kernel_t *kernel = d->kernel;
    const unsigned space = ptx_span_begins(text, ".shared") ? PTX_SHARED : PTX_LOCAL;
    uint64_t *end = space == PTX_SHARED ? &kernel->shared_nbytes : &kernel->local_nbytes;
    ptx_variable_t variable;
    if (!ptx_parse_variable(text, &variable)) return fail(d, "unknown declaration");
    *out_at = (*end + variable.alignment - 1) / variable.alignment * variable.alignment;
    *out_nbytes = (uint32_t)variable.nbytes;
    *end = *out_at + variable.nbytes;
    declare(d, variable.name, ADDRESS, *out_at, 0, space);
    return 1;
}

/* The statements after the opening brace of a function or kernel, up to its last one. */
static int decode_body(decoder_t *d, const char *at)
{
    uint32_t scopes[16], depth = 0, first = d->kernel->ncode, nbytes;
    uint64_t place;
    d->nlabels = 0;
    for (;;) {
        const ptx_span_t s = d->statement = ptx_next_statement(&at);
        if (s.n == 0 && *at == '\0') return fail(d, "no end");
        if (s.n == 0 || ptx_span_begins(s, ".pragma")) continue;
        if (s.at[0] == '}') {
            if (depth == 0) break;
            d->nsymbols = scopes[--depth];
        } else if (s.at[0] == '{') {
            if (depth == 16) return fail(d, "too many scopes");
            scopes[depth++] = d->nsymbols;
        } else if (ptx_span_begins(s, ".loc\t") || ptx_span_begins(s, ".loc ")) {
            sscanf(s.at + 4, "%u %u", &d->file, &d->line);
        } else if (ptx_span_begins(s, ".reg")) {
            declare_registers(d, s);
        } else if (s.at[0] == '.') {
            if (!declare_variable(d, s, &place, &nbytes)) return 0;
        } else if (s.at[s.n - 1] == ':') {
            d->labels = grow(d->labels, d->nlabels, &d->label_room, sizeof *d->labels);
            d->labels[d->nlabels++] = (label_t){ { s.at, s.n - 1 }, d->kernel->ncode };
        } else if (!decode_instruction(d)) {
            return fail(d, "unknown form");
        }
    }
    append(d, PTX_RET)->operands[0].row = d->return_row;
    for (uint32_t k = first; k < d->kernel->ncode; k++) {
        if (d->kernel->code[k].code != PTX_BRA) continue;
        for (uint32_t l = 0; l < d->nlabels; l++)
            if (ptx_span_equals(d->labels[l].name, d->branches[k]))
                d->kernel->code[k].target = (int32_t)d->labels[l].pc;
        if (d->kernel->code[k].target < 0) return fail(d, "unknown label");
    }
    return d->failure == NULL;
}

/* .func (.param .b64 result) name (.param .b64 argument, ...) { ... }
 * A declaration has no body. */
static int decode_function(decoder_t *d, const char *at)
{
    const uint32_t outer = d->nsymbols;
    ptx_span_t head, rest = { at, strcspn(at, "{;") };
    const char *body = rest.at + rest.n;
    if (*body != '{') return 1;
    if (d->nfunctions == MOST_FUNCTIONS) return fail(d, "too many functions");
    function_t *function = &d->functions[d->nfunctions];
    head = rest;
    rest.n = strcspn(rest.at, ")") + 1;
    ptx_span_t results = { rest.at + strcspn(rest.at, "(") + 1, 0 };
    results.n = (size_t)(rest.at + rest.n - 1 - results.at);
    const char *name = rest.at + rest.n, *open = name + strcspn(name, "(");
    ptx_span_t arguments = { open + 1, strcspn(open, ")") - 1 };
    d->statement = head;
    function->name = ptx_span_trim((ptx_span_t){ name, (size_t)(open - name) });
    function->narguments = 1;
    if (!declare_variable(d, ptx_span_trim(results), &function->arguments[0], &function->nbytes[0]))
        return 0;
    arguments = ptx_span_trim(arguments);
    while (arguments.n > 0) {
        const uint32_t k = function->narguments++;
        if (k == MOST_ARGUMENTS) return fail(d, "too many arguments");
        if (!declare_variable(d, ptx_span_cut(arguments, ",", &arguments), &function->arguments[k],
                              &function->nbytes[k]))
            return 0;
    }
    function->begin = d->kernel->ncode;
    function->return_row = d->return_row = (int32_t)d->kernel->nrows++;
    if (!decode_body(d, body + 1)) return 0;
    d->nfunctions++;
    d->nsymbols = outer;
    return 1;
}

/* .global .align 4 .b8 name[24] = {65, 144, ...}; */
static int declare_data(decoder_t *d, const char *at)
{
    ptx_kernel_t *kernel = d->kernel;
    ptx_span_t value, declaration;
    ptx_variable_t variable;
    d->statement = ptx_next_statement(&at);
    declaration = ptx_span_cut(d->statement, "=", &value);
    if (!ptx_parse_variable(declaration, &variable)) return fail(d, "unknown array");
    const uint64_t begin = (kernel->data_nbytes + 15) / 16 * 16;
    kernel->data_nbytes = begin + variable.nbytes;
    kernel->data = realloc(kernel->data, kernel->data_nbytes);
    memset(kernel->data + begin, 0, variable.nbytes);
    if (value.n > 2) value = (ptx_span_t){ value.at + 1, value.n - 2 };
    for (uint64_t k = 0, byte; value.n > 0; k++) {
        if (k == variable.nbytes || !ptx_span_number(ptx_span_cut(value, ",", &value), &byte))
            return fail(d, "an array of other things than bytes");
        kernel->data[begin + k] = (unsigned char)byte;
    }
    declare(d, variable.name, ADDRESS, PTX_WINDOW(PTX_WINDOW_DATA) | begin, 0, PTX_GLOBAL);
    return 1;
}

static int decode(decoder_t *d, const char *text, const char *name)
{
    char pattern[96];
    ptx_variable_t argument;
    snprintf(pattern, sizeof pattern, ".entry %s(", name);
    const char *entry = strstr(text, pattern), *body = entry == NULL ? NULL : strchr(entry, '{');
    if (body == NULL) return fail(d, "no such kernel");
    for (const char *at = text; (at = strstr(at, "\n.global ")) != NULL; at++)
        if (!declare_data(d, at + 1)) return 0;
    const char *end = strstr(body, "\n}"), *call = strstr(body, "call.uni");
    if (call != NULL && (end == NULL || call < end))
        for (const char *at = text; (at = strstr(at, "\n.func ")) != NULL; at++)
            if (!decode_function(d, at + 1)) return 0;
    d->kernel->begin = d->kernel->ncode;
    d->return_row = -1;
    entry += strlen(pattern);
    d->statement = ptx_span_trim((ptx_span_t){ entry, strcspn(entry, ")") });
    if (memchr(d->statement.at, ',', d->statement.n) != NULL ||
        !ptx_parse_variable(d->statement, &argument))
        return fail(d, "another number of arguments than one");
    d->kernel->arguments_nbytes = argument.nbytes;
    declare(d, argument.name, ADDRESS, 0, 0, PTX_PARAM);
    return decode_body(d, body + 1);
}

ptx_kernel_t *ptx_kernel_create(const char *file, const char *text, const char *name,
                                char report[PTX_REPORT_NBYTES])
{
    ptx_kernel_t *kernel = calloc(1, sizeof *kernel);
    decoder_t *d = calloc(1, sizeof *d);
    d->kernel = kernel;
    kernel->file = file;
    kernel->text = text;
    kernel->nrows = PTX_SPECIALS;
    snprintf(kernel->name, sizeof kernel->name, "%s", name);
    if (!decode(d, text, name)) {
        snprintf(report, PTX_REPORT_NBYTES,
                 "%s of %s: %s in \"%.*s\": add it to tests/support/fake_cuda/ptx", name, file,
                 d->failure, (int)(d->statement.n < 200 ? d->statement.n : 200),
                 d->statement.n > 0 ? d->statement.at : "");
        ptx_kernel_destroy(kernel);
        kernel = NULL;
    }
    free(d->labels);
    free(d->branches);
    free(d->values);
    free(d);
    return kernel;
}

void ptx_kernel_destroy(ptx_kernel_t *kernel)
{
    if (kernel == NULL) return;
    free(kernel->code);
    free(kernel->constants);
    free(kernel->lists);
    free(kernel->data);
    free(kernel);
}
