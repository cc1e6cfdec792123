// Package client stands for the client of Longhorn's V2 data engine. longhorn-instance-manager needs one to start, and
// calls its methods for volumes of the V2 engine only: each returns an error.
package client

import (
	"errors"

	"github.com/longhorn/longhorn-spdk-engine/pkg/api"
	"github.com/longhorn/types/pkg/generated/spdkrpc"
)

var errUnsupported = errors.New("this build of longhorn-instance-manager has no V2 data engine")

// SPDKClient is a client of nothing.
type SPDKClient struct{}

// NewSPDKClient returns a client, whatever the address: the instance manager calls this when it starts.
func NewSPDKClient(string) (*SPDKClient, error) { return &SPDKClient{}, nil }

// BackupCreateRequest has what a backup is made of.
type BackupCreateRequest struct {
	BackupName, SnapshotName, VolumeName, EngineName, BackupTarget, StorageClassName string
	BackingImageName, BackingImageChecksum, CompressionMethod                        string
	ConcurrentLimit                                                                  int32
	Labels                                                                           []string
	Credential                                                                       map[string]string
}

// BackupRestoreRequest has what a backup is restored from.
type BackupRestoreRequest struct {
	BackupUrl, EngineName string
	Credential            map[string]string
	ConcurrentLimit       int32
}

// What follows fails with errUnsupported, and takes whatever it is called with.

func (*SPDKClient) Close() error                                      { return nil }
func (*SPDKClient) EngineDelete(...any) error                         { return errUnsupported }
func (*SPDKClient) EngineSuspend(...any) error                        { return errUnsupported }
func (*SPDKClient) EngineResume(...any) error                         { return errUnsupported }
func (*SPDKClient) EngineSwitchOverTarget(...any) error               { return errUnsupported }
func (*SPDKClient) EngineDeleteTarget(...any) error                   { return errUnsupported }
func (*SPDKClient) EngineReplicaAdd(...any) error                     { return errUnsupported }
func (*SPDKClient) EngineReplicaDelete(...any) error                  { return errUnsupported }
func (*SPDKClient) EngineSnapshotRevert(...any) error                 { return errUnsupported }
func (*SPDKClient) EngineSnapshotPurge(...any) error                  { return errUnsupported }
func (*SPDKClient) EngineSnapshotDelete(...any) error                 { return errUnsupported }
func (*SPDKClient) EngineBackupRestore(...any) error                  { return errUnsupported }
func (*SPDKClient) ReplicaDelete(...any) error                        { return errUnsupported }
func (*SPDKClient) BackingImageDelete(...any) error                   { return errUnsupported }
func (*SPDKClient) DiskDelete(...any) error                           { return errUnsupported }
func (*SPDKClient) LogSetLevel(...any) error                          { return errUnsupported }
func (*SPDKClient) LogSetFlags(...any) error                          { return errUnsupported }
func (*SPDKClient) EngineCreate(...any) (*api.Engine, error)          { return nil, errUnsupported }
func (*SPDKClient) EngineGet(...any) (*api.Engine, error)             { return nil, errUnsupported }
func (*SPDKClient) EngineList(...any) (map[string]*api.Engine, error) { return nil, errUnsupported }
func (*SPDKClient) EngineWatch(...any) (*api.EngineStream, error)     { return nil, errUnsupported }
func (*SPDKClient) EngineSnapshotCreate(...any) (string, error)       { return "", errUnsupported }
func (*SPDKClient) EngineBackupCreate(...any) (*spdkrpc.BackupCreateResponse, error) {
	return nil, errUnsupported
}
func (*SPDKClient) EngineBackupStatus(...any) (*spdkrpc.BackupStatusResponse, error) {
	return nil, errUnsupported
}
func (*SPDKClient) EngineRestoreStatus(...any) (*spdkrpc.RestoreStatusResponse, error) {
	return nil, errUnsupported
}
func (*SPDKClient) ReplicaCreate(...any) (*api.Replica, error)          { return nil, errUnsupported }
func (*SPDKClient) ReplicaGet(...any) (*api.Replica, error)             { return nil, errUnsupported }
func (*SPDKClient) ReplicaList(...any) (map[string]*api.Replica, error) { return nil, errUnsupported }
func (*SPDKClient) ReplicaWatch(...any) (*api.ReplicaStream, error)     { return nil, errUnsupported }
func (*SPDKClient) ReplicaRebuildingDstShallowCopyCheck(...any) (*spdkrpc.ReplicaRebuildingDstShallowCopyCheckResponse, error) {
	return nil, errUnsupported
}
func (*SPDKClient) BackingImageCreate(...any) (*api.BackingImage, error) { return nil, errUnsupported }
func (*SPDKClient) BackingImageGet(...any) (*api.BackingImage, error)    { return nil, errUnsupported }
func (*SPDKClient) BackingImageList(...any) (map[string]*api.BackingImage, error) {
	return nil, errUnsupported
}
func (*SPDKClient) BackingImageWatch(...any) (*api.BackingImageStream, error) {
	return nil, errUnsupported
}
func (*SPDKClient) DiskCreate(...any) (*spdkrpc.Disk, error) { return nil, errUnsupported }
func (*SPDKClient) DiskGet(...any) (*spdkrpc.Disk, error)    { return nil, errUnsupported }
func (*SPDKClient) LogGetFlags(...any) (string, error)       { return "", errUnsupported }
