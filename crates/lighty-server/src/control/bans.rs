//! Clients whose connections are refused for a time.

use std::net::IpAddr;

use lighty_core::machine::bans::{BANS_MAX, Ban, BanCause, BanExtent, network};
use lighty_core::machine::status_board::WorkerOrder;
use lighty_io::clock::Clock;
use serde::{Deserialize, Serialize};

use super::diagnosis::seconds;
use super::fault::ControlFault;
use super::message::ControlRequest;
use super::route::read_body;
use super::{ChangeDone, ControlledServer};

/// A banned client.
#[derive(Serialize)]
pub(super) struct BanView {
    /// The address, or the first address of a /64 network of IPv6.
    client: String,
    /// Seconds until the ban ends.
    for_s: i64,
    /// The reason: an operator, or wrong logins.
    cause: BanCause,
    /// The refused traffic: connections, or requests of a client behind a proxy.
    extent: BanExtent,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BanBody {
    client: IpAddr,
    for_s: Option<u32>,
}

/// Lists the bans.
pub(super) fn list(server: &ControlledServer) -> Vec<BanView> {
    let now_s = Clock::start().unix_s();
    let bans = server.plan().shared.board.bans().list(now_s);
    let view = |(client, ban): (IpAddr, Ban)| BanView {
        client: client.to_string(),
        for_s: ban.until_s - now_s,
        cause: ban.cause,
        extent: ban.extent,
    };
    bans.into_iter().map(view).collect()
}

/// Bans a client, and ends its connections.
///
/// # Errors
/// The body is malformed, or there are too many bans.
pub(super) async fn ban(
    server: &ControlledServer,
    request: &ControlRequest,
) -> Result<ChangeDone, ControlFault> {
    let BanBody { client, for_s } = read_body(&request.body)?;
    let (for_s, now_s) = (seconds(for_s)?, Clock::start().unix_s());
    let board = server.plan().shared.board.clone();
    let ban =
        Ban { until_s: now_s + for_s, cause: BanCause::Operator, extent: BanExtent::Connections };
    if !board.bans().add(client, ban, now_s) {
        return Err(ControlFault::Bans { max: BANS_MAX });
    }
    board.order(&WorkerOrder::KillClient(client)).await;
    let what = named(client);
    Ok(ChangeDone { message: format!("connections of {what} are refused for {for_s} s") })
}

/// Ends a ban.
///
/// # Errors
/// The body is malformed, or the client is not banned.
pub(super) fn unban(
    server: &ControlledServer,
    request: &ControlRequest,
) -> Result<ChangeDone, ControlFault> {
    let BanBody { client, .. } = read_body(&request.body)?;
    match server.plan().shared.board.bans().remove(client) {
        true => {
            let what = named(client);
            Ok(ChangeDone { message: format!("{what} is accepted again") })
        }
        false => Err(ControlFault::NoBan(client)),
    }
}

fn named(client: IpAddr) -> String {
    match network(client) {
        IpAddr::V6(net) => format!("{net}/64"),
        ip => ip.to_string(),
    }
}
