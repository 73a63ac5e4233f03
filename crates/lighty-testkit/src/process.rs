//! State of other processes, read from `/proc`.

use std::fs;

/// True while a process with this id runs. A zombie counts as ended.
#[must_use]
pub fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The program's name, in parentheses, may contain parentheses.
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::wait_until;

    #[test]
    fn zombies_do_not_run() {
        assert!(is_running(std::process::id()));
        let mut child = Command::new("true").spawn().expect("a child");
        assert!(wait_until(Duration::from_secs(30), || !is_running(child.id())));
        child.wait().expect("its status");
        assert!(!is_running(child.id()));
    }
}
