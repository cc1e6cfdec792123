package nvmetcp

import (
	"crypto/sha256"
	"encoding/hex"
)

// What Identify can request (CNS).
const (
	identifyNamespace       = 0x00
	identifyController      = 0x01
	identifyNamespaces      = 0x02
	identifyDescriptors     = 0x03
	identifyNamespaceOfSet  = 0x05
	identifyControllerOfSet = 0x06
)

const (
	identifyLength = 4096
	everyNamespace = 0xffffffff
	nvmCommandSet  = 0
	descriptorUUID = 3
)

// What the target reports on itself.
const (
	model              = "Plumbline test target"
	firmware           = "1"
	controllerOfIO     = 1
	keepAliveSteps     = 10     // of 100 ms
	discards           = 1 << 2 // optional commands
	writesOfZeroes     = 1 << 3
	sglSupported       = 1 << 0 // descriptors of data
	sglByOffset        = 1 << 20
	severalControllers = 1 << 1 // of the subsystem
	shared             = 1 << 0 // the namespace, by controllers
	entrySizes         = 0x66   // of submission queues
	completionSizes    = 0x44   // and of completion queues
)

// identify returns the page that Identify requests.
func (c *connection) identify(q command) ([]byte, Status) {
	page := make([]byte, identifyLength)
	switch q.byte(40) {
	case identifyController:
		c.describeController(page)
	case identifyNamespace:
		if n := q.namespace(); n != namespaceID && n != everyNamespace {
			return nil, InvalidNamespace | DoNotRetry
		}
		c.describeNamespace(page)
	case identifyNamespaces:
		if q.namespace() < namespaceID {
			le.PutUint32(page, namespaceID)
		}
	case identifyDescriptors:
		if q.namespace() != namespaceID {
			return nil, InvalidNamespace | DoNotRetry
		}
		page[0], page[1] = descriptorUUID, 16
		copy(page[4:], c.target.uuid())
	case identifyNamespaceOfSet, identifyControllerOfSet:
		if q.byte(47) != nvmCommandSet { // what it has of its own is zero: no limits
			return nil, InvalidField | DoNotRetry
		}
	default:
		return nil, InvalidField | DoNotRetry
	}
	return page, Success
}

func (c *connection) describeController(b []byte) {
	sum := sha256.Sum256([]byte(c.target.o.NQN))
	pad(b[4:24], hex.EncodeToString(sum[:10]))
	pad(b[24:64], model)
	pad(b[64:72], firmware)
	b[76] = severalControllers
	b[77] = maxTransferPower
	le.PutUint16(b[78:], c.controller.id)
	le.PutUint32(b[80:], version)
	b[111] = controllerOfIO
	b[258] = 3 // commands that are aborted at once, at most, less 1
	b[259] = maxEvents - 1
	b[260] = 1<<1 | 1 // one slot of firmware, which cannot be written
	le.PutUint16(b[320:], keepAliveSteps)
	b[512], b[513] = entrySizes, completionSizes
	le.PutUint16(b[514:], queueSize)
	le.PutUint32(b[516:], namespaceID)
	le.PutUint16(b[520:], discards|writesOfZeroes)
	b[525] = 1 // a volatile write cache
	le.PutUint32(b[536:], sglSupported|sglByOffset)
	copy(b[768:1024], c.target.o.NQN)
	le.PutUint32(b[1792:], (commandLength+inCapsule)/16)
	le.PutUint32(b[1796:], completionLength/16)
	b[1803] = 1 // descriptors of data in a command
}

func (c *connection) describeNamespace(b []byte) {
	blocks := uint64(c.target.o.Size / BlockSize)
	for _, at := range []int{0, 8, 16} { // size, capacity, use
		le.PutUint64(b[at:], blocks)
	}
	b[30] = shared
	copy(b[104:], c.target.uuid()) // NGUID
	b[130] = 9                     // the only format: 2 to the power of it is BlockSize
}

// uuid is the namespace's, the same wherever it is served.
func (t *Target) uuid() []byte {
	sum := sha256.Sum256([]byte("namespace of " + t.o.NQN))
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	return b
}

// pad fills a field with text and spaces.
func pad(b []byte, text string) {
	for i := copy(b, text); i < len(b); i++ {
		b[i] = ' '
	}
}
