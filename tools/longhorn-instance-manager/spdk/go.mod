module github.com/longhorn/longhorn-spdk-engine

go 1.26.0

// The Go module proxy does not serve this module, which longhorn-instance-manager requires for volumes of the V2 data engine.
// This one has what it calls, and none of the engine.
require github.com/longhorn/types v0.0.0-20241225162202-00d3a5fd7502

require (
	golang.org/x/net v0.30.0 // indirect
	golang.org/x/sys v0.26.0 // indirect
	golang.org/x/text v0.19.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20241015192408-796eee8c2d53 // indirect
	google.golang.org/grpc v1.68.1 // indirect
	google.golang.org/protobuf v1.35.2 // indirect
)
