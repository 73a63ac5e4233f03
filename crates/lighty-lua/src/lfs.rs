//! The module `lfs`: LuaFileSystem's interface over calls that do not block the event loop.

use mlua::{Function, Lua, Result, Table};

/// The table that `require "lfs"` returns. `call(name, path)` performs `stat` (returns a table as
/// `lighty.stat` does), `readdir` (returns a function that returns name after name) or `readlink`.
/// It returns nil and a text after an error, and may suspend the script.
///
/// # Errors
/// Lua is out of memory.
pub fn table(lua: &Lua, call: Function) -> Result<Table> {
    lua.load(include_str!("lfs.lua")).set_name("=lfs").into_function()?.call(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with `/dir`, which contains `file` and `link`.
    fn lua() -> Lua {
        let lua = Lua::new();
        let disk = "return function(what, path) \
            if what == 'stat' and path == '/dir' then \
                return { st_mode = 16877, st_size = 4096, st_ino = 2, st_uid = 0, st_gid = 0 } end \
            if what == 'stat' and path ~= '/none' then \
                return { st_mode = 33188, st_size = 12, st_ino = 3, st_uid = 1, st_gid = 2, \
                    st_atime = 7, st_mtime = 8, st_ctime = 9 } end \
            if what == 'readdir' and path == '/dir' then \
                return string.gmatch('file link', '%w+') end \
            if what == 'readlink' and path == '/dir/link' then return 'file' end \
            return nil, 'No such file or directory' end";
        let call = lua.load(disk).eval().expect("a disk");
        let table = table(&lua, call).expect("the module");
        lua.globals().set("lfs", table).expect("a global");
        lua
    }

    #[track_caller]
    fn gives(script: &str, expected: &str) {
        let given: String = lua().load(script).eval().expect(script);
        assert_eq!(given, expected, "{script}");
    }

    #[test]
    fn attributes_are_those_of_luafilesystem() {
        gives("return lfs.attributes('/dir').mode", "directory");
        gives("return lfs.attributes('/dir', 'permissions')", "rwxr-xr-x");
        gives("return lfs.attributes('/f', 'mode')", "file");
        gives(
            "local a = lfs.attributes('/f') return table.concat({a.permissions, a.size, a.uid, \
             a.gid, a.access, a.modification, a.change}, ' ')",
            "rw-r--r-- 12 1 2 7 8 9",
        );
        gives("local t = {} lfs.attributes('/f', t) return t.mode", "file");
        gives(
            "local a, why, code = lfs.attributes('/none') \
             return tostring(a) .. ' ' .. why .. ' ' .. code",
            "nil cannot obtain information from file '/none': No such file or directory 2",
        );
        gives(
            "return (select(2, pcall(lfs.attributes, '/f', 'x')):gsub('^.*: ', ''))",
            "invalid attribute name 'x'",
        );
        gives("return lfs.symlinkattributes('/dir/link', 'mode')", "link");
        gives("return lfs.symlinkattributes('/dir/link').target", "file");
        gives("return lfs.symlinkattributes('/f', 'mode')", "file");
    }

    #[test]
    fn directories_are_walked() {
        gives(
            "local t = {} for name in lfs.dir('/dir') do t[#t + 1] = name end \
             return table.concat(t, ' ')",
            ". .. file link",
        );
        gives(
            "local next, dir = lfs.dir('/dir') local first = dir:next() dir:close() \
             return first .. ' ' .. tostring(pcall(dir.next, dir))",
            ". false",
        );
        gives(
            "return (select(2, pcall(lfs.dir, '/none')):gsub('^.*cannot', 'cannot'))",
            "cannot open /none: No such file or directory",
        );
    }

    #[test]
    fn nothing_is_changed() {
        gives(
            "local ok, why = lfs.mkdir('/x') return tostring(ok) .. ' ' .. why",
            "nil lfs.mkdir is off: scripts do not change files",
        );
        gives("return lfs.currentdir()", "/");
    }
}
