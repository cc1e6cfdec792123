// Package api has what longhorn-instance-manager reads of engines, replicas and backing images of the V2 data engine.
package api

import "github.com/longhorn/longhorn-spdk-engine/pkg/types"

// Lvol is a snapshot of a replica or an engine.
type Lvol struct {
	Name, Parent, CreationTime, SnapshotTimestamp string
	UserCreated                                   bool
	ActualSize, SpecSize                          uint64
	Children                                      map[string]bool
}

// Replica is a replica of a volume.
type Replica struct {
	Name, UUID, LvsName, LvsUUID, State, ErrorMsg string
	SpecSize, ActualSize                          uint64
	PortStart, PortEnd                            int32
	Head                                          *Lvol
	Snapshots                                     map[string]*Lvol
}

// Engine is the engine of a volume.
type Engine struct {
	Name, VolumeName, State, ErrorMsg, Frontend, Endpoint string
	SpecSize, ActualSize                                  uint64
	Port, TargetPort, StandbyTargetPort                   int32
	ReplicaAddressMap                                     map[string]string
	ReplicaModeMap                                        map[string]types.Mode
	Head                                                  *Lvol
	Snapshots                                             map[string]*Lvol
}

// BackingImage is an image that volumes begin with.
type BackingImage struct {
	Name, BackingImageUUID, LvsUUID, ExpectedChecksum, CurrentChecksum, State, ErrorMsg string
	Size                                                                                uint64
	Progress                                                                            int32
}

// EngineStream would notify of changes of engines.
type EngineStream struct{}

// Recv is never called: no stream is ever made.
func (*EngineStream) Recv() (any, error) { return nil, nil }

// ReplicaStream would notify of changes of replicas.
type ReplicaStream struct{}

// Recv is never called: no stream is ever made.
func (*ReplicaStream) Recv() (any, error) { return nil, nil }

// BackingImageStream would notify of changes of backing images.
type BackingImageStream struct{}

// Recv is never called: no stream is ever made.
func (*BackingImageStream) Recv() (any, error) { return nil, nil }
