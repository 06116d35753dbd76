//! Build script of the package `host`. The CPU engine needs no generated code: this only
//! tells Cargo that nothing but the script itself can make a build stale.

fn main() {
    println!("cargo:rerun-if-changed=../build.rs");
}
