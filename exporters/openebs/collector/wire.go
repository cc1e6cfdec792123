package collector

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of io-engine's gRPC API v1 that are read here (mayastor-dependencies
// apis/io-engine/protobuf/v1/nexus.proto); the project publishes no Go client.

type nexus struct {
	name, uuid string
	state      uint64
	children   []child
}

// nexusShuttingDown is the first of NexusState's values for a nexus that serves no more; the other one is NEXUS_SHUTDOWN.
const nexusShuttingDown = 4

// serves reports whether the nexus is not shut down and not shutting down.
func (n nexus) serves() bool { return n.state < nexusShuttingDown }

type child struct {
	uri         string
	state       uint64
	stateReason uint64
	progress    int64 // percent; -1 if not being rebuilt
}

type rebuildStats struct {
	total, recovered, transferred, blockSize uint64
	partial                                  bool
}

// fields calls f for each field of a message, with its value as a number or as bytes.
func fields(message []byte, f func(number protowire.Number, value uint64, bytes []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return answerError{fmt.Errorf("message cut short: %w", protowire.ParseError(n))}
		}
		message = message[n:]
		var value uint64
		var bytes []byte
		switch kind {
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return answerError{fmt.Errorf("field %d: %w", number, protowire.ParseError(n))}
		}
		message = message[n:]
		if err := f(number, value, bytes); err != nil {
			return err
		}
	}
	return nil
}

func parseNexusList(message []byte) ([]nexus, error) {
	var list []nexus
	err := fields(message, func(number protowire.Number, _ uint64, bytes []byte) error {
		if number != 1 {
			return nil
		}
		var n nexus
		err := fields(bytes, func(number protowire.Number, value uint64, bytes []byte) error {
			switch number {
			case 1:
				n.name = string(bytes)
			case 2:
				n.uuid = string(bytes)
			case 4:
				n.state = value
			case 5:
				c, err := parseChild(bytes)
				if n.children = append(n.children, c); len(n.children) > maxReplicas {
					return answerError{fmt.Errorf("a nexus has more than %d children", maxReplicas)}
				}
				return err
			}
			return nil
		})
		if list = append(list, n); len(list) > maxNexuses {
			return answerError{fmt.Errorf("more than %d nexuses", maxNexuses)}
		}
		return err
	})
	return list, err
}

func parseChild(message []byte) (child, error) {
	var c child
	err := fields(message, func(number protowire.Number, value uint64, bytes []byte) error {
		switch number {
		case 1:
			c.uri = string(bytes)
		case 2:
			c.state = value
		case 3:
			c.stateReason = value
		case 4:
			c.progress = int64(int32(value))
		}
		return nil
	})
	return c, err
}

func parseRebuildStats(message []byte) (rebuildStats, error) {
	var s rebuildStats
	err := fields(message, func(number protowire.Number, value uint64, _ []byte) error {
		switch number {
		case 1:
			s.total = value
		case 2:
			s.recovered = value
		case 5:
			s.blockSize = value
		case 8:
			s.transferred = value
		case 10:
			s.partial = value != 0
		}
		return nil
	})
	if err == nil && s.recovered > s.total {
		err = answerError{fmt.Errorf("%d of %d blocks recovered", s.recovered, s.total)}
	}
	if err == nil && float64(max(s.total, s.transferred))*float64(s.blockSize) > maxSize {
		err = answerError{fmt.Errorf("%d of %d blocks of %d bytes transferred", s.transferred, s.total, s.blockSize)}
	}
	return s, err
}

// rebuildStatsRequest names a nexus and the child that is being rebuilt.
func rebuildStatsRequest(nexus, uri string) []byte {
	m := protowire.AppendTag(nil, 1, protowire.BytesType)
	m = protowire.AppendString(m, nexus)
	m = protowire.AppendTag(m, 2, protowire.BytesType)
	return protowire.AppendString(m, uri)
}

// rawCodec passes messages through as they are on the wire.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) {
	m, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("cannot send a %T", v)
	}
	return *m, nil
}

func (rawCodec) Unmarshal(data []byte, v any) error {
	m, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("cannot receive into a %T", v)
	}
	*m = append([]byte{}, data...)
	return nil
}
