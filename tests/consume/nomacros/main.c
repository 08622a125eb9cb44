/* A consumer that sees declarations only, as generators of bindings for Rust or Zig do: run.sh
 * compiles it behind the preprocessed headers, so it includes nothing and no macro exists. */
int main(void)
{
    float data[4] = { 1, 2, 3, 4 };
    const int64_t dims[1] = { 4 };
    fy_tensor_t *x, *y;
    fy_download_t *download;
    fy_device_t *device;
    fy_transfer_options_t options;
    void *sums;
    const fy_scope_t scope = fy_scope_begin("nomacros");
    fy_transfer_options_init(&options, sizeof options);
    if (fy_device_open("sim:0", &device) != FY_STATUS_OK) return 1;
    if (fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, 1, dims, data, 0, 0, &x) != FY_STATUS_OK ||
        fy_tensor_upload(x, device, &options, &x) != FY_STATUS_OK ||
        fy_add(x, x, &y) != FY_STATUS_OK || fy_tensor_download(y, 0, &download) != FY_STATUS_OK ||
        fy_download_wait(download, (uint64_t)-1, &y) != FY_STATUS_OK ||
        fy_tensor_map(y, FY_ACCESS_READ, &sums) != FY_STATUS_OK)
        return 2;
    if (((float *)sums)[3] != 8) return 3;
    fy_scope_end(scope, 0, 0);
    fy_device_close(device);
    return 0;
}
