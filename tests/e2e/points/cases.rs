//! What must be seen at each extension point.

use super::{CLAIMS, GIVEN_BACK};
use super::{
    Context, FIRST, PersistentVolumeClaim, Result, SECOND, SOON, Stage, Value, annotations, ensure,
    eventually,
};

impl Stage {
    pub(super) async fn order_is_queue_sorts(&self) -> Result<()> {
        for name in ["order-a", "order-b", "order-c"] {
            self.bound(name).await?;
        }
        let order = self.book.order("reserve");
        ensure!(order == ["order-c", "order-b", "order-a"], "tried in order {order:?}");
        Ok(())
    }

    pub(super) async fn all_points_in_order(&self) -> Result<()> {
        self.create("plain").await?;
        // The first plugin's lowest raw score, turned upside down, wins; without
        // Filter it would be node-0, without Normalize node-2.
        let node = self.bound("plain").await?;
        ensure!(node == "node-1", "on {node}");
        self.called("plain", "Second.post_bind", "post_bind").await?;
        let calls = self.book.calls("plain");
        let first = |point: &str| calls.iter().position(|c| c.point == point);
        let last = |point: &str| calls.iter().rposition(|c| c.point == point);
        let points = ["pre_filter", "filter", "score", "reserve", "permit", "pre_bind", "bind"];
        for pair in ["pre_enqueue", "pre_filter", "pre_score", "score"]
            .windows(2)
            .chain(points.windows(2))
            .chain([["bind", "post_bind"]].iter().map(|pair| &pair[..]))
        {
            let (before, after) = (last(pair[0]), first(pair[1]));
            ensure!(
                before.is_some() && before < after,
                "{} not before {}: {calls:?}",
                pair[0],
                pair[1]
            );
        }
        let both = |point: &str| [FIRST, SECOND].map(|plugin| format!("{plugin}.{point}"));
        for point in ["pre_enqueue", "pre_filter", "pre_score", "reserve", "permit", "pre_bind"] {
            let seen = self.book.points("plain", &[point]);
            ensure!(seen == both(point), "{point}: {seen:?}");
        }
        self.check("plain", &["bind"], &["First.bind", "Second.bind"])?;
        self.check("plain", &["post_bind"], &["First.post_bind", "Second.post_bind"])?;
        self.check("plain", &["unreserve"], &[])?;
        // The second has skipped its Score.
        ensure!(!calls.iter().any(|c| c.plugin == SECOND && c.point == "score"), "{calls:?}");
        for point in ["reserve", "permit", "pre_bind", "bind", "post_bind"] {
            let there = calls.iter().filter(|c| c.point == point).all(|c| c.node == "node-1");
            ensure!(there, "{point} saw another node: {calls:?}");
        }
        self.cluster.say("all points in order");
        Ok(())
    }

    pub(super) async fn nodes_are_judged(&self) -> Result<()> {
        for name in ["unfit", "barred", "narrowed", "skipping"] {
            self.create(name).await?;
        }
        let unfit = "0/3 nodes are available: 1 reserved, 2 unfit.";
        self.told("unfit", unfit).await?;
        self.condition("unfit", "Unschedulable", unfit).await?;
        let barred = "0/3 nodes are available: barred by the second.";
        self.told("barred", barred).await?;
        self.condition("barred", "Unschedulable", barred).await?;
        self.check("barred", &["filter", "reserve"], &[])?;
        // The nodes that PreFilter names, and no others; one of them does not exist.
        let node = self.bound("narrowed").await?;
        ensure!(node == "node-2", "on {node}");
        // A PreFilter that skips takes its Filter with it: node-0 is open.
        let node = self.bound("skipping").await?;
        ensure!(node == "node-0", "on {node}");
        self.check("skipping", &["filter"], &[])?;
        self.cluster.say("nodes are judged");
        Ok(())
    }

