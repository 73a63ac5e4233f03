//! Has the linker export Lua's interface from the program: modules written in C, which scripts
//! load, find it there.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for interface in ["lua_*", "luaL_*", "luaopen_*"] {
        println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol={interface}");
    }
}
