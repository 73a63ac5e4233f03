//! The walk of a request through the phases, from its decoded head to a complete answer.
//!
//! Straight-line code: we choose the order of events here. Whatever waits is boxed by whoever
//! waits ([`Step::Wait`], the stat cache's look-up), so the future of [`respond`] stays small and
//! a warm request allocates nothing.

use std::rc::Rc;
use std::sync::Arc;

use lighty_http::{Fields, Known, Method, Status};
use lighty_io::file::FileKind;
use lighty_io::stat_cache::{Entry, Lookup};

use crate::exchange::{Exchange, Rewriting};
use crate::fault::Fault;
use crate::limits;
use crate::module::{FileFate, Hook, Part, Phase, Step};
use crate::sendfile::{self, FilePart};
use crate::{named_file, trace};

/// What a pass through the phases came to.
enum Pass {
    Answered,
    Restart,
    SendFile(FileFate),
    SendParts(Vec<FilePart>),
}

/// Answers the request in `ex`, whose settings are resolved: afterwards `ex.response` is complete
/// but for its framing.
pub async fn respond(ex: &mut Exchange) {
    trace::request(ex);
    let mut begins = true;
    loop {
        let passed = if std::mem::take(&mut begins) && answer_known_file(ex) {
            Pass::Answered
        } else {
            match pass(ex).await {
                Pass::SendFile(fate) => Box::pin(send_file(ex, fate)).await,
                Pass::SendParts(parts) => Box::pin(send_parts(ex, parts)).await,
                other => other,
            }
        };
        trace::pass(ex);
        match passed {
            Pass::Restart => {
                ex.restarts += 1;
                if ex.restarts > limits::RESTARTS_MAX {
                    ex.fail(Fault::RestartLoop);
                    break;
                }
                begin_again(ex);
            }
            _ => match wants_error_handler(ex) {
                Some(handler) => {
                    keep_owed(&ex.response.fields, &mut ex.owed);
                    if !call_error_handler(ex, &handler) {
                        break;
                    }
                }
                None => break,
            },
        }
    }
    named_file::join_carried(ex);
    keep_error_status(ex);
    if ex.response.status.code() >= 400 {
        complete(ex).await;
    } else {
        pass_head(ex);
        let filters = filters_of(ex);
        if !filters.is_empty() {
            filter(ex, filters).await;
        }
        finish_head(ex);
    }
    trace::response(ex);
}

/// The way of most requests, without a future: nobody has a say before the module that sends
/// files, and what it is to send is known. `false`: to be begun as if nothing had happened.
fn answer_known_file(ex: &mut Exchange) -> bool {
    let services = Rc::clone(&ex.services);
    let Some(sender) = services.modules.straight(&ex.settings) else { return false };
    let is_plain = ex.request.method.is_some_and(Method::is_get_or_head) && !ex.body.exists();
    if !is_plain || services.asks_physical {
        return false;
    }
    ex.set_physical();
    if !is_known(ex) || !ex.physical.entry.as_ref().is_some_and(|e| e.meta().kind == FileKind::File)
    {
        return false;
    }
    pass_conditions(ex);
    if !matches!(sender.handle(ex), Step::Answered) {
        return false;
    }
    if ex.fault.is_none() {
        ex.handler = sender.name();
    }
    true
}

/// Completes an answer: an error without a body gets its page, modules see the head, filters are
/// put before the body. Called by itself for what never came to be a request (a refused head, a head that came too late).
pub async fn complete(ex: &mut Exchange) {
    if ex.response.status.code() >= 400 && ex.response.body_is_default() {
        fill_error_page(ex).await;
    }
    pass_head(ex);
    let filters = filters_of(ex);
    filter(ex, filters).await;
    finish_head(ex);
}

