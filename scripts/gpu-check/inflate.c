/* Unpacks one gzip file: inflate FROM TO. Staged by `gpu-check.sh prepare`, because a machine with
 * a card may have no gzip.
 * Exit 0; 1: one of the files cannot be read or written, or is damaged; 2: usage. */
#include <stdio.h>
#include <zlib.h>

int main(int argc, char **argv)
{
    static char buffer[1 << 16];
    if (argc != 3) {
        fprintf(stderr, "usage: inflate FROM TO\n");
        return 2;
    }
    gzFile from = gzopen(argv[1], "rb");
    FILE *to = from != NULL ? fopen(argv[2], "wb") : NULL;
    int n = to != NULL ? gzread(from, buffer, sizeof buffer) : -1;
    for (; n > 0; n = gzread(from, buffer, sizeof buffer))
        if (fwrite(buffer, 1, (size_t)n, to) != (size_t)n) break;
    const int is_whole = n == 0 && from != NULL && gzclose(from) == Z_OK;
    if (to != NULL && fclose(to) == 0 && is_whole) return 0;
    fprintf(stderr, "inflate: %s could not be unpacked to %s\n", argv[1], argv[2]);
    return 1;
}
