//! Optional APIs: watched where they are served and we may read them.

use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use muster_core::io::Input;
use tracing::{info, warn};

use super::{Guarded, Sink, Watched, stream};
use crate::run::Message;

/// How often an API that is not there is looked for again.
const PROBE_AGAIN: Duration = Duration::from_secs(30);
/// How often a probe that got no answer is repeated before the rest goes on
/// without the kind.
const TRIES: u32 = 5;
/// Pause between such probes.
const PAUSE: Duration = Duration::from_secs(1);

/// As [`stream::follow`], once the API is there. Until then the kind, and members of it
/// that have ended, count as listed and empty, so that nothing waits for them: nothing is
/// decided before every kind is listed. A pod judged without its claims would be told
/// that they do not exist, and what is left of a gang without its ended members would be
/// passed by others.
pub(super) async fn follow_optional<T: Watched>(client: kube::Client, sink: Sink) {
    let api = Api::<Guarded<T>>::all(client.clone());
    let (mut told, mut failures) = (false, 0);
    loop {
        let pause = match api.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => break,
            Err(kube::Error::Api(status)) if status.code == 404 => {
                if !told {
                    info!(kind = T::NAME, "the API server does not serve this kind: none exist");
                }
                PROBE_AGAIN
            }
            Err(kube::Error::Api(status)) if status.code == 403 => {
                if !told {
                    let problem = &status.message;
                    warn!(
                        kind = T::NAME,
                        "may not be read, going on as if none existed: {problem}"
                    );
                }
                PROBE_AGAIN
            }
            Err(error) => {
                failures += 1;
                warn!(kind = T::NAME, "cannot be probed, trying again in {PAUSE:?}: {error}");
                if failures < TRIES {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                PAUSE
            }
        };
        if !told {
            told = true;
            let kinds = [Some(T::KIND), T::ENDED].into_iter().flatten();
            let empty = kinds.flat_map(|k| [Input::RelistStarted(k), Input::RelistDone(k)]);
            let empty = empty.collect();
            if sink.inputs.send(Message::Inputs(empty)).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(pause).await;
    }
    stream::follow::<T>(client, sink).await;
}