fn pass_head(ex: &mut Exchange) {
    let mut part = ex.services.modules.part(Phase::ResponseHead, &ex.settings);
    if part.is_empty() {
        return;
    }
    let services = Rc::clone(&ex.services);
    while let Some(module) = services.modules.take_first(&mut part) {
        module.response_head(ex);
    }
}

/// Whether some filter is for an answer with this head.
pub fn is_filtered(ex: &Exchange) -> bool {
    !filters_of(ex).is_empty()
}

/// Those whose filters this answer is for.
fn filters_of(ex: &Exchange) -> Part {
    let modules = &ex.services.modules;
    if ex.response.unfiltered && !modules.change_heads(&ex.settings) {
        return Part::default();
    }
    modules.part(Phase::Filter, &ex.settings).filter(modules, |module| module.may_filter(ex))
}

async fn filter(ex: &mut Exchange, mut part: Part) {
    let services = Rc::clone(&ex.services);
    while let Some(module) = services.modules.take_first(&mut part) {
        let mut step = module.filter(ex);
        while let Step::Wait(future) = step {
            step = future.await;
        }
    }
}

fn finish_head(ex: &mut Exchange) {
    // RFC 9110 section 15.4.5: a 304 says nothing of the content; until here modules could ask.
    if ex.response.status == Status::NOT_MODIFIED {
        ex.response.fields.remove(Known::ContentType);
    }
}

/// After the last byte, or when the connection broke.
pub fn finish(ex: &Exchange) {
    let modules = &ex.services.modules;
    let mut part = modules.part(Phase::Done, &ex.settings);
    while let Some(module) = modules.take_first(&mut part) {
        module.done(ex);
    }
}

fn begin_again(ex: &mut Exchange) {
    let close = ex.response.close;
    ex.response.clear();
    ex.response.close = close;
    ex.physical.clear();
    // The new URL leads elsewhere: until it is known where, no condition on it holds, not even `!=`.
    ex.path_known = false;
    ex.handler = "";
    ex.resolve_settings();
}

async fn pass(ex: &mut Exchange) -> Pass {
    if let Some(end) = refuse_early(ex) {
        return end;
    }
    // One by one: a loop over them would be kept in every connection's future.
    if takes_part(ex, Phase::RawUrl)
        && let Some(end) = run(Phase::RawUrl, |m, ex| m.raw_url(ex), ex).await
    {
        return end;
    }
    if takes_part(ex, Phase::CleanUrl)
        && let Some(end) = run(Phase::CleanUrl, |m, ex| m.clean_url(ex), ex).await
    {
        return end;
    }
    if takes_part(ex, Phase::Docroot)
        && let Some(end) = run(Phase::Docroot, |m, ex| m.docroot(ex), ex).await
    {
        return end;
    }
    ex.set_physical();
    if takes_part(ex, Phase::Physical)
        && let Some(end) = run(Phase::Physical, |m, ex| m.physical(ex), ex).await
    {
        return end;
    }
    if ex.services.asks_physical {
        ex.resolve_settings();
    }
    if !is_known(ex)
        && let Err(fault) = look_up(ex).await
    {
        return fail_look_up(ex, fault);
    }
    if redirect_to_slash(ex) {
        return Pass::Answered;
    }
    if ex.services.asks_physical {
        ex.resolve_settings();
    }
    if is_directory(ex)
        && takes_part(ex, Phase::Directory)
        && let Some(end) = run(Phase::Directory, |m, ex| m.directory(ex), ex).await
    {
        return end;
    }
    if takes_part(ex, Phase::Found)
        && let Some(end) = run(Phase::Found, |m, ex| m.found(ex), ex).await
    {
        return end;
    }
    pass_conditions(ex);
    if let Some(end) = run(Phase::Handle, |m, ex| m.handle(ex), ex).await {
        return end;
    }
    if !ex.response.answered {
        let particulars = match is_directory(ex) {
            true => "a directory that has neither an index file nor a listing here",
            false => "no handler takes this request",
        };
        ex.fail_saying(Fault::Forbidden, particulars);
    }
    Pass::Answered
}

