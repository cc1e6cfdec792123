// Package nvmetcp is a small NVMe/TCP target in user space, and a small initiator for tests on machines whose kernel
// has none.
//
// Both are fakes: they are built from the published specifications (NVM Express Base, NVM Command Set, NVMe over TCP
// Transport), because no target in user space, such as SPDK's, can be had here. The target is what Linux' own initiator
// accepts, and no more. It has one subsystem with one namespace, its controllers last as long as their admin queue, and
// it does not end one whose host is silent.
package nvmetcp

import "encoding/binary"

// BlockSize is that of the target's namespace.
const BlockSize = 512

// namespaceID is the only namespace's.
const namespaceID = 1

var le = binary.LittleEndian
