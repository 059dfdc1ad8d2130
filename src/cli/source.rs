//! Where the objects come from that a question is about: a live cluster, or a file.
//!
//! Owns the listing, with the rights of whoever asks, the profiles that are asked, and which
//! namespace is meant. Must never write.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use muster_api::k8s::Time;
use muster_core::Profile;

use super::capture::collect;
use super::explain::read;
use super::live::LiveArgs;
use super::print::Output;
use crate::capture::Listed;
use crate::config::Configuration;
use crate::explain::{Document, read_documents};
use crate::plugin::Registry;
use crate::whatif::World;

/// Where objects come from.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct SourceArgs {
    /// File of Kubernetes objects (JSON or YAML: a List, or several documents; `muster capture`
    /// writes one), or - for standard input, instead of a live cluster
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    pub(super) cluster: Option<PathBuf>,

    #[command(flatten)]
    pub(super) live: LiveArgs,
}

impl SourceArgs {
    /// All objects. Notes on what is left out go to standard error.
    pub(super) fn world(&self) -> Result<World> {
        let world = match &self.cluster {
            Some(path) => {
                let text = read(path)?;
                let documents = read_documents(&text);
                let world = documents.and_then(|documents| World::new(documents, None));
                world.with_context(|| path.display().to_string())?
            }
            None => self.live()?,
        };
        for (kind, n) in &world.skipped {
            eprintln!("muster: note: skipped {n} of kind {kind}: nothing reads it");
        }
        Ok(world)
    }

    fn live(&self) -> Result<World> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (items, notes) = runtime.block_on(async {
            let client = self.live.client().await?;
            collect(&client, Listed::read).await
        })?;
        for note in notes {
            eprintln!("muster: note: {note}");
        }
        let documents: Vec<Document> = items.into_iter().enumerate().map(Document::of).collect();
        let now = Time(jiff::Timestamp::now().as_microsecond());
        World::new(documents, Some(now))
    }
}

/// What every listing takes: how it is printed, and of what.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct ListingArgs {
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: Output,

    /// Without headings
    #[arg(long)]
    no_headers: bool,

    #[command(flatten)]
    pub(super) source: SourceArgs,
}

impl ListingArgs {
    /// Whether columns have headings.
    pub(super) fn headings(&self) -> bool {
        !self.no_headers
    }
}

/// Which namespace is meant.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct NamespaceArgs {
    /// The namespace [default: that of the context, or default]
    #[arg(short, long, value_name = "NAME")]
    pub(super) namespace: Option<String>,
}

/// Which namespaces are meant.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct NamespacesArgs {
    #[command(flatten)]
    pub(super) one: NamespaceArgs,

    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(super) all_namespaces: bool,
}

impl NamespaceArgs {
    /// The namespace, as kubectl finds it.
    pub(super) fn name(&self, source: &SourceArgs) -> String {
        let of_context = || source.cluster.is_none().then(|| source.live.namespace()).flatten();
        self.namespace.clone().or_else(of_context).unwrap_or_else(|| "default".to_owned())
    }
}

impl NamespacesArgs {
    /// The namespace; none if all are meant.
    pub(super) fn name(&self, source: &SourceArgs) -> Option<String> {
        (!self.all_namespaces).then(|| self.one.name(source))
    }
}

/// Which scheduler is asked.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct ProfileArgs {
    /// The scheduler's KubeSchedulerConfiguration; without it the default plugins hold
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The scheduler's name, if there is no --config
    #[arg(long, value_name = "NAME", default_value = "muster", conflicts_with = "config")]
    scheduler_name: String,
}

impl ProfileArgs {
    /// Its profiles.
    pub(super) fn profiles(&self, registry: &Registry) -> Result<Vec<Profile>> {
        let Some(path) = &self.config else {
            return Ok(vec![Profile::default_named(&self.scheduler_name)]);
        };
        let plugins = registry.plugins();
        let configuration = Configuration::parse_with(path, &read(path)?, plugins)?;
        let profiles = configuration.core_profiles(plugins)?;
        if profiles.is_empty() {
            bail!("{}: it has no profile", path.display());
        }
        Ok(profiles)
    }
}
