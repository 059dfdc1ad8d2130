//! Questions to a live cluster, with the rights of whoever asks.
//!
//! Owns which kubeconfig is used (as kubectl does) and how objects are listed.
//! Must never write.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use kube::api::ListParams;
use kube::config::Kubeconfig;
use kube::{Api, Client};

use crate::client;
use crate::watch::{Guarded, PAGE, Watched};

/// How to reach the cluster.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct LiveArgs {
    /// How to reach the API server [default: $KUBECONFIG, ~/.kube/config, or the
    /// pod's own service account]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,
}

impl LiveArgs {
    /// A client for short calls.
    pub(super) async fn client(&self) -> Result<Client> {
        let config = client::load_as_user(self.kubeconfig.as_deref(), self.context.as_deref());
        Ok(client::calling(&config.await?)?)
    }

    /// The namespace of the context, if it names one.
    pub(super) fn namespace(&self) -> Option<String> {
        let file = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let file = file.ok()?;
        let wanted = self.context.as_ref().or(file.current_context.as_ref())?;
        let context = file.contexts.iter().find(|context| context.name == *wanted)?;
        context.context.as_ref()?.namespace.clone()
    }
}

/// Lists all objects of a kind, page by page. Returns how many could not be read;
/// `None`: the server does not know the kind.
pub(super) async fn list<T: Watched>(
    client: &Client,
    fields: Option<&str>,
    mut each: impl FnMut(&T),
) -> Result<Option<usize>> {
    let api = Api::<Guarded<T>>::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    if let Some(fields) = fields.or(T::FIELDS) {
        params = params.fields(fields);
    }
    let mut malformed = 0;
    loop {
        let page = match api.list(&params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            page => page.map_err(words).with_context(|| format!("cannot list {}", T::PLURAL))?,
        };
        for guarded in &page.items {
            match &guarded.object {
                Ok(object) => each(object),
                Err(_) => malformed += 1,
            }
        }
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => params = params.continue_token(&token),
            _ => return Ok(Some(malformed)),
        }
    }
}

/// The server's own words, if there are any.
pub(super) fn words(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow!("{}", status.message),
        other => anyhow!(client::chain(&other)),
    }
}
