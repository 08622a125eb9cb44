// A consumer in Zig: the declarations are what `zig translate-c` makes of all headers of the core,
// and nothing is written by hand. An op and a download; a refusal with its text.
const std = @import("std");
const fy = @import("ferry.zig");

fn check(status: fy.fy_status_t) !void {
    if (status != fy.FY_STATUS_OK) return error.Refused; // fy_error_get() has the text
}

pub fn main() !void {
    var device: ?*fy.fy_device_t = null;
    var x: ?*fy.fy_tensor_t = null;
    var y: ?*fy.fy_tensor_t = null;
    var reply: ?*fy.fy_download_t = null;
    var sum: f64 = 0;
    const dims = [_]i64{ 2, 3 };
    try check(fy.fy_device_open("sim:0", &device));
    try check(fy.fy_full(device, fy.FY_DTYPE_F32, dims.len, &dims, 2.5, &x));
    try check(fy.fy_add(x, x, &y));
    try check(fy.fy_sum(y, 0, null, 0, &y));
    try check(fy.fy_tensor_download(y, null, &reply));
    try check(fy.fy_download_wait_f64(reply, fy.FY_FOREVER, &sum));
    if (sum != 30) return error.WrongSum;
    if (fy.fy_reshape(x, 1, &[_]i64{7}, &y) != fy.FY_STATUS_SHAPE_MISMATCH) return error.NotRefused;
    const text = std.mem.sliceTo(&fy.fy_error_get().*.text, 0);
    if (std.mem.indexOf(u8, text, "reshape") == null) return error.NoText;
    fy.fy_device_close(device);
}
