//! `acme` of a build without the feature: the configuration has no managed certificates.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use lighty_config::{Config, Diagnostic};
use lighty_core::Settings;
use lighty_core::log::Log;
use lighty_core::machine::status_board::Statistics;
use lighty_io::tls::{Materials, OnDemandPairs};

/// Names that clients request and that are not in the configuration; none may have a certificate.
#[derive(Clone, Debug, Default)]
pub struct Demand;

impl Demand {
    pub(crate) fn is_on(&self) -> bool {
        false
    }

    pub(crate) async fn certificate(&self, _: &str, _: Option<IpAddr>) {}
}

/// The service thread, which this build does not have.
pub(crate) struct Service;

impl Service {
    pub(crate) fn follow(&mut self, _: Option<Plan>) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn stop(&mut self) {}

    pub(crate) fn figures(&self) -> NoFigures {
        NoFigures
    }
}

/// Figures of the thread: none.
pub(crate) struct NoFigures;

/// Figures for the status page: none.
pub(crate) struct AcmeFigures(pub NoFigures);

impl Statistics for AcmeFigures {
    fn collect(&self, _: &mut Vec<(String, String)>) {}
}

/// The thread's work; this build has none.
pub struct Plan {
    /// The directory of certificates.
    pub store: Store,
}

/// A directory of certificates; uninhabited in this build.
pub enum Store {}

impl Store {
    pub(crate) fn prepare(&self, _: Option<(u32, u32)>) -> io::Result<()> {
        match *self {}
    }

    /// Checks that the directory can be made.
    pub fn try_place(&self) -> io::Result<()> {
        match *self {}
    }
}

/// Returns `None`: this build maintains no certificates.
pub fn plan(_: &Config<Settings>, _: &OnDemandPairs) -> Option<Plan> {
    None
}

pub(crate) fn service(_: &Log, _: &Demand) -> Service {
    Service
}

pub(crate) fn has_managed(_: &Config<Settings>, _: &Materials) -> bool {
    false
}

/// Names and file of a managed certificate.
pub(crate) type ManagedPair = (Arc<[String]>, Arc<str>);

#[expect(clippy::unnecessary_wraps, reason = "as in a build with it")]
pub(crate) fn managed(
    _: &Config<Settings>,
    _: &Materials,
) -> Result<Vec<ManagedPair>, Vec<Diagnostic>> {
    Ok(Vec::new())
}

pub(crate) fn proof(_: &Settings, _: &str) -> Option<PathBuf> {
    None
}

/// Returns no findings.
pub fn check(_: &Config<Settings>) -> Vec<Diagnostic> {
    Vec::new()
}
