//! One question to one extender: gather, call, read.

use std::sync::Arc;

use muster_core::framework::MAX_EXTENDER_SCORE;
use muster_core::io::{ExtenderReply, NodeVictims, Scores};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::{info, warn};

use super::client::{Extender, Failure, Verb};
use super::wire::{self, Args, BindingArgs, NodeList, PreemptionArgs, Victims};
use super::{Asked, Shared};

/// A question that could not even be put, in people's words.
type Gathered<T> = Result<T, String>;

impl Shared {
    pub(super) async fn filter(
        &self,
        asked: &Asked,
        extender: &Extender,
        nodes: &[Arc<str>],
    ) -> ExtenderReply {
        let answer = self.about_nodes(asked, extender, Verb::Filter, nodes).await;
        let by_name = extender.node_cache_capable;
        self.read(extender, Verb::Filter, answer, |body| wire::filter_result(body, by_name))
    }

    pub(super) async fn prioritize(
        &self,
        asked: &Asked,
        extender: &Extender,
        nodes: &[Arc<str>],
    ) -> Scores {
        let answer = self.about_nodes(asked, extender, Verb::Prioritize, nodes).await;
        let mut scores = Vec::new();
        let read = self.read(extender, Verb::Prioritize, answer, |body| {
            scores = wire::scores(body)?;
            Ok(ExtenderReply::Prioritized(Vec::new()))
        });
        if let ExtenderReply::Failed { error, .. } = read {
            let (pod, url) = (&asked.pod, &extender.url);
            info!(%pod, extender = %url, "no score given by this extender: {error}");
            return Err(error);
        }
        let beyond = scores.iter().filter(|(_, s)| !(0..=MAX_EXTENDER_SCORE).contains(s)).count();
        if beyond > 0 {
            self.metrics.extender_out_of_range(&extender.url, beyond);
        }
        Ok(scores)
    }

    /// Asks about a pod and nodes.
    async fn about_nodes(
        &self,
        asked: &Asked,
        extender: &Extender,
        verb: Verb,
        names: &[Arc<str>],
    ) -> Result<Vec<u8>, Failure> {
        let until = Instant::now() + extender.timeout;
        let body = async {
            let pod = self.pod(asked, until).await?;
            let whole = self.table.read().nodes.clone();
            let full = match &whole {
                Some(store) if !extender.node_cache_capable => {
                    Some(store.get(names, &self.pods, until).await?)
                }
                _ => None,
            };
            let nodes = full.as_deref().map(NodeList::new);
            let node_names = full.is_none().then_some(names);
            let args = Args { pod: &pod, nodes, node_names };
            serde_json::to_vec(&args).map_err(|e| e.to_string())
        };
        extender.call(verb, body.await.map_err(Failure::NotSent)?).await
    }

    async fn pod(&self, asked: &Asked, until: Instant) -> Gathered<Arc<RawValue>> {
        self.pods.of_attempt(&asked.pod, asked.attempt, until).await
    }

    pub(super) async fn preempt(
        &self,
        asked: &Asked,
        extender: &Extender,
        candidates: &[NodeVictims],
    ) -> ExtenderReply {
        let until = Instant::now() + extender.timeout;
        let body = async {
            let pod = self.pod(asked, until).await?;
            let mut args = PreemptionArgs {
                pod: &pod,
                node_name_to_victims: None,
                node_name_to_meta_victims: None,
            };
            if extender.node_cache_capable {
                args.node_name_to_meta_victims = Some(wire::meta_victims(candidates));
                return serde_json::to_vec(&args).map_err(|e| e.to_string());
            }
            let each = self.pods.of_candidates(candidates, until).await?;
            let victims = candidates.iter().zip(each).map(|(candidate, pods)| {
                (&*candidate.node, Victims { pods, violations: candidate.violations })
            });
            args.node_name_to_victims = Some(victims.collect());
            serde_json::to_vec(&args).map_err(|e| e.to_string())
        };
        let answer = match body.await {
            Ok(body) => extender.call(Verb::Preempt, body).await,
            Err(error) => Err(Failure::NotSent(error)),
        };
        self.read(extender, Verb::Preempt, answer, wire::preemption_result)
    }

    pub(super) async fn bind(
        &self,
        asked: &Asked,
        extender: &Extender,
        node: &str,
    ) -> ExtenderReply {
        // It writes on our behalf: only while we may.
        let leads = self.leadership.may_write_until().is_some_and(|until| until > Instant::now());
        let answer = match serde_json::to_vec(&BindingArgs::new(&asked.pod, node)) {
            Ok(body) if leads => extender.call(Verb::Bind, body).await,
            Ok(_) => Err(Failure::NotSent(muster_core::outbox::NOT_LEADING.to_owned())),
            Err(error) => Err(Failure::NotSent(error.to_string())),
        };
        self.read(extender, Verb::Bind, answer, wire::binding_result)
    }

    /// Reads an answer; what cannot be read is a failure.
    fn read(
        &self,
        extender: &Extender,
        verb: Verb,
        answer: Result<Vec<u8>, Failure>,
        read: impl FnOnce(&[u8]) -> Result<ExtenderReply, serde_json::Error>,
    ) -> ExtenderReply {
        let (result, reply) = match answer.map(|body| read(&body)) {
            Ok(Ok(reply @ ExtenderReply::Failed { .. })) => ("error", reply),
            Ok(Ok(reply)) => ("success", reply),
            Ok(Err(wrong)) => {
                let address = extender.address(verb);
                let error =
                    format!("cannot decode the answer of the extender at URL {address}: {wrong}");
                ("malformed", ExtenderReply::Failed { error: error.into(), in_doubt: true })
            }
            Err(failure) => {
                let (error, in_doubt) = (failure.to_string().into(), failure.in_doubt());
                (failure.result(), ExtenderReply::Failed { error, in_doubt })
            }
        };
        extender.count(verb, result);
        if let ExtenderReply::Failed { error, .. } = &reply {
            warn!(extender = %extender.url, verb = verb.name(), ignorable = extender.ignorable,
                "an extender failed: {error}");
        }
        reply
    }
}
