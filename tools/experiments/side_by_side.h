/* An experiment on several devices. Next: side_by_side.c. */
#ifndef FERRY_TOOLS_SIDE_BY_SIDE_H_
#define FERRY_TOOLS_SIDE_BY_SIDE_H_

/* How many times argv has --device. */
int side_by_side_devices(int argc, char **argv);
/* Runs `ferry experiment ARGV...` once for each --device, in a process each, and shows their
 * figures beside each other. Returns an exit status: the first that is not 0 ends it. */
int side_by_side(int argc, char **argv);

#endif
