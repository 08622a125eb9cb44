//! A consumer in Rust: bindgen's output for all headers, as run.sh makes it, and nothing by hand.
//! An upload, an op and a download; options by their _init function; a refusal with its text.
#![allow(non_camel_case_types, non_upper_case_globals, non_snake_case, dead_code, unused_imports)]
include!(env!("FERRY_BINDINGS"));

use std::ffi::CStr;
use std::mem::{size_of, zeroed};
use std::ptr::{null, null_mut};

fn check(status: fy_status_t) -> Result<(), String> {
    if status == FY_STATUS_OK {
        return Ok(());
    }
    Err(unsafe { CStr::from_ptr((*fy_error_get()).text.as_ptr()) }.to_string_lossy().into_owned())
}

fn main() -> Result<(), String> {
    let (mut data, dims) = ([1f32, 2.0, 3.0, 4.0], [4i64]);
    unsafe {
        let scope = fy_scope_begin("rust\0".as_ptr().cast());
        let (mut device, mut x, mut y, mut mixed) = (null_mut(), null_mut(), null_mut(), null_mut());
        let (mut download, mut values) = (null_mut(), null_mut());
        let mut options: fy_transfer_options_t = zeroed();
        fy_transfer_options_init(&mut options, size_of::<fy_transfer_options_t>() as _);
        check(fy_device_open("sim:0\0".as_ptr().cast(), &mut device))?;
        let host = fy_device_host();
        let bytes = data.as_mut_ptr().cast();
        check(fy_tensor_wrap(host, FY_DTYPE_F32, 1, dims.as_ptr(), bytes, None, null_mut(), &mut x))?;
        check(fy_tensor_upload(x, device, &options, &mut y))?;
        let refusal = check(fy_add(x, y, &mut mixed)).unwrap_err();
        assert!(refusal.contains("sim:0") && mixed.is_null(), "{}", refusal);
        check(fy_add(y, y, &mut y))?;
        check(fy_tensor_download(y, null(), &mut download))?;
        check(fy_download_wait(download, u64::MAX, &mut y))?;
        check(fy_tensor_map(y, FY_ACCESS_READ, &mut values))?;
        assert_eq!(std::slice::from_raw_parts(values as *const f32, 4), [2.0, 4.0, 6.0, 8.0]);
        fy_scope_end(scope, 0, null_mut());
        fy_device_close(device);
    }
    Ok(())
}
