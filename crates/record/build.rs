//! Links the library so that it is never unloaded: threads and exit handlers lead into it.
//!
//! Not here: anything that is generated.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
