//! A stand-in until the real one lands; in a conflict keep the other side.
#[derive(Clone)] pub struct LogHandle; impl LogHandle { pub fn write_line(&self, l:&[u8]) { use std::io::Write; let _ = std::io::stderr().write_all(l); } }
pub struct LogTarget; impl LogTarget { pub fn syslog(_:&str,_:&str,_:&str)->Self{LogTarget} pub fn parse(_:&str)->Self{LogTarget} pub fn stderr()->Self{LogTarget} }
pub struct LogWriter; impl LogWriter { pub fn open(_:LogTarget)->std::io::Result<Self>{Ok(LogWriter)} pub fn handle(&self)->LogHandle{LogHandle} pub fn reopen(&self){} pub fn flush(&self,_:std::time::Duration){} }
