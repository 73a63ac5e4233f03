//! A stand-in until the real one lands; in a conflict keep the other side.
use std::cell::Cell; use std::io; use std::rc::Rc; use lighty_buf::{Chunk,ChunkQueue}; use crate::file::{FileEngine,OpenFile}; use crate::transport::Stream;
#[derive(Clone,Copy,Debug)] pub enum NetworkBackend { Auto }
impl NetworkBackend { pub const NAMES: &'static [&'static str] = &["auto"]; pub fn available() -> Vec<(&'static str,bool)> { vec![("auto",true)] } }
impl std::str::FromStr for NetworkBackend { type Err=String; fn from_str(_:&str)->Result<Self,String>{Ok(NetworkBackend::Auto)} }
impl std::fmt::Display for NetworkBackend { fn fmt(&self,f:&mut std::fmt::Formatter<'_>)->std::fmt::Result{f.write_str("auto")} }
#[derive(PartialEq)] pub enum State { Done, WouldBlock, NeedsDisk }
pub struct Sent { pub bytes: u64, pub state: State }
#[derive(Clone)] pub struct Sender { }
impl Sender { pub fn start(_:NetworkBackend,_:FileEngine,_:usize)->io::Result<Self>{Ok(Sender{})}
 pub fn try_send(&self,s:&Stream,q:&mut ChunkQueue<Rc<OpenFile>>,_b:u64)->io::Result<Sent>{ let mut n=0; loop { let r = match q.front() { None => return Ok(Sent{bytes:n,state:State::Done}), Some(Chunk::Memory(b)) => s.try_write(b), Some(Chunk::File(f)) => { let mut off=f.offset; s.try_write_with(|fd| rustix::fs::sendfile(fd, &*f.file, Some(&mut off), f.length as usize).map_err(Into::into)) } }; match r { Ok(0)=>return Err(io::ErrorKind::UnexpectedEof.into()), Ok(k)=>{n+=k as u64;q.advance(k as u64);}, Err(e) if e.kind()==io::ErrorKind::WouldBlock => return Ok(Sent{bytes:n,state:State::WouldBlock}), Err(e)=>return Err(e) } } }
 pub async fn send(&self,s:&Stream,q:&mut ChunkQueue<Rc<OpenFile>>,b:u64,p:&Cell<u64>)->io::Result<u64>{ let mut n=0; loop { let r=self.try_send(s,q,b)?; n+=r.bytes; p.set(p.get()+r.bytes); if r.state==State::Done {return Ok(n)} s.writable().await?; } } }
