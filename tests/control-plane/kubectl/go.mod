module muster.dev/tests/control-plane/kubectl

go 1.26.0

godebug default=go1.26

require (
	k8s.io/component-base v0.37.1
	k8s.io/kubectl v0.37.1
)