fn takes_part(ex: &Exchange, phase: Phase) -> bool {
    !ex.services.modules.part(phase, &ex.settings).is_empty()
}

fn is_directory(ex: &Exchange) -> bool {
    ex.physical.entry.as_ref().is_some_and(|e| e.meta().kind == FileKind::Directory)
}

/// Shows a request with conditions to those who have to see them before they are judged.
fn pass_conditions(ex: &mut Exchange) {
    use Known as K;
    if !ex.request.fields.contains_any(&[
        K::IfMatch,
        K::IfNoneMatch,
        K::IfModifiedSince,
        K::IfUnmodifiedSince,
        K::IfRange,
    ]) {
        return;
    }
    let services = Rc::clone(&ex.services);
    let mut part = services.modules.part(Phase::Conditions, &ex.settings);
    while let Some(module) = services.modules.take_first(&mut part) {
        module.conditions(ex);
    }
}

/// Calls a phase's modules in order until one ends the pass.
async fn run(phase: Phase, call: Hook, ex: &mut Exchange) -> Option<Pass> {
    let services = Rc::clone(&ex.services);
    let mut from = 0;
    while let Some((module, behind)) = services.modules.next(phase, &ex.settings, from) {
        from = behind;
        let end = {
            let mut step = call(module, ex);
            while let Step::Wait(future) = step {
                step = future.await;
            }
            match step {
                Step::Next | Step::Wait(_) => continue,
                Step::Restart => Pass::Restart,
                Step::SendFile(fate) => Pass::SendFile(fate),
                Step::SendParts(parts) => Pass::SendParts(parts),
                Step::Answered => Pass::Answered,
            }
        };
        if matches!(end, Pass::Answered) && ex.fault.is_none() {
            ex.handler = module.name();
        }
        return Some(end);
    }
    None
}

/// Sends the file that a handler named.
async fn send_file(ex: &mut Exchange, fate: FileFate) -> Pass {
    if let Err((fault, words)) = named_file::look_up(ex, fate).await {
        ex.fail_saying(fault, &words);
        return Pass::Answered;
    }
    let sent = run(Phase::SendFile, |m, ex| m.send_file(ex), ex).await;
    if sent.is_none() {
        ex.fail_saying(Fault::Internal, "no module sends files");
    }
    Pass::Answered
}

/// Sends parts of files that a handler named.
async fn send_parts(ex: &mut Exchange, parts: Vec<FilePart>) -> Pass {
    match named_file::join_parts(ex, &parts).await {
        Ok(body) => sendfile::take_parts(ex, body),
        Err((fault, words)) => ex.fail_saying(fault, &words),
    }
    Pass::Answered
}

/// What is decided before any module is asked.
fn refuse_early(ex: &mut Exchange) -> Option<Pass> {
    if ex.request.method.is_none() {
        ex.fail(Fault::MethodUnknown);
        return Some(Pass::Answered);
    }
    let limit = ex.settings.core.max_request_bytes;
    // Once refused, the body is read by nobody, and the error handler may speak.
    let is_new = ex.error_status.is_none();
    if limit > 0 && is_new && ex.body.announced().is_some_and(|announced| announced > limit) {
        ex.fail(Fault::RequestTooLarge);
        return Some(Pass::Answered);
    }
    if ex.request.method == Some(Method::Options) && ex.request.target == b"*" {
        ex.response.status = Status::NO_CONTENT;
        ex.response.fields.push(b"Allow", b"GET, HEAD, POST, OPTIONS");
        ex.response.answered = true;
        return Some(Pass::Answered);
    }
    if matches!(ex.request.method, Some(Method::Connect | Method::Trace)) {
        ex.fail(Fault::MethodNotAllowed);
        ex.response.fields.push(b"Allow", b"GET, HEAD, OPTIONS");
        return Some(Pass::Answered);
    }
    None
}

