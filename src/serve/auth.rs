//! Who may read metrics and debug pages: the API server decides.
//!
//! Owns: asking it (TokenReview, then SubjectAccessReview, as kube-scheduler's
//! delegated authentication and authorisation) and remembering the answer for a
//! short while. Must never: let anybody in when it cannot be asked; log a token.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// How long an answer holds; upstream's, for yes and no.
const REMEMBER: Duration = Duration::from_secs(10);
/// How many answers are remembered.
const MAX_REMEMBERED: usize = 1_024;
/// How long both reviews together may take.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// How many requests are reviewed at once; others wait.
const MAX_REVIEWS: usize = 8;

const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const AUTHENTICATED: &str = "system:authenticated";

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Yes.
    Allowed,
    /// The token is not good.
    Unauthorized,
    /// The token is good but not for this; the message says so.
    Forbidden(String),
}

/// Nobody could be asked whether the token's owner may do this.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unavailable(String);

/// Token (none is anonymous), verb, path.
type Question = (Option<String>, String, String);

pub(super) struct Authority {
    client: kube::Client,
    answers: Mutex<HashMap<Question, (Verdict, Instant)>>,
    reviews: Semaphore,
}

impl Authority {
    pub(super) fn new(client: kube::Client) -> Self {
        Self { client, answers: Mutex::default(), reviews: Semaphore::new(MAX_REVIEWS) }
    }

    /// Whether the owner of the token may do this.
    pub(super) async fn check(
        &self,
        token: Option<&str>,
        verb: &str,
        path: &str,
    ) -> Result<Verdict, Unavailable> {
        let question = (token.map(str::to_owned), verb.to_owned(), path.to_owned());
        if let Some(verdict) = self.remembered(&question) {
            return Ok(verdict);
        }
        let asked = timeout(REVIEW_TIMEOUT, async {
            // Never closed, so this cannot fail.
            let _turn = self.reviews.acquire().await;
            self.ask(token, verb, path).await
        });
        let verdict = asked
            .await
            .map_err(|_| Unavailable(format!("no review within {REVIEW_TIMEOUT:?}")))??;
        self.remember(question, verdict.clone());
        Ok(verdict)
    }

    fn remembered(&self, question: &Question) -> Option<Verdict> {
        let answers = self.answers.lock();
        let (verdict, until) = answers.get(question)?;
        (Instant::now() < *until).then(|| verdict.clone())
    }

    fn remember(&self, question: Question, verdict: Verdict) {
        let now = Instant::now();
        let mut answers = self.answers.lock();
        if answers.len() >= MAX_REMEMBERED {
            answers.retain(|_, (_, until)| now < *until);
            // Somebody tries many tokens: forget them all.
            if answers.len() >= MAX_REMEMBERED {
                answers.clear();
            }
        }
        answers.insert(question, (verdict, now + REMEMBER));
    }

    async fn ask(
        &self,
        token: Option<&str>,
        verb: &str,
        path: &str,
    ) -> Result<Verdict, Unavailable> {
        let user = match token {
            None => UserInfo {
                username: Some(ANONYMOUS.to_owned()),
                groups: Some(vec![UNAUTHENTICATED.to_owned()]),
                ..UserInfo::default()
            },
            Some(token) => match self.authenticate(token).await {
                Some(user) => user,
                None => return Ok(Verdict::Unauthorized),
            },
        };
        self.authorize(user, verb, path).await
    }

    /// The owner of a token. As upstream, a failure to ask is a refusal; but it
    /// is not told apart from a bad token to who asks.
    async fn authenticate(&self, token: &str) -> Option<UserInfo> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let status = match api.create(&PostParams::default(), &review).await {
            Ok(review) => review.status?,
            Err(error) => {
                tracing::warn!(%error, "tokens cannot be reviewed; may this account create tokenreviews?");
                return None;
            }
        };
        let mut user = status.user.filter(|_| status.authenticated == Some(true))?;
        let groups = user.groups.get_or_insert_default();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Some(user)
    }

    async fn authorize(
        &self,
        user: UserInfo,
        verb: &str,
        path: &str,
    ) -> Result<Verdict, Unavailable> {
        let name = user.username.clone().unwrap_or_default();
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some(verb.to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await.map_err(|error| {
            tracing::warn!(%error, "access cannot be reviewed; may this account create subjectaccessreviews?");
            Unavailable("access cannot be reviewed".to_owned())
        })?;
        let status = answer.status.unwrap_or_default();
        if status.allowed && status.denied != Some(true) {
            return Ok(Verdict::Allowed);
        }
        let reason = status.reason.filter(|reason| !reason.is_empty());
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let message = sanitized(&format!("User {name:?} cannot {verb} path {path:?}"));
        Ok(Verdict::Forbidden(format!("forbidden: {message}{reason}")))
    }
}

/// An error must not look like HTML.
fn sanitized(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The token of an `Authorization` header, if it is one of a bearer.
pub(super) fn bearer(header: Option<&str>) -> Option<&str> {
    let (scheme, rest) = header?.trim().split_once(' ')?;
    let token = rest.split(' ').next().filter(|token| !token.is_empty())?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}
