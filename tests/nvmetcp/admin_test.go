package nvmetcp

import (
	"bytes"
	"testing"
)

func admin(opcode byte, namespace uint32, long uint32, read int) Command {
	e := newCommand(opcode)
	le.PutUint32(e[4:], namespace)
	le.PutUint32(e[40:], long)
	return Command{entry: e, Read: read}
}

// What Linux requests as it connects, and what is not supported.
func TestAdmin(t *testing.T) {
	target := startTarget(t, Options{Disk: newFile(t)})
	h := connect(t, target, 1, HostOptions{})
	list := make([]byte, identifyLength)
	list[0] = namespaceID
	descriptor := make([]byte, identifyLength)
	copy(descriptor, append([]byte{descriptorUUID, 16, 0, 0}, target.uuid()...))
	nothing := make([]byte, identifyLength)
	ofZones := admin(adminIdentify, namespaceID, identifyNamespaceOfSet, identifyLength)
	ofZones.entry[47] = 2
	for _, c := range []struct {
		what string
		Command
		data   []byte
		result uint64
		want   Status
	}{
		{"the namespaces", admin(adminIdentify, 0, identifyNamespaces, identifyLength), list, 0, Success},
		{"those after the last", admin(adminIdentify, namespaceID, identifyNamespaces, identifyLength), nothing, 0, Success},
		{"a namespace's names", admin(adminIdentify, namespaceID, identifyDescriptors, identifyLength), descriptor, 0, Success},
		{"another namespace", admin(adminIdentify, 2, identifyNamespace, identifyLength), nil, 0, InvalidNamespace | DoNotRetry},
		{"its names", admin(adminIdentify, 2, identifyDescriptors, identifyLength), nil, 0, InvalidNamespace | DoNotRetry},
		{"limits of the command set", admin(adminIdentify, 0, identifyControllerOfSet, identifyLength), nothing, 0, Success},
		{"those of zones", ofZones, nil, 0, InvalidField | DoNotRetry},
		{"what there is not", admin(adminIdentify, namespaceID, 0x1c, identifyLength), nil, 0, InvalidField | DoNotRetry},
		{"the number of queues", admin(adminGetFeatures, 0, featureQueues, 0), nil, 0, Success},
		{"a log", admin(adminGetLogPage, everyNamespace, 0x007f0002, 512), make([]byte, 512), 0, Success},
		{"a sign of life", admin(adminKeepAlive, 0, 0, 0), nil, 0, Success},
		{"an abort, which is not done", admin(adminAbort, 0, 0, 0), nil, 1, Success},
		{"an unknown opcode", admin(0x70, 0, 0, 0), nil, 0, InvalidOpcode | DoNotRetry},
	} {
		task, err := h.admin.do(c.Command)
		if c.want == Success && (err != nil || task.result != c.result || !bytes.Equal(task.data, c.data)) || c.want != Success && err != c.want {
			t.Errorf("%s: %v, %d, % x", c.what, err, task.result, task.data)
		}
	}
}
