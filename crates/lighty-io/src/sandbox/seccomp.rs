//! The seccomp filter: a program of the kernel's classic BPF that judges each system call by its
//! number and, for a few, by an argument.
//!
//! The kernel remembers numbers that are allowed whatever their arguments (Linux 5.11), so that the
//! frequent calls do not run the program at all.

use std::mem::offset_of;

use super::LayerFault;
use super::syscalls::{ALLOWED, FREQUENT, KILLING, LEGACY, NUMBER_MAX, SIGNALLING};

/// The number by which the kernel calls the processor (linux/audit.h); `None`: the list of calls
/// does not fit.
const PROCESSOR: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xC000_003E)
} else if cfg!(target_arch = "aarch64") {
    Some(0xC000_00B7)
} else if cfg!(target_arch = "riscv64") {
    Some(0xC000_00F3)
} else {
    None
};

// Instructions (linux/bpf_common.h).
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

// Results (linux/seccomp.h).
const ALLOW: u32 = 0x7FFF_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const FORBIDDEN: u32 = ERRNO | libc::EPERM as u32;
const UNKNOWN: u32 = ERRNO | libc::ENOSYS as u32;

const SET_MODE_FILTER: libc::c_uint = 1;
const GET_ACTION_AVAILABLE: libc::c_uint = 2;
const FLAG_TSYNC: libc::c_uint = 1;
/// Keeps speculative store bypass as it is: older kernels would slow the thread down.
const FLAG_SPEC_ALLOW: libc::c_uint = 4;

/// Offsets in the kernel's description of a call; of an argument, its low half.
const NUMBER: u32 = offset_of!(SeccompData, nr) as u32;
const ARCH: u32 = offset_of!(SeccompData, arch) as u32;
const LOW_HALF: u32 = if cfg!(target_endian = "big") { 4 } else { 0 };

#[repr(C)]
struct SeccompData {
    nr: i32,
    arch: u32,
    instruction_pointer: u64,
    args: [u64; 6],
}

const fn argument(index: usize) -> u32 {
    (offset_of!(SeccompData, args) + index * 8) as u32 + LOW_HALF
}

/// Terminal requests that put input into another process's terminal.
const FORBIDDEN_IOCTLS: &[u32] = &[TIOCSTI, TIOCLINUX];
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541C;

/// Changes of the process that would open it to others.
const FORBIDDEN_PRCTLS: &[u32] =
    &[libc::PR_SET_DUMPABLE as u32, libc::PR_SET_PTRACER as u32, libc::PR_SET_MM as u32];

const FAMILIES: &[u32] = &[
    libc::AF_UNIX as u32,
    libc::AF_INET as u32,
    libc::AF_INET6 as u32,
    // Interfaces and routes, for resolvers.
    libc::AF_NETLINK as u32,
];

/// New name spaces.
const NAME_SPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// The code that a filter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterScope {
    /// The process, which starts no programs.
    Process,
    /// Threads that serve requests and signal programs.
    Serving,
    /// A thread that creates no more rings, besides another filter.
    NoRings,
}

/// A filter, ready to be installed.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    program: Vec<libc::sock_filter>,
    scope: FilterScope,
}

/// Checks that the kernel has filters.
pub(super) fn availability() -> Result<(), LayerFault> {
    PROCESSOR.ok_or(LayerFault::Processor)?;
    let action = KILL_PROCESS;
    // SAFETY: the call reads one number, which outlives it.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAILABLE, 0 as libc::c_uint, &raw const action)
    };
    match result {
        0 => Ok(()),
        _ => Err(LayerFault::Missing("Linux 4.14 has all that is needed")),
    }
}

impl Filter {
    /// Makes a filter.
    pub(super) fn build(scope: FilterScope) -> Result<Self, LayerFault> {
        availability()?;
        let processor = PROCESSOR.ok_or(LayerFault::Processor)?;
        let mut builder = FilterBuilder::default();
        builder.statement(LOAD, ARCH);
        // Calls in the form of another processor, such as 32-bit ones, are never made.
        builder.jump(JUMP_EQUAL, processor, 1, 0);
        builder.statement(RETURN, KILL_PROCESS);
        builder.statement(LOAD, NUMBER);
        match scope {
            FilterScope::NoRings => {
                builder
                    .verdict(&[libc::SYS_io_uring_setup, libc::SYS_io_uring_register], FORBIDDEN);
                builder.statement(RETURN, ALLOW);
            }
            _ => builder.judge_all(scope),
        }
        Ok(Filter { program: builder.0, scope })
    }