/// Takes the first directory that exists among those that `write` names, attempt by attempt, as
/// the document root; keeps the present one if there is none.
pub fn choose_docroot<'a, W>(ex: &'a mut Exchange, write: W) -> Step<'a>
where
    W: Fn(&Exchange, usize, &mut Vec<u8>) -> bool + 'a,
{
    let mut path = std::mem::take(&mut ex.physical.docroot);
    let before = path.clone();
    let mut attempt = 0;
    loop {
        path.clear();
        if !write(ex, attempt, &mut path) {
            ex.physical.docroot = before;
            return Step::Next;
        }
        if ex.services.root(&path).is_some() {
            ex.physical.docroot = path;
            return Step::Next;
        }
        if !ex.services.is_missing(&path) {
            break;
        }
        attempt += 1;
    }
    ex.physical.docroot = before;
    Step::Wait(Box::pin(open_first_root(ex, write, attempt)))
}

async fn open_first_root<W>(ex: &mut Exchange, write: W, mut attempt: usize) -> Step<'static>
where
    W: Fn(&Exchange, usize, &mut Vec<u8>) -> bool,
{
    let mut path = Vec::new();
    while write(ex, attempt, &mut path) {
        match ex.services.open_root(&path).await {
            Ok(_) => {
                ex.physical.docroot = path;
                return Step::Next;
            }
            Err(error) if Fault::of_file_error(&error) == Fault::DescriptorsExhausted => {
                ex.fail(Fault::DescriptorsExhausted);
                return Step::Answered;
            }
            Err(_) => ex.services.remember_missing(&path),
        }
        path.clear();
        attempt += 1;
    }
    Step::Next
}

/// Whether a regular file is at the physical path, if that is known without waiting.
pub fn is_file_known(ex: &mut Exchange) -> Option<bool> {
    let root = ex.services.root(&ex.physical.docroot)?;
    let core = &ex.settings.core;
    let noatime = ex.settings.server.use_noatime;
    let rel = &ex.physical.rel;
    match ex.services.stat_cache.lookup(&root, rel, core.follow_symlink, noatime) {
        Lookup::Ready(Ok(entry)) => Some(entry.meta().kind == FileKind::File),
        Lookup::Ready(Err(_)) => Some(false),
        Lookup::Wait(_) => None,
    }
}

/// Whether a regular file is at the physical path, whatever it takes to find out.
pub async fn is_file(ex: &mut Exchange) -> bool {
    if hold_root(ex).await.is_err() {
        return false;
    }
    look_up_path(ex).await.is_ok_and(|entry| entry.meta().kind == FileKind::File)
}

/// Opens the document root, unless it is held already.
async fn hold_root(ex: &mut Exchange) -> Result<(), Fault> {
    let root = match ex.services.root(&ex.physical.docroot) {
        Some(root) => root,
        None => open_root(ex).await?,
    };
    ex.physical.root = Some(root);
    Ok(())
}

/// Finds what is at the physical path where nobody has to be asked: nearly always.
fn is_known(ex: &mut Exchange) -> bool {
    let Some(root) = ex.services.root(&ex.physical.docroot) else { return false };
    let rel = ex.physical.rel.as_slice();
    // What a slash at the end is about is decided elsewhere.
    if rel.ends_with(b"/") {
        return false;
    }
    let noatime = ex.settings.server.use_noatime;
    let follow = ex.settings.core.follow_symlink;
    ex.physical.entry = ex.services.stat_cache.known(&root, rel, follow, noatime);
    ex.physical.root = Some(root);
    ex.physical.entry.is_some()
}

/// Finds what is at the physical path; splits off path info where a file stands in for a
/// directory.
async fn look_up(ex: &mut Exchange) -> Result<(), Fault> {
    hold_root(ex).await?;
    match look_up_path(ex).await {
        Ok(entry) => {
            ex.physical.entry = Some(entry);
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            Box::pin(split_path_info(ex)).await
        }
        Err(error) => Err(file_fault(ex, &error)),
    }
}

