module github.com/plumbline/plumbline/tools/cloudnative-pg

go 1.26.0

// Only its custom resource definitions are used, in tests.
require github.com/cloudnative-pg/cloudnative-pg v1.25.0
