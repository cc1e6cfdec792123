// Package e2e runs Plumbline on a real Kubernetes node: API server, kubelet, containerd, a
// storage provisioner, the Prometheus operator and a PostgreSQL, all in namespaces of their own
// on this machine. Its tests need the build tag e2e, see `make e2e-kubernetes`.
package e2e