/// The stat cache's answer for `docroot/rel`, whatever it takes.
pub async fn look_up_path(ex: &Exchange) -> std::io::Result<Rc<Entry>> {
    let core = &ex.settings.core;
    let root = ex.physical.root.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
    let noatime = ex.settings.server.use_noatime;
    // A trailing slash is not part of a name: `a.txt/` is looked up as the file, and refused below.
    let rel = ex.physical.rel.as_slice();
    let trimmed = rel.strip_suffix(b"/").unwrap_or(rel);
    let entry = match ex.services.stat_cache.lookup(root, trimmed, core.follow_symlink, noatime) {
        Lookup::Ready(result) => result?,
        Lookup::Wait(future) => future.await?,
    };
    if trimmed.len() < rel.len() && entry.meta().kind != FileKind::Directory {
        return Err(std::io::ErrorKind::NotADirectory.into());
    }
    Ok(entry)
}

async fn open_root(ex: &mut Exchange) -> Result<Rc<lighty_io::file::Root>, Fault> {
    let opened = Box::pin(ex.services.open_root(&ex.physical.docroot)).await;
    match opened {
        Ok(root) => Ok(root),
        Err(error) if Fault::of_file_error(&error) == Fault::DescriptorsExhausted => {
            Err(Fault::DescriptorsExhausted)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Fault::NotFound),
        // An alias of a file, with more path behind it.
        Err(error)
            if error.kind() == std::io::ErrorKind::NotADirectory && ex.physical.step_out() =>
        {
            Box::pin(open_root(ex)).await
        }
        Err(error) => {
            ex.log_fault(Fault::NoDocumentRoot, &error.to_string());
            Err(Fault::NoDocumentRoot)
        }
    }
}

/// `/a.php/b/c`: walks up to the longest prefix that exists; if that is a file, the rest is its
/// path info.
async fn split_path_info(ex: &mut Exchange) -> Result<(), Fault> {
    if !ex.settings.core.pathinfo {
        return Err(Fault::NotFound);
    }
    let whole = std::mem::take(&mut ex.physical.rel);
    let mut end = whole.len();
    while let Some(slash) = whole[..end].iter().rposition(|b| *b == b'/') {
        end = slash;
        ex.physical.rel = whole[..end].to_vec();
        match look_up_path(ex).await {
            Ok(entry) if entry.meta().kind == FileKind::File => {
                ex.physical.path_info = whole[end..].to_vec();
                ex.physical.entry = Some(entry);
                return Ok(());
            }
            Ok(_) => break,
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {}
            Err(error) => return Err(file_fault(ex, &error)),
        }
    }
    ex.physical.rel = whole;
    Err(Fault::NotFound)
}

/// A directory's URL ends with a slash, or relative links in its pages would go wrong: 301 to that
/// form, query kept. The path is the normalised one, so it begins with a single slash and cannot
/// name another host.
fn redirect_to_slash(ex: &mut Exchange) -> bool {
    if !is_directory(ex) || ex.request.path.ends_with(b"/") {
        return false;
    }
    let mut location = Vec::new();
    let named = ex.settings.core.server_name.as_deref().unwrap_or_default().as_bytes();
    let authority = Some(&*ex.request.authority).filter(|host| !host.is_empty()).unwrap_or(named);
    if ex.settings.server.absolute_dir_redirect && !authority.is_empty() {
        location.extend_from_slice(ex.request.scheme.as_bytes());
        location.extend_from_slice(b"://");
        location.extend_from_slice(authority);
    }
    lighty_http::uri::encode_path(&ex.request.path, &mut location);
    location.push(b'/');
    location.extend_from_slice(&ex.request.target[ex.request.path_end..]);
    // RFC 9110 section 15.4.9: other methods than GET and HEAD must not become GET.
    let keeps_method = !ex.request.method.is_some_and(Method::is_get_or_head);
    let status = if keeps_method { Status::PERMANENT_REDIRECT } else { Status::MOVED_PERMANENTLY };
    ex.response.restart(status);
    ex.response.answered = true;
    ex.response.fields.push_known(Known::Location, location);
    true
}

