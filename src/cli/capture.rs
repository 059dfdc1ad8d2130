//! `muster capture`: what scheduling depends on, from a live cluster to a file.
//!
//! Owns the listing, with the rights of whoever asks, and the file. What is kept of an object
//! is the library's. The file is what `muster explain`, `muster topology` and others read by `--cluster`.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use kube::Client;
use serde_json::{Value, json};

use super::live::{LiveArgs, words};
use crate::capture::{KINDS, Listed, REQUIRED};
use crate::watch::PAGE;

/// Arguments of `muster capture`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  muster capture -f cluster.json\n  \
                        muster explain --cluster cluster.json --pod team/train-0")]
pub(super) struct CaptureArgs {
    /// Where to write it, or - for standard output
    #[arg(short = 'f', long, value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    live: LiveArgs,
}

/// Writes the file.
///
/// # Errors
///
/// If nodes or pods cannot be listed, or the file cannot be written.
pub(super) fn run(args: &CaptureArgs) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (items, notes) = runtime.block_on(async {
        let client = args.live.client().await?;
        collect(&client, Listed::redact).await
    })?;
    for note in notes {
        eprintln!("muster: note: {note}");
    }
    let count = items.len();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let text = serde_json::to_string_pretty(&list)? + "\n";
    if args.file.as_os_str() == "-" {
        match io::stdout().write_all(text.as_bytes()) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {} // `| head` has seen enough
            result => result.context("cannot write the objects")?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let file = args.file.display();
    fs::write(&args.file, text).with_context(|| format!("cannot write {file}"))?;
    println!("{file}: {count} objects, without what containers run and as whom");
    Ok(ExitCode::SUCCESS)
}

/// All objects, and notes on kinds that are left out. `keep`: what is kept of each.
pub(super) async fn collect(
    client: &Client,
    keep: fn(&Listed, &Value) -> Value,
) -> Result<(Vec<Value>, Vec<String>)> {
    let (mut items, mut notes) = (Vec::new(), Vec::new());
    for listed in &KINDS {
        let what = format!("{} ({})", listed.plural, listed.api_version);
        match list(client, listed, keep, &mut items).await {
            Ok(()) => {}
            // Not served: there are none.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(kube::Error::Api(status))
                if status.code == 403 && !REQUIRED.contains(&listed.plural) =>
            {
                notes.push(format!("{what} are left out, you may not list them"));
            }
            Err(error) => return Err(words(error)).context(format!("cannot list {what}")),
        }
    }
    if items.is_empty() {
        bail!("the cluster has neither nodes nor pods: is this the right one? (--context)");
    }
    Ok((items, notes))
}

async fn list(
    client: &Client,
    listed: &Listed,
    keep: fn(&Listed, &Value) -> Value,
    items: &mut Vec<Value>,
) -> kube::Result<()> {
    let mut next = String::new();
    loop {
        let path = format!("{}?limit={PAGE}{next}", listed.path());
        let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let page: Value = client.request(request).await?;
        items.extend(page["items"].as_array().into_iter().flatten().map(|o| keep(listed, o)));
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => next = format!("&continue={token}"),
            _ => return Ok(()),
        }
    }
}
