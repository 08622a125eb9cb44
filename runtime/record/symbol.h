/* Names for code addresses: the function in which an address is. Not here: which addresses are call
 * sites (site.h). */
#ifndef FERRY_RUNTIME_SYMBOL_H_
#define FERRY_RUNTIME_SYMBOL_H_

#include <stddef.h>

/* Writes "train_step+0x1c" for the return address `address`, from the dynamic symbols of its
 * module, else from the symbol table of its file; without either "program+0x4a10", which addr2line
 * reads. Never a folder. Reads a file: not for hot paths. */
void fy__symbol_name(const void *address, char *out_name, size_t size);

#endif