    pub(super) async fn gates_hold(&self) -> Result<()> {
        self.create("gated").await?;
        self.called("gated", "Second.pre_enqueue", "pre_enqueue").await?;
        // A later pod passes by.
        self.create("ungated").await?;
        self.bound("ungated").await?;
        self.check("gated", &["pre_filter", "reserve"], &[])?;
        let pod = self.cluster.get_pod("gated").await?;
        ensure!(pod.status.conditions.is_empty(), "a gate is no attempt: {:?}", pod.status);
        self.book.open("gate");
        // The event for which the plugin asked to look again.
        self.patch("/api/v1/namespaces/default/pods/gated", r#"{"metadata":{"labels":{"a":"b"}}}"#)
            .await?;
        self.bound("gated").await?;
        self.cluster.say("gates hold");
        Ok(())
    }

    async fn patch(&self, path: &str, body: &str) -> Result<()> {
        let request = http::Request::patch(path)
            .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
            .body(body.as_bytes().to_vec())?;
        self.cluster.admin.request_text(request).await?;
        Ok(())
    }

    pub(super) async fn reserve_is_undone(&self) -> Result<()> {
        self.create("reserve-rejects").await?;
        self.create("reserve-fails").await?;
        let rejected = "0/1 nodes are available: 1 no seat.";
        self.told("reserve-rejects", rejected).await?;
        self.condition("reserve-rejects", "Unschedulable", rejected).await?;
        self.given_back("reserve-rejects").await?;
        self.check("reserve-rejects", &["permit", "pre_bind"], &[])?;
        // An error is tried again, and works the second time.
        self.told("reserve-fails", r#"running Reserve plugin "Second": the book is lost"#).await?;
        self.bound("reserve-fails").await?;
        let mut expected = GIVEN_BACK.to_vec();
        expected.extend(["First.reserve", "Second.reserve"]);
        self.check("reserve-fails", &["reserve", "unreserve"], &expected)?;
        self.cluster.say("what was reserved is given back");
        Ok(())
    }

    pub(super) async fn permit_decides(&self) -> Result<()> {
        let waiting = ["permit-waits", "permit-refused", "permit-deleted"];
        for name in ["permit-rejects", "permit-times-out"].into_iter().chain(waiting) {
            self.create(name).await?;
        }
        let told = [
            ("permit-rejects", "0/1 nodes are available: 1 not you."),
            (
                "permit-times-out",
                "0/1 nodes are available: 1 rejected due to timeout after waiting 1s at plugin \
                 First.",
            ),
        ];
        for (name, message) in told {
            self.told(name, message).await?;
            self.condition(name, "Unschedulable", message).await?;
            self.given_back(name).await?;
            self.check(name, &["pre_bind", "bind"], &[])?;
            self.expected(name, "").await?;
        }
        for name in waiting {
            self.called(name, "Second.permit", "permit").await?;
            // Whoever waits says where it will be.
            self.expected(name, "node-1").await?;
        }
        // One verdict of two is not enough.
        self.verdict("permit-waits", FIRST, Ok(())).await?;
        self.verdict("permit-refused", FIRST, Err("refused by the board")).await?;
        let refused = "0/1 nodes are available: 1 refused by the board.";
        self.told("permit-refused", refused).await?;
        self.given_back("permit-refused").await?;
        self.expected("permit-refused", "").await?;
        self.check("permit-waits", &["pre_bind", "unreserve"], &[])?;
        ensure!(self.cluster.get_pod("permit-waits").await?.spec.node_name.is_empty(), "bound");
        self.verdict("permit-waits", SECOND, Ok(())).await?;
        self.bound("permit-waits").await?;
        // Who is gone holds nothing.
        let path = "/api/v1/namespaces/default/pods/permit-deleted";
        let request = http::Request::delete(path).body(Vec::new())?;
        self.cluster.admin.request_text(request).await?;
        self.given_back("permit-deleted").await?;
        self.cluster.say("permit decides");
        Ok(())
    }

    pub(super) async fn pre_bind_prepares(&self) -> Result<()> {
        let parked = ["prebind-parks", "prebind-stale", "prebind-waits-in-vain"];
        for name in ["prebind-fails", "prebind-rejects"].into_iter().chain(parked) {
            self.create(name).await?;
        }
        // Written by the plugin's request, and not bound before it has come about.
        eventually("given a node", SOON, || async {
            let claims: Vec<PersistentVolumeClaim> = self.cluster.list(CLAIMS).await?;
            let claim = claims.iter().find(|c| c.metadata.name == "prebind-parks");
            let node = claim.and_then(|c| c.metadata.annotations.get(annotations::SELECTED_NODE));
            Ok(node.is_some_and(|node| node == "node-1"))
        })
        .await?;
        self.called("prebind-parks", "First.settled", "settled").await?;
        self.expected("prebind-parks", "node-1").await?;
        self.check("prebind-parks", &["bind", "unreserve"], &[])?;
        self.book.open("prebind-parks");
        self.bound("prebind-parks").await?;
        let once = &["First.pre_bind", "First.resume", "Second.pre_bind"];
        self.check("prebind-parks", &["pre_bind", "resume"], once)?;
        // Each of the others fails once, gives back, and works the second time.
        for (name, note) in [
            ("prebind-fails", r#"running PreBind plugin "Second": no disk"#),
            ("prebind-rejects", "no room"),
            ("prebind-stale", r#"running PreBind plugin "First": the claim has changed"#),
            ("prebind-waits-in-vain", r#"running PreBind plugin "First": waited in vain"#),
        ] {
            self.told(name, note).await?;
            self.given_back(name).await?;
            self.bound(name).await?;
        }
        self.check("prebind-stale", &["resume"], &["First.resume"])?;
        self.cluster.say("pre-bind prepares");
        Ok(())
    }

    pub(super) async fn binders_take_turns(&self) -> Result<()> {
        self.create("bind-skipped").await?;
        self.bound("bind-skipped").await?;
        self.called("bind-skipped", "Second.post_bind", "post_bind").await?;
        self.check("bind-skipped", &["bind"], &["First.bind", "Second.bind"])?;
        let path = "/apis/events.k8s.io/v1/namespaces/default/events";
        eventually("recorded as scheduled", SOON, || async {
            let events: Vec<Value> = self.cluster.list(path).await?;
            let note = "Successfully assigned default/bind-skipped to node-1";
            Ok(events.iter().any(|e| e["note"] == note && e["reportingController"] == "probed"))
        })
        .await
        .context("the event")
    }

    pub(super) async fn room_is_made(&self) -> Result<()> {
        self.create("helpless").await?;
        let helpless = "0/3 nodes are available: 1 reserved, 2 helpless. First cannot help, Second \
                        cannot help";
        self.told("helpless", helpless).await?;
        self.condition("helpless", "Unschedulable", helpless).await?;
        let both = &["First.post_filter", "Second.post_filter"];
        self.check("helpless", &["post_filter"], both)?;
        // Those for whom there is room are not looked at.
        self.check("plain", &["post_filter"], &[])?;

        self.create("victim").await?;
        let node = self.bound("victim").await?;
        ensure!(node == "node-2", "the victim is on {node}");
        self.create("makes-room").await?;
        self.expected("makes-room", "node-2").await?;
        let note = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy \
                    plugin(s) [First Second]. the victim goes";
        self.told("makes-room", note).await?;
        // What plugins keep of other pods follows each thought.
        let calls = self.book.calls("makes-room");
        for (plugin, point) in
            [FIRST, SECOND].into_iter().flat_map(|p| [(p, "remove_pod"), (p, "add_pod")])
        {
            let thought = |c: &&super::book::Call| c.plugin == plugin && c.point == point;
            let of_victim = calls.iter().filter(thought).any(|c| c.node == "victim node-2");
            ensure!(of_victim, "{plugin} was not told of {point}: {calls:?}");
        }
        // The victim ends when its kubelet says so; until then nobody is bound.
        eventually("evicted", SOON, || async {
            Ok(self.cluster.get_pod("victim").await?.metadata.deletion_timestamp.is_some())
        })
        .await?;
        let pod = self.cluster.get_pod("makes-room").await?;
        ensure!(pod.spec.node_name.is_empty(), "bound while the victim was there");
        let path = "/api/v1/namespaces/default/pods/victim?gracePeriodSeconds=0";
        let request = http::Request::delete(path).body(Vec::new())?;
        self.cluster.admin.request_text(request).await?;
        let node = self.bound("makes-room").await?;
        ensure!(node == "node-2", "on {node}");
        self.cluster.say("room is made");
        Ok(())
    }
}