    /// Installs the filter for the calling thread and those that it starts; for the process, in all
    /// threads. Returns the extent of the protection.
    pub(super) fn install(&self) -> Result<String, LayerFault> {
        let flags = match self.scope {
            FilterScope::Process => FLAG_TSYNC | FLAG_SPEC_ALLOW,
            FilterScope::Serving | FilterScope::NoRings => FLAG_SPEC_ALLOW,
        };
        let length = u16::try_from(self.program.len()).unwrap_or(u16::MAX);
        // The kernel only reads the program.
        let filter = self.program.as_ptr().cast_mut();
        let program = libc::sock_fprog { len: length, filter };
        // SAFETY: the structure and the program, of the given length, outlive the call.
        let result =
            unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, flags, &raw const program) };
        match result {
            0 => Ok(format!("{} system calls are allowed", allowed_count())),
            1.. => Err(LayerFault::Call("seccomp", "a thread has another filter".to_owned())),
            _ => Err(LayerFault::last_error("seccomp")),
        }
    }
}

fn allowed_count() -> usize {
    FREQUENT.len() + ALLOWED.len() + LEGACY.len() + SIGNALLING.len() + CONDITIONAL
}

/// Number of calls that depend on an argument, besides signals.
const CONDITIONAL: usize = 4;

/// Instructions under construction.
#[derive(Default)]
struct FilterBuilder(Vec<libc::sock_filter>);

impl FilterBuilder {
    fn statement(&mut self, code: u16, k: u32) {
        self.0.push(libc::sock_filter { code, jt: 0, jf: 0, k });
    }

    fn jump(&mut self, code: u16, k: u32, jt: u8, jf: u8) {
        self.0.push(libc::sock_filter { code, jt, jf, k });
    }

    /// Ends with a result if the number is one of these.
    fn verdict(&mut self, numbers: &[libc::c_long], result: u32) {
        for number in numbers {
            self.jump(JUMP_EQUAL, *number as u32, 0, 1);
            self.statement(RETURN, result);
        }
    }

    fn judge_all(&mut self, scope: FilterScope) {
        self.verdict(FREQUENT, ALLOW);
        self.verdict(ALLOWED, ALLOW);
        self.verdict(LEGACY, ALLOW);
        self.verdict(KILLING, KILL_PROCESS);
        self.only_if_any(libc::SYS_socket, argument(0), FAMILIES);
        self.unless_any(libc::SYS_ioctl, argument(1), FORBIDDEN_IOCTLS);
        self.unless_any(libc::SYS_prctl, argument(0), FORBIDDEN_PRCTLS);
        self.threads_only();
        for number in SIGNALLING {
            match scope {
                FilterScope::Process => {
                    self.only_if_any(*number, argument(0), &[std::process::id()]);
                }
                _ => self.verdict(&[*number], ALLOW),
            }
        }
        // Its target is a descriptor, which a filter cannot tell.
        if scope == FilterScope::Serving {
            self.verdict(&[libc::SYS_pidfd_send_signal], ALLOW);
        }
        // The C library falls back to clone, whose flags a filter can see.
        self.verdict(&[libc::SYS_clone3], UNKNOWN);
        self.jump(JUMP_GREATER, NUMBER_MAX, 0, 1);
        self.statement(RETURN, UNKNOWN);
        self.statement(RETURN, FORBIDDEN);
    }

    /// Allows a call if an argument is one of these, and forbids it otherwise.
    fn only_if_any(&mut self, number: libc::c_long, argument: u32, values: &[u32]) {
        // Behind the load: two instructions for each value, and the last verdict.
        self.jump(JUMP_EQUAL, number as u32, 0, 2 * values.len() as u8 + 2);
        self.statement(LOAD, argument);
        for value in values {
            self.jump(JUMP_EQUAL, *value, 0, 1);
            self.statement(RETURN, ALLOW);
        }
        self.statement(RETURN, FORBIDDEN);
    }

    /// Forbids a call if an argument is one of these, and allows it otherwise.
    fn unless_any(&mut self, number: libc::c_long, argument: u32, values: &[u32]) {
        self.jump(JUMP_EQUAL, number as u32, 0, 2 * values.len() as u8 + 2);
        self.statement(LOAD, argument);
        for value in values {
            self.jump(JUMP_EQUAL, *value, 0, 1);
            self.statement(RETURN, FORBIDDEN);
        }
        self.statement(RETURN, ALLOW);
    }

    /// Allows clone(2) for threads: no processes, no new name spaces.
    fn threads_only(&mut self) {
        let thread = libc::CLONE_THREAD as u32;
        self.jump(JUMP_EQUAL, libc::SYS_clone as u32, 0, 6);
        self.statement(LOAD, argument(0));
        self.jump(JUMP_ANY_BIT, NAME_SPACES, 3, 0);
        self.statement(AND, thread);
        self.jump(JUMP_EQUAL, thread, 0, 1);
        self.statement(RETURN, ALLOW);
        self.statement(RETURN, FORBIDDEN);
    }
}
