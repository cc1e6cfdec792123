module github.com/plumbline/plumbline/tools/longhorn-manager

go 1.26.0

// Only its custom resource definitions are used, in tests.
require github.com/longhorn/longhorn-manager v1.6.0
