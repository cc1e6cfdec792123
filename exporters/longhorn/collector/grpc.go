package collector

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/plumbline/plumbline/exporters/exporterkit/rpc"
)

// Reasons of a failed poll, the values of the label "reason".
const (
	reasonTimeout     = "timeout"
	reasonUnavailable = "unavailable"
	reasonTLS         = "tls"
	reasonIdentity    = "identity"
	reasonAnswer      = "answer"
	reasonOther       = "other"
)

const (
	// maxAnswer bounds an answer, in bytes. A replica with Longhorn's most snapshots, 250, needs some 50 KiB.
	maxAnswer = 4 << 20
	// maxHeader bounds the headers of an answer, which carry the text of an error.
	maxHeader = 64 << 10
	// maxReplicas bounds the replicas of an engine; Longhorn allows 20.
	maxReplicas = 64
	// maxSnapshots bounds a replica's snapshots; Longhorn allows 250.
	maxSnapshots = 10_000
	// maxSize bounds a size in bytes: an exbibyte.
	maxSize = 1 << 60
	// maxLogged bounds a peer's text in the log.
	maxLogged = 512
)

var reasons = []string{reasonTimeout, reasonUnavailable, reasonTLS, reasonIdentity, reasonAnswer, reasonOther}

// answerError is returned if a remote side answers with impossible values.
type answerError struct{ text string }

func (e answerError) Error() string { return e.text }

func badAnswer(format string, args ...any) error {
	return answerError{fmt.Sprintf(format, args...)}
}

func reasonOf(err error) string {
	var answer answerError
	if errors.As(err, &answer) {
		return reasonAnswer
	}
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		return reasonTimeout
	case codes.ResourceExhausted:
		return reasonAnswer // larger than maxAnswer
	case codes.Unavailable:
		if strings.Contains(err.Error(), "authentication handshake failed") {
			return reasonTLS
		}
		return reasonUnavailable
	case codes.FailedPrecondition:
		// Longhorn's answer to a call that names another volume or instance.
		return reasonIdentity
	}
	return reasonOther
}

// dial returns a connection that connects when first used, and again soon after the other
// side comes back. volume and instance, if not empty, travel with every call so that a
// process that took over a dead one's port refuses to answer for it.
func dial(address string, creds credentials.TransportCredentials, volume, instance string) (*grpc.ClientConn, error) {
	var identity []string
	if volume != "" {
		identity = append(identity, "volume-name", volume)
	}
	if instance != "" {
		identity = append(identity, "instance-name", instance)
	}
	return grpc.NewClient("passthrough:///"+address, append(rpc.Options(),
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithMaxHeaderListSize(maxHeader),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(metadata.AppendToOutgoingContext(ctx, identity...), method, req, reply, cc, opts...)
		}))...)
}

// bareAddress strips what Longhorn may put around host:port.
func bareAddress(address string) string {
	return strings.TrimPrefix(address, "tcp://")
}

// dialer shares connections to instance managers; each one serves a node's volumes.
type dialer struct {
	creds credentials.TransportCredentials

	mu    sync.Mutex
	conns map[string]*shared
}

type shared struct {
	conn  *grpc.ClientConn
	users int
}

func newDialer(config *tls.Config) *dialer {
	d := &dialer{creds: insecure.NewCredentials(), conns: map[string]*shared{}}
	if config != nil {
		d.creds = credentials.NewTLS(config)
	}
	return d
}

// get returns the connection to address and a function that gives it back.
func (d *dialer) get(address string) (*grpc.ClientConn, func(), error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.conns[address]
	if s == nil {
		conn, err := dial(address, d.creds, "", "")
		if err != nil {
			return nil, nil, err
		}
		s = &shared{conn: conn}
		d.conns[address] = s
	}
	s.users++
	return s.conn, sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if s.users--; s.users == 0 {
			s.conn.Close()
			delete(d.conns, address)
		}
	}), nil
}
