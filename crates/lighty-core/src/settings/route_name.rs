//! The operator's name for a request's route.

use std::sync::Arc;

use crate::module_settings;

/// `status.route`, used in metrics and traces; empty: no name.
#[derive(Clone, Debug)]
pub struct RouteName(pub Arc<str>);

impl Default for RouteName {
    fn default() -> Self {
        Self("".into())
    }
}
module_settings!(RouteName);
