//! Describes the members of a collection while reading them. Only a few hundred per level are in
//! memory, however large the collection is.

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lighty_buf::Chunk;
use lighty_core::{BodyChunk, BodyStream};
use lighty_io::file::tree::{CanonicalPath, Extent, TREE_DEPTH_MAX, Tree, is_staging};
use lighty_io::file::{DirEntry, FileEngine, FileKind, Follow, ReadDir, Root};
use lighty_io::threads::pool::{Lane, ThreadPool};

use super::dav_error::{DavError, status_of};
use super::live::{Describer, ResourceFacts};
use super::multistatus;
use super::resource::{Resource, join, listed};
use super::store::{Described, Store};

/// Bytes of the response rendered at a time.
const SLICE_BYTES: usize = 32 * 1024;

/// Members looked up in the database at a time.
const MEMBERS_PER_LOOK: usize = 64;

/// A walk through a collection.
pub(super) struct Walk {
    engine: FileEngine,
    root: Rc<Root>,
    tree: Tree,
    follow: Follow,
    store: Option<Store>,
    describer: Describer,
    extent: Extent,
    /// Members to leave out, relative to the document root.
    hidden: HashSet<Vec<u8>>,
    /// Links on the path to the collection.
    links: Vec<Vec<u8>>,
    /// Collections being read, the innermost last.
    levels: Vec<WalkLevel>,
    /// Members of the innermost collection to describe next.
    members: VecDeque<DirEntry>,
    /// Stored data of the first of these members.
    known: VecDeque<Described>,
    /// The member collection to enter after them.
    into: Option<Vec<u8>>,
    out: Vec<u8>,
    ended: bool,
}

/// A collection being read.
struct WalkLevel {
    dir: ReadDir,
    batch: std::vec::IntoIter<DirEntry>,
    rel: Vec<u8>,
    key: Vec<u8>,
    url: Vec<u8>,
    /// Staging files, possibly left by interrupted uploads.
    staging: Vec<Vec<u8>>,
}

impl Walk {
    /// Begins a walk; `out` holds the response so far.
    pub(super) async fn begin(
        engine: FileEngine,
        resource: &Resource,
        store: Option<Store>,
        describer: Describer,
        (extent, hidden): (Extent, HashSet<Vec<u8>>),
        out: Vec<u8>,
    ) -> Result<Self, DavError> {
        let mut walk = Self {
            engine,
            root: Rc::clone(&resource.root),
            tree: resource.tree.clone(),
            follow: follow(resource),
            store,
            describer,
            extent,
            hidden,
            levels: Vec::new(),
            members: VecDeque::new(),
            known: VecDeque::new(),
            links: resource.canonical.links.clone(),
            into: None,
            out,
            ended: false,
        };
        walk.enter(resource.rel.clone(), resource.canonical.path.clone(), resource.url.clone())
            .await?;
        Ok(walk)
    }

    async fn enter(&mut self, rel: Vec<u8>, key: Vec<u8>, url: Vec<u8>) -> io::Result<()> {
        let dir = self.engine.read_dir(&self.root, &rel, self.follow).await?;
        let batch = Vec::new().into_iter();
        self.levels.push(WalkLevel { dir, batch, rel, key, url, staging: Vec::new() });
        Ok(())
    }

    /// Returns the next slice of the response; `None` at its end.
    async fn slice(&mut self) -> Slice {
        while self.out.len() < SLICE_BYTES && !self.ended {
            self.step().await?;
        }
        let out = std::mem::take(&mut self.out);
        Ok((!out.is_empty()).then_some(out))
    }

    async fn step(&mut self) -> io::Result<()> {
        if !self.members.is_empty() {
            return self.describe().await;
        }
        match self.into.take() {
            None => {}
            Some(name) if self.is_link(&name).await? => return Ok(()),
            Some(name) => return self.descend(&name).await,
        }
        let Some(level) = self.levels.last_mut() else {
            multistatus::end("multistatus", &mut self.out);
            self.ended = true;
            return Ok(());
        };
        if level.batch.len() == 0 {
            match level.dir.next_batch().await? {
                Some(batch) => level.batch = batch.into_iter(),
                None => self.leave(),
            }
            return Ok(());
        }
        self.take_members();
        Ok(())
    }

    /// Returns true if a collection is a link. Links may form circles.
    async fn is_link(&self, name: &[u8]) -> io::Result<bool> {
        let Some(level) = self.levels.last().filter(|_| self.follow != Follow::None) else {
            return Ok(false);
        };
        let (tree, rel) = (self.tree.clone(), join(&level.rel, name));
        let looked = ThreadPool::global().run_anyhow(Lane::Stat, move || tree.look(&rel)).await?;
        Ok(looked.is_ok_and(|meta| meta.kind == FileKind::Symlink))
    }

    /// Takes the next members, up to a collection to enter after them.
    fn take_members(&mut self) {
        debug_assert!(self.known.is_empty() && self.into.is_none(), "members are left");
        let Some(level) = self.levels.last_mut() else { return };
        while self.members.len() < MEMBERS_PER_LOOK && self.into.is_none() {
            let Some(entry) = level.batch.next() else { break };
            if is_staging(&entry.name) {
                level.staging.push(entry.name);
                continue;
            }
            // The server rejects this name in URLs: the member could not be requested individually.
            if !self.describer.settings.server.parse.accepts_segment(&entry.name) {
                continue;
            }
            if !self.hidden.is_empty() && self.hidden.contains(&join(&level.rel, &entry.name)) {
                continue;
            }
            let enters = self.extent == Extent::Tree && entry.meta.kind == FileKind::Directory;
            self.into = enters.then(|| entry.name.clone());
            if matches!(entry.meta.kind, FileKind::File | FileKind::Directory) {
                self.members.push_back(entry);
            }
        }
    }

