//! Writes this server's own entries as a proxy.

use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::net::IpAddr;

use super::node::{Node, NodeName, NodePort, is_obfuscated};
use crate::appender::Appender;
use crate::fields::is_token_byte;
use crate::quoted::is_text;
use crate::{Fields, Known, decimal};

/// Entry about a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewElement<'a> {
    /// The client.
    pub for_node: Option<Node<'a>>,
    /// The address that the client connected to.
    pub by: Option<Node<'a>>,
    /// The requested `Host`.
    pub host: Option<&'a [u8]>,
    /// `http` or `https`.
    pub proto: Option<&'a [u8]>,
}

/// Reason for not writing an element. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// An obfuscated name that is not `_` and letters, digits, `.`, `_`, `-`.
    Obfuscated,
    /// A control character.
    Control,
}

impl fmt::Display for WriteFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Obfuscated => "an obfuscated name with characters that it cannot have",
            Self::Control => "a control character in a value",
        })
    }
}

impl core::error::Error for WriteFault {}

/// Appends `for=192.0.2.1;host=a.example;proto=https`, without missing values.
///
/// # Errors
/// [`WriteFault`]; `out` is then unchanged.
pub fn push_element(element: &NewElement<'_>, out: &mut Vec<u8>) -> Result<(), WriteFault> {
    let start = out.len();
    push_pairs(element, start, out).inspect_err(|_| out.truncate(start))
}

/// Appends an element after the entries of earlier proxies. All lines become one.
///
/// # Errors
/// [`WriteFault`]; `fields` is then unchanged.
pub fn append_forwarded(fields: &mut Fields, element: &NewElement<'_>) -> Result<(), WriteFault> {
    let mut value = joined(fields, Known::Forwarded);
    push_element(element, &mut value)?;
    fields.set(Known::Forwarded, value);
    Ok(())
}

/// Appends an address after the entries of earlier proxies. All lines become one.
pub fn append_x_forwarded_for(fields: &mut Fields, client: IpAddr) {
    let mut value = joined(fields, Known::XForwardedFor);
    push_display(client.to_canonical(), &mut value);
    fields.set(Known::XForwardedFor, value);
}

/// Joins all lines of a field, with a comma at the end if there are any.
fn joined(fields: &Fields, name: Known) -> Vec<u8> {
    let mut value = Vec::new();
    for line in fields.get_all(name).filter(|line| !line.is_empty()) {
        value.extend_from_slice(line);
        value.extend_from_slice(b", ");
    }
    value
}

fn push_pairs(element: &NewElement<'_>, start: usize, out: &mut Vec<u8>) -> Result<(), WriteFault> {
    for (name, node) in [("for", element.for_node), ("by", element.by)] {
        if let Some(node) = node {
            let mut text = Vec::new();
            push_node(&node, &mut text)?;
            push_pair(name, &text, start, out)?;
        }
    }
    for (name, value) in [("host", element.host), ("proto", element.proto)] {
        if let Some(value) = value {
            push_pair(name, value, start, out)?;
        }
    }
    Ok(())
}

fn push_pair(name: &str, value: &[u8], start: usize, out: &mut Vec<u8>) -> Result<(), WriteFault> {
    if out.len() > start {
        out.push(b';');
    }
    out.extend_from_slice(name.as_bytes());
    out.push(b'=');
    push_value(value, out)
}

/// Appends a token unchanged, anything else in quotes: RFC 7239 section 4, RFC 9110 section 5.6.4.
fn push_value(value: &[u8], out: &mut Vec<u8>) -> Result<(), WriteFault> {
    if !value.is_empty() && value.iter().all(|&byte| is_token_byte(byte)) {
        out.extend_from_slice(value);
        return Ok(());
    }
    out.push(b'"');
    for &byte in value {
        if !is_text(byte) {
            return Err(WriteFault::Control);
        }
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
    Ok(())
}

/// `192.0.2.1`, `[2001:db8::1]:80`, `unknown`, `_hidden:_port`: section 6.
fn push_node(node: &Node<'_>, out: &mut Vec<u8>) -> Result<(), WriteFault> {
    match node.name {
        NodeName::Ip(ip) => match ip.to_canonical() {
            IpAddr::V4(ip) => push_display(ip, out),
            IpAddr::V6(ip) => push_display(format_args!("[{ip}]"), out),
        },
        NodeName::Unknown => out.extend_from_slice(b"unknown"),
        NodeName::Obfuscated(name) => push_obfuscated(name, out)?,
    }
    match node.port {
        None => {}
        Some(NodePort::Number(port)) => {
            out.push(b':');
            decimal::push(u64::from(port), out);
        }
        Some(NodePort::Obfuscated(name)) => {
            out.push(b':');
            push_obfuscated(name, out)?;
        }
    }
    Ok(())
}

fn push_obfuscated(name: &[u8], out: &mut Vec<u8>) -> Result<(), WriteFault> {
    if !is_obfuscated(name) {
        return Err(WriteFault::Obfuscated);
    }
    out.extend_from_slice(name);
    Ok(())
}

fn push_display(value: impl fmt::Display, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    let _ = write!(Appender(out), "{value}");
}
