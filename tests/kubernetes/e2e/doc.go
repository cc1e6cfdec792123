// Package e2e runs Plumbline on a real Kubernetes node: API server, kubelet, containerd, a
// storage provisioner, the Prometheus operator and a PostgreSQL, all in namespaces of their own
// on this machine; and on three such nodes. Its tests need the build tag e2e, see `make e2e-kubernetes`
// and `make e2e-nodes`.
package e2e
