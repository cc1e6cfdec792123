package iscsipdu

// Op is what a command does, in the order of enum wire_op (exporters/agent/bpf/operation.h).
type Op uint8

// Operations.
const (
	Read Op = iota
	Write
	Unmap
	Sync
	Ping
	OpOther
)

// Where a command of variable length has the last byte of its service action, and the bit in WRITE SAME's second byte
// for unmap.
const (
	serviceAction   = 9
	writeSameUnmaps = 0x08
)

// opOf returns the operation of a command descriptor block, as op_of_command (exporters/agent/bpf/fabric/scsi.h) does.
func opOf(cdb []byte) Op {
	switch cdb[0] {
	case 0x08, 0x28, 0xa8, 0x88: // READ (6), (10), (12), (16)
		return Read
	case 0x0a, 0x2a, 0xaa, 0x8a, // WRITE (6), (10), (12), (16)
		0x2e, 0xae, 0x8e: // WRITE AND VERIFY (10), (12), (16)
		return Write
	case 0x35, 0x91: // SYNCHRONIZE CACHE (10), (16)
		return Sync
	case 0x42: // UNMAP
		return Unmap
	case 0x41, 0x93: // WRITE SAME (10), (16)
		if cdb[1]&writeSameUnmaps != 0 {
			return Unmap
		}
	case 0x7f: // variable length
		switch cdb[serviceAction] {
		case 0x09: // READ (32)
			return Read
		case 0x0b, 0x0c: // WRITE (32), WRITE AND VERIFY (32)
			return Write
		}
	}
	return OpOther
}
