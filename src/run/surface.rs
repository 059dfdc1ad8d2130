//! What the HTTP surface may ask of the running scheduler.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::Shutdown;
use super::owner::{Listed, Message, Question};
use crate::config::Configuration;
use crate::serve::Surface;
use crate::shard::NodeSelector;

/// The owner answers between two batches; longer than this it is stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pods explained at a time.
pub(super) const EXPLANATIONS: usize = 2;

pub(super) struct Status {
    pub(super) mailbox: mpsc::Sender<Message>,
    pub(super) listed: Arc<Listed>,
    pub(super) stop: Shutdown,
    /// What `/configz` shows: the configuration in force.
    pub(super) configz: Arc<Mutex<Value>>,
    /// Turns to explain a pod: [`EXPLANATIONS`] at a time.
    pub(super) explanations: Arc<Semaphore>,
}

/// What `/configz` shows. The shard is a flag, and no field of the configuration.
pub(super) fn configz(configuration: &Configuration, nodes: Option<&NodeSelector>) -> Value {
    let mut shown = configuration.configz();
    if let Some(nodes) = nodes {
        shown["muster"] = json!({"nodeSelector": nodes.as_str()});
    }
    shown
}

/// Asks the owner and waits for its answer.
pub(super) async fn ask<T>(
    mailbox: &mpsc::Sender<Message>,
    question: impl FnOnce(oneshot::Sender<T>) -> Question,
) -> Result<T, String> {
    let (answer, heard) = oneshot::channel();
    let asked = mailbox.send(Message::Ask(question(answer)));
    let both = async {
        asked.await.map_err(|_| "the scheduler has ended".to_owned())?;
        heard.await.map_err(|_| "the scheduler has ended".to_owned())
    };
    match tokio::time::timeout(PATIENCE, both).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("the scheduler did not answer within {PATIENCE:?}")),
    }
}

fn view<T: serde::Serialize + Send + 'static>(
    mailbox: mpsc::Sender<Message>,
    question: impl FnOnce(oneshot::Sender<T>) -> Question + Send + 'static,
) -> BoxFuture<'static, Value> {
    async move {
        match ask(&mailbox, question).await {
            Ok(view) => {
                serde_json::to_value(view).unwrap_or_else(|e| json!({"error": e.to_string()}))
            }
            Err(error) => json!({ "error": error }),
        }
    }
    .boxed()
}

impl Surface for Status {
    fn ready(&self) -> Result<(), String> {
        if self.stop.is_set() {
            return Err("the scheduler is ending".to_owned());
        }
        if self.listed.all() { Ok(()) } else { Err("pods and nodes are not listed yet".to_owned()) }
    }

    fn configz(&self) -> Value {
        self.configz.lock().clone()
    }

    fn debug_queue(&self) -> BoxFuture<'static, Value> {
        view(self.mailbox.clone(), Question::Queue)
    }

    fn debug_cache(&self) -> BoxFuture<'static, Value> {
        view(self.mailbox.clone(), Question::Cache)
    }

    fn debug_explain(
        &self,
        namespace: String,
        name: String,
    ) -> BoxFuture<'static, Result<Option<Value>, String>> {
        let (mailbox, turns) = (self.mailbox.clone(), Arc::clone(&self.explanations));
        async move {
            // Held until the answer is there: a copy of the state is not small.
            let _turn = turns.acquire().await.map_err(|e| e.to_string())?;
            let asked = ask(&mailbox, |answer| Question::Explain(namespace, name, answer));
            let Some(question) = asked.await? else {
                return Ok(None);
            };
            let explain = move || serde_json::to_value(question.explain());
            let answer = tokio::task::spawn_blocking(explain).await.map_err(|e| e.to_string())?;
            answer.map(Some).map_err(|e| e.to_string())
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configz_shows_the_shard_beside_the_configuration() {
        let configuration = Configuration::default();
        let nodes: NodeSelector = "pool = a".parse().unwrap();
        let mut shown = configz(&configuration, Some(&nodes));
        assert_eq!(shown["muster"].take(), json!({"nodeSelector": "pool=a"}));
        shown.as_object_mut().unwrap().remove("muster");
        assert_eq!(shown, configz(&configuration, None));
        assert_eq!(shown, configuration.configz());
    }
}