fn file_fault(ex: &Exchange, error: &std::io::Error) -> Fault {
    let fault = Fault::of_file_error(error);
    if fault == Fault::DiskError {
        ex.log_fault(fault, &error.to_string());
    }
    fault
}

fn fail_look_up(ex: &mut Exchange, fault: Fault) -> Pass {
    ex.fail(fault);
    Pass::Answered
}

/// The error handler's URL, where one is set for the status.
fn wants_error_handler(ex: &Exchange) -> Option<Arc<str>> {
    let status = ex.response.status;
    if status.code() < 400 || ex.error_status.is_some() || !ex.response.body_is_default() {
        return None;
    }
    let core = &ex.settings.core;
    let for_404 =
        matches!(status.code(), 403 | 404).then_some(()).and(core.error_handler_404.clone());
    for_404.or_else(|| core.error_handler.clone())
}

/// The fields that belong to an error itself, whatever page is shown: what a 405 allows (RFC 9110
/// section 15.5.6), the length that a 416 is about (section 15.5.17), how a 401 and a 407 are
/// overcome (sections 15.5.2 and 15.5.8), when a 503 or 429 may be over (section 10.2.3).
pub fn keep_owed(from: &Fields, to: &mut Fields) {
    use Known as K;
    let owed = [K::Allow, K::ContentRange, K::WwwAuthenticate, K::ProxyAuthenticate, K::RetryAfter];
    for name in owed {
        from.get_all(name).for_each(|value| to.push_known(name, value));
    }
}

/// Restarts the request with the error handler's URL; `false` where that is none.
fn call_error_handler(ex: &mut Exchange, handler: &str) -> bool {
    ex.error_status = Some(ex.response.status);
    // What was to go with a good answer does not go with the error.
    ex.carried.clear();
    ex.rewriting = Rewriting::default();
    if ex.set_target(handler.as_bytes()).is_err() {
        return false;
    }
    if !ex.request.is_head() {
        ex.request.method = Some(Method::Get);
    }
    begin_again(ex);
    true
}

/// `server.error-handler` keeps the status of the error; `server.error-handler-404` lets a script
/// choose, but a static page stays what it stands for.
fn keep_error_status(ex: &mut Exchange) {
    let Some(original) = ex.error_status else { return };
    let is_static = matches!(ex.handler, "mod_staticfile" | "");
    let by_404 =
        matches!(original.code(), 403 | 404) && ex.settings.core.error_handler_404.is_some();
    if ex.response.status.code() < 300 && (is_static || !by_404) {
        ex.response.status = original;
        ex.response.fields.append(&ex.owed);
    }
}

/// An error answer without a body gets its page: `server.errorfile-prefix`, else a built-in one.
async fn fill_error_page(ex: &mut Exchange) {
    if let Some(prefix) = ex.settings.core.errorfile_prefix.clone() {
        let path = format!("{prefix}{}.html", ex.response.status.code());
        let read = Box::pin(ex.services.engine.run(move || read_error_file(&path)));
        if let Ok(page) = read.await {
            let status = ex.response.status;
            ex.response.set_text(status, "text/html", page);
            return;
        }
    }
    crate::response::default_error_page(&mut ex.response);
}

/// Bytes of an error page at most: it is read into memory.
const ERROR_PAGE_BYTES_MAX: u64 = 1024 * 1024;

fn read_error_file(path: &str) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut page = Vec::new();
    std::fs::File::open(path)?.take(ERROR_PAGE_BYTES_MAX).read_to_end(&mut page)?;
    Ok(page)
}
