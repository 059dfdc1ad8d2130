//! Everything that reads or writes through a pointer.
//!
//! Owns all `unsafe` of this crate. The caller of NVML promises that a pointer is null
//! or leads to what the function's declaration says; null is an invalid argument.

use std::ffi::{CStr, OsStr, c_char, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;

use crate::{Answer, INSUFFICIENT_SIZE, INVALID_ARGUMENT};

/// Writes a value.
pub(crate) fn put<T>(to: *mut T, value: T) -> Answer {
    if to.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, so it leads to a `T`, says the caller of NVML.
    unsafe { to.write(value) };
    Ok(())
}

/// Reads a value.
pub(crate) fn get<T: Copy>(from: *const T) -> Result<T, u32> {
    if from.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, so it leads to a `T`, says the caller of NVML.
    Ok(unsafe { from.read() })
}

/// Writes a list whose room is in `count`, and its length into `count`. With too little
/// room only the length is written, and that is an error.
pub(crate) fn list<T: Copy>(to: *mut T, count: *mut c_uint, values: &[T]) -> Answer {
    let room = get(count)?;
    put(count, values.len() as c_uint)?;
    if (room as usize) < values.len() {
        return Err(INSUFFICIENT_SIZE);
    }
    fill(to, values)
}

/// Writes a list of a length that both sides know.
pub(crate) fn fill<T: Copy>(to: *mut T, values: &[T]) -> Answer {
    if values.is_empty() {
        return Ok(());
    }
    if to.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, so there is room for as many, says the caller of NVML.
    unsafe { ptr::copy_nonoverlapping(values.as_ptr(), to, values.len()) };
    Ok(())
}

/// Writes a text with its final zero.
pub(crate) fn text(to: *mut c_char, length: c_uint, text: &str) -> Answer {
    let chars: Vec<c_char> = text.bytes().chain([0]).map(|b| b as c_char).collect();
    if (length as usize) < chars.len() {
        return Err(INSUFFICIENT_SIZE);
    }
    fill(to, &chars)
}

/// Reads a text.
pub(crate) fn string(from: *const c_char) -> Result<String, u32> {
    if from.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, so it leads to a text with a final zero, says the caller.
    Ok(unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned())
}

/// A text in a field of a fixed size.
pub(crate) fn field<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().zip(text.bytes().take(N - 1)) {
        *to = from as c_char;
    }
    field
}

/// Where this library was loaded from.
pub(crate) fn own_path() -> PathBuf {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: the address is one of this library's, and `info` is ours.
    let found =
        unsafe { libc::dladdr(own_path as fn() -> PathBuf as *const libc::c_void, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return PathBuf::new();
    }
    // SAFETY: the loader's text, which lives as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    OsStr::from_bytes(name.to_bytes()).into()
}