    /// Describes members until the slice is full.
    async fn describe(&mut self) -> io::Result<()> {
        if self.known.is_empty() {
            self.known = self.look_up().await?.into();
        }
        let Some(level) = self.levels.last() else { return Ok(()) };
        debug_assert!(self.known.len() <= self.members.len(), "{} described", self.known.len());
        while self.out.len() < SLICE_BYTES {
            let Some(known) = self.known.pop_front() else { break };
            let Some(entry) = self.members.pop_front() else { break };
            let url = [&*level.url, b"/", &entry.name].concat();
            let url = listed(&url, entry.meta.kind);
            let known = &known;
            let resource = ResourceFacts { url: &url, name: &entry.name, meta: &entry.meta, known };
            self.describer.push(&resource, &mut self.out);
        }
        Ok(())
    }

    /// Looks up the stored data of the members, or of the first of them.
    async fn look_up(&self) -> io::Result<Vec<Described>> {
        let Some((level, store)) = self.levels.last().zip(self.store.as_ref()) else {
            return Ok(vec![Described::default(); self.members.len()]);
        };
        let (canonical_paths, now_s) =
            (self.canonical_paths(level).await?, self.describer.lock_now_s);
        let known = store.read(move |db| db.describe(&canonical_paths, now_s)).await?;
        match known.is_empty() {
            true => Err(io::Error::other("webdav: the database describes nothing")),
            false => Ok(known),
        }
    }

    /// Returns the canonical paths of the members: paths in this collection, unless links are
    /// followed.
    async fn canonical_paths(&self, level: &WalkLevel) -> io::Result<Vec<CanonicalPath>> {
        let of = |path| CanonicalPath { path, links: self.links.clone() };
        let names = self.members.iter().map(|entry| &entry.name);
        if self.follow == Follow::None {
            return Ok(names.map(|name| of(join(&level.key, name))).collect());
        }
        let rels: Vec<_> =
            names.map(|name| (join(&level.rel, name), of(join(&level.key, name)))).collect();
        let tree = self.tree.clone();
        let found = move || {
            // A member that was removed meanwhile keeps its path here.
            let found = |(rel, here): (Vec<u8>, _)| tree.whereabouts_through(&rel).unwrap_or(here);
            rels.into_iter().map(found).collect()
        };
        ThreadPool::global().run_anyhow(Lane::Stat, found).await
    }

    async fn descend(&mut self, name: &[u8]) -> io::Result<()> {
        let Some(level) = self.levels.last() else { return Ok(()) };
        let url = [&*level.url, b"/", name].concat();
        let (rel, key) = (join(&level.rel, name), join(&level.key, name));
        let entered = match self.levels.len() >= TREE_DEPTH_MAX {
            true => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
            false => self.enter(rel, key, url.clone()).await,
        };
        match entered {
            Ok(()) => Ok(()),
            // The collection was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => {
                let url = listed(&url, FileKind::Directory);
                multistatus::push_outcome(&url, status_of(&error), None, &mut self.out);
                Ok(())
            }
        }
    }

    /// Leaves a collection at its end. Removes staging files left by a crash.
    fn leave(&mut self) {
        let Some(level) = self.levels.pop().filter(|level| !level.staging.is_empty()) else {
            return;
        };
        let tree = self.tree.clone();
        // If no thread is available, the next listing does it.
        let _ =
            ThreadPool::global().spawn(Lane::Write, move || tree.sweep(&level.rel, &level.staging));
    }
}

type Slice = io::Result<Option<Vec<u8>>>;

/// Response body that streams a walk.
pub(super) struct Walking(WalkState);

enum WalkState {
    Idle(Box<Walk>),
    Busy(Pin<Box<dyn Future<Output = (Box<Walk>, Slice)>>>),
    Ended,
}

impl Walking {
    pub(super) fn new(walk: Walk) -> Self {
        Self(WalkState::Idle(Box::new(walk)))
    }
}

impl BodyStream for Walking {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        loop {
            match &mut self.0 {
                WalkState::Ended => return Poll::Ready(None),
                WalkState::Idle(_) => {
                    let WalkState::Idle(mut walk) =
                        std::mem::replace(&mut self.0, WalkState::Ended)
                    else {
                        return Poll::Ready(None);
                    };
                    self.0 = WalkState::Busy(Box::pin(async move {
                        // Let other tasks run between slices.
                        tokio::task::yield_now().await;
                        let slice = walk.slice().await;
                        (walk, slice)
                    }));
                }
                WalkState::Busy(future) => {
                    let (walk, slice) = ready!(future.as_mut().poll(cx));
                    self.0 = WalkState::Ended;
                    return Poll::Ready(match slice {
                        Ok(None) => None,
                        Ok(Some(slice)) => {
                            self.0 = WalkState::Idle(walk);
                            Some(Ok(Chunk::Memory(Bytes::from(slice))))
                        }
                        Err(error) => Some(Err(error.into())),
                    });
                }
            }
        }
    }

    fn poll_meanwhile(&mut self, _: &mut Context<'_>) -> bool {
        false
    }
}

/// Returns the policy for links in a listing: they never lead out of the document root.
pub(super) fn follow(resource: &Resource) -> Follow {
    match (resource.own().opts.propfind_follow_symlink, resource.settings.core.follow_symlink) {
        (false, _) | (true, Follow::None) => Follow::None,
        (true, Follow::All | Follow::Beneath) => Follow::Beneath,
    }
}
