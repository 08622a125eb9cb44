/* Opens a group of $FERRY_MPI after a change of the folder: test_folders.sh. */
#include <ferry/dist.h>
#include <ferry/ferry.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    fy_group_t *group;
    if (argc != 2 || chdir(argv[1]) != 0) return 2;
    const fy_status_t status = fy_group_open(NULL, &group);
    printf("%s\n", status == FY_STATUS_OK ? "opened" : fy_error_get()->text);
    fy_group_close(group);
    return 0;
}
